"""What a rule-based planner returns: a plan, and why each fusion was made or refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from autofuse.graph.surgery.host_body import host_body
from autofuse.graph.types import Graph
from autofuse.ops.spec import Family
from autofuse.plan.types import FusionPlan


@dataclass(frozen=True, slots=True)
class Decision:
    """One verdict of one rule on fusing `producer` into `consumer` (or, for siblings, of the
    second into the first).

    `rule` names the rule that refused, or the pass's way of fusing; `producer_node` and
    `consumer_node` are node ids of the graph planned. `scope` is the path of loop nodes whose
    bodies enclose it, outermost first.
    """

    pass_name: str
    producer: str
    consumer: str
    fused: bool
    rule: str
    reason: str
    producer_node: int = -1
    consumer_node: int = -1
    scope: tuple[int, ...] = ()

    def __str__(self) -> str:
        verdict = "fused  " if self.fused else "refused"
        where = "".join(f"in %{loop}: " for loop in self.scope)
        tail = f"[{self.rule}] {self.reason} ({self.pass_name})"
        return f"{verdict}  {where}{self.producer} -> {self.consumer}  {tail}"


@dataclass(frozen=True, slots=True)
class BaselineResult:
    """A plan of a canonical graph, and the decisions that led to it in the order of the passes."""

    plan: FusionPlan
    decisions: tuple[Decision, ...] = ()


Baseline = Callable[[Graph], BaselineResult]

# Names of rules that are left out.
Off = frozenset[str]
NONE_OFF: Off = frozenset()


def node_label(graph: Graph, node: int) -> str:
    """How people are shown a node: "%12 concat 'state'"."""
    found = graph[node]
    name = f" '{found.name}'" if found.name else ""
    return f"%{node} {found.op}{name}"


def explain(result: BaselineResult, graph: Graph) -> list[str]:
    """One line per group of the plan and per decision, for `autofuse show --why`."""
    lines = [
        f"group {k}: {', '.join(node_label(graph, n) for n in group.nodes)}"
        for k, group in enumerate(result.plan.groups)
    ]
    return lines + [str(decision) for decision in result.decisions]


def planned_bodies(
    graph: Graph, nodes: Iterable[int], planner: Baseline
) -> tuple[dict[int, FusionPlan], list[Decision]]:
    """Plans of the bodies of the loops among `nodes`, and their decisions with their scope."""
    plans: dict[int, FusionPlan] = {}
    decisions: list[Decision] = []
    for node in nodes:
        if graph[node].spec.family is Family.CONTROL:
            result = planner(host_body(graph.call(node)))
            plans[node] = result.plan
            decisions += [replace(d, scope=(node, *d.scope)) for d in result.decisions]
    return plans, decisions
