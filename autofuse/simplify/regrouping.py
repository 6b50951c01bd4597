"""Elementwise ops among moves: computed once on the whole instead of in parts, and not turned round
to be turned back."""

from __future__ import annotations

from autofuse.graph.types import Value
from autofuse.ops.spec import Family
from autofuse.simplify.cuts import parts_of, taken
from autofuse.simplify.draft import Draft
from autofuse.simplify.rules import Replacement, rule


def _single_elementwise(draft: Draft, value: Value) -> bool:
    node = draft.node(value)
    return (
        node.spec.family is Family.ELEMENTWISE
        and len(node.types) == 1
        and not draft.is_constant(value)
        and draft.alone(value)
    )


@rule("move-through-elementwise", "XLA ReshapeMover", "reshape", "transpose", "reverse")
def move_through_elementwise(draft: Draft, at: int) -> Replacement:
    """move(f(move(x), c)) -> f(move(move(x)), c) where nothing else reads f, and each operand is
    moved in the same way already or is the same everywhere: one move less."""
    node, inner = draft[at], draft[at].inputs[0]
    if not _single_elementwise(draft, inner):
        return None
    operands = draft[inner.node].inputs
    moved = [v for v in operands if draft.is_op(v, node.op)]
    if not moved or any(v not in moved and draft.uniform(v) is None for v in operands):
        return None
    attrs = dict(node.attrs)
    return draft.add(
        draft[inner.node].op,
        *(draft.add(node.op, v, **attrs) for v in operands),
        **dict(draft[inner.node].attrs),
    )


@rule("slice-through-elementwise", "XLA SliceSinker, in reverse; LLVM InstCombine", "slice")
def slice_through_elementwise(draft: Draft, at: int) -> Replacement:
    """slice(f(concat(x, y), z)) -> f(slice(concat(x, y)), slice(z)) where nothing else reads f, and
    an operand is one that a slice cuts short."""
    inner, parts = draft[at].inputs[0], parts_of(draft, Value(at))
    if not _single_elementwise(draft, inner):
        return None
    operands = draft[inner.node].inputs
    if not any(draft.is_op(v, "concat", "pad", "slice", "gather") for v in operands):
        return None
    attrs = dict(draft[inner.node].attrs)
    return draft.add(draft[inner.node].op, *(taken(draft, v, parts) for v in operands), **attrs)


@rule(
    "concat-of-elementwise",
    "XLA SliceSinker; Inductor split_cat (stack/cat of pointwise)",
    "concat",
)
def concat_of_elementwise(draft: Draft, at: int) -> Replacement:
    """concat(f(slice(x)), f(slice(x))) -> f(concat of the slices), where nothing else reads the
    parts, and every operand then is one array again, or the same everywhere."""
    node, axis = draft[at], dict(draft[at].attrs)["axis"]
    first = draft.node(node.inputs[0])
    if len(node.inputs) < 2 or len(set(node.inputs)) < len(node.inputs):
        return None
    for value in node.inputs:
        own = draft.node(value)
        same = (own.op, own.attrs) == (first.op, first.attrs)
        if not same or not _single_elementwise(draft, value):
            return None
    columns = list(zip(*(draft.node(v).inputs for v in node.inputs), strict=True))
    wholes = [_whole(draft, column, axis) for column in columns]
    if any(w is None for w in wholes):
        return None
    return draft.add(first.op, *(w for w in wholes if w is not None), **dict(first.attrs))


def _whole(draft: Draft, column: tuple[Value, ...], axis: int) -> Value | None:
    """The concat of operands where it is no concat: slices that meet, or one element everywhere."""
    shape = list(draft.shape(column[0]))
    shape[axis] = sum(draft.shape(v)[axis] for v in column)
    fills = [draft.operand(v) if draft.is_op(v, "broadcast") else None for v in column]
    if fills[0] is not None and set(fills) == {fills[0]}:
        dims = {draft.attr(v, "dims") for v in column}
        if len(dims) == 1 and axis not in next(iter(dims)):
            return draft.spread(fills[0], shape, next(iter(dims)))
    if not all(draft.is_op(v, "slice") for v in column):
        return None
    source = draft.operand(column[0])
    end = parts_of(draft, column[0])[axis][0]
    start = end
    rest = [p for a, p in enumerate(parts_of(draft, column[0])) if a != axis]
    for value in column:
        parts = parts_of(draft, value)
        if draft.operand(value) != source or parts[axis][0] != end or parts[axis][2] != 1:
            return None
        if [p for a, p in enumerate(parts) if a != axis] != rest:
            return None
        end = parts[axis][1]
    whole = (*rest[:axis], (start, end, 1), *rest[axis:])
    return taken(draft, source, whole)
