"""Rules for ONNX operators that compute element by element."""

from __future__ import annotations

from collections.abc import Callable

from autofuse.frontends.onnx_types import STANDARD, OnnxCall, OnnxRule, OnnxRules
from autofuse.graph.types import Value


def computed(c: OnnxCall, function: Callable[..., Value]) -> Value:
    """`function(w, *operands)` in the dtype of the first operand: halves are widened first and
    rounded once."""
    own = c.dtype(0)
    values = (c.value(k, own.compute) for k in range(len(c.operands)) if c.has(k))
    return c.w.cast(function(c.w, *values), own)


def _mapped(op: str) -> OnnxRule:
    return lambda c: computed(c, lambda w, *values: w.map(op, *values))


ONNX_ELEMENTWISE: OnnxRules = {
    (STANDARD, "Abs", 6): _mapped("abs"),
    (STANDARD, "Add", 7): _mapped("add"),
}
