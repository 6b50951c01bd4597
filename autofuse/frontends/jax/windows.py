"""Rules for jax primitives that slide windows: convolutions, pooling and their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from autofuse.frontends.errors import FrontendError
from autofuse.frontends.jax.types import PrimitiveRule, dtype_of
from autofuse.graph.composites import windows
from autofuse.graph.composites.pooling import PoolSpec, pool
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter, Shape
from autofuse.ops.dtypes import DType
from autofuse.ops.reduction import highest, lowest

_JOINED = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}
_COMBINERS = {"add": "sum", "add_any": "sum", "mul": "prod", "max": "max", "min": "min"}


def _ints(values: Any) -> tuple[int, ...]:
    return tuple(int(n) for n in values)


def _conv(w: GraphWriter, eqn: Any, x: Value, kernel: Value) -> Value:
    """Operands are converted to the result's dtype first, which loses nothing."""
    p, dtype = eqn.params, dtype_of(eqn.outvars[0].aval.dtype)
    numbers = p["dimension_numbers"]
    return windows.conv(
        w, w.cast(x, dtype), w.cast(kernel, dtype), _ints(p["window_strides"]),
        [_ints(ends) for ends in p["padding"]], _ints(p["rhs_dilation"]),
        int(p["feature_group_count"]), image_dilation=_ints(p["lhs_dilation"]),
        batch_groups=int(p["batch_group_count"]),
        layout=(numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec),
    )  # fmt: skip


def _spec(eqn: Any) -> PoolSpec:
    """The windows of an equation, along every axis."""
    p = eqn.params
    ones = (1,) * len(p["window_dimensions"])
    return PoolSpec(
        _ints(p["window_dimensions"]), _ints(p["window_strides"]),
        [_ints(ends) for ends in p["padding"]], _ints(p.get("window_dilation", ones)),
        holes=_ints(p.get("base_dilation", ones)), spatial=range(len(ones)),
    )  # fmt: skip


def _window_attrs(w: GraphWriter, eqn: Any, x: Value) -> dict[str, Shape]:
    return windows.attrs_of(_spec(eqn).over(w.shape(x)))


def _reduce_window(kind: str) -> PrimitiveRule:
    return lambda w, eqn, x: pool(w, kind, x, _spec(eqn))


def _any_reduce_window(w: GraphWriter, eqn: Any, *values: Value) -> Value:
    """One operand and one known op of two elements that starts from what changes nothing."""
    inner = eqn.params["jaxpr"]
    eqns = inner.eqns
    plain = len(values) == 2 and len(eqns) == 1 and list(eqns[0].outvars) == list(inner.outvars)
    name = eqns[0].primitive.name if plain else None
    if name not in _COMBINERS or set(eqns[0].invars) != set(inner.invars):
        raise FrontendError("it combines by another function than one add, mul, max or min")
    x, start = values
    dtype, known = w.dtype(x), w.known(start)
    if dtype is DType.BOOL:
        raise FrontendError("it combines truth values")
    neutral = {"sum": 0, "prod": 1, "max": lowest(dtype).value, "min": highest(dtype).value}
    kind = _COMBINERS[name]
    found = pool(w, kind, x, _spec(eqn))
    if known is not None and np.all(known == np.asarray(neutral[kind], known.dtype)):
        return found
    return w.map(_JOINED[kind], start, found)


def _largest(eqn: Any) -> bool:
    return bool(eqn.params["select_prim"].name == "ge")


def _select_and_scatter_add(w: GraphWriter, eqn: Any, source: Value, x: Value) -> Value:
    if w.dtype(x) is DType.BOOL:
        raise FrontendError("it adds up truth values")
    return windows.extremum_windows_grad(w, source, x, _window_attrs(w, eqn, x), _largest(eqn))


def _select_and_gather_add(w: GraphWriter, eqn: Any, tangent: Value, x: Value) -> Value:
    return windows.picked(w, tangent, x, _window_attrs(w, eqn, x), _largest(eqn))


WINDOW_RULES: dict[str, PrimitiveRule] = {
    "conv_general_dilated": _conv,
    "reduce_window": _any_reduce_window,
    "reduce_window_max": _reduce_window("max"),
    "reduce_window_min": _reduce_window("min"),
    "reduce_window_sum": _reduce_window("sum"),
    "select_and_gather_add": _select_and_gather_add,
    "select_and_scatter_add": _select_and_scatter_add,
}
