"""Where the elements of a moved array lie, when nothing is moved: views of memory by strides,
and parts of arrays."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from autofuse.ops.types import OpCall

Shape = tuple[int, ...]
Groups = tuple[tuple[Shape, Shape], ...]


@dataclass(frozen=True, slots=True)
class View:
    """An array of `shape` whose element at an index lies `offset` plus the sum of index times
    stride elements after the start of memory. Stride 0 repeats elements."""

    shape: Shape
    strides: Shape
    offset: int = 0


@dataclass(frozen=True, slots=True)
class WindowAt:
    """A part of operand 0 along `axes`, of `sizes`; where it begins say the () operands from number
    `starts` on, moved so that it fits."""

    axes: Shape
    sizes: Shape
    starts: int


def row_major(shape: Shape, stride: int = 1) -> View:
    """The view of a whole array whose elements are `stride` apart."""
    strides = [stride] * len(shape)
    for axis in range(len(shape) - 1, 0, -1):
        strides[axis - 1] = strides[axis] * shape[axis]
    return View(shape, tuple(strides))


def joined(view: View, axes: Iterable[int]) -> int | None:
    """The stride of some axes walked as one, the last of them fastest; 0 where there is but one
    element, None where no single stride walks them."""
    stride = 0
    wanted: int | None = None
    for axis in reversed(tuple(axes)):
        extent, own = view.shape[axis], view.strides[axis]
        if extent == 1:
            continue
        if wanted is None:
            stride = own
        elif own != wanted:
            return None
        wanted = own * extent
    return stride


def transposed(call: OpCall, view: View) -> View:
    """The view of `transpose`."""
    return View(call.out.shape, tuple(view.strides[axis] for axis in call["perm"]), view.offset)


def sliced(call: OpCall, view: View) -> View:
    """The view of `slice`."""
    start, steps = call["start"], call["stride"]
    skipped = sum(lo * own for lo, own in zip(start, view.strides, strict=True))
    strides = tuple(step * own for step, own in zip(steps, view.strides, strict=True))
    return View(call.out.shape, strides, view.offset + skipped)


def repeated(call: OpCall, view: View) -> View:
    """The view of `broadcast`."""
    strides = dict(zip(call["dims"], view.strides, strict=True))
    shape = call.out.shape
    return View(shape, tuple(strides.get(axis, 0) for axis in range(len(shape))), view.offset)


def reshaped(call: OpCall, view: View) -> View | None:
    """The view of `reshape`, or None where elements would have to move."""
    shape = call.out.shape
    strides = [0] * len(shape)
    for theirs, ours in reshape_groups(view.shape, shape):
        stride = joined(view, theirs)
        if stride is None:
            return None
        split = row_major(tuple(shape[axis] for axis in ours), stride)
        for axis, own in zip(ours, split.strides, strict=True):
            strides[axis] = own
    return View(shape, tuple(strides), view.offset)


def reshape_groups(source: Shape, target: Shape) -> Groups:
    """The finest split of both shapes into runs of axes holding the same number of elements.

    Each item is (source axes, target axes); elements never move between runs.
    """
    if 0 in source:
        return ((tuple(range(len(source))), tuple(range(len(target)))),)
    groups: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    i = j = 0
    while i < len(source) and j < len(target):
        i0, j0, a, b = i, j, source[i], target[j]
        i, j = i + 1, j + 1
        while a != b:
            if a < b:
                a, i = a * source[i], i + 1
            else:
                b, j = b * target[j], j + 1
        groups.append((tuple(range(i0, i)), tuple(range(j0, j))))
    # What is left over on either side are axes of extent 1.
    rest = (tuple(range(i, len(source))), tuple(range(j, len(target))))
    return (*groups, rest) if rest != ((), ()) else tuple(groups)
