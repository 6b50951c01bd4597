"""The rule that nothing is fused."""

from autofuse.baselines.base import BaselineResult, Decision, node_label
from autofuse.baselines.unfused import unfused
from autofuse.graph.types import Graph


def alone(graph: Graph) -> BaselineResult:
    """A kernel for each op, and for each edge of the graph the rule that refused it."""
    labels = [node_label(graph, n) for n in range(len(graph.nodes))]
    refused = (
        Decision("alone", labels[v.node], labels[n], False, "alone", "no op shares a kernel")
        for n, node in enumerate(graph.nodes)
        for v in node.inputs
    )
    return BaselineResult(unfused(graph).plan, tuple(refused))
