"""Layouts: a transpose to channels first is taken along until it meets its opposite, so that
convolutions and what lies between them are channels last as a whole.

A transpose moves with the data, past whatever computes the same in another order of axes. It goes
on only where everything that reads it takes it, so there are never more of them; what is repeated
to be read beside it is turned before it is repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from autofuse.graph.types import Value
from autofuse.ops.spec import Family, OpSpec
from autofuse.ops.types import make_attrs
from autofuse.ops.views import Groups, reshape_groups
from autofuse.simplify.cuts import parts_of, taken
from autofuse.simplify.draft import Draft
from autofuse.simplify.rules import Replacement, rule

Perm = tuple[int, ...]
# Readers of one transpose that are looked at, so that time stays in proportion to the graph.
_READERS = 16
# Families, and moves, that compute the same in another order of axes.
_FAMILIES = (Family.ELEMENTWISE, Family.REDUCTION, Family.WINDOW)
_MOVES = ("transpose", "concat", "slice", "pad")


def to_last(rank: int) -> Perm:
    """The permutation that makes channels the last axis instead of the second."""
    return (0, *range(2, rank), 1)


def to_first(rank: int) -> Perm:
    """Its opposite."""
    return (0, rank - 1, *range(1, rank - 1))


def _elementwise(spec: OpSpec) -> bool:
    return spec.family is Family.ELEMENTWISE


def _window(spec: OpSpec) -> bool:
    return spec.family is Family.WINDOW


@rule("channels-first-later", "XLA ReshapeMover; onnxruntime transpose optimizer", _elementwise)
def channels_first_later(draft: Draft, at: int) -> Replacement:
    """f(transpose(x), broadcast(y)) -> transpose(f(x, broadcast(y))) for transposes to channels
    first, which the next convolution may turn back; y may also be there channels last already."""
    node = draft[at]
    if len(node.types) > 1 or not _turnable(draft, node.inputs):
        return None
    sources = (_turned(draft, v) for v in node.inputs)
    return _first(draft, draft.add(node.op, *sources, **dict(node.attrs)))


@rule("pooled-channels-last", "onnxruntime transpose optimizer (HandleMaxPool); "
      "Inductor layout_optimization", _window)  # fmt: skip
def pooled_channels_last(draft: Draft, at: int) -> Replacement:
    """pool(transpose(x)) -> transpose(pool(x)), the windows along the same axes."""
    node = draft[at]
    if not _turnable(draft, node.inputs):
        return None
    last = to_last(len(node.types[0].shape))
    attrs = {key: tuple(numbers[a] for a in last) for key, numbers in node.attrs}
    return _first(draft, draft.add(node.op, _turned(draft, node.inputs[0]), **attrs))


@rule("joined-channels-last", "onnxruntime transpose optimizer (HandleConcat)", "concat")
def joined_channels_last(draft: Draft, at: int) -> Replacement:
    """concat(transpose(x), transpose(y)) -> transpose(concat(x, y)), along the same axis."""
    node = draft[at]
    if not _turnable(draft, node.inputs):
        return None
    axis = to_last(len(node.types[0].shape)).index(dict(node.attrs)["axis"])
    sources = [_turned(draft, v) for v in node.inputs]
    return _first(draft, draft.add("concat", *sources, axis=axis))


@rule("cut-channels-last", "onnxruntime transpose optimizer (HandleSlice)", "slice")
def cut_channels_last(draft: Draft, at: int) -> Replacement:
    """slice(transpose(x)) -> transpose(slice(x)), also where others take the rest of it."""
    node = draft[at]
    if not _turnable(draft, node.inputs):
        return None
    parts = parts_of(draft, Value(at))
    own = tuple(parts[a] for a in to_last(len(parts)))
    return _first(draft, taken(draft, _turned(draft, node.inputs[0]), own))


@rule("padded-channels-last", "onnxruntime transpose optimizer (HandlePad)", "pad")
def padded_channels_last(draft: Draft, at: int) -> Replacement:
    """pad(transpose(x)) -> transpose(pad(x)), the same axes with the same number."""
    node, attrs = draft[at], dict(draft[at].attrs)
    if not _turnable(draft, node.inputs[:1]):
        return None
    last = to_last(len(node.types[0].shape))
    widths = {key: tuple(attrs[key][a] for a in last) for key in ("low", "high")}
    x = _turned(draft, node.inputs[0])
    return _first(draft, draft.add("pad", x, node.inputs[1], **attrs | widths))


@rule("transpose-of-repeated", "XLA AlgebraicSimplifier transpose(broadcast(A)); ReshapeMover",
      "transpose")  # fmt: skip
def transpose_of_repeated(draft: Draft, at: int) -> Replacement:
    """transpose(reshape(broadcast(x))) -> reshape(broadcast(transpose(x))), as where an image is
    enlarged by repeating its points: fewer elements change places."""
    node = draft[at]
    inner, perm = node.inputs[0], dict(node.attrs)["perm"]
    if not _repeated(draft, inner):
        return None
    source = draft.operand(inner)
    shape, dims = draft.shape(source), draft.attr(source, "dims")
    order = _by_target(reshape_groups(shape, draft.shape(inner)), perm)
    if order is None:
        return None
    places = {axis: k for k, axis in enumerate(order)}
    own = sorted(range(len(dims)), key=lambda i: places[dims[i]])
    x = draft.transpose(draft.operand(source), own)
    wide = draft.spread(x, [shape[a] for a in order], [places[dims[i]] for i in own])
    return draft.reshape(wide, node.types[0].shape)


@rule("transposes-around-reshape", "XLA ReshapeMover, AlgebraicSimplifier HandleTranspose; "
      "onnxruntime transpose optimizer (HandleReshape)", "transpose")  # fmt: skip
def transposes_around_reshape(draft: Draft, at: int) -> Replacement:
    """transpose(reshape(transpose(x))) -> one transpose, of the reshape or before it, where the
    axes that are split or joined stay together: channels are shuffled so. One to channels first is
    left to go on."""
    node = draft[at]
    middle, perm = node.inputs[0], dict(node.attrs)["perm"]
    if not draft.is_op(middle, "reshape") or not draft.is_op(draft.operand(middle), "transpose"):
        return None
    if _is_first(draft, Value(at)):
        return None
    inner = draft.operand(middle)
    x, before = draft.operand(inner), draft.attr(inner, "perm")
    target = draft.shape(middle)
    groups = reshape_groups(draft.shape(inner), target)
    order = _by_source(groups, before)
    if order is not None:
        made = draft.reshape(x, [target[a] for a in order])
        return draft.transpose(made, [order.index(p) for p in perm])
    order = _by_target(groups, perm)
    if order is None:
        return None
    return draft.reshape(draft.transpose(x, [before[a] for a in order]), node.types[0].shape)


def _by_source(groups: Groups, perm: Perm) -> list[int] | None:
    """The axes of a reshape's result in the order of what was transposed by `perm` before it; None
    where a group of axes did not lie together there."""
    if not all(_in_a_row([perm[a] for a in theirs]) for theirs, _ in groups):
        return None
    ordered = sorted(groups, key=lambda g: perm[g[0][0]] if g[0] else len(perm))
    return [a for _, ours in ordered for a in ours]


def _by_target(groups: Groups, perm: Perm) -> list[int] | None:
    """The axes of a reshape's operand in the order that `perm` gives those of its result; None
    where a group of axes does not stay together."""
    if not all(_in_a_row([perm.index(a) for a in ours]) for _, ours in groups):
        return None
    ordered = sorted(groups, key=lambda g: perm.index(g[1][0]) if g[1] else len(perm))
    return [a for theirs, _ in ordered for a in theirs]


def _in_a_row(places: Sequence[int]) -> bool:
    return all(b == a + 1 for a, b in pairwise(places))


def _turnable(draft: Draft, values: Iterable[Value]) -> bool:
    """Whether operands are channels last with one transpose less: some are transposes that may go
    on, the others are turned for nothing."""
    turned = [v for v in values if _is_first(draft, v)]
    return (
        bool(turned)
        and all(_goes_on(draft, v) for v in turned)
        and all(v in turned or _turns_free(draft, v) for v in values)
    )


def _turned(draft: Draft, value: Value) -> Value:
    """A value channels last."""
    if _is_first(draft, value):
        return draft.operand(value)
    return draft.transpose(value, to_last(len(draft.shape(value))))


def _first(draft: Draft, value: Value) -> Value:
    """A value that is channels last, channels first."""
    return draft.transpose(value, to_first(len(draft.shape(value))))


def _is_first(draft: Draft, value: Value) -> bool:
    """Whether a value was turned to channels first. (Of three axes that is what turns a matrix.)"""
    rank = len(draft.shape(value))
    return rank > 3 and draft.is_op(value, "transpose") and _perm(draft, value) == to_first(rank)


def _perm(draft: Draft, value: Value) -> Perm:
    return tuple(draft.attr(value, "perm"))


def _goes_on(draft: Draft, value: Value) -> bool:
    """Whether all that read a transpose take it."""
    if draft.alone(value):
        return True
    readers = draft.users(value.node)
    if draft.leaves(value.node) or len(readers) > _READERS:
        return False
    nodes = [draft[number] for number in readers]
    return all(node.spec.family in _FAMILIES or node.op in _MOVES for node in nodes)


def _turns_free(draft: Draft, value: Value) -> bool:
    """Whether a value is turned before it is repeated, or once for all calls, or without moving
    anything, or is needed channels last anyway."""
    if draft.is_op(value, "broadcast") or _repeated(draft, value) or _bound(draft, value):
        return True
    shape = draft.shape(value)
    last = to_last(len(shape))
    large = [a for a in last if shape[a] != 1]
    if large == sorted(large):
        return True
    attrs = make_attrs({"perm": last})
    return draft.existing("transpose", (value,), attrs) is not None


def _repeated(draft: Draft, value: Value) -> bool:
    """Whether a value is what is repeated, in another shape."""
    return draft.is_op(value, "reshape") and draft.is_op(draft.operand(value), "broadcast")


def _bound(draft: Draft, value: Value) -> bool:
    """Whether a value is the same in each call."""
    return draft.is_constant(value) or bool(draft.attr(value, "constant"))
