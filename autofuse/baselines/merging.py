"""What planners that merge kernels share: verdicts with reasons, clusters that rules merge, and the
plan that they make."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autofuse.baselines.base import (
    Baseline,
    BaselineResult,
    Decision,
    node_label,
    planned_bodies,
)
from autofuse.baselines.buildable import buildable
from autofuse.graph.types import Graph
from autofuse.patience import look
from autofuse.plan.fusion.clusters import Clusters, live
from autofuse.plan.fusion.partition import is_rematerialisable, plan_of_sets
from autofuse.plan.types import LoopBody

MergeRefusal = tuple[str, str] | None  # the rule that refuses and its reason; None: all agree


class Notes:
    """Verdicts on pairs of nodes, in order; the last verdict of a pass on a pair stands."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._found: dict[tuple[str, int, int], Decision] = {}

    def add(
        self,
        pass_name: str,
        producer: int,
        consumer: int,
        refusal: MergeRefusal,
        fused: tuple[str, str],
    ) -> None:
        """Record `refusal`, or that the pair was `fused` by a rule for a reason. A node that is
        its own consumer is considered for the graph's result."""
        rule, reason = fused if refusal is None else refusal
        into = "result" if producer == consumer else node_label(self.graph, consumer)
        self._found[pass_name, producer, consumer] = Decision(
            pass_name, node_label(self.graph, producer), into, refusal is None, rule, reason,
            producer, consumer,
        )  # fmt: skip

    @property
    def decisions(self) -> tuple[Decision, ...]:
        return tuple(self._found.values())


class Fusing(Clusters):
    """The computed nodes of a graph being merged by rules.

    Rematerialisable nodes (`plan.partition`) are no items: every kernel that reads one computes it.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph, self.notes = graph, Notes(graph)
        self.live = live(graph)
        self.items = [n for n in self.live if not is_rematerialisable(graph, n)]
        inside = set(self.items)
        self.operands = {
            n: tuple(dict.fromkeys(v.node for v in graph[n].inputs if v.node in inside))
            for n in self.items
        }
        self.users = {n: [u for u in graph.users[n] if u in inside] for n in self.items}
        self.outputs = {v.node for v in graph.outputs}
        super().__init__(self.operands)

    def group(self, node: int) -> list[int]:
        return self.members[self.home[node]]

    def user_count(self, node: int) -> int:
        """Readers of a node, the graph's result counting as one."""
        return len(self.users[node]) + (node in self.outputs)

    def refusal(self, rules: Rules, producer: int, consumer: int) -> MergeRefusal:
        """The first of `rules` that refuses, or that a third kernel lies between the two."""
        look()
        for name, rule in rules:
            reason = rule(self, producer, consumer)
            if reason is not None:
                return name, reason
        third = self.between(self.home[producer], self.home[consumer])
        if third is None:
            return None
        return "cycle", f"the kernel of %{third} lies between them"

    def try_merge(
        self, pass_name: str, rules: Rules, producer: int, consumer: int, how: tuple[str, str]
    ) -> bool:
        """Merge the kernels of two nodes unless a rule refuses; the verdict is kept."""
        if self.home[producer] == self.home[consumer]:
            return False
        refusal = self.refusal(rules, producer, consumer)
        self.notes.add(pass_name, producer, consumer, refusal, how)
        if refusal is None:
            self.merge(self.home[producer], self.home[consumer])
        return refusal is None

    def edges(self) -> list[tuple[int, int]]:
        """(producer, consumer) of every read, consumers ascending."""
        return [(p, n) for n in self.items for p in self.operands[n]]

    def result(self, planner: Baseline) -> BaselineResult:
        """The clusters as a plan; bodies of loops are planned by `planner`."""
        bodies, inner = planned_bodies(self.graph, self.live, planner)
        sets = [frozenset(members) for members in self.members.values()]
        reissued = {n: LoopBody(plan) for n, plan in bodies.items()}
        plan = plan_of_sets(self.graph, sets, reissued)
        return buildable(self.graph, BaselineResult(plan, (*self.notes.decisions, *inner)))


# Says why the kernels of a producer and a consumer must not be one, or None.
Rule = Callable[[Fusing, int, int], str | None]
Rules = Sequence[tuple[str, Rule]]
