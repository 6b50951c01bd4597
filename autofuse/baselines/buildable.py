"""Plans of rules that follow another compiler's code generators, made of kernels ours can build."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autofuse.baselines.base import BaselineResult, Decision, node_label
from autofuse.graph.surgery.host_body import host_body
from autofuse.graph.types import Graph
from autofuse.plan.fusion.legalise import legalise
from autofuse.plan.fusion.legality import refusal_of
from autofuse.plan.types import FusionPlan

PASS = "kernel-forms"


def buildable(graph: Graph, result: BaselineResult) -> BaselineResult:
    """The result with every group that no kernel of ours can be cut, and a decision for each."""
    cuts = tuple(_cuts(graph, result.plan, ()))
    if not cuts:
        return result
    plan, _ = legalise(graph, result.plan)
    return BaselineResult(plan, (*result.decisions, *cuts))


def _cuts(graph: Graph, plan: FusionPlan, scope: Sequence[int]) -> Iterator[Decision]:
    for group in plan.groups:
        if group.body is not None:
            loop = group.nodes[0]
            yield from _cuts(host_body(graph.call(loop)), group.body, (*scope, loop))
            continue
        verdict = refusal_of(graph, group.nodes, group.outputs)
        if verdict is not None:
            first, last = group.nodes[0], group.outputs[0].node
            yield Decision(
                PASS, node_label(graph, first), node_label(graph, last), False, verdict.rule,
                f"no kernel of ours is this group, so it was cut: {verdict.reason}",
                first, last, tuple(scope),
            )  # fmt: skip
