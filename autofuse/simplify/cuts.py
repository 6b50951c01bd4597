"""Slices, pads and concatenations: what was cut and joined again, or joined and cut."""

from __future__ import annotations

import numpy as np

from autofuse.graph.types import Value
from autofuse.ops.spec import Family
from autofuse.simplify.draft import Draft
from autofuse.simplify.moves import squeezed, turned
from autofuse.simplify.rules import Replacement, rule

Shape = tuple[int, ...]
# start, stop, stride of each axis
Parts = tuple[tuple[int, int, int], ...]


def parts_of(draft: Draft, value: Value) -> Parts:
    """What a slice takes of each axis."""
    attrs = dict(draft.node(value).attrs)
    return tuple(zip(attrs["start"], attrs["stop"], attrs["stride"], strict=True))


def taken(draft: Draft, value: Value, parts: Parts) -> Value:
    """A slice, if that is anything less than all."""
    shape = draft.shape(value)
    # Where one element is taken its stride means nothing, and past the last element is nowhere.
    lean = [_lean(*part) for part in parts]
    if all(part == (0, n, 1) for part, n in zip(lean, shape, strict=True)):
        return value
    start, stop, stride = zip(*lean, strict=True)
    return draft.add("slice", value, start=start, stop=stop, stride=stride)


def _lean(start: int, stop: int, stride: int) -> tuple[int, int, int]:
    count = -(-(stop - start) // stride)
    if count <= 1:
        return (start, start + count, 1)
    return (start, start + (count - 1) * stride + 1, stride)


@rule("lean-slice", "XLA AlgebraicSimplifier HandleSlice", "slice")
def lean_slice(draft: Draft, at: int) -> Replacement:
    """No stop past the last element that is taken, no stride where one is taken."""
    node = draft[at]
    found = taken(draft, node.inputs[0], parts_of(draft, Value(at)))
    return None if found == Value(at) else found


@rule("slice-of-slice", "XLA AlgebraicSimplifier slice(slice(A))", "slice")
def slice_of_slice(draft: Draft, at: int) -> Replacement:
    """One slice instead of two."""
    inner = draft[at].inputs[0]
    if not draft.is_op(inner, "slice"):
        return None
    pairs = zip(parts_of(draft, Value(at)), parts_of(draft, inner), strict=True)
    both = tuple(
        (low + start * step, low + start * step + max(0, stop - start - 1) * step + (stop > start),
         step * stride)
        for (start, stop, stride), (low, _, step) in pairs
    )  # fmt: skip
    return taken(draft, draft.operand(inner), both)


@rule("slice-of-concat", "XLA AlgebraicSimplifier slice(concatenate); Inductor merge_splits",
      "slice")  # fmt: skip
def slice_of_concat(draft: Draft, at: int) -> Replacement:
    """slice(concat) -> concat of the slices of what it reaches, or the one slice. A slice that cuts
    other axes too goes into each. What is in memory anyway, and read at shifted places, is read
    there: its parts need not be, too."""
    inner, parts = draft[at].inputs[0], parts_of(draft, Value(at))
    if not draft.is_op(inner, "concat"):
        return None
    found = _reached(draft, inner, parts)
    if len(found) > 1 and not draft.alone(inner):
        return None
    if _is_kept(draft, inner) and not all(_is_given(draft, v) for v, _ in found):
        return None
    axis = draft.attr(inner, "axis")
    return draft.concat([taken(draft, v, own) for v, own in found], axis) if found else None


def _reached(draft: Draft, joined: Value, parts: Parts) -> list[tuple[Value, Parts]]:
    """What a slice of a concat takes of its operands."""
    axis = draft.attr(joined, "axis")
    start, stop, stride = parts[axis]
    found, first = [], 0
    for value in draft[joined.node].inputs:
        extent = draft.shape(value)[axis]
        skipped = max(0, -(-(first - start) // stride))
        low, high = start + skipped * stride - first, min(stop - first, extent)
        if low < high:
            found.append((value, (*parts[:axis], (low, high, stride), *parts[axis + 1 :])))
        first += extent
    return found


def _is_kept(draft: Draft, joined: Value) -> bool:
    """Whether a concat is written anyway and some slice of it takes not just one operand: a stencil
    of an array with borders that a loop carries on."""
    slices = (n for n in draft.users(joined.node) if draft[n].op == "slice")
    return draft.leaves(joined.node) and not all(
        _is_one_operand(draft, joined, parts_of(draft, Value(n))) for n in slices
    )


def _is_one_operand(draft: Draft, value: Value, parts: Parts) -> bool:
    """Whether a slice is one operand of nested concats, or of what is there before any kernel."""
    whole = all(
        _lean(*part) == (0, n, 1) for part, n in zip(parts, draft.shape(value), strict=True)
    )
    if whole or _is_given(draft, value):
        return True
    if not draft.is_op(value, "concat"):
        return False
    found = _reached(draft, value, parts)
    return len(found) == 1 and _is_one_operand(draft, *found[0])


def _is_given(draft: Draft, value: Value) -> bool:
    """Whether a value is a part of an input or of a constant."""
    node = draft.node(value)
    while node.op in ("slice", "reshape"):
        node = draft.node(node.inputs[0])
    return node.spec.family is Family.SOURCE


@rule("slice-of-pad", "XLA AlgebraicSimplifier slice(pad)", "slice")
def slice_of_pad(draft: Draft, at: int) -> Replacement:
    """slice(pad(x)) -> padding alone, or the pad of a slice of x with less of it."""
    node = draft[at]
    inner, parts = node.inputs[0], parts_of(draft, Value(at))
    if not draft.is_op(inner, "pad") or any(stride > 1 for *_, stride in parts):
        return None
    x, value = draft[inner.node].inputs
    low, shape = draft.attr(inner, "low"), draft.shape(x)
    own, before, after = [], [], []
    for (start, stop, _), lo, n in zip(parts, low, shape, strict=True):
        first, last = max(start, lo), min(stop, lo + n)
        if first >= last:
            return draft.spread(value, node.types[0].shape, ())
        own.append((first - lo, last - lo, 1))
        before.append(first - start)
        after.append(stop - last)
    cut = taken(draft, x, tuple(own))
    if not any(before) and not any(after):
        return cut
    # Two pads of one array are no fewer moves than a pad and a slice.
    if not draft.alone(inner):
        return None
    return draft.add("pad", cut, value, low=tuple(before), high=tuple(after))


@rule("slice-of-broadcast", "XLA AlgebraicSimplifier slice(broadcast(A))", "slice")
def slice_of_broadcast(draft: Draft, at: int) -> Replacement:
    """slice(broadcast(x)) -> broadcast(slice(x)), to the smaller shape."""
    node = draft[at]
    inner, parts = node.inputs[0], parts_of(draft, Value(at))
    if not draft.is_op(inner, "broadcast"):
        return None
    dims = draft.attr(inner, "dims")
    x = taken(draft, draft.operand(inner), tuple(parts[d] for d in dims))
    return draft.spread(x, node.types[0].shape, dims)


@rule("slice-moved-in", "XLA AlgebraicSimplifier slice(reshape), slice(transpose), slice(reverse)",
      "slice")  # fmt: skip
def slice_moved_in(draft: Draft, at: int) -> Replacement:
    """A slice of a transpose, reversal or reshape that nothing else reads is one of what they
    move: what is not taken is not moved."""
    node = draft[at]
    inner, parts = node.inputs[0], parts_of(draft, Value(at))
    if not draft.alone(inner):
        return None
    if draft.is_op(inner, "transpose"):
        perm = draft.attr(inner, "perm")
        own = tuple(parts[perm.index(a)] for a in range(len(perm)))
        return draft.transpose(taken(draft, draft.operand(inner), own), perm)
    if draft.is_op(inner, "reverse"):
        return _of_reverse(draft, inner, parts)
    if draft.is_op(inner, "reshape"):
        return _of_reshape(draft, at, inner, parts)
    return None


def _of_reverse(draft: Draft, inner: Value, parts: Parts) -> Replacement:
    axes, own = draft.attr(inner, "axes"), []
    for a, ((start, stop, stride), n) in enumerate(zip(parts, draft.shape(inner), strict=True)):
        if a not in axes or stop == start:
            own.append((start, stop, stride))
            continue
        last = start + (-(-(stop - start) // stride) - 1) * stride
        own.append((n - 1 - last, n - start, stride))
    return turned(draft, taken(draft, draft.operand(inner), tuple(own)), set(axes))


def _of_reshape(draft: Draft, at: int, inner: Value, parts: Parts) -> Replacement:
    """Where every axis that is cut is one of the operand's."""
    x, shape = draft.operand(inner), draft.shape(inner)
    axes = draft[inner.node].spec.axes
    if axes is None:
        return None
    (theirs,) = axes(draft.call(inner.node))
    own: list[tuple[int, int, int]] = [(0, n, 1) for n in draft.shape(x)]
    for a, n in enumerate(shape):
        mine = theirs[a]
        if parts[a] != (0, n, 1):
            if mine is None:
                return None
            own[mine] = parts[a]
    return draft.reshape(taken(draft, x, tuple(own)), draft[at].types[0].shape)


@rule("concat-flattened", "XLA AlgebraicSimplifier concatenate(concatenate); Inductor", "concat")
def concat_flattened(draft: Draft, at: int) -> Replacement:
    """concat(a, concat(b, c)) -> concat(a, b, c), along one axis; empty parts go."""
    node, axis = draft[at], dict(draft[at].attrs)["axis"]
    flat: list[Value] = []
    for value in node.inputs:
        same = draft.is_op(value, "concat") and draft.attr(value, "axis") == axis
        flat += draft[value.node].inputs if same and draft.alone(value) else (value,)
    found = [v for v in flat if draft.shape(v)[axis]] or flat[:1]
    return draft.concat(found, axis) if found != list(node.inputs) else None


@rule("concat-of-slices", "XLA AlgebraicSimplifier concatenate of contiguous slices; "
      "Inductor simplify_split_cat", "concat")  # fmt: skip
def concat_of_slices(draft: Draft, at: int) -> Replacement:
    """Neighbouring slices of one array, end to end, are one slice of it, or all of it."""
    node, axis = draft[at], dict(draft[at].attrs)["axis"]
    found = [node.inputs[0]]
    for value in node.inputs[1:]:
        joined = _joined(draft, found[-1], value, axis)
        if joined is None:
            found.append(value)
        else:
            found[-1] = joined
    if len(found) < len(node.inputs):
        return draft.concat(found, axis)
    return _spaced(draft, found, axis)


def _spaced(draft: Draft, values: list[Value], axis: int) -> Value | None:
    """Single rows of one array at even distances as one slice."""
    if len(values) < 2 or any(draft.shape(v)[axis] != 1 for v in values):
        return None
    found = [_whole_parts(draft, v) for v in values]
    rest = {(source, parts[:axis], parts[axis + 1 :]) for source, parts in found}
    places = [parts[axis][0] for _, parts in found]
    step = places[1] - places[0]
    if len(rest) > 1 or step < 1 or places != list(range(places[0], places[-1] + 1, step)):
        return None
    source, parts = found[0]
    whole = (*parts[:axis], (places[0], places[-1] + 1, step), *parts[axis + 1 :])
    return taken(draft, source, whole)


def _whole_parts(draft: Draft, value: Value) -> tuple[Value, Parts]:
    """A value as a slice: of what, and which."""
    if draft.is_op(value, "slice"):
        return draft.operand(value), parts_of(draft, value)
    return value, tuple((0, n, 1) for n in draft.shape(value))


def _joined(draft: Draft, one: Value, other: Value, axis: int) -> Value | None:
    """Two parts of a concat as one: neighbouring slices, or broadcasts of the same."""
    if draft.is_op(one, "broadcast") and draft.is_op(other, "broadcast"):
        return _joined_fills(draft, one, other, axis)
    (source, parts), (again, others) = _whole_parts(draft, one), _whole_parts(draft, other)
    if source != again or source in (one, other):
        return None
    if any(parts[a] != others[a] for a in range(len(parts)) if a != axis):
        return None
    stride = _stride(parts[axis], others[axis])
    if stride is None:
        return None
    whole = (parts[axis][0], others[axis][1], stride)
    return taken(draft, source, (*parts[:axis], whole, *parts[axis + 1 :]))


def _stride(one: tuple[int, int, int], other: tuple[int, int, int]) -> int | None:
    """That of two (start, stop, stride) as one, if the other goes on where the one ends."""
    (start, stop, stride), (first, last, step) = one, other
    single, lone = stop - start == 1, last - first == 1
    stride = first - start if single else stride
    if stride <= 0 or first != start + -(-(stop - start) // stride) * stride:
        return None
    if single and lone:
        return stride if stride == 1 else None
    return stride if lone or step == stride else None


def _joined_fills(draft: Draft, one: Value, other: Value, axis: int) -> Value | None:
    """Broadcasts of the same along the axis that they are joined along."""
    same = draft.operand(one) == draft.operand(other)
    dims = draft.attr(one, "dims")
    if not same or dims != draft.attr(other, "dims") or axis in dims:
        return None
    shape = list(draft.shape(one))
    shape[axis] += draft.shape(other)[axis]
    return draft.spread(draft.operand(one), shape, dims)


@rule("concat-of-the-same", "XLA AlgebraicSimplifier concatenate(A, A, ...) => broadcast", "concat")
def concat_of_the_same(draft: Draft, at: int) -> Replacement:
    """One row again and again, or broadcasts of it, are a broadcast of it."""
    node, axis = draft[at], dict(draft[at].attrs)["axis"]
    rows = {_row(draft, value, axis) for value in node.inputs}
    (row, *others) = rows
    if row is None or others:
        return None
    shape = node.types[0].shape
    dims = [a for a in range(len(shape)) if a != axis]
    line = draft.reshape(row, [shape[a] for a in dims])
    return draft.spread(line, shape, dims)


def _row(draft: Draft, value: Value, axis: int) -> Value | None:
    """What an array repeats along an axis, but for axes of extent 1."""
    shape = draft.shape(value)
    rest = squeezed((*shape[:axis], *shape[axis + 1 :]))
    moved = draft.is_op(value, "broadcast", "reshape")
    if moved and squeezed(draft.shape(draft.operand(value))) == rest:
        dims = draft.attr(value, "dims")
        return draft.operand(value) if dims is None or axis not in dims else None
    return value if shape[axis] == 1 else None


@rule("concat-of-broadcasts", "XLA AlgebraicSimplifier concatenate(broadcast)", "concat")
def concat_of_broadcasts(draft: Draft, at: int) -> Replacement:
    """concat(broadcast(x), broadcast(y)) -> broadcast(concat(x, y)), where both are repeated along
    the same axes, and not along the one that they are joined along."""
    node, axis = draft[at], dict(draft[at].attrs)["axis"]
    rows, everywhere = [], set()
    for value in node.inputs:
        if not draft.is_op(value, "broadcast"):
            return None
        dims, x = tuple(draft.attr(value, "dims")), draft.operand(value)
        if axis not in dims:
            if draft.shape(value)[axis] != 1:
                return None
            place = sum(d < axis for d in dims)
            own = draft.shape(x)
            x, dims = (
                draft.reshape(x, (*own[:place], 1, *own[place:])),
                tuple(sorted((*dims, axis))),
            )
        rows.append(x)
        everywhere.add(dims)
    if len(everywhere) > 1:
        return None
    (dims,) = everywhere
    return draft.spread(draft.concat(rows, dims.index(axis)), node.types[0].shape, dims)


def fill(draft: Draft, value: Value) -> Value | None:
    """The () value that an array repeats."""
    if draft.is_op(value, "broadcast", "reshape") and not draft.shape(draft.operand(value)):
        return draft.operand(value)
    return None


@rule(
    "concat-with-fill", "XLA AlgebraicSimplifier concatenate with broadcast scalar => pad", "concat"
)
def concat_with_fill(draft: Draft, at: int) -> Replacement:
    """concat(fill, x, fill) -> pad(x), where both ends have the same one element."""
    node, axis = draft[at], dict(draft[at].attrs)["axis"]
    inside = list(node.inputs)
    first, last = fill(draft, inside[0]), fill(draft, inside[-1])
    value = last if first is None else first
    if value is None or len(inside) < 2:
        return None
    low = [0] * len(node.types[0].shape)
    high = list(low)
    if first is not None:
        low[axis] = draft.shape(inside.pop(0))[axis]
    if last == value and len(inside) > 1:
        high[axis] = draft.shape(inside.pop())[axis]
    if all(fill(draft, v) is not None for v in inside):
        return None
    return draft.add("pad", draft.concat(inside, axis), value, low=tuple(low), high=tuple(high))


@rule("pad-of-pad", "XLA AlgebraicSimplifier pad(pad)", "pad")
def pad_of_pad(draft: Draft, at: int) -> Replacement:
    """Two pads with the same element are one; a pad of that element, or of nothing, is a fill."""
    node = draft[at]
    inner, value = node.inputs
    if fill(draft, inner) == value or not draft.type_of(inner).size:
        return draft.spread(value, node.types[0].shape, ())
    if not draft.is_op(inner, "pad") or draft.operand(inner, 1) != value:
        return None
    attrs = dict(node.attrs)
    low, high = (
        tuple(np.add(attrs[key], draft.attr(inner, key)).tolist()) for key in ("low", "high")
    )
    return draft.add("pad", draft.operand(inner), value, low=low, high=high)
