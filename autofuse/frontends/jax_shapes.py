"""Rules for jax primitives that move elements at places known while tracing."""

from __future__ import annotations

from typing import Any

from autofuse.frontends.jax_emit import Emitter, logical_shape
from autofuse.frontends.jax_rules import Rule, dtype_of
from autofuse.graph.types import Value


def _broadcast_in_dim(e: Emitter, eqn: Any, x: Value) -> Value:
    shape = logical_shape(eqn.outvars[0].aval)
    return e.broadcast(x, shape, eqn.params["broadcast_dimensions"])


def _to_result_shape(e: Emitter, eqn: Any, x: Value) -> Value:
    return e.reshape(x, logical_shape(eqn.outvars[0].aval))


def _transpose(e: Emitter, eqn: Any, x: Value) -> Value:
    return e.transpose(x, eqn.params["permutation"])


def _slice(e: Emitter, eqn: Any, x: Value) -> Value:
    p = eqn.params
    return e.slice(x, p["start_indices"], p["limit_indices"], p["strides"])


def _rev(e: Emitter, eqn: Any, x: Value) -> Value:
    axes = tuple(sorted(int(a) for a in eqn.params["dimensions"]))
    return e.op("reverse", x, axes=axes) if axes else x


def _concatenate(e: Emitter, eqn: Any, *parts: Value) -> Value:
    return e.concat(parts, int(eqn.params["dimension"]))


def _stack(e: Emitter, eqn: Any, *parts: Value) -> Value:
    axis = int(eqn.params["axis"])
    shape = e.shape(parts[0])
    return e.concat([e.reshape(p, (*shape[:axis], 1, *shape[axis:])) for p in parts], axis)


def _split(e: Emitter, eqn: Any, x: Value) -> tuple[Value, ...]:
    axis, start, found = int(eqn.params["axis"]), 0, []
    for size in eqn.params["sizes"]:
        found.append(e.part(x, axis, start, start + int(size)))
        start += int(size)
    return tuple(found)


def _tile(e: Emitter, eqn: Any, x: Value) -> Value:
    shape, reps = e.shape(x), tuple(map(int, eqn.params["reps"]))
    wide = tuple(n for pair in zip(reps, shape, strict=True) for n in pair)
    repeated = e.broadcast(x, wide, range(1, 2 * len(shape), 2))
    return e.reshape(repeated, [r * n for r, n in zip(reps, shape, strict=True)])


def _iota(e: Emitter, eqn: Any) -> Value:
    shape = logical_shape(eqn.outvars[0].aval)
    return e.iota(shape, dtype_of(eqn.params["dtype"]), eqn.params["dimension"])


def _pad(e: Emitter, eqn: Any, x: Value, value: Value) -> Value:
    widths = [tuple(map(int, w)) for w in eqn.params["padding_config"]]
    for axis, (_, _, interior) in enumerate(widths):
        x = _spaced(e, x, value, axis, interior)
    shape = e.shape(x)
    start = [max(0, -low) for low, _, _ in widths]
    stop = [n - max(0, -high) for n, (_, high, _) in zip(shape, widths, strict=True)]
    x = e.slice(x, start, stop)
    low = tuple(max(0, w[0]) for w in widths)
    high = tuple(max(0, w[1]) for w in widths)
    return e.op("pad", x, value, low=low, high=high) if any((*low, *high)) else x


def _spaced(e: Emitter, x: Value, value: Value, axis: int, interior: int) -> Value:
    """`interior` copies of `value` between neighbours along `axis`."""
    shape = e.shape(x)
    n = shape[axis]
    if interior == 0 or n <= 1:
        return x
    rank = len(shape) + 1
    apart = e.reshape(x, (*shape[: axis + 1], 1, *shape[axis + 1 :]))
    high = tuple(interior if a == axis + 1 else 0 for a in range(rank))
    padded = e.op("pad", apart, value, low=(0,) * rank, high=high)
    merged = e.reshape(padded, (*shape[:axis], n * (1 + interior), *shape[axis + 1 :]))
    return e.part(merged, axis, 0, n + (n - 1) * interior)


SHAPE_RULES: dict[str, Rule] = {
    "broadcast_in_dim": _broadcast_in_dim,
    "concatenate": _concatenate,
    "expand_dims": _to_result_shape,
    "iota": _iota,
    "pad": _pad,
    "reshape": _to_result_shape,
    "rev": _rev,
    "slice": _slice,
    "split": _split,
    "squeeze": _to_result_shape,
    "stack": _stack,
    "tile": _tile,
    "transpose": _transpose,
}
