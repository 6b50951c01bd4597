"""Explains why a searched plan is cut where it is: what fusing across each boundary would
have cost, and what storing each recomputed value would have cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from autofuse.cost.bounds import NOMINAL, Calibration, group_bound_us
from autofuse.cost.traffic import group_traffic, total
from autofuse.devices import device_named
from autofuse.graph.canonical import group_digest
from autofuse.graph.types import Graph, Value
from autofuse.plan.fusion.groups import reads
from autofuse.plan.fusion.legality import Refusal, check_group
from autofuse.plan.types import Candidate, FusionGroup, FusionPlan
from autofuse.tuning.cache_state import cache_state
from autofuse.tuning.explain.contests import Stored, timed_in
from autofuse.tuning.explain.crossings import CrossedWall, crossings, parts_of_crossings
from tuning_db import Store

MEASURED, BOUND, ILLEGAL = "measured", "bound", "illegal"


@dataclass(frozen=True, slots=True)
class Boundary:
    """Values that one kernel of a plan writes and another reads, and the two as one kernel.

    Kernels are positions in the plan; times are microseconds. `apart` and `merged` say whether a
    time is "measured" or a "bound" (of two kernels: a bound if one is); `merged` "illegal" comes
    with the rule that refused and its reason instead of a time."""

    producer: int
    consumer: int
    values: tuple[str, ...]
    bytes: int
    apart: str
    apart_us: float
    merged: str
    merged_us: float | None
    rule: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Recomputed:
    """A node that several kernels compute; had the first stored it for the others, the plan would
    have moved `more_bytes` more, done `fewer_flops` fewer operations, and cost `more_us`
    microseconds more by lower bounds (each may be negative)."""

    node: int
    kernels: tuple[int, ...]
    more_bytes: int
    fewer_flops: float
    more_us: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """`calibrated` says whether bounds rest on this device's own peaks."""

    boundaries: tuple[Boundary, ...]
    recomputed: tuple[Recomputed, ...]
    calibrated: bool
    crossings: tuple[CrossedWall, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain data, numbers unrounded."""
        return {
            "boundaries": [asdict(b) | {"values": list(b.values)} for b in self.boundaries],
            "recomputed": [asdict(r) | {"kernels": list(r.kernels)} for r in self.recomputed],
            "crossings": [
                asdict(c) | {"before": list(c.before), "after": list(c.after)}
                for c in self.crossings
            ],
            "calibrated": self.calibrated,
        }


@dataclass(frozen=True)
class Times:
    """Kernel times of one device: stored ones by group digest, else lower bounds."""

    graph: Graph
    stored: dict[str, float]
    calibration: Calibration

    def of(self, group: FusionGroup) -> tuple[str, float]:
        """Whether a group's time is measured or a bound, and the time in microseconds."""
        known = None if group.body else self.stored.get(digest_of(self.graph, group))
        return (BOUND, self.bound_us(group)) if known is None else (MEASURED, known)

    def bound_us(self, group: FusionGroup) -> float:
        return group_bound_us(self.graph, group, self.calibration)


def digest_of(graph: Graph, group: FusionGroup) -> str:
    return group_digest(graph, group.nodes, group.outputs)


def _digests(graph: Graph, groups: Sequence[FusionGroup]) -> set[str]:
    return {digest_of(graph, g) for g in groups}


def explain_plan(
    graph: Graph, candidate: Candidate, *, device: str = "auto", target: str = "",
    db: str | None = None,
) -> Explanation:  # fmt: skip
    """Every boundary and every recomputed node of a plan of a canonical graph.

    Raises AutofuseError for an unusable device or database."""
    plan, kind = candidate.plan, device_named(device, target)
    pairs = boundary_pairs(graph, plan)
    merged = {pair: merged_group(graph, plan, *pair) for pair in pairs}
    verdicts = {pair: _refusal(graph, plan, pair, merged[pair]) for pair in pairs}
    own = [g for g in plan.groups if g.body is None]
    wanted = [*own, *(merged[pair] for pair in pairs if verdicts[pair] is None)]
    wanted += parts_of_crossings(graph, plan)
    with Store.open(db) as store:
        environment = kind.backend.environment()
        peaks = store.calibration(environment)
        kernels = store.kernels(environment, _digests(graph, wanted))
    cache = timed_in(kernels, _digests(graph, own), cache_state("auto", graph, kind))
    stored = _stored(kernels, cache)
    calibration = Calibration.kept(peaks)
    times = Times(graph, stored, calibration or NOMINAL)
    boundaries = (
        _boundary(times, plan, pair, values, merged[pair], verdicts[pair])
        for pair, values in pairs.items()
    )
    return Explanation(
        tuple(boundaries),
        tuple(recomputed(times, plan)),
        calibration is not None,
        tuple(crossings(graph, plan, times.of)),
    )


def _stored(kernels: Stored, cache: str) -> dict[str, float]:
    """The least stored median of each kernel in a cache state."""
    best: dict[str, float] = {}
    for (digest, _, state, _), record in kernels.items():
        if state == cache and record.timing is not None:
            us = record.timing.median_us
            best[digest] = min(best.get(digest, us), us)
    return best


def boundary_pairs(graph: Graph, plan: FusionPlan) -> dict[tuple[int, int], tuple[Value, ...]]:
    """(producer, consumer) positions of groups, and the values that go from one to the other."""
    writer: dict[Value, int] = {}
    found: dict[tuple[int, int], list[Value]] = {}
    for position, group in enumerate(plan.groups):
        for value in reads(graph, group.nodes):
            if value in writer:
                found.setdefault((writer[value], position), []).append(value)
        for value in group.outputs:
            writer.setdefault(value, position)
    return {pair: tuple(values) for pair, values in sorted(found.items())}


def merged_group(graph: Graph, plan: FusionPlan, producer: int, consumer: int) -> FusionGroup:
    """Two groups of a plan as one: it need not write what only the consumer read."""
    first, second = plan.groups[producer], plan.groups[consumer]
    nodes = tuple(sorted({*first.nodes, *second.nodes}))
    wanted = set(graph.outputs)
    for position, group in enumerate(plan.groups):
        if position not in (producer, consumer):
            wanted.update(reads(graph, group.nodes))
    outputs = {v for v in first.outputs if v in wanted} | set(second.outputs)
    return FusionGroup(nodes, tuple(sorted(outputs)))


def _refusal(
    graph: Graph, plan: FusionPlan, pair: tuple[int, int], merged: FusionGroup
) -> Refusal | None:
    if any(plan.groups[k].body is not None for k in pair):
        return Refusal("re-issued", "a loop whose body is run by the host is several kernels")
    verdict = check_group(graph, merged.nodes, merged.outputs)
    return verdict if isinstance(verdict, Refusal) else None


def _boundary(
    times: Times, plan: FusionPlan, pair: tuple[int, int], values: tuple[Value, ...],
    merged: FusionGroup, refusal: Refusal | None,
) -> Boundary:  # fmt: skip
    apart = [times.of(plan.groups[k]) for k in pair]
    how = MEASURED if all(kind == MEASURED for kind, _ in apart) else BOUND
    kind, us = (ILLEGAL, None) if refusal is not None else times.of(merged)
    return Boundary(
        producer=pair[0],
        consumer=pair[1],
        values=tuple(map(str, values)),
        bytes=sum(times.graph.type_of(v).nbytes for v in values),
        apart=how,
        apart_us=sum(us for _, us in apart),
        merged=kind,
        merged_us=us,
        rule=None if refusal is None else refusal.rule,
        reason=None if refusal is None else refusal.reason,
    )


def recomputed(times: Times, plan: FusionPlan) -> Iterable[Recomputed]:
    """The nodes that several groups compute, and what storing each would have changed."""
    graph, places = times.graph, dict[int, list[int]]()
    for position, group in enumerate(plan.groups):
        for node in group.nodes:
            places.setdefault(node, []).append(position)
    for node, where in sorted(places.items()):
        if len(where) < 2:
            continue
        now = [plan.groups[k] for k in where]
        then = stored_instead(graph, node, now)
        one, other = (total(group_traffic(graph, g) for g in groups) for groups in (now, then))
        more_us = sum(map(times.bound_us, then)) - sum(map(times.bound_us, now))
        yield Recomputed(
            node, tuple(where), other.bytes - one.bytes, one.flops - other.flops, more_us
        )


def stored_instead(graph: Graph, node: int, groups: list[FusionGroup]) -> list[FusionGroup]:
    """Groups that all compute a node, changed: the first writes it and the others read it."""
    first, *others = groups
    used = {v for g in others for n in g.nodes for v in graph[n].inputs if v.node == node} | {
        v for g in others for v in g.outputs if v.node == node
    }
    found = [replace(first, outputs=tuple(sorted({*first.outputs, *used})))]
    for group in others:
        outputs = tuple(v for v in group.outputs if v.node != node)
        needed = {v.node for v in outputs}
        for n in sorted(group.nodes, reverse=True):
            if n in needed:
                needed.update(v.node for v in graph[n].inputs if v.node != node)
        nodes = tuple(n for n in group.nodes if n in needed)
        if nodes:
            found.append(FusionGroup(nodes, outputs))
    return found
