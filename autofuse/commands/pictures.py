"""Plans as boxes and edges for `report.plan_picture`, from a graph or from its canonical text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autofuse.graph.types import Graph, Value
from autofuse.plan.types import FusionGroup, FusionPlan
from autofuse.report.plan_picture import Box, Edge, plan_svg

_LINE = re.compile(r"%(\d+) = (\w+)\(([^()]*)\)(?:.*) : ([^:]*)")
_VALUE = re.compile(r"%(\d+)(?:\.(\d+))?")
_SCALAR = re.compile(r"\w+\[(1(,1)*)?\]")


@dataclass(frozen=True, slots=True)
class _Node:
    """What a picture needs to know of a node."""

    op: str
    operands: tuple[Value, ...]
    types: str
    name: str = ""

    @property
    def is_literal(self) -> bool:
        """Scalar constants are part of the kernels that use them."""
        return self.op == "constant" and _SCALAR.fullmatch(self.types) is not None


def graph_svg(graph: Graph, plan: FusionPlan, title: str) -> str:
    """A plan of a canonical graph as an SVG file's text."""
    nodes = [_Node(n.op, n.inputs, ", ".join(map(str, n.types)), n.name) for n in graph.nodes]
    return plan_svg(*_picture(nodes, plan), title)


def text_svg(text: str, plan: FusionPlan, title: str) -> str:
    """The same from a graph's canonical text, which is what the database keeps of it."""
    return plan_svg(*_picture(list(_nodes(text)), plan), title)


def _nodes(text: str) -> Iterator[_Node]:
    """The nodes of a canonical text; loop bodies are indented and left out."""
    for line in text.splitlines():
        found = _LINE.fullmatch(line)
        if found:
            operands = _VALUE.findall(found[3])
            yield _Node(found[2], tuple(Value(int(n), int(k or 0)) for n, k in operands), found[4])


def _picture(nodes: Sequence[_Node], plan: FusionPlan) -> tuple[list[Box], list[Edge]]:
    """A box per node and group that computes it; values come from the group that writes them."""
    boxes: list[Box] = []
    edges: list[Edge] = []
    source: dict[Value, int] = {}

    def add(label: str, group: int, detail: str) -> int:
        boxes.append(Box(len(boxes), label, group, detail))
        return len(boxes) - 1

    for i, node in enumerate(nodes):
        if node.op in ("input", "constant") and not node.is_literal:
            source[Value(i)] = add(node.name or node.op, -1, node.types)
    for number, group in enumerate(plan.groups):
        inside: dict[int, int] = {}
        for n in group.nodes:
            node = nodes[n]
            inside[n] = add(node.op, number, _detail(node, group))
            for value in node.operands:
                start = inside.get(value.node, source.get(value))
                if start is not None:
                    edges.append(Edge(start, inside[n]))
        for value in group.outputs:
            source.setdefault(value, inside[value.node])
    return boxes, edges


def _detail(node: _Node, group: FusionGroup) -> str:
    name = f"{node.name}, " if node.name else ""
    kernels = "" if group.body is None else f", {len(group.body.groups)} kernels a trip"
    return f"{name}{node.types}{kernels}"
