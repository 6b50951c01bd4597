"""Why a searched plan is cut where it is: boundaries and recomputed nodes, without measuring."""

from __future__ import annotations

from pathlib import Path

import pytest

import autofuse.frontends.array_api as xp
from autofuse.backends.cpu.fingerprint import cpu_environment
from autofuse.commands.boundaries import why_lines
from autofuse.frontends import spec, trace
from autofuse.frontends.array_api.array import TracedArray
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph, Value
from autofuse.plan.fusion.clusters import live
from autofuse.plan.fusion.groups import group_of, is_source, ordered_plan
from autofuse.plan.types import Candidate, FusionGroup, FusionPlan, LaunchConfig
from autofuse.records import Cost, KernelMeasurement, Timing
from autofuse.tuning.explain.explain import digest_of, explain_plan, merged_group
from tuning_db import Store


def shares() -> Graph:
    """e / sum(e) along rows with e = exp(x)."""

    def fn(x: TracedArray) -> TracedArray:
        e = xp.exp(x)
        return e / xp.sum(e, axis=1, keepdims=True)

    return canonical(trace(fn, spec((24, 40))))


def unfused(graph: Graph) -> FusionPlan:
    nodes = [n for n in range(len(graph.nodes)) if not is_source(graph, n)]
    return ordered_plan(graph, [group_of(graph, [n]) for n in nodes])


def candidate(plan: FusionPlan) -> Candidate:
    return Candidate(plan, (LaunchConfig(),) * len(plan.groups), ((),) * len(plan.groups))


def keep(db: Path, graph: Graph, group: FusionGroup, us: float, cache: str = "warm") -> None:
    """Store a time of a kernel."""
    timing = Timing(9, us, us, us, us, us, 0.0, cache, "samples")
    record = KernelMeasurement(
        digest_of(graph, group), "{}", cache, "", timing, None, 0.0, Cost(), None
    )
    with Store.open(str(db)) as store:
        session = store.start_session(cpu_environment(), "d" * 32, "exact", 0, 1.0)
        store.add_kernel(session, cpu_environment(), record)


def test_every_boundary_is_measured_bounded_or_refused(tmp_path: Path) -> None:
    db, graph = tmp_path / "t.db", shares()
    plan = unfused(graph)
    with Store.open(str(db)) as store:
        store.add_workload("d" * 32, "text", "mine", 1)
    merged = merged_group(graph, plan, 0, 1)
    assert set(merged.outputs) > set(plan.groups[1].outputs)  # exp is also read by the division
    for group, us in ((plan.groups[0], 5.0), (plan.groups[1], 4.0), (merged, 7.0)):
        keep(db, graph, group, us)
    found = explain_plan(graph, candidate(plan), device="cpu", db=str(db))
    by_pair = {(b.producer, b.consumer): b for b in found.boundaries}
    first = by_pair[0, 1]
    assert (first.apart, first.apart_us, first.merged, first.merged_us) == (
        "measured", 9.0, "measured", 7.0,
    )  # fmt: skip
    refused = by_pair[0, len(plan.groups) - 1]
    assert refused.merged == "illegal" and refused.rule == "convex" and refused.merged_us is None
    bounded = by_pair[1, 2]
    assert bounded.merged == bounded.apart == "bound" and bounded.merged_us is not None
    assert 0 < bounded.merged_us < bounded.apart_us and not found.calibrated
    text = "\n".join(why_lines(graph, found.to_json()))
    assert "2 µs faster" in text and "[convex]" in text and "at least" in text
    assert "fast machine" in text


def test_times_are_of_the_cache_state_that_the_plan_was_tuned_in(tmp_path: Path) -> None:
    db, graph = tmp_path / "t.db", shares()
    plan = unfused(graph)
    with Store.open(str(db)) as store:
        store.add_workload("d" * 32, "text", "mine", 1)
    for group, us in ((plan.groups[0], 5.0), (plan.groups[1], 4.0)):
        keep(db, graph, group, us, "cold")
    keep(db, graph, plan.groups[0], 1.0, "warm")
    first = explain_plan(graph, candidate(plan), device="cpu", db=str(db)).boundaries[0]
    assert (first.apart, first.apart_us) == ("measured", 9.0)


def test_a_recomputed_node_is_weighed_against_storing_it(tmp_path: Path) -> None:
    graph = shares()
    ops = {graph[n].op: n for n in range(len(graph.nodes)) if not is_source(graph, n)}
    exp, total = ops["exp"], ops["reduce_sum"]
    rest = tuple(n for n in ops.values() if n not in (exp, total))
    plan = FusionPlan(
        (
            FusionGroup(tuple(sorted((exp, total))), (Value(total),)),
            FusionGroup(tuple(sorted((exp, *rest))), graph.outputs),
        )
    )
    found = explain_plan(graph, candidate(plan), device="cpu", db=str(tmp_path / "t.db"))
    (one,) = found.recomputed
    nbytes = 24 * 40 * 4
    # Stored, it is written once and read instead of the input that the second kernel reads now.
    assert (one.node, one.kernels, one.more_bytes) == (exp, (0, 1), nbytes)
    assert one.fewer_flops > 0 and one.more_us > -1e3
    lines = list(why_lines(graph, found.to_json()))
    assert any("is computed in kernels 0, 1" in line for line in lines)
    assert any("3.75 KiB more to move" in line for line in lines)


def test_a_plan_of_one_kernel_has_no_boundary(tmp_path: Path) -> None:
    graph = shares()
    nodes = [n for n in range(len(graph.nodes)) if not is_source(graph, n)]
    plan = FusionPlan((group_of(graph, nodes),))
    found = explain_plan(graph, candidate(plan), device="cpu", db=str(tmp_path / "t.db"))
    assert found.boundaries == () and found.recomputed == ()
    assert next(iter(why_lines(graph, found.to_json()))).startswith("no kernel")


@pytest.mark.parametrize("text", ["%3", "%3.1"])
def test_values_are_named_by_their_node(text: str, tmp_path: Path) -> None:
    graph = shares()
    row = {
        "producer": 0, "consumer": 1, "values": [text], "bytes": 4, "apart": "measured",
        "apart_us": 2.0, "merged": "bound", "merged_us": 3.0, "rule": None, "reason": None,
    }  # fmt: skip
    lines = list(
        why_lines(
            graph, {"boundaries": [row], "recomputed": [], "crossings": [], "calibrated": True}
        )
    )
    assert lines[0].startswith(f"kernel 0 -> kernel 1: {text} {graph[3].op}")
    assert "never measured" in lines[2]


def test_what_crossed_the_wall_of_a_product_is_told(tmp_path: Path) -> None:
    graph = canonical(trace(lambda x, w: xp.tanh(xp.exp(x) @ w), spec((32, 16)), spec((16, 48))))
    nodes = live(graph)
    plan = FusionPlan((group_of(graph, nodes),))
    found = explain_plan(graph, candidate(plan), device="cpu", db=str(tmp_path / "t.db"))
    (crossing,) = found.crossings
    assert crossing.kernel == 0 and graph[crossing.product].op == "dot_general"
    assert [graph[int(v[1:])].op for v in (*crossing.before, *crossing.after)] == ["exp", "tanh"]
    assert crossing.bytes == 2 * 4 * (32 * 16 + 32 * 48)
    assert crossing.apart_us > crossing.fused_us, "by lower bounds one kernel is better"
    lines = list(why_lines(graph, found.to_json()))
    assert any("takes in" in line and "goes on with" in line for line in lines)
    apart = FusionPlan(tuple(group_of(graph, (n,)) for n in nodes))
    alone = explain_plan(graph, candidate(apart), device="cpu", db=str(tmp_path / "t.db"))
    assert alone.crossings == ()
