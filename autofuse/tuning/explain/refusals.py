"""Which rules of a baseline left the boundaries between the kernels of its plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from autofuse.baselines import baseline_named
from autofuse.baselines.base import Decision, node_label
from autofuse.graph.types import Graph, Value
from autofuse.plan.fusion.groups import host_loop
from autofuse.plan.types import FusionPlan
from autofuse.tuning.explain.explain import boundary_pairs


@dataclass(frozen=True, slots=True)
class Kept:
    """Values that one kernel of a baseline's plan writes and another one reads, and what its rules
    said against fusing the two, in the order they were asked (none: no rule was).

    `kernels` are positions in the plan, or in the plan of the loop body that `scope` leads to."""

    scope: tuple[int, ...]
    kernels: tuple[int, int]
    values: tuple[str, ...]
    bytes: int
    refusals: tuple[Decision, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data; `rule` is the last refusal's, the one that decided."""
        last = self.refusals[-1] if self.refusals else None
        return {
            "scope": list(self.scope),
            "kernels": list(self.kernels),
            "values": list(self.values),
            "bytes": self.bytes,
            "rule": None if last is None else last.rule,
            "refusals": [
                {"pass": d.pass_name, "producer": d.producer, "consumer": d.consumer,
                 "rule": d.rule, "reason": d.reason}
                for d in self.refusals
            ],
        }  # fmt: skip


def kept_apart(graph: Graph, baseline: str, plan: FusionPlan) -> tuple[Kept, ...]:
    """Every boundary of `plan`, which is that baseline's plan of a canonical graph."""
    decisions = [d for d in baseline_named(baseline)(graph).decisions if not d.fused]
    return tuple(_kept(graph, plan, decisions, ()))


def _last_words(decisions: Iterable[Decision]) -> tuple[Decision, ...]:
    """What each rule of each pass said last about each pair."""
    said = {(d.pass_name, d.rule, d.producer_node, d.consumer_node): d for d in decisions}
    return tuple(said.values())


def _kept(
    graph: Graph, plan: FusionPlan, decisions: Sequence[Decision], scope: tuple[int, ...]
) -> Iterator[Kept]:
    here = [d for d in decisions if d.scope == scope]
    nodes = [frozenset(group.nodes) for group in plan.groups]
    for (first, second), values in boundary_pairs(graph, plan).items():
        said = _last_words(d for d in here if _between(d, nodes[first], nodes[second]))
        size = sum(graph.type_of(v).nbytes for v in values)
        told = tuple(map(partial(_label, graph), values))
        yield Kept(scope, (first, second), told, size, said)
    for group in plan.groups:
        if group.body is not None:
            body, _ = host_loop(graph, group)
            yield from _kept(body, group.body, decisions, (*scope, group.nodes[0]))


def _between(decision: Decision, first: frozenset[int], second: frozenset[int]) -> bool:
    """Whether it is about these two kernels (siblings are asked in either order)."""
    ends = decision.producer_node, decision.consumer_node
    return (ends[0] in first and ends[1] in second) or (ends[1] in first and ends[0] in second)


def _label(graph: Graph, value: Value) -> str:
    return node_label(graph, value.node)
