"""Lower bounds: counted by hand, monotone, and never above what a kernel must do."""

import math
from dataclasses import replace

import pytest

from autofuse.baselines import unfused
from autofuse.cost.bounds import (
    NOMINAL,
    Calibration,
    CalibrationError,
    group_bound_us,
    peak_bytes,
    plan_bound_us,
    work_bound_us,
)
from autofuse.cost.traffic import group_traffic
from autofuse.cost.work import group_work
from autofuse.enumerate.enumeration import enumerate_groups
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Value
from autofuse.measure.calibrate.host import calibrate_cpu
from autofuse.ops.dtypes import DType
from autofuse.plan.fusion.groups import group_of, is_source
from autofuse.plan.types import FusionGroup, FusionPlan
from autofuse.zoo import zoo_graph
from search_spaces import FusionSpace
from tests.support.random_graphs import random_graph
from tests.support.seeds import seeds

F32 = DType.F32
FLAT = Calibration(2.0, 10.0, 100.0, 10.0, 1000.0, 40.0, cache_bytes=1 << 20)


def whole(graph):
    """The group of everything, and its least work."""
    nodes = [n for n in range(len(graph.nodes)) if not is_source(graph, n)]
    group = FusionGroup(tuple(nodes), tuple(sorted(graph.outputs)))
    return group_work(graph, group.nodes, group.outputs)


def built(make, *shapes):
    b = GraphBuilder()
    values = [b.input(f"x{k}", s, F32) for k, s in enumerate(shapes)]
    return canonical(b.build([make(b, *values)]))


def test_an_addition_reads_both_and_writes_one():
    work = whole(built(lambda b, x, y: b.add("add", x, y), (10, 20), (10, 20)))
    assert work.nbytes == 3 * 200 * 4 and work.cheap == 200 and work.special == 0


def test_one_value_read_twice_moves_once():
    work = whole(built(lambda b, x: b.add("mul", x, x), (10, 20)))
    assert work.nbytes == 2 * 200 * 4


def test_a_slice_counts_what_it_takes():
    cut = {"start": (0, 0), "stop": (10, 3), "stride": (1, 1)}
    work = whole(built(lambda b, x: b.add("exp", b.add("slice", x, **cut)), (10, 20)))
    assert work.nbytes == 2 * 30 * 4 and work.special == 15 * 30


def test_work_behind_a_slice_is_only_what_it_takes():
    cut = {"start": (0,), "stop": (5,), "stride": (1,)}
    graph = built(lambda b, x: b.add("slice", b.add("exp", x), **cut), (100,))
    assert whole(graph).special == 15 * 5 and whole(graph).nbytes == 2 * 5 * 4


def test_overlapping_slices_may_read_the_same():
    def make(b, x):
        parts = [b.add("slice", x, start=(k,), stop=(k + 50,), stride=(1,)) for k in (0, 1)]
        return b.add("add", *parts)

    assert whole(built(make, (100,))).nbytes == 2 * 50 * 4


def test_a_repeated_value_may_be_computed_once():
    def make(b, x):
        return b.add("exp", b.add("broadcast", x, shape=(1000, 8), dims=(1,)))

    work = whole(built(make, (8,)))
    assert work.special == 15 * 8 and work.nbytes == 4 * (8 + 8000)


def test_a_contraction_counts_twice_its_products():
    def make(b, x, y):
        return b.add("dot_general", x, y, lhs_contract=(1,), rhs_contract=(0,),
                     lhs_batch=(), rhs_batch=())  # fmt: skip

    work = whole(built(make, (4, 5), (5, 6)))
    assert work.contraction == 2 * 4 * 5 * 6 and work.nbytes == 4 * (20 + 30 + 24)


def test_the_bound_is_the_slower_of_moving_and_computing_plus_a_launch():
    add = built(lambda b, x, y: b.add("add", x, y), (1000, 1000), (1000, 1000))
    group = group_of(add, [n for n in range(len(add.nodes)) if not is_source(add, n)])
    kept = 1 << 20
    expected = 2 + kept / 40e3 + (12e6 - kept) / 10e3
    assert group_bound_us(add, group, FLAT) == pytest.approx(expected)
    exp = built(lambda b, x: b.add("exp", x), (1000, 1000))
    group = group_of(exp, [1])
    assert group_bound_us(exp, group, FLAT) == pytest.approx(2 + 15e6 / 10e3)
    cold = work_bound_us(group_work(add, (2,), add.outputs), FLAT, warm=False)
    assert cold == pytest.approx(2 + 12e6 / 10e3)


def test_one_thread_is_taken_where_it_is_faster():
    alone = Calibration(0.1, 5.0, 50.0, 5.0, 500.0, 20.0)
    both = Calibration(2.0, 10.0, 100.0, 10.0, 1000.0, 40.0, alone=alone)
    small = built(lambda b, x: b.add("neg", x), (4,))
    assert group_bound_us(small, group_of(small, [1]), both) < 0.2
    large = built(lambda b, x: b.add("neg", x), (4096, 4096))
    assert group_bound_us(large, group_of(large, [1]), both) == pytest.approx(
        group_bound_us(
            large, group_of(large, [1]), Calibration(2.0, 10.0, 100.0, 10.0, 1000.0, 40.0)
        )
    )


@pytest.mark.parametrize("seed", seeds(10))
def test_least_bytes_are_at_most_the_traffic(seed):
    graph = canonical(random_graph(seed, 40))
    for group in enumerate_groups(graph).groups:
        work = group_work(graph, group.nodes, group.outputs)
        traffic = group_traffic(graph, group)
        assert work.nbytes <= traffic.bytes
        assert work.cheap + work.special + work.contraction <= traffic.flops * (1 + 1e-9)


def test_a_reissued_loop_costs_every_trip_but_one_launch():
    graph = canonical(zoo_graph("cartpole_noconcat", "small"))
    loop = next(n for n, node in enumerate(graph.nodes) if node.op == "loop")
    call = graph.call(loop)
    body = FusionSpace(call["body"]).choose(lambda _, options: options[0])
    outputs = tuple(Value(loop, k) for k in range(len(graph[loop].types)))
    again = group_bound_us(graph, FusionGroup((loop,), outputs, body), FLAT)
    launched = replace(FLAT, launch_us=0.0)
    trips = call["trip"] * plan_bound_us(call["body"], body, launched)
    assert again == pytest.approx(FLAT.launch_us + trips)
    inside = group_bound_us(graph, FusionGroup((loop,), outputs), FLAT)
    assert 2.0 < inside <= again


def test_fusing_saves_under_the_bound():
    graph = canonical(zoo_graph("layer_norm_gelu", "small"))
    fused = FusionSpace(graph).choose(lambda _, options: options[0])
    bounds = [plan_bound_us(graph, p, NOMINAL) for p in (fused, unfused(graph).plan)]
    assert bounds[0] < bounds[1]


def test_peak_bytes_reuse_buffers():
    b = GraphBuilder()
    x = b.input("x", (1024,), F32)
    for _ in range(6):
        x = b.add("exp", x)
    graph = canonical(b.build([x]))
    alone = FusionPlan(tuple(group_of(graph, [n]) for n in range(1, 7)))
    assert peak_bytes(graph, alone) == 2 * 4096
    assert peak_bytes(graph, FusionPlan((group_of(graph, range(1, 7)),))) == 0


def test_calibration_goes_through_a_mapping_unchanged():
    alone = Calibration(0.1, 5.0, 50.0, 5.0, 500.0, 20.0, tiers=((1024, 20.0),))
    both = Calibration(2.0, 10.0, 1.0, 1.0, 1.0, 40.0, 77, ((1024, 40.0), (4096, 30.0)), alone)
    assert Calibration.from_mapping(both.to_mapping()) == both
    assert Calibration.from_mapping({**both.to_mapping(), "noise": 3.0}) == both


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan])
def test_rates_must_be_positive_numbers(bad):
    with pytest.raises(CalibrationError):
        Calibration(2.0, bad, 1.0, 1.0, 1.0, 40.0)
    with pytest.raises(CalibrationError):
        Calibration.from_mapping({"launch_us": 1.0})


def test_tiers_are_monotone():
    tiers = ((1 << 10, 80.0), (1 << 15, 40.0), (1 << 20, 20.0))
    device = Calibration(0.0, 10.0, 1.0, 1.0, 1.0, 80.0, cache_bytes=1 << 22, tiers=tiers)
    times = [device.move_us(float(1 << k)) for k in range(8, 28)]
    assert times == sorted(times)
    assert device.move_us(1 << 12) == pytest.approx((1 << 12) / 80e3)
    assert device.move_us(1 << 16) == pytest.approx((1 << 16) / 40e3)


def test_this_machine_can_be_calibrated():
    found = calibrate_cpu()
    assert Calibration.from_mapping(found.to_mapping()) == found
    assert found.cached_gbytes_per_s >= found.gbytes_per_s > 0.5
    assert found.contraction >= found.cheap > 0.1
    assert found.special > 0.05
    assert found.alone is None or found.alone.launch_us < found.launch_us


@pytest.mark.parametrize(("stop", "needed"), [((16, 4), 16 * 1000), ((1, 4), 1000)])
def test_the_largest_of_a_row_follow_from_all_of_it(stop: tuple[int, int], needed: int) -> None:
    b = GraphBuilder()
    x = b.input("x", (16, 1000), DType.F32)
    order = b.add("argsort", x, axis=1, descending=True)
    first = b.add("slice", order, start=(0, 0), stop=stop, stride=(1, 1))
    graph = canonical(b.build([first]))
    nodes = tuple(n for n, one in enumerate(graph.nodes) if one.op != "input")
    work = group_work(graph, nodes, graph.outputs)
    assert work.nbytes == 4 * (needed + graph.output_types[0].size)
