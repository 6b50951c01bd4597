"""Identities of scalar ops that hold exactly, for NaN, infinities and signed zeros too."""

from __future__ import annotations

import numpy as np

from autofuse.graph.types import Value
from autofuse.ops.algebra import NO_ALGEBRA
from autofuse.ops.dtypes import DType
from autofuse.ops.spec import OpSpec
from autofuse.ops.types import TensorType
from autofuse.simplify.draft import Draft
from autofuse.simplify.facts import (
    is_signed,
    is_uniform,
    is_unsigned,
    is_whole,
    never_minus_zero,
    non_negative,
)
from autofuse.simplify.patterns import (
    WHOLE,
    Bindings,
    Identity,
    holes,
    is_number,
    ops,
    rewrite,
    same_op,
)
from autofuse.simplify.rules import Replacement, rule

x, y, c, d = holes("x y c d")
add, sub, mul, neg, magnitude = ops("add sub mul neg abs")


def _has_algebra(spec: OpSpec) -> bool:
    return spec.algebra is not NO_ALGEBRA


@rule("neutral-operand", "XLA AlgebraicSimplifier A+0, A*1, A/1; LLVM InstSimplify", _has_algebra)
def neutral_operand(draft: Draft, at: int) -> Replacement:
    """f(x, c) -> x where c is neutral."""
    node = draft[at]
    if len(node.inputs) != 2:
        return None
    for k, value in enumerate(node.inputs):
        wanted = node.spec.algebra.neutral(draft.dtype(value), k)
        found = None if wanted is None else draft.uniform(value)
        if found is not None and wanted is not None and is_number(found, wanted):
            return node.inputs[1 - k]
    return None


@rule("absorbing-operand", "XLA AlgebraicSimplifier A*0, A&0, A|1 (integers)", _has_algebra)
def absorbing_operand(draft: Draft, at: int) -> Replacement:
    """f(x, c) -> c where c decides."""
    node = draft[at]
    for k, value in enumerate(node.inputs if len(node.inputs) == 2 else ()):
        wanted = node.spec.algebra.absorbing(draft.dtype(value), k)
        found = None if wanted is None else draft.uniform(value)
        if found is not None and found == wanted:
            return value
    return None


rewrite(
    "arithmetic", "undone", "XLA AlgebraicSimplifier -(-A), not(not(A)); LLVM InstCombine",
    "f(f(x)) -> x.",
    Identity(same_op(same_op(x)), x, of=lambda spec: spec.algebra.involution),
)  # fmt: skip
rewrite(
    "arithmetic", "idempotent",
    "XLA AlgebraicSimplifier max(A, A), and(A, A); LLVM InstSimplify",
    "f(x, x) -> x; f(f(x)) -> f(x).",
    Identity(same_op(x, x), x, of=lambda spec: spec.algebra.idempotent),
    Identity(same_op(same_op(x)), same_op(x), of=lambda spec: spec.algebra.idempotent),
)  # fmt: skip
rewrite(
    "arithmetic", "cancelled", "XLA AlgebraicSimplifier A-A => 0 (integers), A^A => 0",
    "x - x -> 0, of whole numbers.",
    Identity(same_op(x.where(is_whole), x), 0, of=lambda spec: spec.algebra.cancels),
)  # fmt: skip


@rule("constant-right", "XLA AlgebraicSimplifier 'canonicalize constants to RHS'; LLVM InstCombine",
      lambda spec: spec.algebra.commutes)  # fmt: skip
def constant_right(draft: Draft, at: int) -> Replacement:
    """f(c, x) -> f(x, c)."""
    node = draft[at]
    first, second = node.inputs
    if draft.is_constant(first) and not draft.is_constant(second):
        return draft.add(node.op, second, first)
    return None


@rule("commuted", "LLVM EarlyCSE (commutative expressions)", lambda spec: spec.algebra.commutes)
def commuted(draft: Draft, at: int) -> Replacement:
    """f(y, x) -> f(x, y) where that is there already."""
    node = draft[at]
    other = draft.existing(node.op, node.inputs[::-1], node.attrs)
    # Of a pair, the later one goes.
    return other if other is not None and other.node < at else None


def _rounds_nothing(draft: Draft, bound: Bindings) -> bool:
    exact = draft.node(bound[WHOLE]).spec.algebra.exact_floats
    return exact or not draft.dtype(bound[WHOLE]).is_float


rewrite(
    "arithmetic", "reassociated",
    "XLA AlgebraicSimplifier (A+C1)+C2, max(max(A, C1), C2); LLVM Reassociate",
    "f(f(x, c), d) -> f(x, f(c, d)), computed now; of floats only where nothing rounds.",
    Identity(
        same_op(same_op(x, c.where(is_uniform)), d.where(is_uniform)), same_op(x, same_op(c, d)),
        _rounds_nothing, lambda spec: spec.algebra.associates,
    ),
)  # fmt: skip
rewrite(
    "arithmetic", "zero-added",
    "XLA AlgebraicSimplifier A+0 => A (there also where A may be -0.0)",
    "x + 0.0 -> x where x is never -0.0.",
    Identity(add(x.where(never_minus_zero), 0), x),
)  # fmt: skip
rewrite(
    "arithmetic", "negation-absorbed", "LLVM InstCombine (visitFAdd, visitFSub, visitFMul)",
    "x + -y -> x - y; -x + y -> y - x; x - -y -> x + y; -x * -y -> x * y; x * -1 -> -x; "
    "-0.0 - x -> -x.",
    Identity(add(x, neg(y)), sub(x, y)),
    Identity(sub(x, neg(y)), add(x, y)),
    Identity(sub(-0.0, x), neg(x)),
    Identity(mul(neg(x), neg(y)), mul(x, y)),
    Identity(mul(x.where(is_signed), -1), neg(x)),
)  # fmt: skip


@rule(
    "power-of-two-divisor",
    "XLA AlgebraicSimplifier A/Const => A*(1/Const); LLVM InstCombine",
    "div",
)
def power_of_two_divisor(draft: Draft, at: int) -> Replacement:
    """x / 2^k -> x * 2^-k, of floats, where 2^-k is an ordinary number of the dtype."""
    x, divisor = draft[at].inputs
    kind = draft.type_of(x)
    found = draft.uniform(divisor)
    if found is None or not kind.dtype.is_float or not np.isfinite(found) or float(found) == 1.0:
        return None
    mantissa, exponent = np.frexp(float(found))
    if abs(mantissa) != 0.5 or abs(exponent) > 12:
        return None
    return draft.add("mul", x, draft.full(1.0 / float(found), kind))


rewrite(
    "arithmetic", "sign-dropped",
    "XLA AlgebraicSimplifier abs(abs), abs(-A); LLVM InstCombine fabs",
    "abs(-x) -> abs(x), where x has a sign; abs(x) -> x where x is never negative.",
    Identity(magnitude(x.where(is_unsigned)), x),
    Identity(magnitude(neg(x.where(is_signed))), magnitude(x)),
    Identity(magnitude(x.where(non_negative)), x),
)  # fmt: skip


def truth(draft: Draft, value: bool, kind: TensorType) -> Value:
    """`value` everywhere, as bools of a shape."""
    return draft.full(value, TensorType(kind.shape, DType.BOOL))
