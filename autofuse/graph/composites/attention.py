"""Attention as two products around a softmax, and its gradients.

Each function appends to a GraphWriter. Operands are [..., length, depth]; what happens between the
products is in the dtype that half floats are summed in.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from autofuse.graph.composites import moves
from autofuse.graph.composites.layers import dot
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter, Shape, broadcast_shapes
from autofuse.ops.dtypes import DType
from autofuse.ops.types import GraphError


@dataclass(frozen=True, slots=True)
class AttentionMask:
    """Which keys a query sees: where `given` (truth values, or numbers that are added to scores)
    says so, and with `causal` none after its own place. `scale` multiplies scores; None: one over
    the root of the depth. With `softcap` scores stay below it (Gemma 2, 2024), before any mask."""

    given: Value | None = None
    causal: bool = False
    scale: float | None = None
    softcap: float = 0.0


@dataclass(frozen=True, slots=True)
class _Heads:
    """Queries [batch..., group, length, depth], whose groups share keys and values [batch...,
    length, depth]; there are `lead` batch axes. `rows` are the leading axes of the result."""

    q: Value
    k: Value
    v: Value
    lead: int
    rows: Shape


def _heads(w: GraphWriter, q: Value, k: Value, v: Value) -> _Heads:
    """Operands with the same leading axes; several query heads may share one of keys."""
    shapes = [w.shape(each) for each in (q, k, v)]
    if any(len(shape) < 2 for shape in shapes):
        raise GraphError("attention takes arrays of rank 2 or more")
    wide = [w.cast(each, w.dtype(each).compute) for each in (q, k, v)]
    lead = len(shapes[0]) - 2
    if lead and shapes[1][lead - 1 : lead] != shapes[0][lead - 1 : lead]:
        shared = shapes[1][lead - 1]
        if shared != 1:
            groups = (shared, shapes[0][lead - 1] // shared)
            apart = w.reshape(wide[0], (*shapes[0][: lead - 1], *groups, *shapes[0][lead:]))
            return _Heads(apart, wide[1], wide[2], lead, shapes[0][:-2])
    batch = broadcast_shapes(*(shape[:-2] for shape in shapes))
    wide = [w.spread(x, (*batch, *s[-2:])) for x, s in zip(wide, shapes, strict=True)]
    single = w.reshape(wide[0], (*batch, 1, *shapes[0][-2:]))
    return _Heads(single, wide[1], wide[2], len(batch), batch)


def _scores(w: GraphWriter, h: _Heads, mask: AttentionMask) -> Value:
    """Scaled and masked products of queries and keys, [batch..., group, queries, keys]."""
    return _masked(w, h, mask, _capped(w, _products(w, h, mask), mask.softcap))


def _products(w: GraphWriter, h: _Heads, mask: AttentionMask) -> Value:
    batch = tuple(range(h.lead))
    found = dot(w, h.q, h.k, ((h.lead + 2,), (h.lead + 1,)), (batch, batch))
    return w.mul(found, _scale(w, h, mask))


def _capped(w: GraphWriter, scores: Value, cap: float) -> Value:
    return w.mul(w.map("tanh", w.mul(scores, 1.0 / cap)), cap) if cap else scores


def _masked(w: GraphWriter, h: _Heads, mask: AttentionMask, found: Value) -> Value:
    queries, keys = w.shape(found)[-2:]
    if mask.causal:
        seen = w.map("le", moves.diagonals(w, queries, keys), 0)
        found = w.select(seen, found, -math.inf)
    if mask.given is None:
        return found
    given = w.reshape(w.spread(mask.given, (*h.rows, queries, keys)), w.shape(found))
    if w.dtype(given) is DType.BOOL:
        return w.select(given, found, -math.inf)
    return w.add(found, w.cast(given, w.dtype(found)))


def _scale(w: GraphWriter, h: _Heads, mask: AttentionMask) -> float:
    depth = w.shape(h.q)[-1]
    return 1.0 / math.sqrt(max(depth, 1)) if mask.scale is None else mask.scale


def attention(
    w: GraphWriter, q: Value, k: Value, v: Value, mask: AttentionMask
) -> tuple[Value, Value]:
    """softmax(scale q k^T, masked) v as `q`'s dtype, and the logarithm of each row's sum of powers.

    A query that sees no key gets zeros, as in torch; that can only be where a mask is given, since
    a causal query sees its own place.
    """
    h = _heads(w, q, k, v)
    lead, batch = h.lead, tuple(range(h.lead))
    share, sums = _shares(w, _scores(w, h, mask), mask.given is not None)
    found = dot(w, share, h.v, ((lead + 2,), (lead,)), (batch, batch))
    out = w.reshape(found, (*h.rows, w.shape(q)[-2], w.shape(v)[-1]))
    return w.cast(out, w.dtype(q)), w.reshape(sums, (*h.rows, w.shape(q)[-2]))


def _shares(w: GraphWriter, scores: Value, empty: bool) -> tuple[Value, Value]:
    """The softmax of rows of scores, and the logarithms of their sums of powers; rows of nothing
    are zeros, where there may be such rows (`empty`)."""
    top = w.reduce("reduce_max", scores, -1, keepdims=True)
    if empty:
        top = w.select(w.map("isfinite", top), top, 0.0)
    powers = w.map("exp", w.sub(scores, top))
    total = w.reduce("reduce_sum", powers, -1, keepdims=True)
    sums = w.add(w.map("log", total), top)
    if empty:
        total = w.select(w.map("eq", total, 0), 1.0, total)
    return w.div(powers, total), sums


def attention_scores(
    w: GraphWriter, q: Value, k: Value, mask: AttentionMask
) -> tuple[Value, Value, Value, Value]:
    """What `attention` computes of queries and keys on its way, [..., queries, keys] each: scaled
    products, the same under the cap, masked, and shares."""
    h = _heads(w, q, k, k)
    products = _products(w, h, mask)
    capped = _capped(w, products, mask.softcap)
    masked = _masked(w, h, mask, capped)
    found = (products, capped, masked, _shares(w, masked, mask.given is not None)[0])
    shape = (*h.rows, *w.shape(products)[-2:])
    first, second, third, last = (w.reshape(v, shape) for v in found)
    return first, second, third, last


def attention_grads(
    w: GraphWriter,
    g: Value,
    q: Value,
    k: Value,
    v: Value,
    out: Value,
    sums: Value,
    mask: AttentionMask,
) -> tuple[Value, Value, Value]:
    """The gradients of `attention` with respect to q, k and v from that of its result, `g`; the
    shares are computed again from the rows' `sums` (Dao et al., FlashAttention, 2022, appendix B).
    Heads are not shared."""
    h = _heads(w, q, k, v)
    lead = h.lead
    if w.shape(q)[:-2] != w.shape(k)[:-2]:
        raise GraphError("gradients of attention with shared heads are not supported")
    shape, batch = w.shape(q), tuple(range(lead))
    kind = w.dtype(h.q)
    scores = w.reshape(_scores(w, h, mask), (*shape[:-1], w.shape(k)[-2]))
    rows = w.reshape(w.cast(sums, kind), (*shape[:-1], 1))
    share = w.map("exp", w.sub(scores, rows))
    if mask.given is not None:
        share = w.select(w.map("isfinite", rows), share, 0.0)
    wide_g = w.cast(g, kind)
    grad_v = dot(w, share, wide_g, ((lead,), (lead,)), (batch, batch))
    grad_share = dot(w, wide_g, h.v, ((lead + 1,), (lead + 1,)), (batch, batch))
    inner = w.reduce("reduce_sum", w.mul(wide_g, w.cast(out, kind)), -1, keepdims=True)
    grad = w.mul(w.mul(share, w.sub(grad_share, inner)), _scale(w, h, mask))
    queries = w.reshape(h.q, shape)
    grad_q = dot(w, grad, h.k, ((lead + 1,), (lead,)), (batch, batch))
    grad_k = dot(w, grad, queries, ((lead,), (lead,)), (batch, batch))
    return (
        w.cast(grad_q, w.dtype(q)), w.cast(grad_k, w.dtype(k)), w.cast(grad_v, w.dtype(v))
    )  # fmt: skip
