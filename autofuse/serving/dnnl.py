"""Calls of oneDNN as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autofuse.backends.base import DnnlCalls
from autofuse.kernel.library.onednn import DnnlCall
from autofuse.ops.dtypes import DType
from autofuse.ops.library_forms import StridedWindow
from autofuse.ops.views import View


def calls_data(calls: DnnlCalls) -> tuple[Any, ...]:
    """Calls, each by its pieces, as what JSON holds."""
    return tuple([_data(piece) for piece in pieces] for pieces in calls)


def calls_of(data: Sequence[Any]) -> DnnlCalls:
    """Inverse of `calls_data`."""
    return tuple(tuple(_call(piece) for piece in pieces) for pieces in data)


def _data(call: DnnlCall) -> dict[str, Any]:
    views = {name: getattr(call, name) for name in ("src", "weights", "dst")}
    return {
        "dtype": str(call.dtype),
        "windows": [[w.stride, w.dilation, w.low, w.high] for w in call.windows],
        **{name: [view.shape, view.strides, view.offset] for name, view in views.items()},
    }


def _call(data: Any) -> DnnlCall:
    src, weights, dst = (
        View(tuple(data[name][0]), tuple(data[name][1]), data[name][2])
        for name in ("src", "weights", "dst")
    )
    windows = tuple(StridedWindow(*fields) for fields in data["windows"])
    return DnnlCall(DType(data["dtype"]), src, weights, dst, windows)
