"""Rules for ONNX operators that multiply matrices."""

from __future__ import annotations

from autofuse.frontends.errors import FrontendError
from autofuse.frontends.onnx.types import STANDARD, OnnxCall, OnnxRules
from autofuse.graph.composites import layers as composites
from autofuse.graph.composites.einsum import einsum
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter


def _matmul(c: OnnxCall) -> Value:
    return composites.matmul(c.w, c.value(0), c.value(1))


def _gemm(c: OnnxCall) -> Value:
    """alpha a b + beta c; what beta = 0 multiplies is not looked at."""
    w, own = c.w, c.dtype(0)
    if len(c.shape(0)) != 2 or len(c.shape(1)) != 2:
        raise FrontendError(f"matrices are expected, not {list(c.shape(0))}, {list(c.shape(1))}")
    a, b = int(not c["transA"]), int(bool(c["transB"]))
    found = composites.dot(w, c.value(0), c.value(1), ((a,), (b,)))
    found = _scaled(w, w.cast(found, own.compute), c["alpha"])
    if c.has(2) and c["beta"]:
        shape = w.shape(found)
        found = w.add(found, w.spread(_scaled(w, c.value(2, own.compute), c["beta"]), shape))
    return w.cast(found, own)


def _scaled(w: GraphWriter, v: Value, factor: float) -> Value:
    if factor == 1:
        return v
    if not w.dtype(v).is_float and not float(factor).is_integer():
        raise FrontendError(f"whole numbers times {factor}")
    return w.mul(v, float(factor) if w.dtype(v).is_float else int(factor))


def _einsum(c: OnnxCall) -> Value:
    return einsum(c.w, str(c["equation"]), c.values())


ONNX_PRODUCTS: OnnxRules = {
    (STANDARD, "Einsum", 12): _einsum,
    (STANDARD, "Gemm", 6): _gemm,
    (STANDARD, "MatMul", 1): _matmul,
}
