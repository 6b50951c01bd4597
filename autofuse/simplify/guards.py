"""What programs write against numbers that cannot harm them, and activations in other words."""

from __future__ import annotations

import numpy as np

from autofuse.graph.types import Value
from autofuse.ops.dtypes import DType
from autofuse.ops.spec import Family
from autofuse.simplify.draft import Draft
from autofuse.simplify.facts import DEPTH
from autofuse.simplify.rules import Replacement, rule

# Of NaN they give NaN, whatever stands beside it.
_NAN_OF_NAN = {
    "abs", "add", "acos", "asin", "atan", "clamp", "cos", "div", "erf", "exp", "expm1", "log",
    "log1p", "logistic", "max", "min", "mul", "neg", "reciprocal", "rsqrt", "sin", "sqrt", "sub",
    "tan", "tanh",
}  # fmt: skip


@rule("nan-of-a-sign", "LLVM InstSimplify fcmp uno (fneg, fabs)", "isnan")
def nan_of_a_sign(draft: Draft, at: int) -> Replacement:
    """isnan(-x), isnan(abs(x)) -> isnan(x)."""
    x = draft[at].inputs[0]
    return draft.add("isnan", draft.operand(x)) if draft.is_op(x, "neg", "abs") else None


@rule("idle-nan-guard", "LLVM InstCombine select(fcmp uno x, ...); JAX logaddexp", "select")
def idle_nan_guard(draft: Draft, at: int) -> Replacement:
    """select(isnan(x), f(x), g(x)) -> g(x), where both are NaN where x is."""
    condition, yes, no = draft[at].inputs
    if not draft.is_op(condition, "isnan"):
        return None
    x = draft.operand(condition)
    return no if all(_is_nan_with(draft, v, x) for v in (yes, no)) else None


def _is_nan_with(draft: Draft, value: Value, x: Value, depth: int = 2 * DEPTH) -> bool:
    """Whether `value` is NaN wherever `x` is."""
    if value == x:
        return True
    node = draft.node(value)
    if not depth or node.op not in _NAN_OF_NAN:
        return False
    read = node.inputs[:1] if node.op == "clamp" else node.inputs
    return any(_is_nan_with(draft, v, x, depth - 1) for v in read)


@rule("guarded-argument", "JAX's 'double where', backwards; LLVM InstCombine", "select")
def guarded_argument(draft: Draft, at: int) -> Replacement:
    """select(c, x, f(select(c, y, z))) -> select(c, x, f(z)), and likewise where c does not hold,
    for elementwise f whose values nothing else reads."""
    condition, *sides = draft[at].inputs
    found = [
        side if draft.is_op(side, "select") else _unguarded(draft, side, condition, position)
        for position, side in enumerate(sides, start=1)
    ]
    return draft.add("select", condition, *found) if found != sides else None


def _unguarded(
    draft: Draft, value: Value, condition: Value, position: int, depth: int = DEPTH
) -> Value:
    """`value` with its inner selects by `condition` replaced by what stands at `position`."""
    node = draft.node(value)
    if node.op == "select" and node.inputs[0] == condition:
        return node.inputs[position]
    plain = node.spec.family is Family.ELEMENTWISE and len(node.types) == 1
    if not depth or not plain or not draft.alone(value):
        return value
    below = tuple(_unguarded(draft, v, condition, position, depth - 1) for v in node.inputs)
    return value if below == node.inputs else draft.add(node.op, *below, **dict(node.attrs))


@rule("limits-as-clamp", "XLA AlgebraicSimplifier min(max(A, low), high) => clamp", "min", "max")
def limits_as_clamp(draft: Draft, at: int) -> Replacement:
    """min(max(x, low), high), max(min(x, high), low) -> clamp(x, low, high), of floats and limits
    that are constants in this order."""
    inner, limit = draft[at].inputs
    inside = "max" if draft[at].op == "min" else "min"
    if not draft.is_op(inner, inside) or not draft.dtype(inner).is_float:
        return None
    x, other = draft[inner.node].inputs
    limits = (other, limit) if inside == "max" else (limit, other)
    return draft.add("clamp", x, *limits) if _ascending(draft, *limits) else None


def _ascending(draft: Draft, low: Value, high: Value) -> bool:
    first, last = draft.uniform(low), draft.uniform(high)
    return first is not None and last is not None and float(first) < float(last)


@rule("selects-as-clamp", "LLVM InstCombine (min and max as selects of comparisons)", "select")
def selects_as_clamp(draft: Draft, at: int) -> Replacement:
    """select(x > high, high, select(x < low, low, x)) -> clamp(x, low, high), of limits that are
    constants in this order, none of them 0: of a 0 the sign would be lost."""
    above, high, rest = draft[at].inputs
    if not draft.is_op(rest, "select") or not draft.is_op(above, "gt"):
        return None
    below, low, x = draft[rest.node].inputs
    is_test = draft.is_op(below, "lt") and draft.node(below).inputs == (x, low)
    if not is_test or draft.node(above).inputs != (x, high) or not _ascending(draft, low, high):
        return None
    if 0 in (draft.uniform(low), draft.uniform(high)):
        return None
    return draft.add("clamp", x, low, high)


@rule("erf-of-negation", "LLVM LibCallSimplifier (of odd functions: sin(-x), tan(-x))", "erf")
def erf_of_negation(draft: Draft, at: int) -> Replacement:
    """erf(-x) -> -erf(x), erf(-x * c) -> -erf(x * c)."""
    x = draft[at].inputs[0]
    if draft.is_op(x, "neg"):
        return draft.add("neg", draft.add("erf", draft.operand(x)))
    if draft.is_op(x, "mul") and draft.is_op(draft.operand(x), "neg"):
        y, factor = draft[x.node].inputs
        return draft.add("neg", draft.add("erf", draft.add("mul", draft.operand(y), factor)))
    return None


@rule("one-over", "LLVM InstCombine (a reciprocal is 1 / A)", "div")
def one_over(draft: Draft, at: int) -> Replacement:
    """1 / x of floats -> reciprocal(x), which is that."""
    one, x = draft[at].inputs
    whole = draft.uniform(one) != 1 or not draft.dtype(x).is_float
    return None if whole else draft.add("reciprocal", x)


@rule("halved-gate", "autofuse: x (0.5 (1 + g(x))) and 0.5 x (1 + g(x)), as GELU is written", "mul")
def halved_gate(draft: Draft, at: int) -> Replacement:
    """x * ((1 + g) * 0.5) -> (x * 0.5) * (1 + g), where 1 + g is 1 wherever x / 2 is rounded: both
    are then x (1 + g) / 2, rounded once."""
    x, gate = draft[at].inputs
    if not draft.dtype(x).is_float or not _is_with(draft, gate, "mul", 0.5):
        return None
    total, half = draft[gate.node].inputs
    if not _is_with(draft, total, "add", 1.0):
        return None
    kind = draft.dtype(x)
    size = _size(draft, draft.operand(total), x, 4.0 * _smallest_normal(kind))
    if size is None or size > kind.eps / 8:
        return None
    return draft.add("mul", draft.add("mul", x, half), total)


def _is_with(draft: Draft, value: Value, op: str, number: float) -> bool:
    """Whether a value is `op` of something and a constant, which stands on the right."""
    return draft.is_op(value, op) and draft.uniform(draft.operand(value, 1)) == number


def _smallest_normal(kind: DType) -> float:
    return float(np.exp2(-14 if kind is DType.F16 else -1022 if kind is DType.F64 else -126))


def _size(
    draft: Draft, value: Value, x: Value, bound: float, depth: int = 2 * DEPTH
) -> float | None:
    """A bound of |value| where |x| <= bound < 1; None where none is known."""
    if value == x:
        return bound
    number = draft.uniform(value)
    if number is not None:
        return abs(float(number))
    node = draft.node(value)
    if not depth or node.op not in ("add", "mul", "neg", "tanh", "erf"):
        return None
    sizes = [_size(draft, v, x, bound, depth - 1) for v in node.inputs]
    known = [s for s in sizes if s is not None]
    if len(known) < len(sizes):
        return None
    return float(np.prod(known)) if node.op == "mul" else 2 * sum(known)
