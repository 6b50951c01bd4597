"""Forms of attention beside the causal one of `networks`, and a step that decodes one token."""

from __future__ import annotations

import math

import autofuse.frontends.array_api as xp
from autofuse.frontends.array_api.array import TracedArray
from autofuse.frontends.array_api.tracer import Spec, spec, trace
from autofuse.graph.types import Graph

Array = TracedArray
MASKED = -1e30


def _each(*shape: int) -> Spec:
    return spec(shape, low=-2, high=2)


def _scores(q: Array, k: Array) -> Array:
    return (q @ k.mT) * (1.0 / math.sqrt(q.shape[-1]))


def attention_grouped(heads: int, groups: int, length: int, depth: int) -> Graph:
    """Causal attention of q f32[heads, length, depth], heads / groups of which share each of k and
    v f32[groups, length, depth]."""

    def fn(q: Array, k: Array, v: Array) -> dict[str, Array]:
        together = q.reshape(groups, heads // groups, length, depth)
        scores = _scores(together, k[:, None])
        at = xp.arange(length)
        visible = at[:, None] >= at[None, :]
        mixed = xp.softmax(xp.where(visible, scores, MASKED)) @ v[:, None]
        return {"y": mixed.reshape(heads, length, depth)}

    shared = _each(groups, length, depth)
    return trace(fn, _each(heads, length, depth), shared, shared)


def attention_window(heads: int, length: int, depth: int, window: int) -> Graph:
    """Attention of q, k, v f32[heads, length, depth] in which each place sees itself and the
    window - 1 places before it."""

    def fn(q: Array, k: Array, v: Array) -> dict[str, Array]:
        at = xp.arange(length)
        behind = at[:, None] - at[None, :]
        visible = (behind >= 0) & (behind < window)
        return {"y": xp.softmax(xp.where(visible, _scores(q, k), MASKED)) @ v}

    each = _each(heads, length, depth)
    return trace(fn, each, each, each)


def attention_bias(heads: int, length: int, depth: int) -> Graph:
    """Attention of q, k, v f32[heads, length, depth] with bias f32[heads, length, length] added to
    the scores; every place sees every other."""

    def fn(q: Array, k: Array, v: Array, bias: Array) -> dict[str, Array]:
        return {"y": xp.softmax(_scores(q, k) + bias) @ v}

    each = _each(heads, length, depth)
    return trace(fn, each, each, each, _each(heads, length, length))


def decode_step(heads: int, cached: int, depth: int) -> Graph:
    """One token x f32[1, heads * depth] through attention over a cache of what came before it.

    Inputs: x, w_qkv, w_out, keys and values f32[heads, cached, depth], and the token's position
    i32[]. Outputs: y like x, and the cache with the token's own key and value in it."""
    width, bound = heads * depth, math.sqrt(3.0 / (heads * depth))

    def fn(
        x: Array, w_qkv: Array, w_out: Array, keys: Array, values: Array, position: Array
    ) -> dict[str, Array]:
        qkv = (x @ w_qkv).reshape(3, heads, 1, depth)
        at = xp.arange(cached)
        here = (at == position)[:, None]
        new_keys, new_values = xp.where(here, qkv[1], keys), xp.where(here, qkv[2], values)
        scores = xp.where(at <= position, _scores(qkv[0], new_keys), MASKED)
        mixed = (xp.softmax(scores) @ new_values).reshape(1, width)
        return {"y": mixed @ w_out, "keys": new_keys, "values": new_values}

    cache = _each(heads, cached, depth)
    return trace(
        fn, spec((1, width), low=-1, high=1), spec((width, 3 * width), low=-bound, high=bound),
        spec((width, width), low=-bound, high=bound), cache, cache,
        spec((), "i32", low=cached // 2, high=cached - 1),
    )  # fmt: skip
