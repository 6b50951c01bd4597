"""Dtype promotion and conversion of operands to traced arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from autofuse.frontends.array_api.array import TracedArray
from autofuse.frontends.array_api.recorder import current
from autofuse.frontends.errors import TraceError
from autofuse.graph.writer import GraphWriter
from autofuse.ops.dtypes import DType, from_numpy
from autofuse.ops.types import AutofuseError

DEFAULT_FLOAT = DType.F32
DEFAULT_INT = DType.I32
_NAMES = {dtype.numpy_name: dtype for dtype in DType}
_PYTHON = {bool: DType.BOOL, int: DEFAULT_INT, float: DEFAULT_FLOAT}


def as_dtype(dtype: Any) -> DType:
    """A DType from "f32", "float32", a DType, a NumPy dtype, or Python's bool, int, float."""
    if isinstance(dtype, DType):
        return dtype
    if isinstance(dtype, type) and dtype in _PYTHON:
        return _PYTHON[dtype]
    try:
        if isinstance(dtype, str):
            return _NAMES[dtype] if dtype in _NAMES else DType(dtype)
        return from_numpy(dtype)
    except (ValueError, TypeError, AutofuseError):
        raise TraceError(f"unknown dtype {dtype!r} (known: {', '.join(map(str, DType))})") from None


def promote(a: DType, b: DType) -> DType:
    """The dtype of an operation on arrays of `a` and `b`.

    NumPy's rules, except that an integer with a float gives that float (NumPy widens to f64).
    Raises TraceError for u64 and a signed integer, for which NumPy has a float.
    """
    if a == b:
        return a
    if DType.BOOL in (a, b):
        return b if a == DType.BOOL else a
    if a.is_float != b.is_float:
        return a if a.is_float else b
    if a.is_float:
        return DType.F32 if {a, b} == {DType.F16, DType.BF16} else _wider(a, b)
    return _wider(a, b) if a.is_signed == b.is_signed else _signed(a, b)


def _signed(a: DType, b: DType) -> DType:
    """The signed integer that holds both a signed and an unsigned one."""
    signed, unsigned = (a, b) if a.is_signed else (b, a)
    if signed.itemsize > unsigned.itemsize:
        return signed
    if unsigned == DType.U64:
        raise TraceError(f"{a} and {b} have no common dtype")
    return DType(f"i{16 * unsigned.itemsize}")


def _wider(a: DType, b: DType) -> DType:
    return a if a.itemsize >= b.itemsize else b


def is_weak(value: Any) -> bool:
    """Python scalars adapt to the arrays they meet; so does np.float64, a Python float."""
    return isinstance(value, bool | int | float)


def weak_dtype(value: bool | int | float, dtype: DType | None) -> DType:
    """The dtype a Python scalar takes beside arrays of `dtype` (None: no array)."""
    if isinstance(value, bool):
        return DType.BOOL if dtype is None else dtype
    if isinstance(value, int):
        return DEFAULT_INT if dtype is None or dtype == DType.BOOL else dtype
    return dtype if dtype is not None and dtype.is_float else DEFAULT_FLOAT


def common_dtype(*values: Any) -> DType:
    """The dtype that arrays and Python scalars meet in."""
    found: DType | None = None
    for value in values:
        if not is_weak(value):
            dtype = dtype_of(value)
            found = dtype if found is None else promote(found, dtype)
    for value in values:
        if is_weak(value):
            weak = weak_dtype(value, found)
            found = weak if found is None else promote(found, weak)
    if found is None:
        raise TraceError("no operands given")
    return found


def dtype_of(value: Any) -> DType:
    """The dtype of an array or a Python scalar."""
    if isinstance(value, TracedArray):
        return value.type.dtype
    if is_weak(value):
        return weak_dtype(value, None)
    if isinstance(value, np.ndarray | np.generic):
        return from_numpy(value.dtype)
    raise TraceError(f"{type(value).__name__} is not an array or a number")


def as_array(value: Any, dtype: DType | None = None) -> TracedArray:
    """`value` (array, NumPy array, number, nested list of numbers) as a traced array."""
    if isinstance(value, TracedArray):
        return value if dtype is None else cast(value, dtype)
    if isinstance(value, list | tuple):
        return as_array(_numbers(value), dtype)
    target = dtype or dtype_of(value)
    data = np.asarray(value)
    if is_weak(value):
        _check_fits(value, target)
    return current().constant(data.astype(target.numpy), target)


def _numbers(value: list[Any] | tuple[Any, ...]) -> np.ndarray:
    """A list of numbers, with Python's default dtypes instead of NumPy's 64-bit ones."""
    try:
        data = np.asarray(value)
    except (ValueError, TypeError):
        data = np.asarray(None)
    if data.dtype.kind not in "bif":
        raise TraceError("only lists of numbers become arrays; use stack or concat for arrays")
    return data.astype({"b": np.bool_, "i": np.int32, "f": np.float32}[data.dtype.kind])


def _check_fits(value: bool | int | float, dtype: DType) -> None:
    if dtype.is_int and not isinstance(value, float):
        limits = np.iinfo(dtype.numpy)
        if not limits.min <= int(value) <= limits.max:
            raise TraceError(f"{value} does not fit {dtype}")


def cast(array: TracedArray, dtype: DType) -> TracedArray:
    """`array` converted to `dtype`; the same array when nothing changes."""
    return current().write(GraphWriter.cast, array, dtype)


def meet(*values: Any) -> tuple[TracedArray, ...]:
    """Operands converted to their common dtype, shapes untouched."""
    dtype = common_dtype(*values)
    return tuple(as_array(v, dtype) for v in values)


def to_float(value: Any) -> TracedArray:
    """`value` as a floating-point array: integers and booleans become the default float."""
    array = as_array(value)
    return array if array.type.dtype.is_float else cast(array, DEFAULT_FLOAT)
