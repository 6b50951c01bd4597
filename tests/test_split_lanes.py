"""Lanes cut where positions are clamped, and conditions of whole rows asked before: as text, and
by what kernels compute before and after."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autofuse import xp
from autofuse.graph.canonical import canonical
from autofuse.graph.composites.moves import slice_at
from autofuse.graph.types import Graph
from autofuse.graph.writer import GraphWriter
from autofuse.kernel.ir.types import Kernel, Let, Loop, statements
from autofuse.kernel.lower import lower
from autofuse.kernel.passes import nest_lanes, split_lanes, unswitch_lanes, verify
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.positions import as_index
from autofuse.ops.scalar import Call, Lit, Sym
from autofuse.plan.types import Candidate, LaunchConfig
from tests.support.batching import Case, failures
from tests.support.kernel_eval import run
from tests.support.seeds import examples
from tests.support.split_lanes import passed, traced
from tests.support.stencils import STEPS, chain
from tests.support.unrolled_plans import fused


def lowered(graph: Graph, tile: int = 1024) -> Kernel:
    return lower(graph, LaunchConfig.of(tile=tile))


def body(kernel: Kernel) -> str:
    return textwrap.dedent("\n".join(str(kernel).splitlines()[2:]))


def text(expected: str) -> str:
    return textwrap.dedent(expected).strip("\n")


def test_the_borders_of_a_padded_row_are_loops_of_their_own() -> None:
    graph = traced(lambda x: xp.pad(x, [(1, 2)]), 97)
    assert "max(" in str(lowered(graph))
    assert body(passed(lowered(graph))) == text("""
        lane l0_0 < 1:i64
          let v1: f32 = 0.0:f32
          out0[0:i64] = v1
        lane l0_1 < 97:i64
          let v0: f32 = in0[l0_1]
          let v1: f32 = v0
          out0[add(l0_1, 1:i64)] = v1
        lane l0_2 < 2:i64
          let v1: f32 = 0.0:f32
          out0[add(l0_2, 98:i64)] = v1
    """)


def test_a_stencil_of_what_a_stencil_with_borders_gave_has_parts_without_a_clamp() -> None:
    """Where the second one meets the first one's borders shows once a part decides the outer
    clamps."""

    def step(x: Any) -> Any:
        inner = x[:-2] + x[1:-1] + x[2:]
        return xp.concat([x[:1], inner, x[-1:]], axis=0)

    kernel = passed(lowered(traced(lambda x: step(step(x)), 97)))
    lanes = [s for s in statements(kernel.body) if isinstance(s, Loop) and s.kind == "lane"]
    assert max(lane.var.extent or 0 for lane in lanes) == 93
    assert not any(word in str(kernel) for word in ("max(", "min(", "select("))


def test_a_tile_of_a_longer_row_has_some_of_each_part() -> None:
    graph = traced(lambda x: xp.pad(x, [(1, 2)]), 97)
    kernel = passed(lowered(graph, tile=32))
    lanes = [s for s in statements(kernel.body) if isinstance(s, Loop) and s.kind == "lane"]
    assert len(lanes) == 3 and "max(sub" not in str(lanes[1].body)
    assert "in0[add(mul(b0, 32:i64), " not in str(kernel)


def rolled(extent: int, flip: bool = False) -> Graph:
    """A row rolled by a distance that comes with the data."""
    w = GraphWriter()
    x = w.input("x", (extent,), DType.F32)
    at = w.input("at", (), DType.I32)
    y = w.reverse(x, (0,)) if flip else x
    return canonical(w.build([slice_at(w, w.concat([y, y], 0), (at,), (extent,))]))


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("tile", [8, 1024])
def test_a_row_that_is_rolled_by_a_computed_distance_is_two_straight_loops(
    tile: int, flip: bool
) -> None:
    """They have whatever lanes lie before and after the place where it begins anew."""
    kernel = lowered(rolled(37, flip), tile)
    split = passed(kernel)
    lanes = [s for s in statements(split.body) if isinstance(s, Loop) and s.kind == "lane"]
    assert len(lanes) == 2
    assert not any(word in str(lane) for lane in lanes for word in ("clamp", "max(", "select("))
    x = np.arange(37, dtype=np.float32)
    for at in (-3, 0, 1, 7, 8, 36, 37, 99):
        given = [x, np.asarray(at, np.int32)]
        want = np.roll(x[::-1] if flip else x, -min(max(at, 0), 37))
        for each in (kernel, split):
            np.testing.assert_array_equal(run(each, given)[0], want)


def test_where_lanes_differ_by_what_they_compute_there_is_no_cut() -> None:
    """A place that each lane loads is not the same for all."""
    w = GraphWriter()
    x, at = w.input("x", (64,), DType.F32), w.input("at", (64,), DType.I32)
    graph = canonical(
        w.build([w.select(w.op("lt", w.iota((64,), DType.I32, 0), at), x, w.reverse(x, (0,)))])
    )
    kernel = lowered(graph)
    assert str(split_lanes(kernel)) == str(kernel)


def test_loops_of_one_variable_start_their_parts_under_names_of_their_own() -> None:
    """What is folded and what is made of it afterwards go through the same lanes."""
    kernel = lowered(traced(lambda x: xp.pad(x, [(1, 2)]), 97), tile=32)
    (grid,) = kernel.body
    assert isinstance(grid, Loop)
    twice = replace(kernel, body=(replace(grid, body=(*grid.body, *grid.body[-1:])),))
    split = verify(split_lanes(twice))
    (around,) = (s for s in split.body if isinstance(s, Loop))
    names = [s.sym.name for s in around.body if isinstance(s, Let)]
    assert len(names) == len(set(names)) == 6


def test_rows_inside_have_a_loop_without_the_conditions_of_the_border() -> None:
    kernel = passed(lowered(traced(lambda x: xp.pad(x, [(1, 1), (0, 0)]), 10, 40)))
    first, second = body(kernel).split("when ")[1:]
    assert first.startswith("and(") and "lt(0:i64, r0)" in first and "lt(r0, 11:i64)" in first
    assert not any(word in first for word in ("select", "max(", "min("))
    assert second.startswith("not(") and "select" in second


def test_of_one_condition_both_rows_are_free() -> None:
    joined = traced(lambda x: xp.concat([x, xp.exp(x)], axis=0), 10, 40)
    first, second = body(passed(lowered(joined))).split("when ")[1:]
    assert "select" not in first + second
    assert ("exp(" in first) != ("exp(" in second)


@pytest.mark.parametrize("fn", [xp.exp, lambda x: x[:, ::-1], lambda x: xp.permute_dims(x, (1, 0))])
def test_straight_loops_are_left_alone(fn: Any) -> None:
    kernel = lowered(traced(fn, 40, 50))
    assert split_lanes(kernel) == kernel == unswitch_lanes(kernel)


def test_short_rows_are_walked_one_after_another() -> None:
    graph = traced(lambda x: x + xp.pad(x, [(0, 0), (1, 1)])[:, 2:], 96, 20)
    kernel = passed(lowered(graph, tile=480))
    assert "serial l0_r < 24:i64" in str(kernel) and "lane l0_c_0 < 19:i64" in str(kernel)
    assert "div(" not in str(kernel) and "rem(" not in str(kernel)
    ragged = lowered(graph, tile=490)
    assert nest_lanes(ragged) == ragged


def test_lanes_are_the_rows_where_these_are_a_few_elements() -> None:
    """Colours that come together, or apart again: each is read and written by its own stride."""
    graph = traced(lambda x: xp.permute_dims(x, (1, 2, 0)), 3, 20, 30)
    kernel = passed(lowered(graph, tile=300))
    assert body(kernel) == text("""
        lane l0_r < 100:i64
          serial l0_c < 3:i64
            let v0: f32 = in0[add(add(mul(l0_c, 600:i64), mul(b0, 100:i64)), l0_r)]
            out0[add(add(mul(b0, 300:i64), mul(l0_r, 3:i64)), l0_c)] = v0
    """)
    plan = Candidate(fused(graph), (LaunchConfig.of(tile=300),))
    assert failures([Case(graph, plan, "colours")]) == []


def test_numbers_beyond_their_type_are_no_positions() -> None:
    i = Call("cast", (Sym("i", DType.I64, 200),), DType.I8)
    assert as_index(i) is None
    narrow = Call("cast", (Sym("i", DType.I64, 100),), DType.I8)
    assert as_index(narrow) == Sym("i", DType.I64, 100)
    assert as_index(Call("add", (narrow, Lit(50, DType.I8)), DType.I8)) is None
    assert as_index(Call("add", (narrow, Lit(-3, DType.I8)), DType.I8)) == ix.isub(
        Sym("i", DType.I64, 100), ix.lit(3)
    )


@st.composite
def shifted(draw: st.DrawFn, x: Any) -> Any:
    """An array of any shape made of another one's elements, moved along one axis."""
    axis, by = draw(st.integers(0, x.ndim - 1)), draw(st.integers(1, 3))
    extent = x.shape[axis]
    at = (slice(None),) * axis
    match draw(st.sampled_from(("pad", "roll", "edge", "mask", "slice", "wrap"))):
        case "pad":
            widths = [(by, draw(st.integers(0, 2))) if a == axis else (0, 0) for a in range(x.ndim)]
            return xp.pad(x, widths, constant_values=draw(st.sampled_from((0.0, 1.5))))
        case "roll":
            return xp.concat([x[(*at, slice(-by, None))], x[(*at, slice(0, -by))]], axis=axis)
        case "edge":
            far = xp.clip(xp.arange(extent, dtype="int32") - by, 0, extent - 1)
            return xp.take(x, far, axis=axis)
        case "wrap":
            far = (xp.arange(extent, dtype="int32") + by) % extent
            return xp.take(x, far, axis=axis)
        case "mask":
            place = xp.reshape(
                xp.arange(extent, dtype="int32"),
                tuple(extent if a == axis else 1 for a in range(x.ndim)),
            )
            return xp.where((place >= by) & (place < extent - 1), x * 2.0, xp.flip(x, axis=axis))
    return x[(*at, slice(by, None))] if extent > 6 else x


@st.composite
def stencils(draw: st.DrawFn) -> Graph:
    """A chain of shifted arrays, added to where they came from if that has their shape."""
    shape = draw(st.lists(st.integers(4, 24), min_size=1, max_size=3).map(tuple))
    moves = draw(st.integers(1, 3))

    def fn(x: Any) -> Any:
        for _ in range(moves):
            y = draw(shifted(x))
            x = y + x if y.shape == x.shape else y * 0.5
        return x

    return traced(fn, *shape)


@given(stencils(), st.sampled_from((8, 33, 1024)))
@settings(max_examples=examples(30), deadline=None)
def test_random_stencils_compute_what_they_did(graph: Graph, tile: int) -> None:
    kernel = lowered(graph, tile)
    rng = np.random.default_rng(0)
    inputs = [rng.random(t.shape, np.float32) for t in graph.input_types]
    want, found = run(kernel, inputs), run(passed(kernel), inputs)
    for a, b in zip(want, found, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", STEPS)
def test_chains_of_stencils_are_right_in_c(name: str) -> None:
    graphs = [chain(STEPS[name], shape, 2) for shape in ((300,), (19, 33), (9, 10, 16))]
    launches = [LaunchConfig.of(tile=tile) for tile in (64, 1024)]
    cases = [
        Case(g, Candidate(fused(g), (launch,)), g.output_names[0])
        for g in graphs
        for launch in launches
    ]
    assert failures(cases) == []
