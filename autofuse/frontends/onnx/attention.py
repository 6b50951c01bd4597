"""Rules for ONNX operators of transformers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autofuse.frontends.errors import FrontendError
from autofuse.frontends.onnx.quantised import named_dtype
from autofuse.frontends.onnx.types import STANDARD, Datum, OnnxCall, OnnxRules
from autofuse.graph.composites import activations, attention, moves
from autofuse.graph.composites import layers as composites
from autofuse.graph.composites.layers import require_float
from autofuse.graph.composites.resample import repeat_each
from autofuse.graph.loops import LoopWriter
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter
from autofuse.ops.dtypes import DType

I32, BOOL = DType.I32, DType.BOOL
PREVIEW = "ai.onnx.preview"


def _in_heads(w: GraphWriter, v: Value, heads: int) -> Value:
    """[batch, length, heads and depth] as [batch, head, length, depth]."""
    batch, length, wide = w.shape(v)
    return w.transpose(w.reshape(v, (batch, length, heads, wide // heads)), (0, 2, 1, 3))


def _heads_together(w: GraphWriter, v: Value) -> Value:
    batch, heads, length, depth = w.shape(v)
    return w.reshape(w.transpose(v, (0, 2, 1, 3)), (batch, length, heads * depth))


def _attention(c: OnnxCall) -> list[Value | None]:
    """Queries, keys and values with heads, or three axes that are split into heads; what came
    before is put in front of keys and values, which come out."""
    w, own = c.w, require_float(c.dtype(0))
    flat = len(c.shape(0)) == 3
    counts = ("q_num_heads", "kv_num_heads", "kv_num_heads")
    q, k, v = (
        _in_heads(w, c.value(i), int(c[name])) if flat else c.value(i)
        for i, name in enumerate(counts)
    )
    if c.has(4):
        k, v = (w.concat([c.value(i), each], 2) for i, each in ((4, k), (5, v)))
    mask = _mask(c, w.shape(q)[2], w.shape(k)[2])
    kind = named_dtype(c, "softmax_precision")
    wide = q if kind is not DType.F64 else w.cast(q, kind)
    found = w.cast(attention.attention(w, wide, *_like(w, wide, k, v), mask)[0], own)
    results: list[Value | None] = [_heads_together(w, found) if flat else found, k, v, None]
    if len(c.wanted) > 3 and c.wanted[3]:
        stages = attention.attention_scores(w, q, k, mask)
        results[3] = w.cast(stages[int(c["qk_matmul_output_mode"])], own)
    return results[: len(c.wanted)]


def _like(w: GraphWriter, x: Value, k: Value, v: Value) -> tuple[Value, Value]:
    return w.cast(k, w.dtype(x)), w.cast(v, w.dtype(x))


def _mask(c: OnnxCall, queries: int, keys: int) -> attention.AttentionMask:
    scale, cap = c.attr("scale"), float(c.attr("softcap", 0.0))
    scale = None if scale is None else float(scale)
    seen, given = _seen(c, queries, keys), _given(c, keys)
    if c["is_causal"] and not seen and given is None and not c.has(4) and not c.has(6):
        return attention.AttentionMask(None, True, scale, cap)
    w, whole = c.w, given
    if c["is_causal"]:
        seen.append(w.map("ge", _ahead(c, queries, keys), 0))
    if given is not None and w.dtype(given) is BOOL:
        seen, whole = [*seen, given], None
    allowed = seen[0] if seen else None
    for more in seen[1:]:
        allowed = w.map("and", allowed, more) if allowed is not None else more
    if allowed is not None and whole is not None:
        whole = w.select(*w.aligned(allowed), *w.aligned(whole, w.scalar(-math.inf, whole)))
    return attention.AttentionMask(allowed if whole is None else whole, False, scale, cap)


def _given(c: OnnxCall, keys: int) -> Value | None:
    """The mask that is an operand; keys beyond its end are not seen."""
    w, found = c.w, c.optional(3)
    if found is None:
        return None
    shape = w.shape(found)
    hidden = w.constant(False, BOOL) if w.dtype(found) is BOOL else w.scalar(-math.inf, found)
    high = [0] * (len(shape) - 1) + [max(0, keys - shape[-1])]
    return moves.pad(w, found, hidden, [0] * len(shape), high) if shape[-1] > 1 else found


def _ahead(c: OnnxCall, queries: int, keys: int) -> Value:
    """How many places before its query each key lies: keys that came before count."""
    w = c.w
    apart = w.map("neg", moves.diagonals(w, queries, keys))
    if c.has(4):
        return w.add(apart, c.shape(4)[2])
    if not c.has(6):
        return apart
    return w.add(apart, w.sub(w.reshape(c.value(6, I32), (-1, 1, 1, 1)), queries))


def _seen(c: OnnxCall, queries: int, keys: int) -> list[Value]:
    """Truth values that broadcast to [batch, head, query, key]: keys within the windows, and those
    that are no padding."""
    w, found = c.w, []
    left, right = int(c.attr("left_window_size", -1)), int(c.attr("right_window_size", -1))
    if left >= 0:
        found.append(w.map("le", _ahead(c, queries, keys), left))
    if right >= 0:
        found.append(w.map("ge", _ahead(c, queries, keys), -right))
    if c.has(6):
        count = w.reshape(c.value(6, I32), (-1, 1, 1, 1))
        found.append(w.map("lt", w.iota((1, 1, 1, keys), I32, 3), count))
    return found


def _rotary(c: OnnxCall) -> Value:
    """Pairs of elements turned by angles of their position (Su et al., RoFormer, 2021): those next
    to each other where interleaved, else the halves."""
    w, own = c.w, require_float(c.dtype(0))
    x = c.value(0, own.compute)
    flat = len(c.shape(0)) == 3
    x = _in_heads(w, x, int(c["num_heads"])) if flat else x
    *lead, depth = w.shape(x)
    turned = int(c.attr("rotary_embedding_dim", 0)) or depth
    half, last = turned // 2, len(lead)
    moving, rest = w.part(x, last, 0, turned), w.part(x, last, turned, depth)
    between = bool(c.attr("interleaved", 0))
    split = w.reshape(moving, (*lead, half, 2) if between else (*lead, 2, half))
    axis = last + 1 if between else last
    first, second = (w.reshape(w.part(split, axis, k, k + 1), (*lead, half)) for k in (0, 1))
    cosine, sine = (_angles(c, k, w.dtype(x)) for k in (1, 2))
    real = w.sub(w.mul(cosine, first), w.mul(sine, second))
    imaginary = w.add(w.mul(sine, first), w.mul(cosine, second))
    joined = w.reshape(moves.stack(w, [real, imaginary], axis), (*lead, turned))
    found = w.concat([joined, rest], last)
    return w.cast(_heads_together(w, found) if flat else found, own)


def _angles(c: OnnxCall, k: int, kind: DType) -> Value:
    """[batch, 1, length, half]: a row of the cache for each position, or the rows as they are."""
    w, cache = c.w, c.value(k, kind)
    rows = w.op("gather", cache, c.value(3, I32), axis=0) if c.has(3) else cache
    batch, length, half = w.shape(rows)
    return w.reshape(rows, (batch, 1, length, half))


# Attention that another graph changes


def _flex_attention(c: OnnxCall) -> Value:
    """Attention whose scores, and whose shares, go through bodies of the node's own."""
    w, own = c.w, require_float(c.dtype(0))
    kind = named_dtype(c, "softmax_precision") or own.compute
    q, k, v = (c.value(i, kind.compute) for i in range(3))
    scale = c.attr("scale")
    factor = 1.0 / math.sqrt(w.shape(q)[-1]) if scale is None else float(scale)
    groups = w.shape(q)[1] // w.shape(k)[1]
    k, v = (repeat_each(w, each, 1, groups) if groups > 1 else each for each in (k, v))
    pairs = ((0, 1), (0, 1))
    scores = w.mul(composites.dot(w, q, k, ((3,), (3,)), pairs), factor)
    shares = activations.softmax(w, _modified(c, "score_mod", scores, kind), -1)
    shares = _modified(c, "prob_mod", shares, kind)
    return w.cast(composites.dot(w, shares, v, ((3,), (2,)), pairs), c.dtype(2))


def _modified(c: OnnxCall, name: str, v: Value, kind: DType) -> Value:
    body = c.attr(name)
    if body is None:
        return v
    made: Sequence[Datum] = body.write(c.w, [c.w.cast(v, kind)])
    if len(made) != 1:
        raise FrontendError(f"{name} gives {len(made)} values, not one")
    return c.w.cast(c.holder.value_of(made[0]), kind.compute)


# Attention without a softmax


def _linear_attention(c: OnnxCall) -> tuple[Value, Value]:
    """A state of keys by values that each step decays, corrects and adds to (Yang et al., Gated
    Delta Networks, 2024); queries read it."""
    w, own, rule = c.w, require_float(c.dtype(0)), str(c.attr("update_rule", "gated_delta"))
    heads, shared = int(c["q_num_heads"]), int(c["kv_num_heads"])
    if rule not in ("linear", "gated", "delta", "gated_delta") or heads % shared:
        raise FrontendError(f"update_rule '{rule}' with {heads} heads for {shared} is not known")
    kind = DType.F32
    q, k, v = (
        w.transpose(_in_heads(w, c.value(i, kind), n), (2, 0, 1, 3))
        for i, n in ((0, heads), (1, shared), (2, shared))
    )
    steps, batch, _, depth = w.shape(k)
    begin = _given_or_zero(c, 3, kind, (batch, shared, depth, w.shape(v)[3]))
    scale = float(c.attr("scale", 0.0)) or 1.0 / math.sqrt(depth)
    rows = [w.mul(q, scale), k, v]
    rows += [_per_head(c, i, kind) for i in (4, 5) if c.has(i)]
    loop = LoopWriter(w, steps)
    body, state = loop.body, loop.state(begin)
    taken = [body.op("gather", loop.capture(each), loop.step, axis=0) for each in rows]
    decay = taken[3] if c.has(4) else None
    beta = taken[-1] if c.has(5) else None
    state, read = _delta_step(body, state, taken[:3], decay, beta)
    last, outputs = loop.finish([state], [read])
    found = _heads_together(w, w.transpose(outputs, (1, 2, 0, 3)))
    return w.cast(found, own), w.cast(last, _dtype_or(c, 3, own))


def _given_or_zero(c: OnnxCall, k: int, kind: DType, shape: Sequence[int]) -> Value:
    return c.value(k, kind) if c.has(k) else c.w.full(0, shape, kind)


def _dtype_or(c: OnnxCall, k: int, usual: DType) -> DType:
    return c.dtype(k) if c.has(k) else usual


def _per_head(c: OnnxCall, k: int, kind: DType) -> Value:
    """[batch, length, heads (and depth)] as [length, batch, head, depth or 1]; one head is all."""
    w, v = c.w, c.value(k, kind)
    shared = int(c["kv_num_heads"])
    heads = shared if w.shape(v)[2] % shared == 0 else 1
    return w.transpose(_in_heads(w, v, heads), (2, 0, 1, 3))


def _delta_step(
    w: GraphWriter, state: Value, rows: Sequence[Value], decay: Value | None, beta: Value | None
) -> tuple[Value, Value]:
    """The next state [batch, head, depth, value], and what queries read of it."""
    q, k, v = rows
    batch, shared, depth, _ = w.shape(state)
    pairs = ((0, 1), (0, 1))
    if decay is not None:
        factor = w.map("exp", decay)
        state = w.mul(state, w.reshape(factor, (*w.shape(factor), 1)))
    if beta is not None:
        v = w.mul(beta, w.sub(v, composites.dot(w, k, state, ((2,), (2,)), pairs)))
    outer = w.mul(w.reshape(k, (*w.shape(k), 1)), w.reshape(v, (batch, shared, 1, -1)))
    state = w.add(state, outer)
    grouped = w.reshape(q, (batch, shared, -1, depth))
    read = composites.dot(w, grouped, state, ((3,), (2,)), pairs)
    return state, w.reshape(read, (batch, w.shape(q)[1], -1))


ONNX_ATTENTION: OnnxRules = {
    (PREVIEW, "FlexAttention", 1): _flex_attention,
    (STANDARD, "Attention", 23): _attention,
    (STANDARD, "LinearAttention", 1): _linear_attention,
    (STANDARD, "RotaryEmbedding", 23): _rotary,
}
