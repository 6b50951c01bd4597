"""Windows at places that are known, that are one row, or that were written or read before."""

from __future__ import annotations

from autofuse.graph.types import Node, Value
from autofuse.ops.updates import START_DTYPES
from autofuse.simplify.draft import Draft
from autofuse.simplify.facts import bounds
from autofuse.simplify.rules import Replacement, all_of, rule

SLICE, UPDATE = "dynamic_slice", "dynamic_update_slice"


def starts_of(draft: Draft, at: int) -> dict[int, Value]:
    """Where a window begins, by axis."""
    node = draft[at]
    axes = dict(node.attrs)["axes"]
    return dict(zip(axes, node.inputs[len(node.inputs) - len(axes) :], strict=True))


def _write_slice(draft: Draft, x: Value, starts: dict[int, Value], sizes: dict[int, int]) -> Value:
    """The window of `x`, of which `starts` may say nothing any more."""
    axes = tuple(sorted(starts))
    if not axes:
        return x
    cut = tuple(sizes[a] for a in axes)
    return draft.add(SLICE, x, *(starts[a] for a in axes), axes=axes, sizes=cut)


@rule("known-window", "XLA AlgebraicSimplifier HandleDynamicSlice: constant start indices => slice",
      SLICE)  # fmt: skip
def known_window(draft: Draft, at: int) -> Replacement:
    """Along axes where the start is known, or there is but one place, a window is a slice."""
    x, starts, sizes = draft[at].inputs[0], starts_of(draft, at), draft[at].types[0].shape
    left: dict[int, Value] = {}
    found = x
    for axis, start in starts.items():
        room = draft.shape(x)[axis] - sizes[axis]
        known = 0 if not room else draft.uniform(start)
        if known is None:
            left[axis] = start
            continue
        first = min(max(int(known), 0), room)
        found = draft.cut(found, axis, first, first + sizes[axis])
    if len(left) == len(starts):
        return None
    return _write_slice(draft, found, left, dict(enumerate(sizes)))


@rule("window-of-one-row", "XLA GatherSimplifier (the other way round); JAX x[i]", SLICE)
def window_of_one_row(draft: Draft, at: int) -> Replacement:
    """A window of one row is a gather of that row."""
    node = draft[at]
    shape, starts = node.types[0].shape, starts_of(draft, at)
    lone = [a for a in starts if shape[a] == 1]
    if not lone:
        return None
    axis = lone[-1]
    row = draft.add("gather", node.inputs[0], starts.pop(axis), axis=axis)
    left = {a - (a > axis): start for a, start in starts.items()}
    rest = [n for a, n in enumerate(shape) if a != axis]
    return draft.reshape(_write_slice(draft, row, left, dict(enumerate(rest))), shape)


@rule("known-update", "XLA AlgebraicSimplifier HandleDynamicUpdateSlice (concatenate)", UPDATE)
def known_update(draft: Draft, at: int) -> Replacement:
    """An update that covers an axis does not move along it; at a place that is known it is a
    concat with what is around it."""
    node = draft[at]
    x, update = node.inputs[:2]
    starts, shape, window = starts_of(draft, at), draft.shape(x), draft.shape(update)
    left = {a: s for a, s in starts.items() if window[a] < shape[a]}
    if len(left) < len(starts):
        if not left:
            return update
        return draft.add(UPDATE, x, update, *left.values(), axes=tuple(left))
    known = all_of(map(draft.uniform, starts.values()))
    if known is None:
        return None
    found, inner = update, x
    cuts: list[tuple[int, Value, Value]] = []
    for axis, number in zip(starts, known, strict=True):
        first = min(max(int(number), 0), shape[axis] - window[axis])
        last = first + window[axis]
        before = draft.cut(inner, axis, 0, first)
        cuts.append((axis, before, draft.cut(inner, axis, last, shape[axis])))
        inner = draft.cut(inner, axis, first, last)
    for axis, before, after in reversed(cuts):
        found = draft.concat([before, found, after], axis)
    return found


@rule("update-again", "XLA AlgebraicSimplifier dynamic-update-slice of dynamic-update-slice / "
      "of dynamic-slice; LLVM DSE", UPDATE)  # fmt: skip
def update_again(draft: Draft, at: int) -> Replacement:
    """A window that is overwritten as a whole need not have been written; one that gets what is
    there stays."""
    node = draft[at]
    x, update, *starts = node.inputs
    read = draft.node(update)
    if read.op == SLICE and read.inputs == (x, *starts):
        same = draft.attr(update, "axes") == draft.attr(Value(at), "axes")
        return x if same else None
    before = draft.node(x)
    if before.op != UPDATE or before.inputs[2:] != tuple(starts):
        return None
    same = draft.attr(x, "axes") == draft.attr(Value(at), "axes")
    if not same or draft.shape(before.inputs[1]) != draft.shape(update):
        return None
    axes = draft.attr(x, "axes")
    return draft.add(UPDATE, before.inputs[0], update, *starts, axes=axes)


def _rows_read(draft: Draft, node: Node, axis: int) -> int | None:
    """How many rows in a row a gather or a window takes along an axis; None where they are rows of
    several places or axes."""
    attrs = dict(node.attrs)
    if node.op == "gather":
        return 1 if attrs["axis"] == axis and not draft.shape(node.inputs[1]) else None
    size: int = node.types[0].shape[axis]
    return size if attrs["axes"] == (axis,) else None


@rule("read-of-update", "LLVM GVN / XLA dynamic-slice(dynamic-update-slice): store-to-load "
      "forwarding", SLICE, "gather")  # fmt: skip
def read_of_update(draft: Draft, at: int) -> Replacement:
    """What is read where it was just written is the update; what is read elsewhere was there
    before."""
    node = draft[at]
    x = node.inputs[0]
    if not draft.is_op(x, UPDATE) or len(draft.attr(x, "axes")) > 1:
        return None
    before, update, start = draft[x.node].inputs
    (axis,) = draft.attr(x, "axes")
    size, own = _rows_read(draft, node, axis), node.inputs[1]
    if size is None:
        return None
    written = draft.shape(update)[axis]
    if own == start and size == written:
        return draft.reshape(update, node.types[0].shape)
    apart = distance(draft, start, own)
    if apart is None or -size < apart < written:
        return None
    extent = draft.shape(x)[axis]
    if not _fits(draft, start, extent - written) or not _fits(draft, own, extent - size):
        return None
    return draft.add(node.op, before, *node.inputs[1:], **dict(node.attrs))


def _fits(draft: Draft, start: Value, room: int) -> bool:
    """Whether a window lies where its start says, moved nowhere."""
    span = bounds(draft, start)
    return span is not None and span[0] >= 0 and span[1] <= room


def distance(draft: Draft, one: Value, other: Value) -> int | None:
    """`other` - `one` of two () whole numbers, where it is one number. They must not wrap, as
    indices in bounds do not."""
    (base, first), (again, second) = _sum(draft, one), _sum(draft, other)
    return second - first if base == again else None


def _sum(draft: Draft, value: Value) -> tuple[Value | None, int]:
    """A value as another plus a number; None plus one where it is known."""
    known = draft.uniform(value)
    if known is not None:
        return None, int(known)
    if draft.is_op(value, "add", "sub"):
        x, y = draft[value.node].inputs
        number = draft.uniform(y)
        if number is not None:
            return x, int(number) if draft.is_op(value, "add") else -int(number)
    return value, 0


@rule("select-as-update", "XLA AlgebraicSimplifier select(iota == i) => dynamic-update-slice",
      "select")  # fmt: skip
def select_as_update(draft: Draft, at: int) -> Replacement:
    """select(position == i, x, y) -> y with one row of x, where i surely is a position."""
    condition, yes, no = draft[at].inputs
    found = _one_place(draft, condition)
    if found is None:
        return None
    axis, place = found
    shape = draft.shape(yes)
    span = bounds(draft, place)
    if draft.dtype(place) not in START_DTYPES or span is None or draft.is_constant(place):
        return None
    if span[0] < 0 or span[1] >= shape[axis] or shape[axis] == 1:
        return None
    row = draft.add(SLICE, yes, place, axes=(axis,), sizes=(1,))
    return draft.add(UPDATE, no, row, place, axes=(axis,))


def _one_place(draft: Draft, mask: Value) -> tuple[int, Value] | None:
    """(axis, i) of a mask that is true at position i of an axis and nowhere else."""
    axes = tuple(range(len(draft.shape(mask))))
    if draft.is_op(mask, "broadcast"):
        axes, mask = draft.attr(mask, "dims"), draft.operand(mask)
    if not draft.is_op(mask, "eq"):
        return None
    pair = draft[mask.node].inputs
    for position, number in (pair, pair[::-1]):
        one = draft.is_op(number, "broadcast", "reshape") and not draft.shape(draft.operand(number))
        if draft.is_op(position, "iota") and one:
            return axes[draft.attr(position, "axis")], draft.operand(number)
    return None
