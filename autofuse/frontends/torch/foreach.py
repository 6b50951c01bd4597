"""Rules for aten overloads on lists of tensors, which optimisers are made of: the rule for one
tensor, again and again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from autofuse.frontends.torch.elementwise import TORCH_ELEMENTWISE
from autofuse.frontends.torch.types import TorchCall, TorchRule, computed
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter


def _each(rule: TorchRule, names: Mapping[str, str]) -> TorchRule:
    """`rule` for the n-th of every list; `names` are what it calls arguments that torch calls
    otherwise here."""

    def of_lists(c: TorchCall) -> tuple[Value | None, ...]:
        found: list[Value | None] = []
        for n, result in enumerate(c.results):
            given = {names.get(name, name): _nth(each, n) for name, each in c.given.items()}
            made = rule(replace(c, given={"alpha": 1, **given}, results=(result,)))
            found.append(made if isinstance(made, Value) else made[0])
        return tuple(found)

    return of_lists


def _nth(argument: Any, n: int) -> Any:
    return argument[n] if isinstance(argument, list) else argument


def _fused(function: Callable[..., Value]) -> TorchRule:
    """self + value * function(tensor1, tensor2)."""

    def rule(c: TorchCall) -> Value:
        def whole(w: GraphWriter, x: Value, a: Value, b: Value, factor: Value) -> Value:
            return w.add(x, w.mul(factor, function(w, a, b)))

        return computed(c, whole, "self", "tensor1", "tensor2", "value")

    return rule


def _lerp(c: TorchCall) -> Value:
    """From `self` towards `end`, from whichever is nearer, as torch does."""

    def function(w: GraphWriter, x: Value, y: Value, weight: Value) -> Value:
        apart = w.sub(y, x)
        near = w.map("lt", w.map("abs", weight), 0.5)
        back = w.sub(y, w.mul(apart, w.sub(1, weight)))
        return w.select(w.spread(near, w.shape(x)), w.add(x, w.mul(weight, apart)), back)

    return computed(c, function, "self", "end", "weight")


def _power(c: TorchCall) -> Value:
    """The exponent is a number or a tensor."""
    kind = "Tensor_Tensor" if isinstance(c["exponent"], Value) else "Tensor_Scalar"
    found = TORCH_ELEMENTWISE[f"aten.pow.{kind}"](c)
    assert isinstance(found, Value)
    return found


_OTHER = {"scalar": "other", "scalars": "other"}
_FACTOR = {"scalars": "value"}
_TOWARDS = {"tensors1": "end", "weights": "weight"}
_ARITHMETIC = {
    f"aten._foreach_{op}.{kind}": _each(TORCH_ELEMENTWISE[f"aten.{op}.Tensor"], _OTHER)
    for op in ("add", "div", "mul", "sub")
    for kind in ("List", "Scalar", "ScalarList", "Tensor")
}
_EXTREMES = {
    f"aten._foreach_{name}.{kind}": _each(TORCH_ELEMENTWISE[f"aten.{rule}.default"], _OTHER)
    for name, rule in (
        ("clamp_max", "minimum"), ("clamp_min", "maximum"), ("maximum", "maximum"),
        ("minimum", "minimum"),
    )
    for kind in ("List", "Scalar", "ScalarList")
}  # fmt: skip
_UNARY = {
    f"aten._foreach_{op}.default": _each(TORCH_ELEMENTWISE[f"aten.{op}.default"], {})
    for op in ("abs", "exp", "neg", "reciprocal", "rsqrt", "sign", "sqrt")
}
TORCH_FOREACH: dict[str, TorchRule] = {
    **_ARITHMETIC,
    **_EXTREMES,
    **_UNARY,
    **{
        f"aten._foreach_{name}.{kind}": _each(_fused(function), _FACTOR)
        for name, function in (
            ("addcdiv", lambda w, a, b: w.div(a, b)), ("addcmul", lambda w, a, b: w.mul(a, b)),
        )
        for kind in ("Scalar", "ScalarList")
    },
    **{f"aten._foreach_lerp.{kind}": _each(_lerp, _TOWARDS) for kind in ("List", "Scalar")},
    **{f"aten._foreach_pow.{kind}": _each(_power, {}) for kind in ("List", "Scalar", "ScalarList")},
    "aten._foreach_copy.default": _each(TORCH_ELEMENTWISE["aten.copy.default"], {}),
    "aten._foreach_pow.ScalarAndTensor": _each(TORCH_ELEMENTWISE["aten.pow.Scalar"], {}),
}  # fmt: skip
