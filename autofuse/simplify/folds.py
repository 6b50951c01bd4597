"""Reductions: of what repeats, of reductions, of moves."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable

from autofuse.graph.types import Value
from autofuse.ops.dtypes import DType
from autofuse.ops.spec import Family, OpSpec
from autofuse.simplify.casts import MANTISSA
from autofuse.simplify.draft import Draft
from autofuse.simplify.moves import squeezed
from autofuse.simplify.rules import Replacement, rule


def _plain(spec: OpSpec) -> bool:
    """A fold of one primitive, whose axes may be folded in any order."""
    return spec.family is Family.REDUCTION and spec.fold is not None and bool(spec.fold.operator)


def _again(spec: OpSpec) -> bool:
    """Whether folding an element with itself gives the element."""
    return spec.fold is not None and spec.fold.operator in ("max", "min", "and", "or")


def _is_sum(spec: OpSpec) -> bool:
    return spec.fold is not None and spec.fold.operator == "add"


def _axes(draft: Draft, at: int) -> tuple[int, ...]:
    axes: tuple[int, ...] = dict(draft[at].attrs)["axes"]
    return axes


def _folded(draft: Draft, at: int, value: Value, axes: list[int]) -> Value:
    """The same reduction of another value."""
    return draft.add(draft[at].op, value, axes=tuple(sorted(axes))) if axes else value


@rule("reduce-of-unit-axes", "XLA AlgebraicSimplifier HandleReduce (degenerate dims)", _plain)
def reduce_of_unit_axes(draft: Draft, at: int) -> Replacement:
    """Axes of extent 1 are not folded but dropped."""
    source, axes = draft[at].inputs[0], _axes(draft, at)
    shape = draft.shape(source)
    unit = [a for a in axes if shape[a] == 1]
    if not unit:
        return None
    kept = _but(range(len(shape)), unit)
    smaller = draft.reshape(source, [shape[a] for a in kept])
    return _folded(draft, at, smaller, _places(kept, axes))


@rule("reduce-of-broadcast", "XLA AlgebraicSimplifier reduce(broadcast(A)); Inductor", _plain)
def reduce_of_broadcast(draft: Draft, at: int) -> Replacement:
    """Axes that repeat are not folded: the sum of n equal terms is n times one, and the largest of
    them is one of them."""
    node, axes = draft[at], _axes(draft, at)
    source = node.inputs[0]
    if not draft.is_op(source, "broadcast") or not draft.type_of(source).size:
        return None
    dims, shape = draft.attr(source, "dims"), draft.shape(source)
    gone = _but(axes, dims)
    count, kind = math.prod(shape[a] for a in gone), node.types[0]
    summed = _is_sum(node.spec) and _counts(count, kind.dtype)
    if not gone or not (summed or _again(node.spec)):
        return None
    kept = _but(range(len(shape)), gone)
    folded = _folded(draft, at, _spread_over(draft, source, kept), _places(kept, axes))
    return draft.add("mul", folded, draft.full(count, kind)) if summed else folded


@rule("reduce-before-broadcast", "XLA AlgebraicSimplifier (sinking broadcasts)", _plain)
def reduce_before_broadcast(draft: Draft, at: int) -> Replacement:
    """reduce(broadcast(x)) -> broadcast(reduce(x)) where no axis that repeats is folded: what
    repeats is folded once."""
    node, axes = draft[at], _axes(draft, at)
    source = node.inputs[0]
    if not draft.is_op(source, "broadcast") or not draft.type_of(source).size:
        return None
    dims, shape = draft.attr(source, "dims"), draft.shape(source)
    if len(dims) == len(shape) or not set(axes) <= set(dims):
        return None
    folded = _folded(draft, at, draft.operand(source), [dims.index(a) for a in axes])
    kept = _but(range(len(shape)), axes)
    return draft.spread(folded, [shape[a] for a in kept], _places(kept, dims))


def _spread_over(draft: Draft, source: Value, kept: list[int]) -> Value:
    """A broadcast without the axes that are not kept."""
    dims, shape = draft.attr(source, "dims"), draft.shape(source)
    return draft.spread(draft.operand(source), [shape[a] for a in kept], _places(kept, dims))


def _but(axes: Iterable[int], gone: Container[int]) -> list[int]:
    return [a for a in axes if a not in gone]


def _places(kept: list[int], axes: Iterable[int]) -> list[int]:
    """Where those of `axes` are that are kept."""
    return [kept.index(a) for a in axes if a in kept]


def _counts(count: int, dtype: DType) -> bool:
    """Whether a dtype has this number."""
    if dtype.is_float:
        return count <= 1 << min(15, MANTISSA[dtype])
    return count < 1 << (8 * dtype.itemsize - dtype.is_signed)


@rule("reduce-of-reduce", "XLA AlgebraicSimplifier reduce(reduce(A))", _plain)
def reduce_of_reduce(draft: Draft, at: int) -> Replacement:
    """One fold over the axes of both, where nothing else reads the inner one."""
    node, inner = draft[at], draft[at].inputs[0]
    if not draft.is_op(inner, node.op) or not draft.alone(inner):
        return None
    x, before = draft.operand(inner), draft.attr(inner, "axes")
    left = [a for a in range(len(draft.shape(x))) if a not in before]
    return _folded(draft, at, x, [*before, *(left[a] for a in _axes(draft, at))])


@rule("reduce-of-move", "XLA AlgebraicSimplifier reduce of transpose, reshape, reverse",
      _plain)  # fmt: skip
def reduce_of_move(draft: Draft, at: int) -> Replacement:
    """The order along folded axes does not matter, and the others are moved afterwards, which is
    less; nor do axes of extent 1 that a reshape added."""
    node, axes = draft[at], _axes(draft, at)
    source = node.inputs[0]
    if draft.is_op(source, "transpose"):
        perm = draft.attr(source, "perm")
        own = [perm[a] for a in axes]
        left = [p for p in perm if p not in own]
        folded = _folded(draft, at, draft.operand(source), own)
        return draft.transpose(folded, [sorted(left).index(p) for p in left])
    if draft.is_op(source, "reverse"):
        return _of_reverse(draft, at, source, axes)
    if draft.is_op(source, "reshape"):
        return _of_reshape(draft, at, source, axes)
    return None


def _of_reverse(draft: Draft, at: int, source: Value, axes: tuple[int, ...]) -> Replacement:
    turned = draft.attr(source, "axes")
    if not set(turned) & set(axes):
        return None
    rest = tuple(a for a in turned if a not in axes)
    x = draft.operand(source)
    kept = draft.add("reverse", x, axes=rest) if rest else x
    return _folded(draft, at, kept, list(axes))


def _of_reshape(draft: Draft, at: int, source: Value, axes: tuple[int, ...]) -> Replacement:
    x, shape = draft.operand(source), draft.shape(source)
    own = draft.shape(x)
    if squeezed(own) != squeezed(shape):
        return None
    large = [a for a, n in enumerate(own) if n != 1]
    where = {a: large[k] for k, a in enumerate(a for a, n in enumerate(shape) if n != 1)}
    folded = _folded(draft, at, x, [where[a] for a in axes if a in where])
    return draft.reshape(folded, draft[at].types[0].shape)
