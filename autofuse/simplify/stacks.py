"""Loops that write one place of a state in each iteration: what they write is stacked instead."""

from __future__ import annotations

from dataclasses import dataclass

from autofuse.graph.types import Graph, Value
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
class StackedWrite:
    """Iteration i writes `row` (a value of the body, whose axes are `dims` of the state's) to place
    start + step * i along `axis`."""

    row: Value
    dims: tuple[int, ...]
    axis: int
    start: int
    step: int


@rule("stacked-output", "JAX scan's ys; XLA WhileLoopConcatCodeMotion / scan output fusion", "loop")
def stacked_output(draft: Draft, at: int) -> Replacement:
    """state[i] = row in every iteration i, and nothing else -> rows stacked, put into what the
    state began as."""
    loop = parts_of_loop(draft, at)
    for k in range(loop.carries):
        write = _write(loop, k)
        if write is None:
            continue
        states = [s for s in range(loop.carries) if s != k]
        rows = range(len(loop.rows))
        new = Rebuilt(states, rows, same_reads(loop), more_rows=[write.row])
        made = rebuilt(draft, loop, new)
        whole = _placed(draft, loop, k, write, made[-1])
        return outputs_of(draft, at, made, new, {k: whole})
    return None


def _placed(draft: Draft, loop: LoopParts, k: int, write: StackedWrite, stack: Value) -> Value:
    """The stack where the state has it, between what was not written."""
    init, axis = loop.init[k], write.axis
    dims = (axis, *write.dims)
    order = sorted(range(len(dims)), key=dims.__getitem__)
    shape = list(draft.shape(init))
    shape[axis] = loop.trip
    rows = draft.spread(draft.transpose(stack, order), shape, sorted(dims))
    first = min(write.start, write.start + write.step * (loop.trip - 1))
    if write.step < 0:
        rows = turned(draft, rows, {axis})
    ends = [(0, first), (first + loop.trip, draft.shape(init)[axis])]
    before, after = (draft.cut(init, axis, *end) for end in ends)
    return draft.concat([before, rows, after], axis)


def _write(loop: LoopParts, k: int) -> StackedWrite | None:
    """How state `k` is written, if that is all that happens to it."""
    body, new = loop.body, loop.news[k]
    node = body[new.node]
    if node.op != "select" or node.inputs[2] != loop.states[k] or new in loop.rows:
        return None
    if body.users[loop.states[k].node] != (new.node,) or body.users[new.node]:
        return None
    if node.inputs[1] == loop.states[k] or loop.body.outputs.count(new) > 1:
        return None
    place = _place(body, node.inputs[0])
    repeated = body[node.inputs[1].node]
    if place is None or repeated.op != "broadcast":
        return None
    axis, start, step = place
    dims: tuple[int, ...] = dict(repeated.attrs)["dims"]
    last = start + step * (loop.trip - 1)
    inside = min(start, last) >= 0 and max(start, last) < node.types[0].shape[axis]
    if axis in dims or not inside:
        return None
    return StackedWrite(repeated.inputs[0], dims, axis, start, step)


def _place(body: Graph, mask: Value) -> tuple[int, int, int] | None:
    """(axis, start, step) of a mask that is true at start + step * i along an axis."""
    node, axes = body[mask.node], tuple(range(len(body.type_of(mask).shape)))
    if node.op == "broadcast":
        axes = dict(node.attrs)["dims"]
        node = body[node.inputs[0].node]
    if node.op != "eq":
        return None
    for one, other in (node.inputs, node.inputs[::-1]):
        position, number = body[one.node], body[other.node]
        if position.op == "iota":
            scalar = number.inputs[0] if number.op == "broadcast" else other
            found = _counted(body, scalar)
            return None if found is None else (axes[dict(position.attrs)["axis"]], *found)
    return None


def _counted(body: Graph, value: Value) -> tuple[int, int] | None:
    """(start, step) of a number that is start + step * i in iteration i, step 1 or -1."""
    if value.node == body.inputs[0]:
        return 0, 1
    node = body[value.node]
    if node.op not in ("add", "sub"):
        return None
    first, second = (_number(body, v) for v in node.inputs)
    if node.op == "add" and second is not None and node.inputs[0].node == body.inputs[0]:
        return second, 1
    if node.op == "sub" and first is not None and node.inputs[1].node == body.inputs[0]:
        return first, -1
    if node.op == "sub" and second is not None and node.inputs[0].node == body.inputs[0]:
        return -second, 1
    return None


def _number(body: Graph, value: Value) -> int | None:
    node = body[value.node]
    if node.op != "constant" or node.types[0].size != 1 or not node.types[0].dtype.is_int:
        return None
    return int(dict(node.attrs)["value"].scalar)
