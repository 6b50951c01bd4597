"""Rules for ONNX operators on quantised numbers: (integer - zero point) * scale."""

from __future__ import annotations

from autofuse.frontends.errors import FrontendError
from autofuse.frontends.onnx.package import numpy_dtype
from autofuse.frontends.onnx.types import STANDARD, OnnxCall, OnnxRules
from autofuse.frontends.onnx.windows import convolved
from autofuse.graph.composites import layers as composites
from autofuse.graph.composites.resample import repeat_each
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter, Shape, normal_axes
from autofuse.ops.dtypes import DType, from_numpy

F32, I32 = DType.F32, DType.I32


def named_dtype(c: OnnxCall, name: str) -> DType | None:
    """The dtype that an attribute names by the standard's number; None where it names none."""
    number = c.attr(name, 0)
    return from_numpy(numpy_dtype(int(number))) if number else None


def _laid_along(c: OnnxCall, v: Value, shape: Shape) -> Value:
    """A scale or zero point as it broadcasts against `shape`: one for all, one for each place along
    attribute axis, or one for each block of block_size places there."""
    w, own = c.w, c.w.shape(v)
    if w.type_of(v).size == 1:
        return w.reshape(v, ())
    (axis,) = normal_axes(int(c.attr("axis", 1)), len(shape))
    block = int(c.attr("block_size", 0))
    if not block:
        return w.reshape(v, [-1 if a == axis else 1 for a in range(len(shape))])
    if len(own) != len(shape) or own[axis] != -(-shape[axis] // block):
        raise FrontendError(f"blocks of {block} do not lie so that {own} fits {shape}")
    return w.part(repeat_each(w, v, axis, block), axis, 0, shape[axis])


def quantised(w: GraphWriter, v: Value, zero: Value | None, dtype: DType) -> Value:
    """`v`, in steps of the scale, to the nearest whole number, halves to the even one, shifted by
    the zero point and kept within `dtype`."""
    whole = w.map("round", v)
    if zero is not None:
        whole = w.add(whole, w.cast(zero, w.dtype(whole)))
    least, most = dtype.limits
    return w.cast(w.map("clamp", whole, float(least), float(most)), dtype)


def _narrow(dtype: DType | None) -> DType:
    if dtype not in (None, DType.U8, DType.I8, DType.U16, DType.I16):
        raise FrontendError(f"numbers are quantised to 8 or 16 bits, not {dtype}")
    return dtype or DType.U8


def _quantize(c: OnnxCall) -> Value:
    """The division is in the dtype of the scale, or the one asked for."""
    w, shape = c.w, c.shape(0)
    kind = named_dtype(c, "precision") or c.dtype(1)
    dtype = _narrow(c.dtype(2) if c.has(2) else named_dtype(c, "output_dtype"))
    zero = _laid_along(c, c.value(2), shape) if c.has(2) else None
    scale = _laid_along(c, c.value(1, kind), shape)
    steps = w.div(c.value(0, kind.compute), w.cast(scale, kind.compute))
    return quantised(w, w.cast(w.cast(steps, kind), kind.compute), zero, dtype)


def _dequantize(c: OnnxCall) -> Value:
    w, shape = c.w, c.shape(0)
    made = named_dtype(c, "output_dtype") or c.dtype(1)
    x, scale = c.value(0, F32), _laid_along(c, c.value(1, F32), shape)
    if c.has(2):
        x = w.sub(x, _laid_along(c, c.value(2, F32), shape))
    return w.cast(w.mul(x, scale), made)


def _dynamic_quantize(c: OnnxCall) -> tuple[Value, Value, Value]:
    """To u8, by a scale and a zero point for which the range of the elements, and 0, just fits."""
    w, x = c.w, c.value(0, F32)
    high = w.map("max", w.reduce("reduce_max", x), 0)
    low = w.map("min", w.reduce("reduce_min", x), 0)
    width = w.select(w.map("eq", high, low), 1.0, w.sub(high, low))
    scale = w.div(width, 255.0)
    start = w.div(w.map("neg", low), scale)
    zero = w.cast(w.map("round", w.map("clamp", start, 0.0, 255.0)), DType.U8)
    return quantised(w, w.div(x, scale), zero, DType.U8), scale, zero


# Products of integers


def _from_zero(c: OnnxCall, k: int, zero: int, around: Shape = ()) -> Value:
    """Integers counted from their zero point (its row laid out as `around`, -1 for it), as i32."""
    w, x = c.w, c.value(k, I32)
    if not c.has(zero):
        return x
    own = c.value(zero, I32)
    if w.type_of(own).size == 1:
        own = w.reshape(own, ())
    elif around and len(w.shape(own)) == 1:
        own = w.reshape(own, around)
    return w.sub(x, own)


def _matmul_integer(c: OnnxCall) -> Value:
    return composites.matmul(c.w, _from_zero(c, 0, 2, (-1, 1)), _from_zero(c, 1, 3))


def _conv_integer(c: OnnxCall) -> Value:
    return _conv_i32(c, (0, 2), (1, 3))


def _conv_i32(c: OnnxCall, image: tuple[int, int], kernel: tuple[int, int]) -> Value:
    """The convolution of two operands, each with its zero point."""
    out_features = (-1, *(1 for _ in c.shape(kernel[0])[1:]))
    return convolved(c, _from_zero(c, *image), _from_zero(c, *kernel, out_features))


def _requantised(c: OnnxCall, total: Value, around: Shape, first: int) -> Value:
    """Sums of products scaled by those of both operands and of the result, which with their zero
    points are operands 1, 2, `first`, ... of the node."""
    w = c.w
    own, other, made = c.value(1, F32), c.value(first, F32), c.value(first + 2, F32)
    if w.type_of(other).size > 1 and len(w.shape(other)) == 1:
        other = w.reshape(other, around)
    own, other, made = (w.reshape(v, ()) if w.type_of(v).size == 1 else v
                        for v in (own, other, made))  # fmt: skip
    scale = w.div(w.mul(own, other), made)
    dtype = _narrow(c.dtype(first + 3))
    zero = c.value(first + 3)
    zero = w.reshape(zero, ()) if w.type_of(zero).size == 1 else zero
    return quantised(w, w.mul(w.cast(total, F32), scale), zero, dtype)


def _qlinear_matmul(c: OnnxCall) -> Value:
    """a, its scale and zero point, b, its own, those of the result."""
    a, b = _from_zero(c, 0, 2, (-1, 1)), _from_zero(c, 3, 5)
    return _requantised(c, composites.matmul(c.w, a, b), (-1,), 4)


def _qlinear_conv(c: OnnxCall) -> Value:
    """As QLinearMatMul; a bias has the scale of the products and no zero point."""
    w, total = c.w, _conv_i32(c, (0, 2), (3, 5))
    features = (-1, *(1 for _ in w.shape(total)[2:]))
    if c.has(8):
        total = w.add(total, w.reshape(c.value(8, I32), features))
    return _requantised(c, total, features, 4)


ONNX_QUANTISED: OnnxRules = {
    (STANDARD, "ConvInteger", 1): _conv_integer,
    (STANDARD, "DequantizeLinear", 1): _dequantize,
    (STANDARD, "DynamicQuantizeLinear", 1): _dynamic_quantize,
    (STANDARD, "MatMulInteger", 1): _matmul_integer,
    (STANDARD, "QLinearConv", 1): _qlinear_conv,
    (STANDARD, "QLinearMatMul", 1): _qlinear_matmul,
    (STANDARD, "QuantizeLinear", 1): _quantize,
}
