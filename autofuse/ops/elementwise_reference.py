"""Reference arithmetic where NumPy and XLA differ: integer division, shifts, conversions."""

from __future__ import annotations

import numpy as np

from autofuse.ops.types import OpCall

Arrays = tuple[np.ndarray, ...]


def int_div(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x / y toward zero; -1 (all bits set) where y is 0; wraps for the least integer by -1."""
    safe = np.where(y == 0, np.ones_like(y), y)
    quotient = (x - np.fmod(x, safe)) // safe
    if x.dtype.kind == "i":
        quotient = np.where(y == -1, np.negative(x), quotient)
    return np.where(y == 0, ~np.zeros_like(x), quotient)


def int_rem(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The remainder with the sign of x; x where y is 0."""
    safe = np.where(y == 0, np.ones_like(y), y)
    if x.dtype.kind == "i":
        # The least integer by -1 traps on some machines; every remainder by -1 is 0.
        safe = np.where(safe == -1, np.ones_like(y), safe)
    return np.where(y == 0, x, np.fmod(x, safe))


def _amounts(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Shift amounts made safe, and where they were in range (a negative one counts as huge)."""
    width = x.dtype.itemsize * 8
    inside = (y >= 0) & (y < width)
    return np.where(inside, y, np.zeros_like(y)), inside


def shift_left(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x << y; 0 when every bit leaves."""
    amount, inside = _amounts(x, y)
    return np.where(inside, np.left_shift(x, amount), np.zeros_like(x))


def shift_right(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x >> y, arithmetic for signed x; only the sign (or 0) is left when every bit leaves."""
    amount, inside = _amounts(x, y)
    sign = np.where(x < 0, ~np.zeros_like(x), np.zeros_like(x))
    return np.where(inside, np.right_shift(x, amount), sign)


def shift_right_logical(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x >> y filling with zeros whatever the sign."""
    amount, inside = _amounts(x, y)
    unsigned = np.dtype(f"u{x.dtype.itemsize}")
    moved = np.right_shift(x.view(unsigned), amount.view(unsigned)).view(x.dtype)
    return np.where(inside, moved, np.zeros_like(x))


def cast_reference(arrays: Arrays, call: OpCall) -> Arrays:
    """Conversion; to a narrower float it rounds, to an integer it truncates and saturates."""
    (x,), out = arrays, call.out.dtype
    with np.errstate(all="ignore"):
        if out.is_float:
            # Only an explicit cast rounds: every other op of the reference stays in float64.
            return (x.astype(out.numpy).astype(out.reference),)
        if not out.is_int or not call.ins[0].dtype.is_float:
            return (x.astype(out.numpy),)
        info = np.iinfo(out.numpy)
        low, high = float(info.min), float(info.max) + (1.0 if out.itemsize < 8 else 0.0)
        whole = np.trunc(x)
        inside = (whole >= low) & (whole < high)
        result = np.where(inside, whole, 0.0).astype(out.numpy)
        result = np.where(whole >= high, out.numpy.type(info.max), result)
        return (np.where(whole < low, out.numpy.type(info.min), result),)


def bitcast_reference(arrays: Arrays, call: OpCall) -> Arrays:
    """The same bits as another dtype; floats pass through their declared width."""
    stored = np.ascontiguousarray(arrays[0].astype(call.ins[0].dtype.numpy))
    result = stored.view(call.out.dtype.numpy).reshape(call.out.shape)
    return (result.astype(call.out.dtype.reference),)
