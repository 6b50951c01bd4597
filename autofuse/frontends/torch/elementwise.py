"""Rules for aten overloads that compute element by element."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from autofuse.frontends.errors import FrontendError
from autofuse.frontends.names import NAMES, Kind, OpNames, elementwise
from autofuse.frontends.torch.types import TorchCall, TorchRule, computed, joint_dtype, number_as
from autofuse.graph.composites import activations
from autofuse.graph.composites import math as composites_math
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter
from autofuse.ops.dtypes import DType

BOOL = DType.BOOL


def _rounded(function: Callable[..., Value]) -> TorchRule:
    """What changes no whole number."""

    def rule(c: TorchCall) -> Value:
        return computed(c, function, "self") if c.out.dtype.is_float else c.value("self")

    return rule


def truth(w: GraphWriter, v: Value) -> Value:
    """Where `v` is not zero."""
    return v if w.dtype(v) is BOOL else w.map("ne", v, 0)


def _logical(function: Callable[..., Value], *names: str) -> TorchRule:
    return lambda c: function(c.w, *(truth(c.w, c.value(name)) for name in names))


def _compare(function: Callable[..., Value]) -> TorchRule:
    """A comparison in the dtype that the operands have in common."""

    def rule(c: TorchCall) -> Value:
        dtype = joint_dtype(c, ("self", "other"))
        return function(c.w, c.value("self", dtype), c.value("other", dtype))

    return rule


def _test(function: Callable[[GraphWriter, Value], Value]) -> TorchRule:
    """A predicate that holds for no whole number."""

    def rule(c: TorchCall) -> Value:
        x = c.value("self")
        return function(c.w, x) if c.w.dtype(x).is_float else c.w.full(False, c.out.shape, BOOL)

    return rule


def _scaled_sum(op: str) -> TorchRule:
    """self + alpha * other, or minus."""

    def rule(c: TorchCall) -> Value:
        alpha = c["alpha"]

        def function(w: GraphWriter, x: Value, y: Value) -> Value:
            factor = number_as(alpha, w.dtype(y))
            y = y if factor == 1 else elementwise("mul")(w, y, w.scalar(factor, y))
            return elementwise(op)(w, x, y)

        return computed(c, function, "self", "other")

    return rule


def _floor_divide(w: GraphWriter, x: Value, y: Value) -> Value:
    found = composites_math.floor_divide(w, x, y)
    if not w.dtype(y).is_float:
        return found
    return w.select(w.map("eq", y, 0), w.div(x, y), found)


def _truncated(w: GraphWriter, x: Value, y: Value) -> Value:
    return composites_math.trunc(w, w.div(x, y))


def _divide_by_mode(c: TorchCall) -> Value:
    functions: dict[Any, Callable[..., Value]] = {
        None: elementwise("div"), "trunc": _truncated, "floor": _floor_divide
    }  # fmt: skip
    return computed(c, functions[c["rounding_mode"]], "self", "other")


def _power(c: TorchCall) -> Value:
    """A fixed exponent; as in torch -0.5 is a reciprocal square root."""
    exponent = c["exponent"]

    def function(w: GraphWriter, x: Value) -> Value:
        if exponent == -0.5 and w.dtype(x).is_float:
            return w.map("rsqrt", x)
        if w.dtype(x) is BOOL:
            raise FrontendError("powers of truth values are not supported")
        return composites_math.power(w, x, exponent)

    return computed(c, function, "self")


def _power_of_tensor(c: TorchCall) -> Value:
    """The exponent is a tensor, the base may be a number."""
    function = elementwise("pow") if c.out.dtype.is_float else composites_math.whole_power
    return computed(c, function, "self", "exponent")


def _where(c: TorchCall) -> Value:
    dtype = c.out.dtype
    chosen = c.w.aligned(c.value("self", dtype), c.value("other", dtype))
    return c.w.select(truth(c.w, c.value("condition")), *chosen)


def _clamp(c: TorchCall) -> Value:
    """Either bound may be missing; where they cross the upper one wins."""
    kind = DType.U8 if c.out.dtype is BOOL else c.out.dtype.compute
    low, high = (c.optional(name, kind) for name in ("min", "max"))
    return c.w.cast(composites_math.clip(c.w, c.value("self", kind), low, high), c.out.dtype)


def _ignoring_nan(op: str) -> Callable[..., Value]:
    """fmax and fmin: of a number and a NaN the number."""

    def function(w: GraphWriter, x: Value, y: Value) -> Value:
        if not w.dtype(x).is_float:
            return elementwise(op)(w, x, y)
        x, y = w.aligned(x, y)
        other = w.select(w.map("isnan", y), x, w.map(op, x, y))
        return w.select(w.map("isnan", x), y, other)

    return function


# Activations


def _activation(function: Callable[..., Value], *numbers: str) -> TorchRule:
    """A function of the operand and numbers."""

    def rule(c: TorchCall) -> Value:
        given = [float(c[name]) for name in numbers]
        return computed(c, lambda w, x: function(w, x, *given), "self")

    return rule


def _gelu(c: TorchCall) -> Value:
    tanh = c["approximate"] == "tanh"
    return computed(c, lambda w, x: activations.gelu(w, x, approximate=tanh), "self")


def _elu(w: GraphWriter, x: Value, alpha: float, scale: float, slope: float) -> Value:
    """torch's has a factor outside, and one before the power."""
    if slope == 1:
        return activations.selu(w, x, alpha, scale)
    below = w.mul(alpha, w.map("expm1", w.mul(slope, x)))
    return w.mul(scale, w.select(w.map("gt", x, 0), x, below))


def _leaky_relu(w: GraphWriter, x: Value, slope: float) -> Value:
    """torch compares with > 0, which says something else only of 0 times such slopes."""
    if 0 <= slope < math.inf:
        return activations.leaky_relu(w, x, slope)
    return w.select(w.map("gt", x, 0), x, w.mul(slope, x))


def _softplus(w: GraphWriter, x: Value, beta: float, limit: float) -> Value:
    """torch returns x where beta x > limit; from a limit on nothing else is left of it in x's
    dtype."""
    grown = w.mul(beta, x)
    found = w.div(activations.softplus(w, grown), beta)
    if limit > 0 and math.exp(-limit) < limit * w.dtype(x).eps / 4:
        return found
    return w.select(w.map("gt", grown, limit), x, found)


def _log_sigmoid(c: TorchCall) -> tuple[Value | None, ...]:
    """And exp(-|x|), which torch's gradient reads; empty on devices where it does not."""

    def power(w: GraphWriter, x: Value) -> Value:
        return w.map("exp", w.map("neg", w.map("abs", x)))

    kept = [
        None if t is None else c.w.full(0, t.shape, t.dtype) if not t.size else computed(
            c, power, "self"
        )
        for t in c.results[1:]
    ]  # fmt: skip
    return (computed(c, activations.log_sigmoid, "self"), *kept)


def _hardtanh(c: TorchCall) -> Value:
    def function(w: GraphWriter, x: Value) -> Value:
        low, high = (w.scalar(number_as(c[k], w.dtype(x)), x) for k in ("min_val", "max_val"))
        return w.map("clamp", x, low, high)

    return computed(c, function, "self")


# Dtypes and constants


def _to_result_dtype(c: TorchCall) -> Value:
    return c.w.cast(c.value("self"), c.out.dtype)


def _copy(c: TorchCall) -> Value:
    """`src` in the place of all of `self`."""
    return c.w.spread(c.value("src", c.out.dtype), c.out.shape)


def _full(name: str) -> TorchRule:
    def rule(c: TorchCall) -> Value:
        return c.w.full(number_as(c[name], c.out.dtype), c.out.shape, c.out.dtype)

    return rule


def _uninitialised(c: TorchCall) -> Value:
    """Any element will do."""
    return c.w.full(0, c.out.shape, c.out.dtype)


def _arange(c: TorchCall) -> Value:
    """Steps from `start`, in the dtype that the result is computed in."""
    w, kind = c.w, c.out.dtype.compute
    start, step = (number_as(c[name], kind) for name in ("start", "step"))
    places = w.iota(c.out.shape, kind, 0)
    places = places if step == 1 else w.mul(places, step)
    return w.cast(places if start == 0 else w.add(places, start), c.out.dtype)


def _plain(row: OpNames) -> TorchRule:
    """The rule for what torch calls otherwise."""
    names = ("self", "other")[: row.operands]
    match row.kind:
        case Kind.ROUNDING:
            return _rounded(row.write)
        case Kind.TEST:
            return _test(row.write)
        case Kind.COMPARISON:
            return _compare(row.write)
        case Kind.LOGIC:
            return _logical(row.write, *names)
        case _:
            return lambda c: computed(c, row.write, *names)


TORCH_ELEMENTWISE: dict[str, TorchRule] = {
    **{overload: _plain(row) for row in NAMES for overload in row.aten},
    **{
        f"aten.{op}.{kind}": _scaled_sum(op)
        for op in ("add", "sub")
        for kind in ("Tensor", "Scalar")
    },
    # Promises about a tensor, which held when it was traced.
    "aten._assert_tensor_metadata.default": lambda c: (None,),
    "aten._to_copy.default": _to_result_dtype,
    "aten.arange.start_step": _arange,
    "aten.celu.default": _activation(activations.celu, "alpha"),
    "aten.clamp.Tensor": _clamp,
    "aten.clamp.default": _clamp,
    "aten.copy.default": _copy,
    "aten.div.Scalar_mode": _divide_by_mode,
    "aten.div.Tensor_mode": _divide_by_mode,
    "aten.elu.default": _activation(_elu, "alpha", "scale", "input_scale"),
    "aten.empty.memory_format": _uninitialised,
    "aten.empty_permuted.default": _uninitialised,
    "aten.empty_strided.default": _uninitialised,
    "aten.fmax.default": lambda c: computed(c, _ignoring_nan("max"), "self", "other"),
    "aten.fmin.default": lambda c: computed(c, _ignoring_nan("min"), "self", "other"),
    "aten.full.default": _full("fill_value"),
    "aten.full_like.default": _full("fill_value"),
    "aten.gelu.default": _gelu,
    "aten.hardtanh.default": _hardtanh,
    "aten.leaky_relu.default": _activation(_leaky_relu, "negative_slope"),
    "aten.log_sigmoid_forward.default": _log_sigmoid,
    "aten.new_empty_strided.default": _uninitialised,
    "aten.pow.Scalar": _power_of_tensor,
    "aten.pow.Tensor_Scalar": _power,
    "aten.pow.Tensor_Tensor": _power_of_tensor,
    "aten.scalar_tensor.default": _full("s"),
    "aten.sign.default": lambda c: c.value("self") if c.out.dtype is BOOL else computed(
        c, elementwise("sign"), "self"
    ),
    "aten.softplus.default": _activation(_softplus, "beta", "threshold"),
    "aten.threshold.default": _activation(activations.threshold, "threshold", "value"),
    "aten.where.self": _where,
}  # fmt: skip
