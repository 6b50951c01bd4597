"""Plans as boxes and edges for `report.plan_picture`.

Of a host loop one iteration is drawn; what it carries to the next is not. A host loop that is
unrolled is one box.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from autofuse.graph.surgery.host_body import host_body
from autofuse.graph.types import Graph, Node, Value
from autofuse.ops.source import is_scalar_constant
from autofuse.plan.types import FusionGroup, FusionPlan
from autofuse.report.plan_picture import Box, Edge, plan_svg


def graph_svg(graph: Graph, plan: FusionPlan, title: str) -> str:
    """A plan of a canonical graph as an SVG file's text; the graph may be one read back from its
    text. Raises LookupError or GraphError for a plan of another graph."""
    picture = _Picture()
    source = {
        Value(i): picture.add(node.name or node.op, -1, _types(node)) for i, node in _sources(graph)
    }
    picture.plan(graph, plan, source, "")
    return plan_svg(picture.boxes, picture.edges, title)


def _sources(graph: Graph) -> Iterator[tuple[int, Node]]:
    """What no kernel computes; scalar constants are part of the kernels that use them."""
    for i, node in enumerate(graph.nodes):
        if node.op in ("input", "constant") and not is_scalar_constant(node.op, node.types):
            yield i, node


def _types(node: Node) -> str:
    return ", ".join(map(str, node.types))


class _Picture:
    """A box per node and group that computes it; values come from the group that writes them."""

    def __init__(self) -> None:
        self.boxes: list[Box] = []
        self.edges: list[Edge] = []
        self.kernels = 0

    def add(self, label: str, group: int, detail: str) -> int:
        self.boxes.append(Box(len(self.boxes), label, group, detail))
        return len(self.boxes) - 1

    def plan(self, graph: Graph, plan: FusionPlan, source: dict[Value, int], where: str) -> None:
        """Draw the groups, and note in `source` which box each value they write comes from."""
        for group in plan.groups:
            if group.body is not None and group.unroll == 1:
                self._trip(graph, group, group.body, source)
            else:
                self._kernel(graph, group, source, where)

    def _kernel(
        self, graph: Graph, group: FusionGroup, source: dict[Value, int], where: str
    ) -> None:
        inside: dict[int, int] = {}
        if group.unroll > 1:
            where = f", unrolled by {group.unroll}{where}"
        for n in group.nodes:
            node = graph[n]
            name = f"{node.name}, " if node.name else ""
            inside[n] = self.add(node.op, self.kernels, f"{name}{_types(node)}{where}")
            for value in node.inputs:
                start = inside.get(value.node, source.get(value))
                if start is not None:
                    self.edges.append(Edge(start, inside[n]))
        self.kernels += 1
        for value in group.outputs:
            source.setdefault(value, inside[value.node])

    def _trip(
        self, graph: Graph, group: FusionGroup, plan: FusionPlan, source: dict[Value, int]
    ) -> None:
        """One iteration: the body reads the iteration counter and what the loop reads."""
        loop = group.nodes[0]
        body = host_body(graph.call(loop))
        inner = _entering(graph[loop].inputs, source) | dict(self._constants(body))
        self.plan(body, plan, inner, ", each iteration")
        for k, value in enumerate(body.outputs):
            if value in inner:
                source.setdefault(Value(loop, k), inner[value])

    def _constants(self, body: Graph) -> Iterator[tuple[Value, int]]:
        """The iteration counter and constants that a body reads, drawn."""
        read = {v for node in body.nodes for v in node.inputs}
        for i, node in _sources(body):
            if Value(i) in read and (i == 0 or node.op == "constant"):
                name = "iteration counter" if i == 0 else node.name or node.op
                yield Value(i), self.add(name, -1, _types(node))


def _entering(operands: Sequence[Value], source: Mapping[Value, int]) -> dict[Value, int]:
    """Inputs of a body after the iteration counter stand for the loop's operands, in order."""
    pairs = ((Value(k), source.get(value)) for k, value in enumerate(operands, 1))
    return {value: box for value, box in pairs if box is not None}
