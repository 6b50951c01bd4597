"""NumPy indexing of traced arrays: integers, slices, None, Ellipsis and one integer array."""

from __future__ import annotations

from typing import Any

import numpy as np

from autofuse.frontends.array_api.array import TracedArray
from autofuse.frontends.array_api.elementwise import add, less, where
from autofuse.frontends.array_api.promotion import as_array, cast
from autofuse.frontends.array_api.recorder import current
from autofuse.frontends.array_api.shaping import flip, reshape, take
from autofuse.frontends.errors import TraceError
from autofuse.graph.writer import GraphWriter
from autofuse.ops.dtypes import DType


def getitem(x: TracedArray, key: Any) -> TracedArray:
    """NumPy's `x[key]`: integers, slices, None, Ellipsis and at most one integer array."""
    cuts: list[tuple[int, int, int]] = []
    reverse: list[int] = []
    shape: list[int] = []  # of the result, but with the gathered axis still whole
    gathered: tuple[int, TracedArray] | None = None
    for part in _expand(key if isinstance(key, tuple) else (key,), x.ndim):
        if part is None:
            shape.append(1)
            continue
        axis = len(cuts)
        extent = x.shape[axis]
        if isinstance(part, slice):
            cut, flipped, count = _slice(part, extent)
            reverse += [axis] if flipped else []
            shape.append(count)
        elif isinstance(part, int | np.integer):
            at = _position(int(part), extent)
            cut = (at, at + 1, 1)
        else:
            gathered = (len(shape), _indices(part, extent))
            cut = (0, extent, 1)
            shape.append(extent)
        cuts.append(cut)
    out = _apply(x, cuts)
    out = flip(out, reverse) if reverse else out
    out = reshape(out, shape)
    return out if gathered is None else take(out, gathered[1], axis=gathered[0])


def _apply(x: TracedArray, cuts: list[tuple[int, int, int]]) -> TracedArray:
    return current().write(GraphWriter.slice, x, *zip(*cuts, strict=True)) if cuts else x


def _expand(key: tuple[Any, ...], ndim: int) -> list[Any]:
    """The key with Ellipsis and missing trailing axes spelled out, checked."""
    arrays = sum(map(_is_index_array, key))
    if arrays > 1 or (arrays and any(isinstance(k, int | np.integer) for k in key)):
        raise TraceError("index with one integer array and slices at a time")
    dots = [i for i, k in enumerate(key) if k is Ellipsis]
    if len(dots) > 1:
        raise TraceError("an index can have only one Ellipsis")
    used = len(key) - len(dots) - sum(k is None for k in key)
    if used > ndim:
        raise TraceError(f"{used} indices for an array with {ndim} axes")
    cut = (*dots, len(key))[0]
    filler = [slice(None)] * (ndim - used)
    return [*key[:cut], *filler, *key[cut + 1 :]]


def _is_index_array(part: Any) -> bool:
    if part is None or part is Ellipsis or isinstance(part, slice):
        return False
    if isinstance(part, int | np.integer) and not isinstance(part, bool):
        return False
    if isinstance(part, TracedArray | np.ndarray | list):
        return True
    raise TraceError(f"cannot index an array with {type(part).__name__}")


def _slice(part: slice, extent: int) -> tuple[tuple[int, int, int], bool, int]:
    """(start, stop, positive stride), whether to reverse afterwards, and the count."""
    if any(isinstance(v, TracedArray) for v in (part.start, part.stop, part.step)):
        raise TraceError("slice bounds must be Python integers: use take for traced positions")
    if part.step == 0:
        raise TraceError("a slice step cannot be zero")
    chosen = range(*part.indices(extent))
    if not chosen:
        return (0, 0, 1), False, 0
    low, high = sorted((chosen[0], chosen[-1]))
    flipped = chosen.step < 0 and len(chosen) > 1
    return (low, high + 1, abs(chosen.step)), flipped, len(chosen)


def _position(index: int, extent: int) -> int:
    if not -extent <= index < extent:
        raise TraceError(f"index {index} is out of range for an axis of extent {extent}")
    return index % extent


def _traced_indices(part: TracedArray, extent: int) -> TracedArray:
    if not part.dtype.is_signed:
        return part
    part = cast(part, DType.I64 if part.dtype == DType.I64 else DType.I32)
    return where(less(part, 0), add(part, extent), part)


def _indices(part: Any, extent: int) -> TracedArray:
    """An index array with negative positions counted from the end."""
    kind = part.dtype if isinstance(part, TracedArray) else np.asarray(part).dtype
    if kind in (DType.BOOL, np.bool_):
        raise TraceError("a boolean mask makes a data-dependent shape: use where")
    if isinstance(part, TracedArray):
        return _traced_indices(part, extent)
    data = np.asarray(part)
    if data.dtype.kind not in "iu":
        raise TraceError(f"indices must be integers, got {data.dtype}")
    if data.size and not (-extent <= data.min() and data.max() < extent):
        raise TraceError(f"an index is out of range for an axis of extent {extent}")
    return as_array(np.where(data < 0, data + extent, data).astype(np.int32))
