"""Identities of scalar ops that hold exactly, for NaN, infinities and signed zeros too."""

from __future__ import annotations

import numpy as np

from autofuse.graph.types import Value
from autofuse.ops.algebra import NO_ALGEBRA
from autofuse.ops.dtypes import DType
from autofuse.ops.spec import OpSpec
from autofuse.ops.types import TensorType
from autofuse.simplify.draft import Draft
from autofuse.simplify.facts import never_minus_zero, non_negative
from autofuse.simplify.rules import Replacement, rule


def _has_algebra(spec: OpSpec) -> bool:
    return spec.algebra is not NO_ALGEBRA


def _same_number(found: np.generic, wanted: int | float | bool) -> bool:
    """Equal, signs of zeros included."""
    if found.dtype.kind not in "biu" and float(found) == 0 == wanted:
        return bool(np.signbit(found)) == bool(np.signbit(float(wanted)))
    return bool(found == wanted)


@rule("neutral-operand", "XLA AlgebraicSimplifier A+0, A*1, A/1; LLVM InstSimplify", _has_algebra)
def neutral_operand(draft: Draft, at: int) -> Replacement:
    """f(x, c) -> x where c is neutral."""
    node = draft[at]
    if len(node.inputs) != 2:
        return None
    for k, value in enumerate(node.inputs):
        wanted = node.spec.algebra.neutral(draft.dtype(value), k)
        found = None if wanted is None else draft.uniform(value)
        if found is not None and wanted is not None and _same_number(found, wanted):
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


@rule("undone", "XLA AlgebraicSimplifier -(-A), not(not(A)); LLVM InstCombine",
      lambda spec: spec.algebra.involution)  # fmt: skip
def undone(draft: Draft, at: int) -> Replacement:
    """f(f(x)) -> x."""
    inner = draft[at].inputs[0]
    return draft.operand(inner) if draft.is_op(inner, draft[at].op) else None


@rule("idempotent", "XLA AlgebraicSimplifier max(A, A), and(A, A); LLVM InstSimplify",
      lambda spec: spec.algebra.idempotent)  # fmt: skip
def idempotent(draft: Draft, at: int) -> Replacement:
    """f(x, x) -> x; f(f(x)) -> f(x)."""
    node = draft[at]
    if len(node.inputs) == 2:
        return node.inputs[0] if node.inputs[0] == node.inputs[1] else None
    return node.inputs[0] if draft.is_op(node.inputs[0], node.op) else None


@rule("cancelled", "XLA AlgebraicSimplifier A-A => 0 (integers), A^A => 0",
      lambda spec: spec.algebra.cancels)  # fmt: skip
def cancelled(draft: Draft, at: int) -> Replacement:
    """x - x -> 0, of whole numbers."""
    node = draft[at]
    whole = not node.types[0].dtype.is_float
    return draft.full(0, node.types[0]) if whole and node.inputs[0] == node.inputs[1] else None


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


@rule("reassociated", "XLA AlgebraicSimplifier (A+C1)+C2, max(max(A, C1), C2); LLVM Reassociate",
      lambda spec: spec.algebra.associates)  # fmt: skip
def reassociated(draft: Draft, at: int) -> Replacement:
    """f(f(x, c), d) -> f(x, f(c, d)), computed now; of floats only where nothing rounds."""
    node = draft[at]
    inner, last = node.inputs
    if node.types[0].dtype.is_float and not node.spec.algebra.exact_floats:
        return None
    if not draft.is_op(inner, node.op) or draft.uniform(last) is None:
        return None
    x, first = draft[inner.node].inputs
    if draft.uniform(first) is None:
        return None
    return draft.add(node.op, x, draft.add(node.op, first, last))


@rule("zero-added", "XLA AlgebraicSimplifier A+0 => A (there also where A may be -0.0)", "add")
def zero_added(draft: Draft, at: int) -> Replacement:
    """x + 0.0 -> x where x is never -0.0."""
    x, zero = draft[at].inputs
    return x if draft.uniform(zero) == 0 and never_minus_zero(draft, x) else None


@rule(
    "negation-absorbed", "LLVM InstCombine (visitFAdd, visitFSub, visitFMul)", "add", "sub", "mul"
)
def negation_absorbed(draft: Draft, at: int) -> Replacement:
    """x + -y -> x - y; -x + y -> y - x; x - -y -> x + y; -x * -y -> x * y; x * -1 -> -x;
    -0.0 - x -> -x."""
    node = draft[at]
    x, y = node.inputs
    first, second = draft.is_op(x, "neg"), draft.is_op(y, "neg")
    if node.op == "add" and second:
        return draft.add("sub", x, draft.operand(y))
    if node.op == "add" and first:
        return draft.add("sub", y, draft.operand(x))
    if node.op == "sub" and second:
        return draft.add("add", x, draft.operand(y))
    if node.op == "sub":
        zero = draft.uniform(x)
        nothing = zero is not None and _same_number(zero, -0.0 if draft.dtype(x).is_float else 0)
        return draft.add("neg", y) if nothing else None
    if node.op == "mul" and first and second:
        return draft.add("mul", draft.operand(x), draft.operand(y))
    signed = node.types[0].dtype.is_float or node.types[0].dtype.is_signed
    return draft.add("neg", x) if node.op == "mul" and signed and draft.uniform(y) == -1 else None


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


@rule("sign-dropped", "XLA AlgebraicSimplifier abs(abs), abs(-A); LLVM InstCombine fabs", "abs")
def sign_dropped(draft: Draft, at: int) -> Replacement:
    """abs(-x) -> abs(x), where x has a sign; abs(x) -> x where x is never negative."""
    inner = draft[at].inputs[0]
    kind = draft.dtype(inner)
    if kind.is_int and not kind.is_signed:
        return inner
    if draft.is_op(inner, "neg"):
        return draft.add("abs", draft.operand(inner))
    return inner if non_negative(draft, inner) else None


def truth(draft: Draft, value: bool, kind: TensorType) -> Value:
    """`value` everywhere, as bools of a shape."""
    return draft.full(value, TensorType(kind.shape, DType.BOOL))
