"""Rules for jax primitives that put elements in order."""

from __future__ import annotations

from typing import Any

from autofuse.frontends.errors import FrontendError
from autofuse.frontends.jax.types import PrimitiveRule, static_shape
from autofuse.graph.composites import order as composites_order
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter, normal_axes


def _sort(w: GraphWriter, eqn: Any, *values: Value) -> tuple[Value, ...]:
    """Ours is stable, whether that is asked for or not."""
    p = eqn.params
    return composites_order.sort(w, values, int(p["dimension"]), int(p["num_keys"]))


def _top_k(w: GraphWriter, eqn: Any, x: Value) -> tuple[Value, Value]:
    return composites_order.top_k(w, x, int(eqn.params["k"]), int(eqn.params.get("axis", -1)))


def _approx_top_k(w: GraphWriter, eqn: Any, x: Value) -> tuple[Value, Value]:
    """Exactly: nothing is missed, as on a CPU in JAX."""
    p = eqn.params
    (axis,) = normal_axes(int(p["reduction_dimension"]), len(w.shape(x)))
    k = int(p["k"])
    if static_shape(eqn.outvars[0].aval)[axis] != k:
        raise FrontendError("candidates that are not brought together are not supported")
    if p["is_max_k"]:
        return composites_order.top_k(w, x, k, axis)
    places = w.part(composites_order.argsort(w, x, axis), axis, 0, k)
    return composites_order.take_along(w, x, places, axis), places


def _total_order(op: str) -> PrimitiveRule:
    """A comparison in which NaN and both zeros have their places."""

    def rule(w: GraphWriter, eqn: Any, x: Value, y: Value) -> Value:
        return w.map(op, *(composites_order.total_order_key(w, v) for v in (x, y)))

    return rule


ORDER_RULES: dict[str, PrimitiveRule] = {
    **{f"{op}_to": _total_order(op) for op in ("eq", "le", "lt")},
    "approx_top_k": _approx_top_k,
    "sort": _sort,
    "top_k": _top_k,
}
