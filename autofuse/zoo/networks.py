"""Workloads around matrix products: a two-layer perceptron, attention, a transformer block."""

from __future__ import annotations

import math

import autofuse.frontends.array_api as xp
from autofuse.frontends.array_api.array import TracedArray
from autofuse.frontends.array_api.tracer import Spec, spec, trace
from autofuse.graph.types import Graph

Array = TracedArray
_MASKED = -1e30


def _weights(rows: int, columns: int) -> Spec:
    """A weight matrix whose products keep the size of their inputs."""
    bound = math.sqrt(3.0 / rows)
    return spec((rows, columns), low=-bound, high=bound)


def mlp(rows: int, width: int, hidden: int) -> Graph:
    """gelu(x @ w1 + b1) @ w2 + b2 for x f32[rows, width] and w1 f32[width, hidden]."""

    def fn(x: Array, w1: Array, b1: Array, w2: Array, b2: Array) -> dict[str, Array]:
        return {"y": _feed_forward(x, w1, b1, w2, b2)}

    return trace(
        fn,
        spec((rows, width)),
        _weights(width, hidden),
        spec(hidden),
        _weights(hidden, width),
        spec(width),
    )


def _feed_forward(x: Array, w1: Array, b1: Array, w2: Array, b2: Array) -> Array:
    return xp.gelu(x @ w1 + b1, approximate=True) @ w2 + b2


def attention(heads: int, length: int, depth: int) -> Graph:
    """Causal attention of q, k, v f32[heads, length, depth]; heads include the batch."""

    def fn(q: Array, k: Array, v: Array) -> dict[str, Array]:
        return {"y": _attend(q, k, v)}

    each = spec((heads, length, depth), low=-2, high=2)
    return trace(fn, each, each, each)


def _attend(q: Array, k: Array, v: Array) -> Array:
    length, depth = q.shape[-2:]
    scores = (q @ k.mT) * (1.0 / math.sqrt(depth))
    position = xp.arange(length)
    visible = position[:, None] >= position[None, :]
    return xp.softmax(xp.where(visible, scores, _MASKED)) @ v


def _heads(x: Array, heads: int) -> Array:
    """f32[length, width] as [heads, length, width / heads]."""
    length, width = x.shape
    return x.reshape(length, heads, width // heads).transpose(1, 0, 2)


def transformer_block(length: int, width: int, heads: int) -> Graph:
    """A pre-norm transformer block on x f32[length, width]: attention and a perceptron of four
    times the width, each behind a layer norm and added to its input."""

    def fn(
        x: Array,
        gamma1: Array,
        beta1: Array,
        w_qkv: Array,
        w_out: Array,
        gamma2: Array,
        beta2: Array,
        w1: Array,
        b1: Array,
        w2: Array,
        b2: Array,
    ) -> dict[str, Array]:
        y = _block(x, heads, gamma1, beta1, w_qkv, w_out, gamma2, beta2, w1, b1, w2, b2)
        return {"y": y}

    return trace(fn, spec((length, width)), *_block_weights(width))


def transformer(layers: int, length: int, width: int, heads: int) -> Graph:
    """`layers` pre-norm transformer blocks one after another on x f32[length, width], each with
    weights of its own."""

    def fn(x: Array, *weights: Array) -> dict[str, Array]:
        each = len(weights) // layers
        for layer in range(layers):
            x = _block(x, heads, *weights[layer * each : (layer + 1) * each])
        return {"y": x}

    return trace(fn, spec((length, width)), *_block_weights(width) * layers)


def _block_weights(width: int) -> tuple[Spec, ...]:
    """Shapes of what a block takes after x, in order."""
    gamma, bias = spec(width, low=0.5, high=1.5), spec(width, low=-0.5, high=0.5)
    return (
        gamma,
        bias,
        _weights(width, 3 * width),
        _weights(width, width),
        gamma,
        bias,
        _weights(width, 4 * width),
        spec(4 * width),
        _weights(4 * width, width),
        bias,
    )


def _block(x: Array, heads: int, *weights: Array) -> Array:
    gamma1, beta1, w_qkv, w_out, gamma2, beta2, w1, b1, w2, b2 = weights
    length, width = x.shape
    qkv = xp.layer_norm(x, gamma1, beta1) @ w_qkv
    q, k, v = (_heads(qkv[:, i * width : (i + 1) * width], heads) for i in range(3))
    mixed = _attend(q, k, v).transpose(1, 0, 2).reshape(length, width)
    x = x + mixed @ w_out
    return x + _feed_forward(xp.layer_norm(x, gamma2, beta2), w1, b1, w2, b2)
