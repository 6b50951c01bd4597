"""What a plan costs apart from time: launches, bytes, arithmetic, recomputation and memory, and
which value's trip through memory each byte belongs to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from autofuse.cost.traffic import read_bytes, written_bytes
from autofuse.graph.types import Graph, Value
from autofuse.plan.fusion.groups import host_loop, is_source
from autofuse.plan.program.binding import groups_of_calls
from autofuse.plan.program.schedule import launches_per_call, schedule
from autofuse.plan.types import Candidate, FusionPlan
from autofuse.records import Account, Trip


def account(graph: Graph, candidate: Candidate) -> Account:
    """The account of a legal candidate of a canonical graph; raises PlanError where it does not
    fit the graph."""
    calls = schedule(graph, candidate)
    recomputed, recomputed_flops = _recomputed(graph, candidate.plan)
    trips = tuple(_trips(graph, candidate.plan, 1, ""))
    return Account(
        kernels=kernel_count(candidate.plan),
        launches=launches_per_call(calls.steps),
        read_bytes=sum(t.read_bytes for t in trips),
        written_bytes=sum(t.written_bytes for t in trips),
        flops=_flops(graph, candidate.plan),
        recomputed=recomputed,
        recomputed_flops=recomputed_flops,
        peak_bytes=calls.workspace + calls.binding.held,
        trips=trips,
    )


def kernel_count(plan: FusionPlan) -> int:
    """Kernels a plan holds, those of host loop bodies once."""
    return sum(1 if g.body is None else kernel_count(g.body) for g in plan.groups)


def _trips(graph: Graph, plan: FusionPlan, times: int, where: str) -> Iterator[Trip]:
    """Iterations of every value by node number, then those inside each host loop."""
    read: Counter[Value] = Counter()
    readers: Counter[Value] = Counter()
    written: Counter[Value] = Counter()
    called = groups_of_calls(graph, plan)
    for group in called:
        if group.body is not None:
            continue
        for value, count in read_bytes(graph, group).items():
            read[value] += count
            readers[value] += 1
        for value in group.outputs:
            written[value] += written_bytes(graph, group, value)
    for value in sorted({*read, *written}):
        node = graph[value.node]
        yield Trip(
            place=f"{value}{where}",
            op=node.op,
            type=str(graph.type_of(value)),
            source=is_source(graph, value.node),
            written_bytes=times * written[value],
            read_bytes=times * read[value],
            readers=readers[value],
        )
    for group in called:
        if group.body is not None:
            body, trips = host_loop(graph, group)
            at_once = f", {group.unroll} at once" if group.unroll > 1 else ""
            inside = (
                f" in loop %{group.nodes[0]} ({trips * group.unroll} iterations{at_once}){where}"
            )
            yield from _trips(body, group.body, times * trips, inside)


def _flops(graph: Graph, plan: FusionPlan) -> float:
    """Arithmetic per call, recomputation included."""
    total = 0.0
    for group in groups_of_calls(graph, plan):
        if group.body is None:
            total += sum(float(graph[n].spec.flops(graph.call(n))) for n in group.nodes)
        else:
            body, trips = host_loop(graph, group)
            total += trips * _flops(body, group.body)
    return total


def _recomputed(graph: Graph, plan: FusionPlan) -> tuple[int, float]:
    """Computations beyond the first of each node, and their arithmetic, per call."""
    called = groups_of_calls(graph, plan)
    counts = Counter(n for group in called for n in group.nodes)
    count, flops = 0, 0.0
    for node, computed in counts.items():
        if computed > 1:
            count += computed - 1
            flops += (computed - 1) * float(graph[node].spec.flops(graph.call(node)))
    for group in called:
        if group.body is not None:
            body, trips = host_loop(graph, group)
            inner, inner_flops = _recomputed(body, group.body)
            count, flops = count + trips * inner, flops + trips * inner_flops
    return count, flops
