"""Checks that shape rules share: operand counts, attribute types, axes in range."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from autofuse.ops.dtypes import DType
from autofuse.ops.types import GraphError, OpCall


def operands(call: OpCall, count: int) -> None:
    """Require exactly `count` operands."""
    if len(call.ins) != count:
        raise GraphError(f"expected {count} operands, got {len(call.ins)}")


def same_dtype(call: OpCall) -> DType:
    """The one dtype all operands share."""
    found = dict.fromkeys(t.dtype for t in call.ins)
    if len(found) != 1:
        raise GraphError(f"operands differ in dtype: {', '.join(map(str, found))}")
    return call.ins[0].dtype


def dtype_in(dtype: DType, allowed: Collection[DType]) -> None:
    """Require `dtype` to be one of `allowed`."""
    if dtype not in allowed:
        raise GraphError(f"dtype {dtype} is not one of {', '.join(map(str, allowed))}")


def is_int(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def int_attr(call: OpCall, key: str) -> int:
    """Attribute `key` as an integer."""
    value = call[key]
    if not is_int(value):
        raise GraphError(f"attribute '{key}' must be an integer, got {value!r}")
    return int(value)


def ints_attr(call: OpCall, key: str) -> tuple[int, ...]:
    """Attribute `key` as a tuple of integers."""
    value = call[key]
    if not isinstance(value, tuple) or not all(is_int(v) for v in value):
        raise GraphError(f"attribute '{key}' must be a list of integers, got {value!r}")
    return tuple(int(v) for v in value)


def shape_attr(call: OpCall, key: str = "shape") -> tuple[int, ...]:
    """Attribute `key` as a shape: non-negative extents."""
    shape = ints_attr(call, key)
    if any(n < 0 for n in shape):
        raise GraphError(f"attribute '{key}' has a negative extent: {shape}")
    return shape


def axis_attr(call: OpCall, rank: int, key: str = "axis") -> int:
    """Attribute `key` as an axis 0 <= axis < rank."""
    axis = int_attr(call, key)
    if not 0 <= axis < rank:
        raise GraphError(f"attribute '{key}' is {axis}, but the operand has {rank} axes")
    return axis


def axes_attr(call: OpCall, rank: int, key: str = "axes") -> tuple[int, ...]:
    """Attribute `key` as distinct axes in range, in the order given."""
    axes = ints_attr(call, key)
    if len(set(axes)) != len(axes) or not all(0 <= a < rank for a in axes):
        raise GraphError(f"attribute '{key}' is {axes}: need distinct axes from 0 to {rank - 1}")
    return axes


def sorted_axes_attr(call: OpCall, rank: int, key: str = "axes") -> tuple[int, ...]:
    """Attribute `key` as strictly increasing axes in range."""
    axes = axes_attr(call, rank, key)
    if list(axes) != sorted(axes):
        raise GraphError(f"attribute '{key}' is {axes}: axes must be increasing")
    return axes
