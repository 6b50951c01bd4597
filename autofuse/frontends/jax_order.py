"""Rules for jax primitives that put elements in order."""

from __future__ import annotations

from typing import Any

from autofuse.frontends.jax_types import PrimitiveRule
from autofuse.graph import composites_order
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter


def _sort(w: GraphWriter, eqn: Any, *values: Value) -> tuple[Value, ...]:
    """Ours is stable, whether that is asked for or not."""
    p = eqn.params
    return composites_order.sort(w, values, int(p["dimension"]), int(p["num_keys"]))


def _top_k(w: GraphWriter, eqn: Any, x: Value) -> tuple[Value, Value]:
    return composites_order.top_k(w, x, int(eqn.params["k"]), int(eqn.params.get("axis", -1)))


def _total_order(op: str) -> PrimitiveRule:
    """A comparison in which NaN and both zeros have their places."""

    def rule(w: GraphWriter, eqn: Any, x: Value, y: Value) -> Value:
        return w.map(op, *(composites_order.total_order_key(w, v) for v in (x, y)))

    return rule


ORDER_RULES: dict[str, PrimitiveRule] = {
    **{f"{op}_to": _total_order(op) for op in ("eq", "le", "lt")},
    "sort": _sort,
    "top_k": _top_k,
}
