"""What kind of work a group is: groups of one kind lie about as far above their lower bounds."""

from __future__ import annotations

from autofuse.graph.types import Graph
from autofuse.ops.spec import Family
from autofuse.plan.types import FusionGroup


def kind_of_work(graph: Graph, group: FusionGroup) -> tuple[tuple[str, ...], int]:
    """The products of a group by the types of their operands, and its reductions (two stand for
    more): what decides first how far above its lower bound a kernel lies."""
    made = [graph[n] for n in group.nodes]
    products = (n for n in made if n.spec.family is Family.CONTRACTION)
    types = sorted(" ".join(str(graph.type_of(v)) for v in n.inputs) for n in products)
    reductions = sum(n.spec.family is Family.REDUCTION for n in made)
    return tuple(types), min(2, reductions)
