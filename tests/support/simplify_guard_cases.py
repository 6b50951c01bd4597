"""As simplify_cases, of guards against numbers and of activations in other words."""

from __future__ import annotations

from autofuse.graph.types import Value
from tests.support.simplify_cases import Case, F, Write, Writer


def _soft(w: Writer, x: Value) -> Value:
    """log(1 + exp(x)) as JAX adds exponentials, without its guard."""
    return w.add(w.max(x, 0.0), w.log1p(w.exp(w.neg(w.abs(x)))))


def _gate(w: Writer, x: Value) -> Value:
    """1 + tanh(k (x + c x^3))"""
    cube = w.mul(x, w.mul(x, x))
    return w.add(w.tanh(w.mul(w.add(x, w.mul(cube, 0.044715)), 0.797)), 1.0)


def _outside(w: Writer, x: Value, low: float, high: float) -> Value:
    """x within limits, as jax.nn.hard_tanh has it."""
    kind = w.kind(x)
    below = w.select(w.lt(x, low), w.full(low, kind), x)
    return w.select(w.gt(x, high), w.full(high, kind), below)


def _power_below(w: Writer, x: Value, guard: bool) -> Value:
    """exp(x) - 1 below 0, of 0 above it where that is guarded."""
    is_above = w.gt(x, 0.0)
    safe = w.select(is_above, w.full(0.0, w.kind(x)), x) if guard else x
    return w.select(is_above, x, w.mul(w.expm1(safe), 1.5))


def _root_above(w: Writer, x: Value, guard: bool) -> Value:
    is_above = w.gt(x, 0.0)
    safe = w.select(is_above, x, w.full(1.0, w.kind(x))) if guard else x
    return w.select(is_above, w.neg(w.sqrt(safe)), x)


GUARDS = [
    Case("nan-of-a-sign", F, lambda w, x: w.isnan(w.neg(w.sin(x))),
         lambda w, x: w.isnan(w.sin(x))),
    Case("nan-of-a-sign", F, lambda w, x: w.isnan(w.abs(x)), lambda w, x: w.isnan(x)),
    Case("idle-nan-guard", F, lambda w, x: w.select(w.isnan(x), w.add(x, 1.0), _soft(w, x)), _soft),
    Case("guarded-argument", F, lambda w, x: _power_below(w, x, True),
         lambda w, x: _power_below(w, x, False)),
    Case("guarded-argument", F, lambda w, x: _root_above(w, x, True),
         lambda w, x: _root_above(w, x, False)),
    Case("limits-as-clamp", F, lambda w, x: w.min(w.max(x, 0.0), 6.0),
         lambda w, x: w.clamp(x, 0.0, 6.0)),
    Case("limits-as-clamp", F, lambda w, x: w.max(w.min(x, 1.0), -1.0),
         lambda w, x: w.clamp(x, -1.0, 1.0)),
    Case("selects-as-clamp", F, lambda w, x: _outside(w, x, -1.0, 1.0),
         lambda w, x: w.clamp(x, -1.0, 1.0)),
    Case("erf-of-negation", F, lambda w, x: w.erf(w.neg(x)), lambda w, x: w.neg(w.erf(x))),
    Case("erf-of-negation", F, lambda w, x: w.sub(1.0, w.erf(w.mul(w.neg(x), 0.7))),
         lambda w, x: w.add(w.erf(w.mul(x, 0.7)), 1.0)),
    Case("one-over", F, lambda w, x: w.div(1.0, x), lambda w, x: w.reciprocal(x)),
    Case("halved-gate", F, lambda w, x: w.mul(x, w.mul(_gate(w, x), 0.5)),
         lambda w, x: w.mul(w.mul(x, 0.5), _gate(w, x))),
]  # fmt: skip
# What stays as it is: without the guard, or written otherwise, it would be another number.
KEPT: dict[str, Write] = {
    "a guard of something else": lambda w, x: w.select(
        w.isnan(x), w.full(0.0, w.kind(x)), _soft(w, x)
    ),
    "a guard that infinities reach": lambda w, x: w.select(
        w.isnan(w.sub(x, x)), w.add(x, x), _soft(w, x)
    ),
    "limits in the wrong order": lambda w, x: w.max(w.min(x, -1.0), 1.0),
    "a zero with a sign": lambda w, x: _outside(w, x, 0.0, 1.0),
    "a gate that is not 1 near 0": lambda w, x: w.mul(x, w.mul(w.add(w.exp(x), 1.0), 0.5)),
}  # fmt: skip
