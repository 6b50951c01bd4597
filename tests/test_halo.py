"""Tiles with a halo: what is kept, how far around, and that what they compute is right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autofuse import xp
from autofuse.graph.reference import evaluate, random_inputs
from autofuse.graph.types import Graph
from autofuse.kernel.ir.types import Kernel, Local, Loop, statements
from autofuse.kernel.lower import lower
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Lit
from autofuse.plan.fusion.groups import is_source
from autofuse.plan.schedules.forms import single_form
from autofuse.plan.schedules.halo import kept_values
from autofuse.plan.types import Candidate, LaunchConfig
from tests.support.batching import Case, failures
from tests.support.emulation import SMALL, library_of, one_kernel, run_kernel
from tests.support.kernel_eval import run
from tests.support.split_lanes import passed, traced
from tests.support.stencils import STEPS, chain
from tests.support.unrolled_plans import fused


def halos(graph: Graph) -> list[tuple[int, int]]:
    nodes = tuple(n for n in range(len(graph.nodes)) if not is_source(graph, n))
    form = single_form(graph, nodes, graph.outputs)
    assert form is not None
    return [(kept.before, kept.behind) for kept in kept_values(graph, form)]


@pytest.mark.parametrize("name", ["padded", "rolled"])
@pytest.mark.parametrize("shape", [(40, 50), (12, 9, 20), (300,)])
def test_a_stencil_of_a_stencil_reaches_farther(name: str, shape: tuple[int, ...]) -> None:
    assert halos(chain(STEPS[name], shape, 3)) == [(2, 2), (1, 1)]


def test_what_reaches_anywhere_is_not_kept() -> None:
    assert halos(traced(lambda x: xp.flip(xp.exp(x), axis=0) + x, 200, 50)) == []
    mean = traced(lambda x: xp.pad(xp.exp(x[:1] + x), [(1, 1), (0, 0)]), 40, 50)
    assert halos(mean) == [(1, 1)] or halos(mean) == []


def test_one_sided_reads_have_a_halo_on_one_side() -> None:
    def ahead(x: Any) -> Any:
        y = xp.exp(x)
        return y - xp.concat([y[2:], y[:2]], axis=0)

    assert halos(traced(ahead, 40, 50)) == [(0, 2)]


def test_each_value_is_computed_in_one_place() -> None:
    graph = chain(STEPS["rolled"], (64, 64), 3)
    kernel = lower(graph, LaunchConfig.of(halo=16))
    assert str(kernel).count("= tanh(") == 3
    scratch = [s.size for s in statements(kernel.body) if isinstance(s, Local)]
    assert scratch == [20 * 64, 18 * 64]


def test_lanes_along_a_line_wrap_at_its_ends_alone() -> None:
    """Most tiles are far from the ends, and read and write neighbours with neighbouring lanes."""
    graph = chain(STEPS["rolled"], (128 * 100,), 4)
    inner = lower(graph, LaunchConfig.of(halo=8)).body[-1]
    assert isinstance(inner, Loop) and inner.extent == Lit(11, DType.I64)
    assert not any(call in str(Kernel("inner", (), (inner,))) for call in ("rem", "select", "min"))


@st.composite
def chained(draw: st.DrawFn) -> Graph:
    """Stencils of all kinds, one after another, with rows at any distance up to two."""
    shape = draw(st.sampled_from([(9, 33), (24, 40), (7, 4, 11), (5, 36), (130,), (700,)]))

    def fn(x: Any) -> Any:
        for _ in range(draw(st.integers(1, 3))):
            by, axis = draw(st.integers(1, 2)), draw(st.integers(0, len(shape) - 1))
            at = (slice(None),) * axis
            kind = draw(st.sampled_from(("roll", "pad", "fixed", "mirror")))
            y = xp.tanh(x)
            if kind == "roll":
                z = xp.concat([y[(*at, slice(-by, None))], y[(*at, slice(0, -by))]], axis=axis)
            elif kind == "pad":
                sides = (by, 0) if draw(st.booleans()) else (0, by)
                z = xp.pad(y, [sides if a == axis else (0, 0) for a in range(x.ndim)])
                z = z[(*at, slice(sides[1], sides[1] + shape[axis]))]
            elif kind == "mirror":
                z = xp.concat(
                    [y[(*at, slice(by, None))], xp.flip(y, axis=axis)[(*at, slice(0, by))]],
                    axis=axis,
                )
            else:
                inner = 0.5 * (y[(*at, slice(0, -2))] + y[(*at, slice(2, None))])
                z = xp.concat([y[(*at, slice(0, 1))], inner, y[(*at, slice(-1, None))]], axis=axis)
            x = z + 0.5 * x
        return x

    return traced(fn, *shape)


@given(chained(), st.sampled_from((1, 3, 8, 64)))
@settings(max_examples=25, deadline=None)
def test_random_chains_compute_what_single_items_do(graph: Graph, rows: int) -> None:
    inputs = [np.random.default_rng(0).random(t.shape, np.float32) for t in graph.input_types]
    want = run(lower(graph, LaunchConfig()), inputs)
    tiled = lower(graph, LaunchConfig.of(halo=rows))
    for kernel in (tiled, passed(tiled)):
        for a, b in zip(want, run(kernel, inputs), strict=True):
            np.testing.assert_array_equal(a, b)


def columns(x: Any) -> Any:
    """A line of what a table's columns give."""
    y = xp.exp(x)
    return y[:, 0] * y[:, 1]


def column_ahead(x: Any) -> Any:
    """A table that reads a line computed before it."""
    y = xp.exp(x[:, 0])
    ahead = xp.concat([y[1:], y[:1]], axis=0)
    return x * ahead[:, None]


@pytest.mark.parametrize(("fn", "shape"), [(columns, (1100, 2)), (column_ahead, (40, 50))])
def test_lines_of_tables_and_tables_of_lines(fn: Any, shape: tuple[int, ...]) -> None:
    graph = traced(fn, *shape)
    inputs = [np.random.default_rng(0).random(t.shape, np.float32) for t in graph.input_types]
    want = run(lower(graph, LaunchConfig()), inputs)
    for a, b in zip(want, run(lower(graph, LaunchConfig.of(halo=8)), inputs), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", ["padded", "rolled"])
def test_tiles_are_right_in_c(name: str) -> None:
    graphs = [chain(STEPS[name], shape, 3) for shape in ((37, 40), (9, 10, 16), (1100,))]
    cases = [
        Case(g, Candidate(fused(g), (LaunchConfig.of(halo=rows, threads=2),)), f"{rows}")
        for g in graphs
        for rows in (4, 16, 100)
    ]
    assert failures(cases) == []


@pytest.mark.parametrize("name", ["padded", "rolled"])
def test_tiles_are_right_on_a_gpu(name: str) -> None:
    """What single items would compute too often is kept on every device."""
    made = [one_kernel(chain(STEPS[name], (40, 40), 8), SMALL)]
    library = library_of(made)
    for one in made:
        assert "tile0" in one.text
        inputs = random_inputs(one.graph, 0)
        (want,) = evaluate(one.graph, inputs)
        (found,) = run_kernel(library, one, inputs)
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)
