"""Scalar functions in lower bounds: what is counted, what adds up, and what a compiler may drop."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from autofuse.cost.amounts import Work
from autofuse.cost.bounds import NOMINAL, Calibration, plan_bound_us
from autofuse.cost.scalar_calls import calls_of, unit_of
from autofuse.cost.work import group_work
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph, Value
from autofuse.measure.calibrate.scalar import all_loops, single_loops, told
from autofuse.ops.dtypes import DType
from autofuse.plan.fusion.groups import is_source
from autofuse.simplify import normal_form
from autofuse.zoo import zoo_graph
from search_spaces import FusionSpace
from search_spaces.launch import first_option

# Least times of one thread on an EPYC of Zen 3, by scripts/bench_bounds --zoo.
RECORDED = json.loads((Path(__file__).parent / "data" / "bounds-cpu.json").read_text())
F32 = DType.F32
SIZE = 1000
Make = Callable[[GraphBuilder, Value, Value], Value]
# Nanoseconds an element, in a calibration of which nothing else takes time.
TIMES = (("div.f32.256", 2.0), ("exp.f32.0", 9.0), ("exp.f32.256", 5.0), ("log.f32.256", 3.0))
PEAKS = Calibration(0.0, 1e9, 1e9, 1e9, 1e9, 1e9, scalar=TIMES)


def graph_of(make: Make) -> Graph:
    b = GraphBuilder()
    values = [b.input(name, (SIZE,), F32) for name in "xy"]
    return canonical(b.build([make(b, *values)]))


def work_of(make: Make) -> Work:
    graph = graph_of(make)
    nodes = [n for n in range(len(graph.nodes)) if not is_source(graph, n)]
    return group_work(graph, nodes, graph.outputs)


def number(b: GraphBuilder, value: float) -> Value:
    return b.add("broadcast", b.constant(value, F32), shape=(SIZE,), dims=())


def scalar(b: GraphBuilder, x: Value) -> Value:
    """The largest element, repeated."""
    return b.add("broadcast", b.add("reduce_max", x, axes=(0,)), shape=(SIZE,), dims=())


@pytest.mark.parametrize(
    ("make", "calls"),
    [
        (lambda b, x, y: b.add("exp", x), {"exp.f32": SIZE}),
        (lambda b, x, y: b.add("add", b.add("exp", x), b.add("log", y)),
         {"exp.f32": SIZE, "log.f32": SIZE}),
        (lambda b, x, y: b.add("logistic", x), {"div.f32": SIZE, "exp.f32": SIZE}),
        (lambda b, x, y: b.add("rsqrt", x), {"div.f32": SIZE, "sqrt.f32": SIZE}),
        (lambda b, x, y: b.add("div", x, y), {"div.f32": SIZE}),
        # Compilers multiply by the reciprocal of a literal, and by one reciprocal of what repeats.
        (lambda b, x, y: b.add("div", x, number(b, 3.0)), {}),
        (lambda b, x, y: b.add("div", x, scalar(b, y)), {"div.f32": 1}),
        (lambda b, x, y: b.add("add", b.add("div", x, y), b.add("div", b.add("exp", x), y)),
         {"div.f32": SIZE, "exp.f32": SIZE}),
        # (x / y) / exp(x) may be one division, and x / (1 / y) none.
        (lambda b, x, y: b.add("div", b.add("div", x, y), b.add("exp", x)), {"exp.f32": SIZE}),
        (lambda b, x, y: b.add("div", x, b.add("reciprocal", y)), {}),
        (lambda b, x, y: b.add("pow", x, number(b, 2.0)), {}),
        (lambda b, x, y: b.add("pow", x, y), {"pow.f32": SIZE}),
        # Loops are split where a pad begins: what repeats is computed once in each part.
        (lambda b, x, y: b.add("exp", b.add("pad", scalar(b, x), b.constant(0.0, F32),
                                            low=(2,), high=(1,))), {"exp.f32": 1}),
    ],
)  # fmt: skip
def test_calls_that_cannot_be_left_out(make: Make, calls: dict[str, float]) -> None:
    assert dict(work_of(make).calls) == calls


def test_what_shares_a_unit_adds_up_and_other_units_work_meanwhile() -> None:
    def us(make: Make) -> float:
        return PEAKS.compute_us(work_of(make))

    assert us(lambda b, x, y: b.add("exp", x)) == pytest.approx(5.0), "at its best width"
    both = us(lambda b, x, y: b.add("add", b.add("exp", x), b.add("log", y)))
    assert both == pytest.approx(8.0, rel=1e-3)
    beside = us(lambda b, x, y: b.add("div", b.add("exp", x), y))
    assert beside == pytest.approx(5.0, rel=1e-3), "the divider is another unit"
    assert us(lambda b, x, y: b.add("div", x, y)) == pytest.approx(2.0)


def test_without_times_of_their_own_functions_count_as_operations() -> None:
    work = work_of(lambda b, x, y: b.add("exp", x))
    slow = replace(NOMINAL, special=10.0, scalar=())
    assert slow.compute_us(work) == pytest.approx(15 * SIZE / 10e3)
    assert work.special == work.called_special == 15 * SIZE
    unknown = work_of(lambda b, x, y: b.add("tanh", x))
    assert PEAKS.compute_us(unknown) == pytest.approx(0.0, abs=1e-6)


def test_iterations_and_sums_of_work_keep_their_calls() -> None:
    one = work_of(lambda b, x, y: b.add("exp", x))
    other = work_of(lambda b, x, y: b.add("logistic", x))
    assert dict((one + other).calls) == {"div.f32": SIZE, "exp.f32": 2 * SIZE}
    assert dict(one.computing(3.0).calls) == {"exp.f32": 3 * SIZE}


def test_a_calibration_keeps_the_times_of_functions_by_width() -> None:
    alone = replace(PEAKS, scalar=(("exp.f32.256", 10.0),))
    both = replace(PEAKS, alone=alone)
    assert Calibration.from_mapping(both.to_mapping()) == both
    assert Calibration.kept(both.to_mapping()) == both


def test_every_function_that_is_counted_is_measured() -> None:
    measured = {loop.name for loop in single_loops()}
    graph = graph_of(lambda b, x, y: b.add("tanh", b.add("atan2", b.add("sqrt", x), y)))
    counted = {name for n in range(len(graph.nodes)) for name in calls_of(graph, n).names}
    assert counted == {"tanh.f32", "atan2.f32", "sqrt.f32"} <= measured
    assert {name for loop in all_loops() for name in loop.of} == measured
    assert {unit_of(name) for name in counted} == {"arithmetic", "division"}


def test_functions_that_take_less_beside_each_other_count_for_less() -> None:
    times = {"copy.f32": 0.1, "exp.f32": 1.0, "log.f32": 3.0, "sqrt.f32": 0.11}
    assert told(times) == {"exp.f32": 1.0, "log.f32": 3.0}, "as fast as a copy: not told"
    found = told({**times, "exp.f32+log.f32": 3.0, "exp.f32+exp.f32": 2.5})
    assert found == pytest.approx({"exp.f32": 0.75, "log.f32": 2.25})
    assert told({**times, "log.f32+log.f32": 5.0})["log.f32"] == pytest.approx(2.5)


@pytest.mark.parametrize("name", sorted({row["plan"] for row in RECORDED["rows"]}))
def test_bounds_are_below_recorded_times_and_not_far_below_where_functions_count(name: str) -> None:
    peaks = Calibration.from_mapping(RECORDED["calibration"])
    graph = normal_form(zoo_graph(name, "small"))
    plan = FusionSpace(graph).choose(first_option)
    least = max(row["least_us"] for row in RECORDED["rows"] if row["plan"] == name)
    bound = max(plan_bound_us(graph, type(plan)((group,)), peaks) for group in plan.groups)
    assert bound <= least
    if name in ("black_scholes", "softmax", "layer_norm_gelu", "swiglu", "mlp"):
        assert bound >= 0.5 * least
