"""Loops that write one place of a state in each iteration: what they write is stacked instead."""

from __future__ import annotations

from dataclasses import dataclass, replace

from autofuse.graph.counting import counted
from autofuse.graph.types import Graph, Node, Value
from autofuse.ops.types import TensorType, make_attrs
from autofuse.simplify.draft import Draft
from autofuse.simplify.loops import (
    LoopParts,
    Rebuilt,
    outputs_of,
    parts_of_loop,
    rebuilt,
    same_reads,
)
from autofuse.simplify.moves import turned
from autofuse.simplify.rules import Replacement, rule


@dataclass(frozen=True, slots=True)
class SteppedWrite:
    """Iteration i writes `update` (a value of the body) into a state, from start + step * i along
    `axis`; windows of different iterations do not meet."""

    update: Value
    axis: int
    size: int
    start: int
    step: int

    def first(self, trip: int) -> int:
        """The lowest place that is written."""
        return min(self.start, self.start + self.step * (trip - 1))


@rule("stacked-output", "JAX scan's ys; XLA WhileLoopConcatCodeMotion / scan output fusion", "loop")
def stacked_output(draft: Draft, at: int) -> Replacement:
    """state[i] = rows in every iteration i, and nothing else -> rows stacked, put into what the
    state began as."""
    loop = parts_of_loop(draft, at)
    for k in range(loop.carries):
        write = stepped_write(loop, k)
        state, writer = loop.states[k], loop.news[k].node
        if write is None or loop.body.users[state.node] != (writer,) or state in loop.body.outputs:
            continue
        body, row = with_row(loop.body, write)
        states = [s for s in range(loop.carries) if s != k]
        rows = range(len(loop.rows))
        new = Rebuilt(states, rows, same_reads(loop), more_rows=[row])
        made = rebuilt(draft, replace(loop, body=body), new)
        whole = _placed(draft, loop, k, write, made[-1])
        return outputs_of(draft, at, made, new, {k: whole})
    return None


def with_row(body: Graph, write: SteppedWrite) -> tuple[Graph, Value]:
    """The body with a value for what an update of one row writes, without the axis that it is a row
    of, and that value; the update itself where it is several rows."""
    if write.size > 1:
        return body, write.update
    shape = list(body.type_of(write.update).shape)
    del shape[write.axis]
    made = body[write.update.node]
    if made.op == "reshape" and body.type_of(made.inputs[0]).shape == tuple(shape):
        return body, made.inputs[0]
    kind = TensorType(tuple(shape), body.type_of(write.update).dtype)
    row = Node("reshape", (write.update,), make_attrs({"shape": kind.shape}), (kind,))
    return replace(body, nodes=(*body.nodes, row)), Value(len(body.nodes))


def _placed(draft: Draft, loop: LoopParts, k: int, write: SteppedWrite, stack: Value) -> Value:
    """The stack where the state has it, between what was not written."""
    init, axis = loop.init[k], write.axis
    shape = list(draft.shape(init))
    if write.step < 0:
        stack = turned(draft, stack, {0})
    order = (*range(1, 1 + axis), 0, *range(1 + axis, len(draft.shape(stack))))
    shape[axis] = loop.trip * write.size
    rows = draft.reshape(draft.transpose(stack, order), shape)
    first = write.first(loop.trip)
    ends = [(0, first), (first + shape[axis], draft.shape(init)[axis])]
    before, after = (draft.cut(init, axis, *end) for end in ends)
    return draft.concat([before, rows, after], axis)


def stepped_write(loop: LoopParts, k: int) -> SteppedWrite | None:
    """How state `k` is written, if every iteration writes the window next to that of the one
    before, and nothing else becomes of it."""
    body, new = loop.body, loop.news[k]
    node = body[new.node]
    if node.op != "dynamic_update_slice" or node.inputs[0] != loop.states[k]:
        return None
    axes = dict(node.attrs)["axes"]
    # A row of a stack is an output, too.
    if body.users[new.node] or body.outputs.count(new) > 1 or len(axes) > 1:
        return None
    place = counted(body, node.inputs[2])
    if place is None:
        return None
    (axis,), (start, step) = axes, place
    size = body.type_of(node.inputs[1]).shape[axis]
    last = start + step * (loop.trip - 1)
    inside = min(start, last) >= 0 and max(start, last) + size <= node.types[0].shape[axis]
    if not inside or abs(step) != size:
        return None
    return SteppedWrite(node.inputs[1], axis, size, start, step)
