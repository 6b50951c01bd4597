"""Whole numbers of a loop's body that go up or down evenly with its iterations."""

from __future__ import annotations

from autofuse.graph.types import Graph, Node, Value
from autofuse.ops.pull import Index
from autofuse.ops.scalar import Call, Expr, Sym
from autofuse.ops.spec import Family

# start, step
Progression = tuple[int, int]


class _Names:
    """Operands by their numbers."""

    def __init__(self, graph: Graph, node: int) -> None:
        self._call = graph.call(node)

    def __call__(self, operand: int, index: Index, /) -> Expr:
        return Sym(str(operand), self._call.ins[operand].dtype)

    def let(self, value: Expr, /) -> Expr:
        return value


def _constant(node: Node) -> Progression | None:
    whole = node.types[0].size == 1 and node.types[0].dtype.is_int
    return (int(dict(node.attrs)["value"].scalar), 0) if whole else None


def counted(body: Graph, value: Value) -> Progression | None:
    """(start, step) of a () number that is start + step * i in iteration i of a body, or in a graph
    that is no body a constant. It must not wrap, as places within an array do not."""
    node = body[value.node]
    if body.inputs and value.node == body.inputs[0]:
        return 0, 1
    if node.op == "constant":
        return _constant(node)
    if node.types[0].shape or node.spec.family is not Family.ELEMENTWISE:
        return None
    return _combined(body, value.node)


def _combined(body: Graph, i: int) -> Progression | None:
    """What a number is whose operands are counted."""
    node = body[i]
    if not node.spec.body:
        return None
    found = [counted(body, v) for v in node.inputs]
    (made,) = node.spec.body(body.call(i), (), _Names(body, i))
    match made, found:
        case Call(fn="add"), [(a, b), (c, d)]:
            return a + c, b + d
        case Call(fn="sub"), [(a, b), (c, d)]:
            return a - c, b - d
        case Call(fn="mul"), [(a, 0), (c, d)] | [(c, d), (a, 0)]:
            return a * c, a * d
    return None
