"""Types, literals and attributes of the JSON graph file, written exactly and read strictly."""

from __future__ import annotations

import base64
import binascii
import math
import re
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from autofuse.ops.dtypes import DType
from autofuse.ops.types import GraphError, Literal, TensorType

VERSION = 1
# A name in this form may be referred to as it stands; others are written as labels.
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-/]*")
# What stands for the name of an unnamed node.
UNNAMED = re.compile(r"%[0-9]+")
# Literals of more elements than this are written as base64 of their bytes.
MAX_VALUES = 64
# Sizes beyond these are mistakes, and would only fail later and less clearly.
MAX_EXTENT = 2**31 - 1
MAX_BYTES = 2**40
MAX_RANK = 32
_MAX_INT = 2**63
_TYPE = re.compile(r"([a-z]+[0-9]*)\[((?:[0-9]{1,20}(?:,[0-9]{1,20})*)?)\]")
_SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def quoted(value: Any) -> str:
    """`value` as JSON-like text short enough for a message."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def parse_dtype(text: Any) -> DType:
    """The dtype spelled `text`."""
    found = next((d for d in DType if d.value == text), None)
    if found is None:
        raise GraphError(f"unknown dtype {quoted(text)} (known: {', '.join(map(str, DType))})")
    return found


def parse_shape(value: Any) -> tuple[int, ...]:
    """A list of extents."""
    if not isinstance(value, list) or any(type(n) is not int or n < 0 for n in value):
        raise GraphError(f"shape {quoted(value)} is not a list of non-negative integers")
    return tuple(value)


def check_size(found: TensorType) -> TensorType:
    """`found` itself unless no machine could hold it."""
    if found.rank > MAX_RANK or any(n > MAX_EXTENT for n in found.shape):
        raise GraphError(f"type {quoted(str(found))} is too large")
    if found.nbytes > MAX_BYTES:
        raise GraphError(f"type {found} is too large: {found.nbytes} bytes")
    return found


def parse_type(text: Any) -> TensorType:
    """A type such as "f32[3,4]"."""
    match = _TYPE.fullmatch(text) if isinstance(text, str) and len(text) < 1000 else None
    if match is None:
        raise GraphError(f'type {quoted(text)} is not written like "f32[3,4]"')
    extents = match[2].split(",") if match[2] else []
    return check_size(TensorType(tuple(map(int, extents)), parse_dtype(match[1])))


def write_literal(literal: Literal) -> dict[str, Any]:
    """A literal as {"type", "values"} with shortest exact numbers, or {"type", "base64"}."""
    array = literal.array()
    if array.size <= MAX_VALUES:
        values = [_number(x) for x in array.reshape(-1)]
        if Literal.of(_numbers(values, literal.type), literal.type.dtype).data == literal.data:
            return {"type": str(literal.type), "values": values}
    return {"type": str(literal.type), "base64": base64.b64encode(literal.data).decode("ascii")}


def _number(x: Any) -> bool | int | float | str:
    """One element: a float by the shortest decimal that reads back as it in its own dtype."""
    if isinstance(x, np.bool_):
        return bool(x)
    if isinstance(x, np.integer):
        return int(x)
    value = float(x)
    if not math.isfinite(value):
        return next(
            name for name, v in _SPECIAL.items() if v == value or (math.isnan(value) and v != v)
        )
    short = float(str(x))
    return short if np.asarray(short).astype(x.dtype) == x else value


def _numbers(values: list[Any], kind: TensorType) -> np.ndarray:
    """Checked numbers as an array of `kind`."""
    if kind.dtype is DType.BOOL:
        valid = all(isinstance(v, bool) for v in values)
    elif kind.dtype.is_int:
        info = np.iinfo(kind.dtype.numpy)
        valid = all(type(v) is int and info.min <= v <= info.max for v in values)
    else:
        return _floats(values, kind)
    if not valid:
        raise GraphError(f"a literal of {kind} holds a value that is not {kind.dtype}")
    return np.array(values, dtype=kind.dtype.numpy).reshape(kind.shape)


def _floats(values: list[Any], kind: TensorType) -> np.ndarray:
    """Numbers, and the three special names, rounded to `kind`; overflow is an error."""
    for v in values:
        special = isinstance(v, str) and v in _SPECIAL
        if not special and (type(v) not in (int, float) or abs(v) > sys.float_info.max):
            raise GraphError(f"a literal of {kind} holds {quoted(v)}, which is not {kind.dtype}")
    numbers = [_SPECIAL[v] if isinstance(v, str) else float(v) for v in values]
    exact = np.array(numbers, dtype=np.float64)
    with np.errstate(over="ignore"):
        rounded = exact.astype(kind.dtype.numpy)
    if (np.isfinite(exact) != np.isfinite(rounded.astype(np.float64))).any():
        raise GraphError(f"a literal of {kind} holds a value too large for {kind.dtype}")
    return rounded.reshape(kind.shape)


def read_literal(data: Any) -> Literal:
    """Inverse of write_literal; raises GraphError."""
    if not isinstance(data, dict) or len(data) != 2 or "type" not in data:
        raise GraphError(
            f'a literal must be {{"type": ..., "values" or "base64": ...}}, got {quoted(data)}'
        )
    kind = parse_type(data["type"])
    if isinstance(data.get("values"), list):
        values = data["values"]
        if len(values) != kind.size:
            raise GraphError(f"a literal of {kind} has {len(values)} values, not {kind.size}")
        return Literal.of(_numbers(values, kind), kind.dtype)
    if isinstance(data.get("base64"), str):
        try:
            raw = base64.b64decode(data["base64"], validate=True)
        except (binascii.Error, ValueError):
            raise GraphError(f"a literal of {kind} is not valid base64") from None
        if len(raw) != kind.nbytes:
            raise GraphError(f"a literal of {kind} has {len(raw)} bytes, not {kind.nbytes}")
        return Literal(kind, raw)
    raise GraphError(f'a literal of {kind} needs a list "values" or a string "base64"')


def write_plain(value: Any) -> Any:
    """An attribute made of numbers, booleans, strings and tuples of them."""
    if isinstance(value, tuple):
        return [write_plain(v) for v in value]
    if isinstance(value, np.generic):
        return write_plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(_number(np.float64(value)))}
    if isinstance(value, bool | int | float | str):
        return value
    raise GraphError(f"attribute value {quoted(value)} cannot be written to a graph file")


def read_plain(value: Any) -> Any:
    """Inverse of write_plain; lists become tuples."""
    if isinstance(value, list):
        return tuple(read_plain(v) for v in value)
    if isinstance(value, dict):
        if list(value) != ["float"] or value["float"] not in _SPECIAL:
            raise GraphError(f"attribute value {quoted(value)} is not understood")
        return _SPECIAL[value["float"]]
    if isinstance(value, int) and not -_MAX_INT <= value < _MAX_INT:
        raise GraphError(f"the number {quoted(value)} is too large")
    if isinstance(value, bool | int | float | str):
        return value
    raise GraphError(f"attribute value {quoted(value)} is not understood")


def keys_of(data: Any, what: str, required: tuple[str, ...], optional: tuple[str, ...]) -> Any:
    """`data` when it is an object with these keys; raises GraphError naming the odd one."""
    if not isinstance(data, Mapping):
        raise GraphError(f"{what} must be an object, got {quoted(data)}")
    for key in required:
        if key not in data:
            raise GraphError(f"{what} lacks the key '{key}'")
    for key in data:
        if key not in (*required, *optional):
            raise GraphError(f"{what} has an unknown key {quoted(key)}")
    return data
