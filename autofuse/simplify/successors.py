"""Which values of a loop's body are to the states that it leaves what others are to those that it
was given."""

from __future__ import annotations

from autofuse.graph.types import Graph, Value


class Successors:
    """Answers for one loop; what was found out about a pair of values is found out once."""

    def __init__(self, body: Graph, carries: int) -> None:
        """`body` begins with the counter and `carries` states, and first leaves new ones."""
        self.body, self.needed = body, needed_nodes(body)
        varying = body.inputs[: 1 + carries]
        self._moved = set(zip(body.outputs[:carries], map(Value, varying[1:]), strict=True))
        self._varying = sum(1 << node for node in varying)
        self._alike, self._different = set[tuple[Value, Value]](), set[tuple[Value, Value]]()

    def is_next(self, later: Value, now: Value) -> bool:
        """Whether `later` is to the new states what `now` is to the old ones."""
        stack, seen = [(later, now)], set[tuple[Value, Value]]()
        while stack:
            pair = stack.pop()
            if pair in self._moved or pair in seen or pair in self._alike:
                continue
            seen.add(pair)
            if pair[0] == pair[1]:
                differs = bool(self.needed[pair[0].node] & self._varying)
            else:
                differs = pair in self._different or not self._same_op(*pair)
                if not differs:
                    stack += zip(*(self.body[v.node].inputs for v in pair), strict=True)
            if differs:
                self._different |= {pair, (later, now)}
                return False
        self._alike |= seen
        return True

    def _same_op(self, one: Value, other: Value) -> bool:
        """Whether two values are computed alike from their operands."""
        a, b = self.body[one.node], self.body[other.node]
        if "input" in (a.op, b.op) or (a.op, a.attrs, a.types) != (b.op, b.attrs, b.types):
            return False
        return one.index == other.index and len(a.inputs) == len(b.inputs)


def needed_nodes(body: Graph) -> list[int]:
    """Of each node the nodes that it depends on, itself included, as bits by their numbers."""
    found: list[int] = []
    for i, node in enumerate(body.nodes):
        bits = 1 << i
        for v in node.inputs:
            bits |= found[v.node]
        found.append(bits)
    return found
