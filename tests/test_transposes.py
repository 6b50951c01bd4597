"""Transposes that stay, alone and with work around them: right on both backends, in blocks."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autofuse import trace
from autofuse.frontends import array_api as xp
from autofuse.frontends.array_api.tracer import spec
from autofuse.graph.canonical import canonical
from autofuse.graph.reference import evaluate, random_inputs
from autofuse.graph.types import Graph
from autofuse.kernel.ir.types import Local, Transpose, statements
from autofuse.kernel.lower import extract, lower
from autofuse.kernel.passes import C_PASSES, run_passes
from autofuse.measure.check.compare import check, reference_of
from autofuse.plan.types import Candidate, FusionPlan, LaunchConfig
from search_spaces import CpuLaunchSpace
from search_spaces.launch import first_option
from tests.support.batching import quick_library
from tests.support.emulation import library_of, one_kernel, run_kernel
from tests.support.seeds import examples
from tests.support.tile_programs import whole

TURN = LaunchConfig.of(threads=1, tile=1024, transpose=True)
ORDERS = ((1, 0), (0, 2, 1), (2, 0, 1), (1, 0, 2), (2, 1, 0), (1, 2, 0), (0, 3, 1, 2))


def permuted(shape: tuple[int, ...], order: tuple[int, ...], dtype: str = "f32") -> Graph:
    return canonical(trace(lambda x: xp.permute_dims(x, order), spec(shape, dtype)))


def fused(rows: int, columns: int, dtype: str = "f32") -> Graph:
    """Two operands turned over, two as they lie, and one of them a row for all."""

    def function(x: Any, y: Any, z: Any, b: Any) -> Any:
        return np.maximum(x.T * 2, z) + y.T * b

    turned, straight = spec((columns, rows), dtype), spec((rows, columns), dtype)
    return canonical(trace(function, turned, turned, straight, spec(columns, dtype)))


def results(graph: Graph, launch: LaunchConfig) -> tuple[np.ndarray, np.ndarray]:
    """What the whole graph as one kernel gives, and the float64 reference."""
    candidate = Candidate(FusionPlan((whole(graph),)), (launch,))
    inputs = random_inputs(graph, 3)
    (found,) = quick_library(graph, candidate).run(inputs)
    (wanted,) = evaluate(graph, inputs)
    return found, wanted


def c_statements(graph: Graph, launch: LaunchConfig) -> list[object]:
    kernel = lower(extract(graph, whole(graph))[0], launch)
    return list(statements(run_passes(kernel, C_PASSES).body))


@settings(max_examples=examples(30), deadline=None)
@given(
    order=st.sampled_from(ORDERS),
    sizes=st.lists(st.sampled_from((1, 3, 8, 17, 33, 64, 100, 130)), min_size=4, max_size=4),
    dtype=st.sampled_from(("f32", "f16", "bf16", "f64", "i8")),
    stream=st.booleans(),
    threads=st.sampled_from((1, 2)),
)
def test_any_order_of_axes_is_copied_exactly(
    order: tuple[int, ...], sizes: list[int], dtype: str, stream: bool, threads: int
) -> None:
    shape = tuple(sizes[: len(order)])
    if prod(shape) > 1 << 20:
        shape = tuple(min(n, 33) for n in shape)
    launch = LaunchConfig.of(threads=threads, tile=1024, transpose=True, stream=stream)
    found, wanted = results(permuted(shape, order, dtype), launch)
    np.testing.assert_array_equal(found.astype(np.float64), wanted)


@settings(max_examples=examples(12), deadline=None)
@given(
    rows=st.integers(1, 200),
    columns=st.integers(1, 200),
    dtype=st.sampled_from(("f32", "f64", "f16")),
    stream=st.booleans(),
)
def test_work_around_a_transpose_is_fused(
    rows: int, columns: int, dtype: str, stream: bool
) -> None:
    launch = LaunchConfig.of(threads=1, tile=1024, transpose=True, stream=stream)
    found, wanted = results(fused(rows, columns, dtype), launch)
    np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=4e-3, atol=4e-3)


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize(("rows", "columns"), [(9, 1024), (40, 65), (1024, 9), (65, 2048)])
def test_threads_share_the_blocks_and_not_the_rows_there_were(
    rows: int, columns: int, threads: int
) -> None:
    """A pass cuts the grid anew: into more pieces where rows are few and long."""
    graph = canonical(trace(lambda x: np.maximum(x, 0).T, spec((columns, rows))))
    launch = LaunchConfig.of(threads=threads, tile=1024, transpose=True)
    found, wanted = results(graph, launch)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("dtype", ["f32", "f16", "f64"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_copy_is_turned_straight_from_memory_to_memory(dtype: str, stream: bool) -> None:
    launch = LaunchConfig.of(threads=1, tile=1024, transpose=True, stream=stream)
    found = c_statements(permuted((5, 300, 70), (0, 2, 1), dtype), launch)
    (turn,) = (s for s in found if isinstance(s, Transpose))
    assert (turn.source.buffer, turn.target.buffer) == ("in0", "out0")
    assert turn.stream == stream and not any(isinstance(s, Local) for s in found)


def test_only_what_is_read_against_the_grain_is_turned() -> None:
    turns = [s for s in c_statements(fused(70, 300), TURN) if isinstance(s, Transpose)]
    assert len({t.source.buffer for t in turns}) == 2 and len(turns) == 2
    scratch = [s for s in c_statements(fused(70, 300), TURN) if isinstance(s, Local)]
    assert sum(s.size * s.dtype.itemsize for s in scratch) <= 1 << 15


def test_what_lies_along_the_grain_is_left_alone() -> None:
    graph = permuted((6, 7, 64), (1, 0, 2))
    assert not any(isinstance(s, Transpose) for s in c_statements(graph, TURN))
    plain = permuted((300, 70), (1, 0))
    launch = LaunchConfig.of(threads=1, tile=1024)
    assert not any(isinstance(s, Transpose) for s in c_statements(plain, launch))


def test_axes_that_stay_together_are_turned_as_one() -> None:
    """(30, 7, 64) to (64, 30, 7) is a matrix of 210 rows, though the last axis is short."""
    found = c_statements(permuted((30, 7, 64), (2, 0, 1)), TURN)
    (turn,) = (s for s in found if isinstance(s, Transpose))
    assert (turn.source.outer, turn.target.outer) == (64, 210)


@pytest.mark.parametrize(
    ("shape", "wanted"),
    [((256, 256), ()), ((2048, 1024), (False, True)), ((4096, 4096), (True, False))],
)
def test_what_is_offered_to_a_transpose(shape: tuple[int, int], wanted: tuple[bool, ...]) -> None:
    asked: dict[str, tuple[Any, ...]] = {}

    def choose(name: str, options: tuple[Any, ...]) -> Any:
        asked[name.split(".")[2]] = options
        return first_option(name, options)

    graph = permuted(shape, (1, 0))
    launch = CpuLaunchSpace().choose(graph, whole(graph), choose, "")
    assert launch["transpose"] is True and asked.get("stream", ()) == wanted


Made = Callable[[], Graph]


@pytest.mark.parametrize(
    "made",
    [
        lambda: permuted((3, 45, 70), (0, 2, 1), "f16"),
        lambda: permuted((40, 3, 50), (2, 0, 1)),
        lambda: permuted((33, 5, 34), (2, 1, 0), "f64"),
        lambda: fused(45, 70),
    ],
    ids=["f16", "last first", "reversed", "fused"],
)
def test_the_emulated_gpu_agrees(made: Made) -> None:
    graph = made()
    kernel = one_kernel(graph, LaunchConfig.of(threads=64, items=2, transpose=True))
    inputs = random_inputs(graph, 5)
    found = run_kernel(library_of([kernel]), kernel, inputs)
    assert check(found, reference_of(graph, inputs)).ok
    assert "tile0" in kernel.text
