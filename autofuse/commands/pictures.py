"""Plans as boxes and edges for `report.plan_picture`, from a graph or from its canonical text.

Of a loop that the plan re-issues, one trip is drawn; what it carries to the next is not. A loop
re-issued several trips at once is one box: a stored text has no graph of several trips.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from autofuse.graph.types import Graph, Value
from autofuse.plan.types import FusionGroup, FusionPlan
from autofuse.report.plan_picture import Box, Edge, plan_svg

_LINE = re.compile(r"%\d+ = (\w+)\(([^()]*)\).* : ([^:]*)")
_VALUE = re.compile(r"%(\d+)(?:\.(\d+))?")
_SCALAR = re.compile(r"\w+\[(1(,1)*)?\]")
_BODY, _DEEPER = "  body:", "    "


@dataclass(frozen=True, slots=True)
class Drawn:
    """What a picture needs to know of a graph: its nodes, and the outputs."""

    nodes: tuple[DrawnNode, ...]
    outputs: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class DrawnNode:
    op: str
    operands: tuple[Value, ...]
    types: str
    name: str = ""
    body: Drawn | None = None

    @property
    def is_literal(self) -> bool:
        """Scalar constants are part of the kernels that use them."""
        return self.op == "constant" and _SCALAR.fullmatch(self.types) is not None

    @property
    def is_source(self) -> bool:
        return self.op in ("input", "constant") and not self.is_literal


def graph_svg(graph: Graph, plan: FusionPlan, title: str) -> str:
    """A plan of a canonical graph as an SVG file's text."""
    return _svg(of_graph(graph), plan, title)


def text_svg(text: str, plan: FusionPlan, title: str) -> str:
    """The same from a graph's canonical text, which is what the database keeps of it."""
    return _svg(of_text(text.splitlines()), plan, title)


def of_graph(graph: Graph) -> Drawn:
    nodes = tuple(
        DrawnNode(node.op, node.inputs, ", ".join(map(str, node.types)), node.name, body)
        for node in graph.nodes
        for found in [dict(node.attrs).get("body")]
        for body in [of_graph(found) if isinstance(found, Graph) else None]
    )
    return Drawn(nodes, graph.outputs)


def of_text(lines: Sequence[str]) -> Drawn:
    """A canonical text; a loop's body is the deeper lines after it."""
    nodes: list[DrawnNode] = []
    outputs: tuple[Value, ...] = ()
    for i, line in enumerate(lines):
        found = _LINE.fullmatch(line)
        if found:
            inside = list(_inside(lines[i + 1 :]))
            body = of_text(inside) if inside else None
            nodes.append(DrawnNode(found[1], _values(found[2]), found[3], body=body))
        elif line.startswith("return "):
            outputs = _values(line)
    return Drawn(tuple(nodes), outputs)


def _inside(lines: Sequence[str]) -> Iterator[str]:
    if lines and lines[0] == _BODY:
        for line in lines[1:]:
            if not line.startswith(_DEEPER):
                return
            yield line.removeprefix(_DEEPER)


def _values(text: str) -> tuple[Value, ...]:
    return tuple(Value(int(n), int(k or 0)) for n, k in _VALUE.findall(text))


def _svg(graph: Drawn, plan: FusionPlan, title: str) -> str:
    picture = _Picture()
    source = {
        Value(i): picture.add(node.name or node.op, -1, node.types)
        for i, node in enumerate(graph.nodes)
        if node.is_source
    }
    picture.plan(graph, plan, source, "")
    return plan_svg(picture.boxes, picture.edges, title)


class _Picture:
    """A box per node and group that computes it; values come from the group that writes them."""

    def __init__(self) -> None:
        self.boxes: list[Box] = []
        self.edges: list[Edge] = []
        self.kernels = 0

    def add(self, label: str, group: int, detail: str) -> int:
        self.boxes.append(Box(len(self.boxes), label, group, detail))
        return len(self.boxes) - 1

    def plan(self, graph: Drawn, plan: FusionPlan, source: dict[Value, int], where: str) -> None:
        """Draw the groups, and note in `source` which box each value they write comes from."""
        for group in plan.groups:
            node = graph.nodes[group.nodes[0]]
            if group.body is not None and group.unroll == 1 and node.body is not None:
                self._trip(node.body, group, node.operands, source)
            else:
                self._kernel(graph, group, source, where)

    def _kernel(
        self, graph: Drawn, group: FusionGroup, source: dict[Value, int], where: str
    ) -> None:
        inside: dict[int, int] = {}
        if group.unroll > 1:
            where = f", unrolled by {group.unroll}{where}"
        for n in group.nodes:
            node = graph.nodes[n]
            name = f"{node.name}, " if node.name else ""
            inside[n] = self.add(node.op, self.kernels, f"{name}{node.types}{where}")
            for value in node.operands:
                start = inside.get(value.node, source.get(value))
                if start is not None:
                    self.edges.append(Edge(start, inside[n]))
        self.kernels += 1
        for value in group.outputs:
            source.setdefault(value, inside[value.node])

    def _trip(
        self,
        body: Drawn,
        group: FusionGroup,
        operands: Sequence[Value],
        source: dict[Value, int],
    ) -> None:
        """One trip: the body reads the trip counter and what the loop reads."""
        assert group.body is not None
        inner = _entering(operands, source)
        read = {v for node in body.nodes for v in node.operands}
        for i, node in enumerate(body.nodes):
            if node.is_source and Value(i) in read and (i == 0 or node.op == "constant"):
                name = "trip counter" if i == 0 else node.name or node.op
                inner[Value(i)] = self.add(name, -1, node.types)
        self.plan(body, group.body, inner, ", each trip")
        for k, value in enumerate(body.outputs):
            if value in inner:
                source.setdefault(Value(group.nodes[0], k), inner[value])


def _entering(operands: Sequence[Value], source: Mapping[Value, int]) -> dict[Value, int]:
    """Inputs of a body after the trip counter stand for the loop's operands, in order."""
    pairs = ((Value(k), source.get(value)) for k, value in enumerate(operands, 1))
    return {value: box for value, box in pairs if box is not None}
