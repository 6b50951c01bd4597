"""Rules for aten overloads that compute element by element."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from autofuse.frontends.errors import FrontendError
from autofuse.frontends.torch.types import TorchCall, TorchRule, computed, joint_dtype, number_as
from autofuse.graph.composites import layers as composites
from autofuse.graph.composites import math as composites_math
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter
from autofuse.ops.dtypes import DType

BOOL = DType.BOOL
# What does on truth values as torch's arithmetic on them.
_OF_BOOLS = {"add": "or", "mul": "and", "max": "or", "min": "and"}


def mapped(op: str) -> Callable[..., Value]:
    """An elementwise op as a function of a writer and operands; truth values add up as in torch."""

    def function(w: GraphWriter, *values: Value) -> Value:
        boolean = w.dtype(values[0]) is BOOL
        return w.map(_OF_BOOLS.get(op, op) if boolean else op, *values)

    return function


def _unary(function: Callable[..., Value]) -> TorchRule:
    return lambda c: computed(c, function, "self")


def _binary(function: Callable[..., Value], *names: str) -> TorchRule:
    operands = names or ("self", "other")
    return lambda c: computed(c, function, *operands)


def _same_on_whole(op: str) -> TorchRule:
    """An op that changes no whole number."""

    def rule(c: TorchCall) -> Value:
        return computed(c, mapped(op), "self") if c.out.dtype.is_float else c.value("self")

    return rule


def truth(w: GraphWriter, v: Value) -> Value:
    """Where `v` is not zero."""
    return v if w.dtype(v) is BOOL else w.map("ne", v, 0)


def _logical(op: str) -> TorchRule:
    def rule(c: TorchCall) -> Value:
        return c.w.map(op, *(truth(c.w, c.value(name)) for name in ("self", "other")))

    return rule


def _logical_not(c: TorchCall) -> Value:
    return c.w.map("not", truth(c.w, c.value("self")))


def _compare(op: str) -> TorchRule:
    """A comparison in the dtype that the operands have in common."""

    def rule(c: TorchCall) -> Value:
        dtype = joint_dtype(c, ("self", "other"))
        return c.w.map(op, c.value("self", dtype), c.value("other", dtype))

    return rule


def _of_floats(function: Callable[[GraphWriter, Value], Value]) -> TorchRule:
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
            return mapped(op)(w, x, y if factor == 1 else mapped("mul")(w, y, w.scalar(factor, y)))

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
        None: mapped("div"), "trunc": _truncated, "floor": _floor_divide
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
    function = mapped("pow") if c.out.dtype.is_float else composites_math.whole_power
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
            return mapped(op)(w, x, y)
        x, y = w.aligned(x, y)
        other = w.select(w.map("isnan", y), x, w.map(op, x, y))
        return w.select(w.map("isnan", x), y, other)

    return function


def _shift(op: str) -> Callable[..., Value]:
    return lambda w, x, y: w.map(op, x, y)


# Activations


def _gelu(c: TorchCall) -> Value:
    tanh = c["approximate"] == "tanh"
    return computed(c, lambda w, x: composites.gelu(w, x, approximate=tanh), "self")


def _elu(c: TorchCall) -> Value:
    alpha, scale, slope = (float(c[k]) for k in ("alpha", "scale", "input_scale"))

    def function(w: GraphWriter, x: Value) -> Value:
        below = w.mul(alpha * scale, w.map("expm1", w.mul(slope, x)))
        return w.select(w.map("gt", x, 0), w.mul(scale, x), below)

    return computed(c, function, "self")


def _leaky_relu(c: TorchCall) -> Value:
    slope = float(c["negative_slope"])
    return computed(
        c, lambda w, x: w.select(w.map("gt", x, 0), x, w.mul(slope, x)), "self"
    )  # fmt: skip


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


_UNARY: Mapping[str, Callable[..., Value]] = {
    **{name: mapped(name) for name in (
        "abs", "acos", "asin", "atan", "cos", "cosh", "erf", "exp", "expm1", "log", "log1p", "neg",
        "rsqrt", "sin", "sinh", "sqrt", "tan", "tanh",
    )},
    **{name: getattr(composites_math, name) for name in (
        "acosh", "asinh", "atanh", "erfc", "exp2", "log10", "log2", "trunc",
    )},
    "erfinv": composites_math.erf_inv,
    "reciprocal": mapped("reciprocal"),
    "relu": composites.relu,
    "sigmoid": mapped("logistic"),
    "silu": composites.silu,
}  # fmt: skip
_BINARY: Mapping[str, Callable[..., Value]] = {
    "aten.atan2.default": mapped("atan2"),
    "aten.__lshift__.Scalar": _shift("shl"),
    "aten.__lshift__.Tensor": _shift("shl"),
    "aten.__rshift__.Scalar": _shift("shr"),
    "aten.__rshift__.Tensor": _shift("shr"),
    "aten.bitwise_left_shift.Tensor": _shift("shl"),
    "aten.bitwise_left_shift.Tensor_Scalar": _shift("shl"),
    "aten.bitwise_right_shift.Tensor": _shift("shr"),
    "aten.bitwise_right_shift.Tensor_Scalar": _shift("shr"),
    "aten.div.Scalar": mapped("div"),
    "aten.div.Tensor": mapped("div"),
    "aten.fmax.default": _ignoring_nan("max"),
    "aten.fmin.default": _ignoring_nan("min"),
    "aten.fmod.Scalar": mapped("rem"),
    "aten.fmod.Tensor": mapped("rem"),
    "aten.hypot.default": composites_math.hypot,
    "aten.maximum.default": mapped("max"),
    "aten.minimum.default": mapped("min"),
    "aten.mul.Scalar": mapped("mul"),
    "aten.mul.Tensor": mapped("mul"),
    "aten.remainder.Scalar": composites_math.remainder,
    "aten.remainder.Scalar_Tensor": composites_math.remainder,
    "aten.remainder.Tensor": composites_math.remainder,
    **{
        f"aten.bitwise_{op}.{kind}": mapped(op)
        for op in ("and", "or", "xor")
        for kind in ("Tensor", "Scalar", "Scalar_Tensor")
    },
}
TORCH_ELEMENTWISE: dict[str, TorchRule] = {
    **{f"aten.{name}.default": _unary(function) for name, function in _UNARY.items()},
    **{name: _binary(function) for name, function in _BINARY.items()},
    **{
        f"aten.{op}.{kind}": _compare(op)
        for op in ("eq", "ge", "gt", "le", "lt", "ne")
        for kind in ("Tensor", "Scalar")
    },
    **{f"aten.{op}.default": _same_on_whole(op) for op in ("ceil", "floor", "round")},
    **{f"aten.logical_{op}.default": _logical(op) for op in ("and", "or", "xor")},
    **{
        f"aten.{op}.{kind}": _scaled_sum(op)
        for op in ("add", "sub")
        for kind in ("Tensor", "Scalar")
    },
    # Promises about a tensor, which held when it was traced.
    "aten._assert_tensor_metadata.default": lambda c: (None,),
    "aten._to_copy.default": _to_result_dtype,
    "aten.arange.start_step": _arange,
    "aten.bitwise_not.default": _unary(mapped("not")),
    "aten.clamp.Tensor": _clamp,
    "aten.clamp.default": _clamp,
    "aten.copy.default": _copy,
    "aten.div.Scalar_mode": _divide_by_mode,
    "aten.div.Tensor_mode": _divide_by_mode,
    "aten.elu.default": _elu,
    "aten.empty.memory_format": _uninitialised,
    "aten.empty_permuted.default": _uninitialised,
    "aten.empty_strided.default": _uninitialised,
    "aten.full.default": _full("fill_value"),
    "aten.full_like.default": _full("fill_value"),
    "aten.gelu.default": _gelu,
    "aten.hardtanh.default": _hardtanh,
    "aten.isinf.default": _of_floats(composites_math.isinf),
    "aten.isnan.default": _of_floats(lambda w, x: w.map("isnan", x)),
    "aten.leaky_relu.default": _leaky_relu,
    "aten.logical_not.default": _logical_not,
    "aten.new_empty_strided.default": _uninitialised,
    "aten.pow.Scalar": _power_of_tensor,
    "aten.pow.Tensor_Scalar": _power,
    "aten.pow.Tensor_Tensor": _power_of_tensor,
    "aten.scalar_tensor.default": _full("s"),
    "aten.sign.default": lambda c: c.value("self") if c.out.dtype is BOOL else computed(
        c, mapped("sign"), "self"
    ),
    "aten.where.self": _where,
}  # fmt: skip
