"""What C kernels do with rows: memory asked for ahead, divisors that lanes share, functions of
single numbers. As text, and by what plans compute."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import erf

import autofuse
from autofuse import spec, xp
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph
from autofuse.kernel.ir.types import Ahead, Kernel, statements
from autofuse.kernel.lower import lower
from autofuse.kernel.passes import ask_ahead, drop_dead, fuse_lanes, share_divisors, verify
from autofuse.plan.types import FusionGroup, LaunchConfig
from autofuse.tuning.plans import plan_named
from search_spaces import CpuLaunchSpace
from search_spaces.cpu import AHEAD_BYTES

NAN, INF = np.nan, np.inf
# Divisors whose reciprocals are no normal numbers, and others.
SUMS = [1e-42, -1e-45, 2.0**-127, 1e-30, 1.0, -3.0, 49.0, 1e30, 2.0**127, 3e38, INF, -INF, NAN, 0.0]
NUMBERS = [0.0, -0.0, 1e-44, 1e-38, 1e-20, -0.7, 49.0, 1e25, -3e38, INF, NAN]


def traced(fn: Any, *shapes: tuple[int, ...]) -> Graph:
    specs = tuple(spec(shape) for shape in shapes)
    return canonical(autofuse.trace(lambda *x: {"y": fn(*x)}, *specs))


def scaled(x: Any, weight: Any) -> Any:
    """Rows over their sums, times a row that they share."""
    return xp.exp(x) / xp.sum(x, axis=-1, keepdims=True) * weight


def lowered(graph: Graph, **settings: Any) -> Kernel:
    return drop_dead(fuse_lanes(lower(graph, LaunchConfig.of(**settings))))


def whole(graph: Graph) -> FusionGroup:
    (group,) = plan_named(graph, "fused").plan.groups
    return group


def computed(graph: Graph, inputs: tuple[np.ndarray, ...], **settings: Any) -> np.ndarray:
    """The result of one kernel under launch settings."""
    plan = replace(plan_named(graph, "fused"), launches=(LaunchConfig.of(**settings),))
    (found,) = autofuse.compile(graph, plan=plan, device="cpu", simplify=False)(*inputs)
    return found


def hints(kernel: Kernel) -> list[Ahead]:
    return [s for s in statements(kernel.body) if isinstance(s, Ahead)]


def test_the_next_row_is_asked_for_in_the_pass_that_computes_most() -> None:
    before = lowered(traced(scaled, (64, 300), (300,)), ahead=True)
    done = str(verify(ask_ahead(before)))
    _, _, busiest = done.partition("serial l1_p < 2:i64\n")
    assert [line.strip() for line in busiest.splitlines()[:3]] == [
        "read soon in0[add(add(mul(r0, 300:i64), mul(l1_p, 128:i64)), 300:i64) .. 128:i64]",
        "write soon out0[add(add(mul(r0, 300:i64), mul(l1_p, 128:i64)), 300:i64) .. 128:i64]",
        "lane l1_a < 128:i64",
    ]
    # What all rows read stays where it is, and the rest of a row has hints of its own.
    assert [(h.buffer, h.written) for h in hints(ask_ahead(before))] == [
        ("in0", False), ("out0", True)] * 2  # fmt: skip


@pytest.mark.parametrize(("graph", "settings"), [
    (traced(scaled, (64, 300), (300,)), {}),
    (traced(lambda x: xp.exp(x) * 2.0, (64, 300)), {"ahead": True}),
    (traced(scaled, (64, 30000), (30000,)), {"ahead": True}),
    (traced(scaled, (64, 20), (20,)), {"ahead": True}),
    (traced(lambda x: xp.var(x, axis=-1), (64, 300)), {"ahead": True}),
], ids=["not wanted", "one pass", "long rows", "short rows", "sums alone"])  # fmt: skip
def test_nothing_is_asked_for_ahead_where_it_would_not_pay(
    graph: Graph, settings: dict[str, Any]
) -> None:
    before = lowered(graph, **settings)
    assert ask_ahead(before) == before


def test_hints_change_no_result() -> None:
    graph = traced(scaled, (257, 700), (700,))
    rng = np.random.default_rng(0)
    x, weight = rng.random((257, 700), np.float32) + 0.5, rng.random(700, np.float32)
    found = [computed(graph, (x, weight), ahead=ahead) for ahead in (False, True)]
    np.testing.assert_array_equal(*found)


def test_only_arrays_beyond_the_second_cache_are_asked_for_ahead() -> None:
    space = CpuLaunchSpace()
    for rows, wanted in ((AHEAD_BYTES // 4096, True), (8, None)):
        graph = traced(lambda x: xp.softmax(x, axis=-1), (rows, 1024))
        assert space.default(graph, whole(graph)).get("ahead", None) is wanted


def divided(x: Any, y: Any) -> Any:
    """Rows over the sums of others."""
    return x / xp.sum(y, axis=-1, keepdims=True)


def test_lanes_are_multiplied_by_the_reciprocal_of_what_they_share() -> None:
    before = lowered(traced(divided, (4, 64), (4, 64)), math="fast-division")
    done = str(verify(share_divisors(before)))
    assert done.count("div(") == 1 and "out0[" in done.partition("div(1.0:f32, mul(v1, l1_f0))")[2]
    assert "mul(mul(v2, l1_q0), l1_f0)" in done


@pytest.mark.parametrize(("program", "shapes", "settings"), [
    (divided, ((4, 64), (4, 64)), {}),
    (divided, ((4, 8), (4, 8)), {"math": "fast-division"}),
    (lambda x, y: x / xp.exp(y) + xp.sum(x, axis=-1, keepdims=True), ((4, 64), (4, 64)),
     {"math": "fast-division"}),
], ids=["strict", "few lanes", "divisors of their own"])  # fmt: skip
def test_other_divisions_stay(
    program: Any, shapes: tuple[tuple[int, ...], ...], settings: dict[str, Any]
) -> None:
    before = lowered(traced(program, *shapes), **settings)
    assert share_divisors(before) == before


def test_shared_divisors_err_by_two_units_in_the_last_place_at_most() -> None:
    """Of zeros, infinities, NaNs and denormal numbers too."""
    shape = len(SUMS), 64
    x, y = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    x[:, : len(NUMBERS)] = NUMBERS
    x[:, len(NUMBERS) :] = np.random.default_rng(0).standard_normal(64 - len(NUMBERS))
    y[:, 0] = SUMS
    found = computed(traced(divided, shape, shape), (x, y), math="fast-division")
    with np.errstate(all="ignore"):
        wanted = x / y[:, :1]
    plain = np.isfinite(wanted)
    np.testing.assert_array_equal(found[~plain], wanted[~plain])
    units = np.abs(found[plain].astype(np.float64) - wanted[plain]) / np.spacing(
        np.abs(wanted[plain])
    )
    assert units.max() <= 2.0


def test_fast_division_comes_first_where_rows_share_divisors_and_none_is_counted_by() -> None:
    def snapped(x: Any, y: Any) -> Any:
        return xp.floor(divided(x, y))

    space, shapes = CpuLaunchSpace(), ((4, 64), (4, 64))
    for program, wanted in ((divided, "fast-division"), (snapped, "strict")):
        graph = traced(program, *shapes)
        assert space.default(graph, whole(graph)).get("math", "strict") == wanted


@pytest.mark.parametrize(("name", "exact", "most"), [("erf", erf, 4.5), ("tanh", np.tanh, 10.0)])
def test_functions_of_f32_that_are_arithmetic_err_by_few_units(
    name: str, exact: Any, most: float
) -> None:
    """Up to where they round to 1, of numbers close to 0, and of what is no number."""
    small = np.geomspace(1e-44, 1e-3, 4096)
    edges = [0.0, -0.0, INF, -INF, NAN, 3e38, -3e38, most, -most]
    x = np.concatenate([np.linspace(-most, most, 1 << 18), small, -small, edges]).astype(np.float32)
    (found,) = autofuse.compile(traced(getattr(xp, name), x.shape), device="cpu")(x)
    wanted = exact(x.astype(np.float64))
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    plain = ~np.isnan(wanted)
    units = np.spacing(np.abs(wanted[plain]).astype(np.float32))
    assert np.max(np.abs(found[plain] - wanted[plain]) / units) <= 6.0
    assert np.max(np.abs(found[plain])) <= 1.0
