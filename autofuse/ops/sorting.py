"""The order of the elements along an axis, from which sorting and the k largest are gathered."""

from __future__ import annotations

import math

import numpy as np

from autofuse.ops import checks
from autofuse.ops.dtypes import DType
from autofuse.ops.reduction import NUMBERS
from autofuse.ops.scalar import Expr, Lit, call, cast
from autofuse.ops.spec import (
    AxisMap,
    Family,
    OpSpec,
    Sample,
    always,
    register,
    sampled,
)
from autofuse.ops.types import GraphError, OpCall, TensorType

Arrays = tuple[np.ndarray, ...]
_LONGEST = 2**31 - 1


def order_number(x: Expr, descending: bool) -> Expr:
    """An i64 that is less exactly where `x` goes earlier: of the range of an i32 where `x` has 32
    bits or fewer. A NaN is above every number, and -0.0 equals 0.0."""
    number = _float_number(x) if x.dtype.is_float else cast(x, DType.I64)
    if x.dtype in (DType.U32, DType.U64):
        # By half of its range; what of a u64 is no i64 has wrapped, and is turned around.
        number = call("xor" if x.dtype is DType.U64 else "sub", number, _half(x.dtype))
    return call("xor", number, Lit(-1, DType.I64)) if descending else number


def _half(dtype: DType) -> Lit:
    """Half of what an unsigned dtype has numbers, as an i64 of these bits."""
    return Lit(1 << 31 if dtype is DType.U32 else -(1 << 63), DType.I64)


def _float_number(x: Expr) -> Expr:
    """The bits of a float, turned around where they are negative."""
    bits = DType.I64 if x.dtype is DType.F64 else DType.I32
    last = bits.itemsize * 8 - 1
    top = Lit((1 << last) - 1, bits)
    raw = call("bitcast", x, dtype=bits)
    turned = call("xor", raw, call("and", call("shr", raw, Lit(last, bits)), top))
    # What -0.0 becomes is -1.
    even = call("select", call("eq", turned, Lit(-1, bits)), Lit(0, bits), turned)
    return cast(call("select", call("isnan", x), top, even), DType.I64)


def _infer(c: OpCall) -> tuple[TensorType, ...]:
    checks.operands(c, 1)
    x = c.ins[0]
    checks.dtype_in(x.dtype, NUMBERS)
    axis = checks.axis_attr(c, x.rank)
    if not isinstance(c["descending"], bool):
        raise GraphError(f"attribute 'descending' is {c['descending']!r}, not true or false")
    if x.shape[axis] > _LONGEST:
        raise GraphError(f"axis {axis} of {x} has more positions than an i32 can name")
    return (TensorType(x.shape, DType.I32),)


def _reference(arrays: Arrays, c: OpCall) -> Arrays:
    """Descending is ascending read from the end, of the axis read from the end: ties keep their
    order."""
    x, axis = arrays[0], c["axis"]
    if not c["descending"]:
        return (np.argsort(x, axis=axis, kind="stable").astype(np.int32),)
    order = np.flip(np.argsort(np.flip(x, axis), axis=axis, kind="stable"), axis)
    return ((x.shape[axis] - 1 - order).astype(np.int32),)


def _axes(c: OpCall) -> AxisMap:
    return (tuple(None if a == c["axis"] else a for a in range(c.ins[0].rank)),)


def _flops(c: OpCall) -> float:
    """Comparisons of a merge sort."""
    return c.out.size * math.log2(max(2, c.ins[0].shape[c["axis"]]))


def _samples() -> list[Sample]:
    cases = [((7,), 0), ((3, 5), 0), ((3, 1), 1), ((2, 3, 5), 1), ((2, 64), 1), ((1,), 0)]
    cases += [((3, 0), 1), ((4, 100), 1)]
    found = [
        Sample((TensorType(shape, DType.F32),), {"axis": axis, "descending": turned})
        for shape, axis in cases
        for turned in (False, True)
    ]
    for dtype in (*sampled(NUMBERS), DType.U64):
        attrs = {"axis": 1, "descending": dtype.is_signed}
        found.append(Sample((TensorType((3, 37), dtype),), attrs))
    return found


# Stable: of equal elements the first stays first. A NaN is above every number, and -0.0 equals 0.0.
register(
    OpSpec(
        name="argsort",
        family=Family.SORT,
        infer=_infer,
        reference=_reference,
        flops=_flops,
        samples=_samples,
        axes=_axes,
        exact=always,
    )
)
