"""Where the axes of a node's operands come from, worked out once for each node of a graph."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from autofuse.graph.types import Graph, Value
from autofuse.ops.spec import AxisMap, Family, OpSpec
from autofuse.ops.types import OpCall

# What an item computes for all positions of an axis or for none.
RUNS = (Family.SCAN, Family.SORT)


@dataclass(frozen=True, slots=True)
class OperandAxes:
    """Where the axes of one operand's index come from: per operand axis an output axis, or -1 when
    it depends on the `loose` output axes together. `same`: the output's own index."""

    value: Value
    source: tuple[int, ...]
    loose: tuple[int, ...]
    same: bool


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What Demand asks of a node again and again."""

    family: Family
    outs: tuple[Value, ...]
    operands: tuple[OperandAxes, ...]


@lru_cache(maxsize=64)
def kept_facts(graph: Graph) -> list[NodeFacts | None]:
    """The facts of each node as far as they were asked for; `facts_of` fills them in."""
    return [None] * len(graph.nodes)


def facts_of(graph: Graph, known: list[NodeFacts | None], node: int) -> NodeFacts:
    """Those of one node, worked out once."""
    found = known[node]
    if found is None:
        n, call = graph[node], graph.call(node)
        maps = () if n.spec.axes is None else n.spec.axes(call)
        others = _loose_axes(n.spec, call, maps)
        operands: list[OperandAxes] = []
        for value, mapping, loose in zip(n.inputs, maps, others, strict=n.spec.axes is not None):
            source = [-1] * graph.type_of(value).rank
            for out_axis, axis in enumerate(mapping):
                if axis is not None:
                    source[axis] = out_axis
            same = source == list(range(n.types[0].rank))
            operands.append(OperandAxes(value, tuple(source), loose, same))
        outs = tuple(Value(node, i) for i in range(len(n.types)))
        found = known[node] = NodeFacts(n.spec.family, outs, tuple(operands))
    return found


def _loose_axes(spec: OpSpec, call: OpCall, maps: AxisMap) -> tuple[tuple[int, ...], ...]:
    """For each operand the output axes that the indices of its unmapped axes depend on."""
    if spec.depends is not None:
        return spec.depends(call)
    if spec.family in (Family.REDUCTION, Family.CONTRACTION):
        return ((),) * len(maps)
    return tuple(tuple(o for o, axis in enumerate(m) if axis is None) for m in maps)


def whole_axes(family: Family, call: OpCall) -> Iterable[int]:
    """Axes of the result that an item owns whole, not one position of them."""
    if family in RUNS:
        return (call["axis"],)
    return range(call["batch"], call.out.rank) if family is Family.SCATTER else ()
