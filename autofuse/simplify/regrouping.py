"""Elementwise ops among moves: computed once on the whole instead of in parts, and not turned round
to be turned back."""

from __future__ import annotations

from autofuse.graph.types import Value
from autofuse.ops.spec import Family, OpSpec
from autofuse.ops.types import TensorType
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


# Moves that an elementwise op may as well come before.
_MOVES = ("reshape", "transpose", "reverse", "broadcast")


def _elementwise(spec: OpSpec) -> bool:
    return spec.family is Family.ELEMENTWISE


@rule("move-sunk", "XLA ReshapeMover; AlgebraicSimplifier (sinking broadcasts)", _elementwise)
def move_sunk(draft: Draft, at: int) -> Replacement:
    """f(move(x), move(y), c) -> move(f(x, y, c)) where all operands are moved alike, or are the
    same everywhere: one move instead of several, and what repeats is computed once."""
    node = draft[at]
    moved = [v for v in node.inputs if draft.uniform(v) is None]
    if not moved or len(node.types) > 1 or not draft.is_op(moved[0], *_MOVES):
        return None
    first = draft.node(moved[0])
    inner = draft.shape(first.inputs[0])
    for value in moved:
        own = draft.node(value)
        if (own.op, own.attrs) != (first.op, first.attrs):
            return None
        if draft.shape(own.inputs[0]) != inner:
            return None
    operands = [
        draft.operand(v)
        if v in moved
        else draft.full(draft.uniform(v), TensorType(inner, draft.dtype(v)))
        for v in node.inputs
    ]
    made = draft.add(node.op, *operands, **dict(node.attrs))
    return draft.add(first.op, made, **dict(first.attrs))


@rule("slice-through-elementwise", "XLA SliceSinker, in reverse; LLVM InstCombine", "slice")
def slice_through_elementwise(draft: Draft, at: int) -> Replacement:
    """slice(f(x, y)) -> f(slice(x), slice(y)) where nothing else reads f: what is not taken is not
    computed."""
    inner, parts = draft[at].inputs[0], parts_of(draft, Value(at))
    if not _single_elementwise(draft, inner):
        return None
    operands = draft[inner.node].inputs
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
