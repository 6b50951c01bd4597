"""What of a loop's body every iteration needs."""

from __future__ import annotations

from autofuse.graph.types import Graph
from autofuse.plan.fusion.clusters import needed


def always_needed(body: Graph, carries: int) -> frozenset[int]:
    """Nodes that each iteration computes: those of what it leaves on a stack, and of states that
    later iterations are made of. Compilers leave out what only the last iteration is asked for."""
    wanted = set(range(len(body.outputs)))
    while True:
        above = frozenset(
            needed(body, (body.outputs[k].node for k in wanted), range(len(body.nodes)))
        )
        kept = {k for k in wanted if k >= carries or body.inputs[1 + k] in above}
        if kept == wanted:
            return above
        wanted = kept
