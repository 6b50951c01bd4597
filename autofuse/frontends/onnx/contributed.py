"""Rules for operators that onnxruntime adds to the standard (domain com.microsoft)."""

from __future__ import annotations

from autofuse.frontends.errors import FrontendError
from autofuse.frontends.onnx.types import OnnxCall, OnnxRules
from autofuse.graph.composites import layers as composites
from autofuse.graph.composites.narrow import BYTE, unpacked
from autofuse.graph.types import Value
from autofuse.ops.dtypes import DType

MICROSOFT = "com.microsoft"
# Widths of numbers that lie side by side in whole bytes.
_BITS = (2, 4, 8)


def _matmul_nbits(c: OnnxCall) -> Value:
    """A [.., K] by the transpose of weights [N, K]: (number - zero point) * scale, of N x blocks x
    bytes, a scale and a zero point (2^(bits - 1) where none is given) for each block
    (onnxruntime, ContribOperators.md)."""
    w, terms, columns = c.w, int(c["K"]), int(c["N"])
    bits, block = int(c.attr("bits", 4)), int(c["block_size"])
    if bits not in _BITS:
        raise FrontendError(f"weights of {bits} bits")
    if c.has(4):
        raise FrontendError("blocks of terms in another order (g_idx)")
    if block <= 0 or block * bits % BYTE or terms <= 0 or columns <= 0:
        raise FrontendError(f"blocks of {block} numbers of {bits} bits")
    blocks, own = -(-terms // block), c.dtype(0)
    packed = w.reshape(c.value(1, DType.U8), (columns, blocks, block * bits // BYTE))
    numbers = w.cast(unpacked(w, packed, bits), DType.F32)
    scales = w.reshape(c.value(2, DType.F32), (columns, blocks, 1))
    wide = w.mul(w.sub(numbers, _zero_points(c, bits, columns, blocks)), scales)
    weights = w.part(w.reshape(wide, (columns, blocks * block)), 1, 0, terms)
    made = composites.matmul(w, c.value(0, DType.F32), w.transpose(weights, (1, 0)))
    if c.has(5):
        made = w.add(made, c.value(5, DType.F32))
    return w.cast(made, own)


def _zero_points(c: OnnxCall, bits: int, columns: int, blocks: int) -> Value | float:
    """One for each block of a column: numbers, or packed as weights are, columns in whole bytes."""
    w = c.w
    if not c.has(3):
        return float(2 ** (bits - 1))
    if c.dtype(3) is not DType.U8:
        return w.reshape(c.value(3, DType.F32), (columns, blocks, 1))
    apart = unpacked(w, w.reshape(c.value(3), (columns, -1)), bits)
    return w.cast(w.reshape(w.part(apart, 1, 0, blocks), (columns, blocks, 1)), DType.F32)


ONNX_CONTRIBUTED: OnnxRules = {
    (MICROSOFT, "MatMulNBits", 1): _matmul_nbits,
}
