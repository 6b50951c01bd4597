"""Activations, written once for every front end: a layer has one form, whoever it comes from.

Each function appends to a GraphWriter and returns a value of the operand's shape and dtype, which
is a float. Where a framework leaves the form open it is the one that JAX writes in primitives, as
there it cannot be chosen.
"""

from __future__ import annotations

import math

import numpy as np

from autofuse.graph.composites.layers import require_float, wide
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter, Operand

# Klambauer et al., "Self-Normalizing Neural Networks" (2017).
SELU_ALPHA, SELU_SCALE = 1.6732632423543772, 1.0507009873554805


# Along an axis


def softmax(w: GraphWriter, x: Value, axis: int = -1) -> Value:
    """exp(x) over its sum along `axis`, shifted by the maximum."""
    v = wide(w, x)
    powers = w.map("exp", w.sub(v, w.reduce("reduce_max", v, axis, keepdims=True)))
    total = w.reduce("reduce_sum", powers, axis, keepdims=True)
    return w.cast(w.div(powers, total), w.dtype(x))


def log_softmax(w: GraphWriter, x: Value, axis: int = -1) -> Value:
    """The logarithm of softmax; shifted first, so that large values lose no digits."""
    v = wide(w, x)
    centred = w.sub(v, w.reduce("reduce_max", v, axis, keepdims=True))
    total = w.reduce("reduce_sum", w.map("exp", centred), axis, keepdims=True)
    return w.cast(w.sub(centred, w.map("log", total)), w.dtype(x))


# With a corner at 0


def relu(w: GraphWriter, x: Value) -> Value:
    """max(x, 0); NaN stays NaN."""
    return w.map("max", x, 0)


def leaky_relu(w: GraphWriter, x: Value, slope: Operand) -> Value:
    """x, below 0 slope x."""
    return w.select(w.map("ge", x, 0), x, w.mul(slope, x))


def elu(w: GraphWriter, x: Value, alpha: float = 1.0) -> Value:
    """x, from 0 downwards alpha (exp(x) - 1)."""
    return w.select(w.map("gt", x, 0), x, w.mul(alpha, w.map("expm1", x)))


def selu(
    w: GraphWriter, x: Value, alpha: float = SELU_ALPHA, scale: float = SELU_SCALE
) -> Value:  # fmt: skip
    """scale elu(x)."""
    return w.mul(scale, elu(w, x, alpha))


def celu(w: GraphWriter, x: Value, alpha: float = 1.0) -> Value:
    """x, below 0 alpha (exp(x / alpha) - 1)."""
    below = w.map("expm1", w.div(w.map("min", x, 0), alpha))
    return w.add(relu(w, x), w.mul(alpha, below))


def threshold(w: GraphWriter, x: Value, limit: float, value: float) -> Value:
    """x, up to `limit` the number `value`; NaN stays NaN."""
    return w.select(w.map("le", x, limit), value, x)


def thresholded_relu(w: GraphWriter, x: Value, limit: float) -> Value:
    """x above `limit`, else 0, which is also what becomes of NaN."""
    return w.select(w.map("gt", x, limit), x, 0.0)


def shrink(w: GraphWriter, x: Value, bias: float, limit: float) -> Value:
    """x nearer to 0 by `bias` where its size is above `limit`; else, and for NaN, 0."""
    above = w.select(w.map("gt", x, limit), w.sub(x, bias), 0.0)
    return w.select(w.map("lt", x, -limit), w.add(x, bias), above)


def hard_sigmoid(w: GraphWriter, x: Value, alpha: float = 1 / 6, beta: float = 0.5) -> Value:
    """alpha x + beta between 0 and 1; the usual one as relu6(x + 3) / 6."""
    if np.float32(alpha) == np.float32(1 / 6) and beta == 0.5:
        return w.div(w.map("clamp", w.add(x, 3.0), 0.0, 6.0), 6.0)
    return w.map("clamp", w.add(w.mul(alpha, x), beta), 0.0, 1.0)


def hard_swish(w: GraphWriter, x: Value) -> Value:
    """x hard_sigmoid(x)."""
    return w.mul(x, hard_sigmoid(w, x))


# Smooth


def softplus(w: GraphWriter, x: Value) -> Value:
    """log(1 + exp(x)), which never overflows."""
    return w.add(relu(w, x), w.map("log1p", w.map("exp", w.map("neg", w.map("abs", x)))))


def log_sigmoid(w: GraphWriter, x: Value) -> Value:
    """The logarithm of the logistic function: -softplus(-x)."""
    return w.map("neg", softplus(w, w.map("neg", x)))


def mish(w: GraphWriter, x: Value) -> Value:
    """x tanh(softplus(x))."""
    return w.mul(x, w.map("tanh", softplus(w, x)))


def softsign(w: GraphWriter, x: Value) -> Value:
    """x / (1 + |x|)."""
    return w.div(x, w.add(1.0, w.map("abs", x)))


def silu(w: GraphWriter, x: Value, alpha: float = 1.0) -> Value:
    """x logistic(alpha x), also called swish."""
    return w.mul(x, w.map("logistic", x if alpha == 1 else w.mul(alpha, x)))


def gelu(w: GraphWriter, x: Value, approximate: bool = True) -> Value:
    """The Gaussian error linear unit: its tanh form, or the exact one with erf."""
    require_float(w.dtype(x))
    if approximate:
        cubic = w.mul(0.044715, w.mul(x, w.mul(x, x)))
        gate = w.map("tanh", w.mul(math.sqrt(2 / math.pi), w.add(x, cubic)))
    else:
        gate = w.map("erf", w.mul(x, math.sqrt(0.5)))
    return w.mul(w.mul(0.5, x), w.add(1.0, gate))
