"""Chains of dependent operations in loops: what a loop takes at least, however it is run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import autofuse.frontends.array_api as xp
from autofuse.cost import chains
from autofuse.cost.bounds import Calibration, group_bound_us, kernel_bound_us, plan_bound_us
from autofuse.cost.chains import chain_us
from autofuse.cost.latency import FIXED, PLAIN, delays_of, reassociated
from autofuse.cost.least import graph_bound_us
from autofuse.cost.ready import KNOWN, ReadyAt, node_ready
from autofuse.cost.work import group_work
from autofuse.devices import device_named
from autofuse.frontends import spec, trace
from autofuse.graph.types import Graph
from autofuse.measure.calibrate.chains import HELD, Chain, all_chains, calibrate_chains
from autofuse.ops.dtypes import DType
from autofuse.plan.fusion.groups import host_loop, is_source
from autofuse.plan.types import FusionPlan
from autofuse.simplify import normal_form
from autofuse.tuning.plans import fused_candidate
from tests.support.loop_graphs import loop_graph

# Nanoseconds: about the cycles of a processor of today at 1 GHz.
NS = {"add": 3.0, "mul": 3.0, "fma": 4.0, "div": 10.0, "tanh": 20.0, "sin": 30.0}
LATENCY = tuple(
    (f"{name}.{dtype}.0", ns) for name, ns in sorted(NS.items()) for dtype in ("f32", "f64")
)
TRIP = 1000
# Peaks of a device that does everything but waiting at once.
PEAKS = Calibration(0.0, 1e9, 1e9, 1e9, 1e9, 1e9, latency=LATENCY)
V, M = spec((8,)), spec((16, 16))
Step = Callable[..., tuple]


def chain_of(graph: Graph) -> float:
    """Nanoseconds of a kernel of the whole graph."""
    nodes = [n for n in range(len(graph.nodes)) if not is_source(graph, n)]
    return chain_us(graph, nodes, graph.outputs, LATENCY) * 1e3


def ns_of(fn: Callable, *specs) -> float:
    return chain_of(normal_form(trace(fn, *specs)))


def loop(step: Step, *states, trip: int = TRIP, wanted: int = 0):
    return xp.fori_loop(trip, lambda t, carried: step(*carried), states)[wanted]


def shifted(values, new):
    return xp.concat([xp.reshape(new, (1,)), values[:-1]])


@pytest.mark.parametrize(
    ("fn", "specs", "ns"),
    [
        (lambda x: loop(lambda s: (xp.tanh(s),), x), (V,), 20),
        # A product and a sum may be one operation; one of two products in a sum is not.
        (lambda x, a, b: loop(lambda s: (s * a + b,), x), (V, V, V), 4),
        (lambda x, a: loop(lambda s: (s * s - (s + a) * a,), x), (V, V), 7),
        (lambda x, a: loop(lambda s: (s / a + 1.5,), x), (V, V), 3 + 3),
        (lambda x, a: loop(lambda s: (a / s,), x), (V, V), 10),
        (lambda x: loop(lambda s: (xp.maximum(xp.tanh(s), -0.5),), x), (V,), 20),
        # Of two states that make each other the mean counts.
        (lambda x, y: loop(lambda s, t: (t + 1.5, xp.tanh(s)), x, y), (V, V), 11.5),
        # Sums may be taken in any order: a tree of 16 terms is four sums deep.
        (lambda x, w, c: loop(lambda s: (xp.tanh(w @ s + c),), x),
         (spec((16,)), M, spec((16,))), 1 + 4 * 3 + 20),
        (lambda x: loop(lambda s: (xp.tanh(s - xp.sum(s)),), x), (V,), 3 * 3 + 20),
        # What comes last is added last: older results have been added before.
        (lambda x, a: loop(lambda s: (shifted(s, xp.tanh(s[0] + xp.sum(s[1:] * a))),), x),
         (spec((5,)), spec((4,))), 23),
        (lambda x: loop(lambda s: (shifted(s, xp.tanh(s[-1])),), x), (spec((4,)),), 20 / 4),
        # Loops in loops, and one after the other.
        (lambda x, y: loop(lambda s: (loop(lambda t: (xp.tanh(t),), s + y, trip=50),), x),
         (V, V), 50 * 20 + 3),
        (lambda x: loop(lambda s: (xp.sin(s),), loop(lambda s: (xp.tanh(s),), x)), (V,), 50),
    ],
)  # fmt: skip
def test_each_iteration_waits_for_the_one_before(fn: Callable, specs: tuple, ns: float) -> None:
    assert ns_of(fn, *specs) == pytest.approx(TRIP * ns, rel=0.01)


@pytest.mark.parametrize(
    ("fn", "specs"),
    [
        # Processors guess which branch is taken.
        (lambda x, a: loop(lambda s: (xp.where(s > 3.0, a, xp.tanh(s)),), x), (V, V)),
        # Nobody reads what waits.
        (lambda x, y: loop(lambda s, t: (xp.tanh(s), t), x, y, wanted=1), (V, V)),
        # Nothing waits: all iterations may be done at once.
        (lambda x: xp.scan(lambda t, s: (s, xp.tanh(xp.take(x, t, axis=0))), (), TRIP)[1],
         (spec((TRIP, 8)),)),
        (lambda x: loop(lambda s: (s * 3 + 1,), x), (spec((8,), "i32"),)),
        # Of literals alone it is known what comes out.
        (lambda x: loop(lambda s: (xp.tanh(s) + 0.5,), xp.zeros(8)) + x, (V,)),
    ],
)  # fmt: skip
def test_what_waits_for_nothing_sure_counts_nothing(fn: Callable, specs: tuple) -> None:
    assert ns_of(fn, *specs) == 0


def test_a_while_may_have_no_iteration() -> None:
    def fn(x, y):
        return xp.while_loop(lambda s: xp.max(s) < 9.0, lambda s: xp.tanh(s) + y, x, max_trips=50)

    assert ns_of(fn, V, V) == 0


def test_iterations_on_literals_alone_are_left_out() -> None:
    def fn(x):
        return loop(lambda s: (xp.tanh(s + x),), xp.zeros(8))

    assert ns_of(fn, V) == pytest.approx((TRIP - 1) * 23, rel=1e-6)


def test_without_latencies_there_is_no_chain() -> None:
    graph = normal_form(trace(lambda x: loop(lambda s: (xp.tanh(s),), x), V))
    nodes = [n for n in range(len(graph.nodes)) if not is_source(graph, n)]
    assert chain_us(graph, nodes, graph.outputs, ()) == 0
    bare = replace(PEAKS, latency=())
    assert graph_bound_us(graph, bare) < 0.01 < 19 < graph_bound_us(graph, PEAKS)


def test_bounds_of_kernels_and_plans_wait_for_loops() -> None:
    graph = normal_form(trace(lambda x: loop(lambda s: (xp.tanh(s),), x), V))
    candidate = fused_candidate(graph, device_named("cpu").space)
    plan = candidate.plan
    (group,) = plan.groups
    assert kernel_bound_us(graph, group.nodes, group.outputs, PEAKS) == pytest.approx(20, rel=0.01)
    assert plan_bound_us(graph, plan, PEAKS) == pytest.approx(20, rel=0.01)
    alone = replace(PEAKS, launch_us=5.0, alone=PEAKS)
    assert plan_bound_us(graph, plan, alone) == pytest.approx(20, rel=0.01), "one thread waits, too"
    work = replace(PEAKS, cheap=1e-3, special=1e-3)
    assert plan_bound_us(graph, plan, work) > 1000, "waiting and computing overlap"


def test_relaxed_arithmetic_leaves_functions() -> None:
    left = dict(reassociated(LATENCY))
    assert {name.split(".")[0] for name in left} == {"tanh", "sin"}
    assert delays_of(tuple(left.items()))[DType.F32].add == 0


def test_the_least_of_all_widths_counts() -> None:
    found = delays_of((("add.f32.0", 3.0), ("add.f32.256", 2.0), ("add.f64.0", 5.0)))
    assert found[DType.F32].add == 2.0
    assert found[DType.F64].add == 2.0, "what is rounded to f32 may be computed there"


def test_a_calibration_keeps_latencies() -> None:
    both = replace(PEAKS, alone=PEAKS)
    assert Calibration.kept(both.to_mapping()) == both
    without = {k: v for k, v in PEAKS.to_mapping().items() if not k.startswith("latency.")}
    assert Calibration.kept(without) == replace(PEAKS, latency=())


def test_each_element_has_a_time_of_its_own_where_there_are_few() -> None:
    graph = trace(lambda x, y: xp.concat([x, y]), spec((2,)), spec((3,)))
    (node,) = (n for n in range(len(graph.nodes)) if not is_source(graph, n))
    found = node_ready(graph, node, [ReadyAt(np.array([1.0, 5.0])), KNOWN], delays_of(LATENCY))
    assert found.at.tolist() == [1.0, 5.0, *[-np.inf] * 3]


@pytest.mark.parametrize("seed", range(12))
def test_periods_say_what_all_iterations_would(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never more than iteration by iteration, and little less."""

    def found() -> float:
        chains._known_loop.cache_clear()
        chains._chain_ns.cache_clear()
        return chain_of(graph)

    graph = loop_graph(seed, 1)
    short = found()
    monkeypatch.setattr(chains, "PERIODS", (10**6,) * 3)
    monkeypatch.setattr(chains, "BEGUN_NS", 1e-9)
    exact = found()
    assert 0.95 * exact - 100 <= short <= exact * (1 + 1e-6)


def test_a_loop_that_begins_a_little_later_is_known() -> None:
    """Kernels that differ in what is before a loop go through it once, and its bound is none too
    high."""

    def program(x: object, y: object, z: object) -> object:
        return loop(lambda s, t, u: (xp.tanh(s + t), u, s), x - 2.0, y, z)

    graph = normal_form(trace(program, V, V, V))
    nodes = [n for n in range(len(graph.nodes)) if not is_source(graph, n)]
    (control,) = (n for n in nodes if graph[n].op == "loop")
    chains._known_loop.cache_clear()
    whole = chain_us(graph, nodes, graph.outputs, LATENCY)
    alone = chain_us(graph, [control], graph.outputs, LATENCY)
    assert chains._known_loop.cache_info().misses == 1
    assert whole == alone > 0


def test_every_operation_of_a_chain_is_measured() -> None:
    names = {chain.name for chain in all_chains()}
    assert FIXED | set(PLAIN) == names - {HELD}
    assert all(chain.starts for chain in all_chains())
    assert 0.0 not in Chain("log", DType.F32, None).starts


def test_latencies_of_this_machine_are_those_of_a_processor() -> None:
    """An operation takes some cycles of some gigahertz; no more than that is known of any."""
    found = delays_of(calibrate_chains())
    for dtype in (DType.F32, DType.F64):
        own = found[dtype]
        assert 0.1 < own.add < 20 and 0.1 < own.mul < 20 and own.fma < own.add + own.mul + 1
        assert own.div > 0.5 * own.mul


def test_what_only_the_last_iteration_is_asked_for_is_computed_once() -> None:
    def fn(x, y):
        return xp.fori_loop(TRIP, lambda t, s: (s[0] * 0.5, xp.exp(s[0])), (x, y))

    graph = normal_form(trace(fn, V, V))
    nodes = [n for n in range(len(graph.nodes)) if not is_source(graph, n)]
    work = group_work(graph, nodes, graph.outputs)
    assert dict(work.calls) == {"exp.f32": 8} and work.cheap == TRIP * 8


def test_a_loop_of_the_host_is_launched_as_one_thread_is() -> None:
    graph = normal_form(trace(lambda x: loop(lambda s: (xp.tanh(s),), x, trip=2), V))
    candidate = fused_candidate(graph, device_named("cpu").space)
    (group,) = candidate.plan.groups
    body, _ = host_loop(graph, replace(group, body=FusionPlan(()), unroll=1))
    inner = fused_candidate(body, device_named("cpu").space).plan
    dear = replace(PEAKS, launch_us=5.0, alone=replace(PEAKS, launch_us=1.0))
    found = group_bound_us(graph, replace(group, body=inner, unroll=1), dear)
    assert found == pytest.approx(1.04, rel=1e-3), "and waits for its iterations"
