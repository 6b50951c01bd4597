"""Elementwise ops among moves: computed once on the whole instead of in parts, and not turned round
to be turned back."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from autofuse.graph.types import Value
from autofuse.ops.spec import Family, OpSpec
from autofuse.ops.types import TensorType
from autofuse.simplify.cuts import parts_of, taken
from autofuse.simplify.draft import Draft
from autofuse.simplify.rules import Replacement, all_of, rule


def _single_elementwise(draft: Draft, value: Value) -> bool:
    node = draft.node(value)
    return (
        node.spec.family is Family.ELEMENTWISE
        and len(node.types) == 1
        and not draft.is_constant(value)
        and draft.alone(value)
    )


# Moves that put every element into another place.
_ORDERS = ("reshape", "transpose", "reverse")
# Elementwise ops in a row that a move is taken through.
_DEPTH = 8


def _elementwise(spec: OpSpec) -> bool:
    return spec.family is Family.ELEMENTWISE


@rule("broadcast-sunk", "XLA AlgebraicSimplifier (sinking broadcasts)", _elementwise)
def broadcast_sunk(draft: Draft, at: int) -> Replacement:
    """f(broadcast(x), broadcast(y), c) -> broadcast(f(x, y, c)): what repeats is computed once."""
    node = draft[at]
    if "broadcast" not in (draft.node(v).op for v in node.inputs):
        return None
    moved = _varying(draft, node.inputs)
    if not moved or len(node.types) > 1 or draft.is_constant(Value(at)):
        return None
    first = draft.node(moved[0])
    if any((n.op, n.attrs) != ("broadcast", first.attrs) for n in map(draft.node, moved)):
        return None
    inner = draft.shape(first.inputs[0])
    operands = [_before_broadcast(draft, v, inner) for v in node.inputs]
    made = draft.add(node.op, *operands, **dict(node.attrs))
    return draft.add(first.op, made, **dict(first.attrs))


def _varying(draft: Draft, values: Iterable[Value]) -> list[Value]:
    """Those that are not the same everywhere."""
    return [v for v in values if draft.uniform(v) is None]


def _before_broadcast(draft: Draft, value: Value, shape: tuple[int, ...]) -> Value:
    number = draft.uniform(value)
    if number is None:
        return draft.operand(value)
    return draft.full(number, TensorType(shape, draft.dtype(value)))


@rule("move-through-elementwise", "XLA ReshapeMover", *_ORDERS)
def move_through_elementwise(draft: Draft, at: int) -> Replacement:
    """move(f(move(x), c)) -> f(move(move(x)), c) where nothing else reads f, and each operand is
    moved in the same way already, or is the same everywhere, or another f: one move less."""
    node, inner = draft[at], draft[at].inputs[0]
    if not _single_elementwise(draft, inner) or not _moved(draft, inner, node.op, _DEPTH):
        return None
    operands, attrs = draft[inner.node].inputs, dict(draft[inner.node].attrs)
    moved = (draft.add(node.op, v, **dict(node.attrs)) for v in operands)
    return draft.add(draft[inner.node].op, *moved, **attrs)


def _moved(draft: Draft, value: Value, move: str, depth: int) -> bool:
    """Whether an elementwise op reads what is moved, and what is the same everywhere."""
    found = False
    for operand in draft[value.node].inputs:
        if draft.is_op(operand, move):
            found = True
        elif draft.uniform(operand) is None:
            if not depth or not _single_elementwise(draft, operand):
                return False
            if not _moved(draft, operand, move, depth - 1):
                return False
            found = True
    return found


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
    wholes = all_of([_whole(draft, column, axis) for column in columns])
    return None if wholes is None else draft.add(first.op, *wholes, **dict(first.attrs))


def _whole(draft: Draft, column: tuple[Value, ...], axis: int) -> Value | None:
    """The concat of operands where it is no concat: slices that meet, or one element everywhere."""
    kinds = {draft.node(v).op for v in column}
    if kinds == {"broadcast"}:
        return _one_fill(draft, column, axis)
    return _one_slice(draft, column, axis) if kinds == {"slice"} else None


def _one_fill(draft: Draft, column: tuple[Value, ...], axis: int) -> Value | None:
    """Broadcasts of the same as one."""
    fills = {(draft.operand(v), draft.attr(v, "dims")) for v in column}
    (source, dims), *others = fills
    if others or axis in dims:
        return None
    shape = list(draft.shape(column[0]))
    shape[axis] = sum(draft.shape(v)[axis] for v in column)
    return draft.spread(source, shape, dims)


def _one_slice(draft: Draft, column: tuple[Value, ...], axis: int) -> Value | None:
    """Slices that meet as one."""
    found = [parts_of(draft, v) for v in column]
    ends = [found[0][axis][0], *(parts[axis][1] for parts in found)]
    if [parts[axis] for parts in found] != [(a, b, 1) for a, b in pairwise(ends)]:
        return None
    rest = {(*parts[:axis], (ends[0], ends[-1], 1), *parts[axis + 1 :]) for parts in found}
    sources = {draft.operand(v) for v in column}
    return taken(draft, sources.pop(), rest.pop()) if len(sources) == len(rest) == 1 else None
