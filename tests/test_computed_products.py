"""Products of few rows whose right operand is computed in registers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from autofuse import trace
from autofuse.frontends import array_api as xp
from autofuse.frontends.array_api.tracer import spec
from autofuse.graph.types import Graph
from autofuse.kernel.ir.types import Ahead, Loop, LoopKind, statements
from autofuse.kernel.lower import extract, lower
from autofuse.kernel.render import render_c
from autofuse.kernel.text.c.vectors import vector_lines
from autofuse.plan.types import LaunchConfig
from autofuse.simplify import normal_form
from search_spaces import CpuLaunchSpace
from search_spaces.tile_facts import COLUMNS, TERMS, tile_facts
from tests.support.online_cases import check, launch_of
from tests.support.seeds import examples
from tests.support.tile_programs import whole

GROUP = 16


def by_channel(x: Any, w: Any, s: Any) -> Any:
    """Weights of one scale for each column, term by term."""
    return x @ (w.astype(xp.float32) * s[:, None]).T


def by_group(x: Any, w: Any, s: Any) -> Any:
    """Weights of a scale for each run of terms of a column."""
    wide, columns = w.astype(xp.float32).reshape(w.shape[0], -1, GROUP), w.shape[0]
    return x @ (wide * s[:, :, None]).reshape(columns, -1).T


def nibbles(x: Any, w: Any, s: Any) -> Any:
    """Two terms a byte, the first in its lower half."""
    halves = xp.stack([w & 15, w >> 4], axis=-1).reshape(w.shape[0], -1, GROUP)
    wide = (halves.astype(xp.float32) - 8.0) * s[:, :, None]
    return x @ wide.reshape(w.shape[0], -1).T


def by_columns(x: Any, w: Any, s: Any) -> Any:
    """Weights that lie column next to column."""
    return x @ (w.astype(xp.float32) * s)


def narrow_steps(x: Any, w: Any, s: Any) -> Any:
    """Arithmetic that leaves the range of bytes before they become numbers."""
    moved = -(w * w + w) - 7
    return x @ (moved.astype(xp.float32) * s[:, None]).T


def weights(function: Any, rows: int, columns: int, terms: int, dtype: str) -> Graph:
    """The graph of a program of rows by weights of a type."""
    packed = {nibbles: 2}.get(function, 1)
    shape = (terms, columns) if function is by_columns else (columns, terms // packed)
    scales = {by_group: (columns, terms // GROUP), nibbles: (columns, terms // GROUP)}
    given_scales = spec(scales.get(function, (columns,)))
    return normal_form(trace(function, spec((rows, terms)), spec(shape, dtype), given_scales))


def vector_loops(graph: Graph, launch: LaunchConfig) -> list[Loop]:
    kernel = lower(extract(graph, whole(graph))[0], launch)
    loops = (s for s in statements(kernel.body) if isinstance(s, Loop))
    return [s for s in loops if s.kind is LoopKind.VECTOR]


ALONG = st.fixed_dictionaries(
    {
        "micro": st.sampled_from(("1x1", "1x4", "1x8", "2x2", "2x4", "4x1", "4x2", "8x1")),
        "row_block": st.sampled_from((1, 4, 64)),
        "column_block": st.sampled_from((0, 8, 64)),
        "vector_bits": st.sampled_from((256, 512)),
    }
)


@pytest.mark.parametrize("dtype", ["i8", "u8", "i16", "u16", "i32", "bf16"])
@settings(max_examples=examples(2), deadline=None)
@given(sizes=st.tuples(st.integers(1, 9), st.integers(2, 40), st.integers(2, 150)), chosen=ALONG)
@example(sizes=(3, 17, 77), chosen={"micro": "2x4", "vector_bits": 256})
def test_weights_are_widened_along_terms(
    dtype: str, sizes: tuple[int, int, int], chosen: dict[str, int | str]
) -> None:
    check(weights(by_channel, *sizes, dtype), launch_of(dot=True, pack=False, **chosen))


@pytest.mark.parametrize("function", [by_group, nibbles, narrow_steps])
@settings(max_examples=examples(3), deadline=None)
@given(sizes=st.tuples(st.integers(1, 9), st.integers(2, 40), st.integers(1, 8)), chosen=ALONG)
@example(sizes=(1, 24, 4), chosen={"micro": "1x4", "vector_bits": 256})
def test_terms_are_walked_in_levels(
    function: Any, sizes: tuple[int, int, int], chosen: dict[str, int | str]
) -> None:
    rows, columns, groups = sizes
    dtype = "i8" if function is not nibbles else "u8"
    graph = weights(function, rows, columns, groups * GROUP, dtype)
    check(graph, launch_of(dot=True, pack=False, **chosen))


@settings(max_examples=examples(6), deadline=None)
@given(
    sizes=st.tuples(st.integers(1, 9), st.integers(2, 150), st.sampled_from((16, 32, 64))),
    dtype=st.sampled_from(("i8", "u8", "bf16")),
    micro=st.sampled_from(("1x64", "4x24", "6x16", "2x64")),
    terms=st.sampled_from((8, 16)),
    bits=st.sampled_from((256, 512)),
)
@example(sizes=(4, 100, 32), dtype="i8", micro="6x16", terms=8, bits=256)
def test_weights_are_widened_along_columns(
    sizes: tuple[int, int, int], dtype: str, micro: str, terms: int, bits: int
) -> None:
    graph = weights(by_columns, *sizes, dtype)
    launch = launch_of(pack=False, term_block=terms, micro=micro, vector_bits=bits)
    if sizes[2] > terms and sizes[1] >= 16:
        assert vector_loops(graph, launch)
    check(graph, launch)


@pytest.mark.parametrize("function", [by_channel, by_group, nibbles, by_columns])
def test_few_rows_of_weights_come_first_as_vectors_that_are_written_out(function: Any) -> None:
    dtype = "u8" if function is nibbles else "i8"
    graph = weights(function, 1, 256, 512, dtype)
    launch = CpuLaunchSpace(256).default(graph, whole(graph))
    loops = vector_loops(graph, launch)
    assert loops and all(vector_lines(loop, str) is not None for loop in loops)
    text = render_c(lower(extract(graph, whole(graph))[0], launch))
    assert f"af_wide_{dtype}_x8" in text
    facts = tile_facts(graph, whole(graph))
    assert facts is not None
    assert facts.right_near == (COLUMNS if function is by_columns else TERMS)


@pytest.mark.parametrize(("terms", "asks"), [(64, False), (2048, True)])
def test_the_next_columns_of_large_weights_are_asked_for(terms: int, asks: bool) -> None:
    graph = weights(nibbles, 1, 1024, terms, "u8")
    launch = launch_of(dot=True, pack=False, micro="1x4", vector_bits=256)
    kernel = lower(extract(graph, whole(graph))[0], launch)
    hints = [s for s in statements(kernel.body) if isinstance(s, Ahead)]
    assert len(hints) == asks * (4 + 4), "weights and scales of four columns"
    assert not any(hint.written for hint in hints)


def test_many_rows_are_multiplied_in_tiles_of_panels() -> None:
    graph = weights(by_channel, 256, 256, 512, "i8")
    launch = CpuLaunchSpace(256).default(graph, whole(graph))
    assert not vector_loops(graph, launch)


def test_what_is_no_vector_is_lanes_as_ever() -> None:
    """A function that has no vector here, of weights that are computed along terms."""

    def grown(x: Any, w: Any) -> Any:
        return x @ xp.exp(w.astype(xp.float32) / 64.0).T

    graph = normal_form(trace(grown, spec((2, 40)), spec((9, 40), "i8")))
    launch = launch_of(dot=True, pack=False, micro="2x4", vector_bits=256)
    loops = vector_loops(graph, launch)
    assert loops and all(vector_lines(loop, str) is None for loop in loops)
    check(graph, launch)
