"""Rules for jax primitives that compute, and that move elements at places known while tracing.

One row per primitive: `rule(writer, equation, *operands)`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from autofuse.frontends.errors import FrontendError
from autofuse.frontends.jax.types import PrimitiveRule, dtype_of, static_shape
from autofuse.frontends.names import NAMES
from autofuse.graph.composites import layers as composites
from autofuse.graph.composites import math as composites_math
from autofuse.graph.composites import moves as composites_moves
from autofuse.graph.composites.math import choose
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter
from autofuse.ops.dtypes import DType


def composed(function: Callable[..., Value]) -> PrimitiveRule:
    """A primitive that is one composite of its operands."""
    return lambda w, eqn, *values: function(w, *values)


def same(w: GraphWriter, eqn: Any, *values: Value) -> Any:
    """A primitive that changes nothing."""
    return values if len(values) != 1 else values[0]


def _convert(w: GraphWriter, eqn: Any, x: Value) -> Value:
    return w.cast(x, dtype_of(eqn.params["new_dtype"]))


def _bitcast(w: GraphWriter, eqn: Any, x: Value) -> Value:
    return w.bitcast(x, dtype_of(eqn.params["new_dtype"]))


def _integer_pow(w: GraphWriter, eqn: Any, x: Value) -> Value:
    return composites_math.integer_power(w, x, int(eqn.params["y"]))


def _pow(w: GraphWriter, eqn: Any, x: Value, y: Value) -> Value:
    exponent = w.known_int(y)
    if exponent is not None:
        return composites_math.power(w, x, exponent)
    if not w.dtype(x).is_float:
        raise FrontendError("integer powers need a constant exponent")
    return w.map("pow", x, w.cast(y, w.dtype(x)))


def _one_minus_square(w: GraphWriter, eqn: Any, x: Value) -> Value:
    """(1 + x)(1 - x): 1 - x * x would lose digits where x is near 1."""
    return w.mul(w.add(1.0, x), w.sub(1.0, x))


def _round(w: GraphWriter, eqn: Any, x: Value) -> Value:
    to_even = int(eqn.params["rounding_method"]) == 1
    return w.map("round", x) if to_even else composites_math.round_half_away(w, x)


def _clamp(w: GraphWriter, eqn: Any, low: Value, x: Value, high: Value) -> Value:
    return w.map("clamp", x, low, high)


def _select_n(w: GraphWriter, eqn: Any, which: Value, *cases: Value) -> Value:
    if w.dtype(which) is DType.BOOL:
        return w.select(which, cases[1], cases[0])
    return choose(w, which, cases)


def _reduce_precision(w: GraphWriter, eqn: Any, x: Value) -> Value:
    """Rounding to a format that is a dtype; a format at least as wide changes nothing."""
    ml_dtypes: Any = import_module("ml_dtypes")
    bits = (int(eqn.params["exponent_bits"]), int(eqn.params["mantissa_bits"]))
    info = ml_dtypes.finfo(w.dtype(x).numpy)
    if bits[0] >= info.iexp and bits[1] >= info.nmant:
        return x
    narrow = {(8, 7): DType.BF16, (5, 10): DType.F16}.get(bits)
    if narrow is None:
        raise FrontendError(f"no dtype has {bits[0]} exponent and {bits[1]} mantissa bits")
    return w.cast(w.cast(x, narrow), w.dtype(x))


def _reduce(op: str | None, boolean: str | None = None) -> PrimitiveRule:
    """A reduction over `axes`: `op` on numbers, `boolean` on bools."""

    def rule(w: GraphWriter, eqn: Any, x: Value) -> Value:
        axes = tuple(sorted(int(a) for a in eqn.params["axes"]))
        name = boolean if w.dtype(x) is DType.BOOL else op
        if name is None:
            raise FrontendError(f"it has no form for {w.dtype(x)}")
        return w.op(name, x, axes=axes) if axes else x

    return rule


def _arg(op: str) -> PrimitiveRule:
    def rule(w: GraphWriter, eqn: Any, x: Value) -> Value:
        (axis,) = eqn.params["axes"]
        x = w.cast(x, DType.U8) if w.dtype(x) is DType.BOOL else x
        return w.cast(w.op(op, x, axis=int(axis)), dtype_of(eqn.params["index_dtype"]))

    return rule


def _running(op: str) -> PrimitiveRule:
    """A running fold along `axis`."""

    def rule(w: GraphWriter, eqn: Any, x: Value) -> Value:
        axis, reverse = int(eqn.params["axis"]), bool(eqn.params["reverse"])
        return composites.running(w, op, x, axis, reverse)

    return rule


def _dot_general(w: GraphWriter, eqn: Any, x: Value, y: Value) -> Value:
    """Operands are converted to the result's dtype first, which loses nothing; of truth values the
    result says whether any pair is true."""
    contract, batch = eqn.params["dimension_numbers"]
    dtype = dtype_of(eqn.outvars[0].aval.dtype)
    summed = DType.I32 if dtype is DType.BOOL else dtype
    made = composites.dot(w, w.cast(x, summed), w.cast(y, summed), contract, batch)
    return w.map("ne", made, 0) if dtype is DType.BOOL else made


# Moving elements


def _broadcast_in_dim(w: GraphWriter, eqn: Any, x: Value) -> Value:
    shape = static_shape(eqn.outvars[0].aval)
    return w.broadcast(x, shape, eqn.params["broadcast_dimensions"])


def _to_result_shape(w: GraphWriter, eqn: Any, x: Value) -> Value:
    return w.reshape(x, static_shape(eqn.outvars[0].aval))


def _reshape(w: GraphWriter, eqn: Any, x: Value) -> Value:
    """The elements in the order of the axes `dimensions`, where that is not None."""
    order = eqn.params["dimensions"]
    return _to_result_shape(w, eqn, x if order is None else w.transpose(x, order))


def _transpose(w: GraphWriter, eqn: Any, x: Value) -> Value:
    return w.transpose(x, eqn.params["permutation"])


def _slice(w: GraphWriter, eqn: Any, x: Value) -> Value:
    p = eqn.params
    return w.slice(x, p["start_indices"], p["limit_indices"], p["strides"])


def _rev(w: GraphWriter, eqn: Any, x: Value) -> Value:
    return w.reverse(x, tuple(map(int, eqn.params["dimensions"])))


def _concatenate(w: GraphWriter, eqn: Any, *parts: Value) -> Value:
    return w.concat(parts, int(eqn.params["dimension"]))


def _stack(w: GraphWriter, eqn: Any, *parts: Value) -> Value:
    return composites_moves.stack(w, parts, int(eqn.params["axis"]))


def _split(w: GraphWriter, eqn: Any, x: Value) -> tuple[Value, ...]:
    sizes = tuple(map(int, eqn.params["sizes"]))
    return composites_moves.split(w, x, int(eqn.params["axis"]), sizes)


def _unstack(w: GraphWriter, eqn: Any, x: Value) -> tuple[Value, ...]:
    axis, parts = int(eqn.params["axis"]), eqn.outvars
    rows = composites_moves.split(w, x, axis, (1,) * len(parts))
    return tuple(w.reshape(r, static_shape(p.aval)) for r, p in zip(rows, parts, strict=True))


def _tile(w: GraphWriter, eqn: Any, x: Value) -> Value:
    return composites_moves.tile(w, x, tuple(map(int, eqn.params["reps"])))


def _iota(w: GraphWriter, eqn: Any) -> Value:
    shape = static_shape(eqn.outvars[0].aval)
    return w.iota(shape, dtype_of(eqn.params["dtype"]), eqn.params["dimension"])


def _empty(w: GraphWriter, eqn: Any) -> Value:
    """Zeros are as good as whatever lies there."""
    return w.full(0, static_shape(eqn.outvars[0].aval), dtype_of(eqn.outvars[0].aval.dtype))


def _platform_index(w: GraphWriter, eqn: Any) -> Value:
    """Which branch of `lax.platform_dependent` is meant: plans do what the one for CPUs says, else
    the default (None) one."""
    names = [places for places in eqn.params["platforms"] if places is None or "cpu" in places]
    if not names:
        raise FrontendError("it has no branch for CPUs")
    named = min(names, key=lambda places: places is None)
    return w.full(eqn.params["platforms"].index(named), (), DType.I32)


def _pad(w: GraphWriter, eqn: Any, x: Value, value: Value) -> Value:
    widths = [tuple(map(int, width)) for width in eqn.params["padding_config"]]
    low, high, interior = ([width[i] for width in widths] for i in range(3))
    return composites_moves.pad(w, x, value, low, high, interior)


_SAME = (
    "copy", "copy_p", "device_put", "name", "optimization_barrier", "pvary", "sharding_constraint",
    "stop_gradient",
)  # fmt: skip

COMPUTE_RULES: dict[str, PrimitiveRule] = {
    **{row.jax: composed(row.write) for row in NAMES if row.jax},
    **dict.fromkeys(_SAME, same),
    "argmax": _arg("argmax"),
    "argmin": _arg("argmin"),
    "bitcast_convert_type": _bitcast,
    "clamp": _clamp,
    "convert_element_type": _convert,
    **{op: _running(op) for op in ("cumlogsumexp", "cummax", "cummin", "cumprod", "cumsum")},
    "dot_general": _dot_general,
    "integer_pow": _integer_pow,
    "one_minus_square": _one_minus_square,
    "pow": _pow,
    "reduce_and": _reduce(None, "reduce_all"),
    "reduce_max": _reduce("reduce_max", "reduce_any"),
    "reduce_min": _reduce("reduce_min", "reduce_all"),
    "reduce_or": _reduce(None, "reduce_any"),
    "reduce_precision": _reduce_precision,
    "reduce_prod": _reduce("reduce_prod"),
    "reduce_sum": _reduce("reduce_sum"),
    "round": _round,
    "select_n": _select_n,
}
SHAPE_RULES: dict[str, PrimitiveRule] = {
    "broadcast_in_dim": _broadcast_in_dim,
    "concatenate": _concatenate,
    **dict.fromkeys(("empty", "empty2"), _empty),
    "expand_dims": _to_result_shape,
    "iota": _iota,
    "platform_index": _platform_index,
    "pad": _pad,
    "reshape": _reshape,
    "rev": _rev,
    "slice": _slice,
    "split": _split,
    "squeeze": _to_result_shape,
    "stack": _stack,
    "tile": _tile,
    "transpose": _transpose,
    "unstack": _unstack,
}
