"""Powers, roots, exponentials: where another op has the very same value, or rounds less."""

from __future__ import annotations

from autofuse.simplify.draft import Draft
from autofuse.simplify.facts import non_negative
from autofuse.simplify.rules import Replacement, rule


@rule(
    "known-exponent",
    "XLA AlgebraicSimplifier HandlePower; LLVM LibCallSimplifier::optimizePow",
    "pow",
)
def known_exponent(draft: Draft, at: int) -> Replacement:
    """x ** 2, 3 -> products, ** 0 -> 1, ** -1 -> 1 / x; ** 0.5 and -0.5 -> roots, of numbers that
    are never negative: the root of -0.0 is -0.0, its power is not."""
    x, exponent = draft[at].inputs
    found = draft.uniform(exponent)
    if found is None:
        return None
    power, kind = float(found), draft.type_of(x)
    if power == 0:
        return draft.full(1, kind)
    if power in (2, 3):
        square = draft.add("mul", x, x)
        return square if power == 2 else draft.add("mul", square, x)
    if power == -1:
        return draft.add("div", draft.full(1, kind), x)
    if power in (0.5, -0.5) and non_negative(draft, x):
        return draft.add("sqrt" if power > 0 else "rsqrt", x)
    return None


@rule("inverse-root", "XLA AlgebraicSimplifier 1/sqrt(A) => rsqrt(A); LLVM", "div", "reciprocal")
def inverse_root(draft: Draft, at: int) -> Replacement:
    """1 / sqrt(x) -> rsqrt(x); 1 / rsqrt(x) -> sqrt(x), where no zero loses its sign."""
    node = draft[at]
    inner = node.inputs[-1]
    if not draft.is_op(inner, "sqrt", "rsqrt"):
        return None
    if node.op == "div" and draft.uniform(node.inputs[0]) != 1:
        return None
    return draft.add("rsqrt" if draft.is_op(inner, "sqrt") else "sqrt", draft.operand(inner))


@rule("root-divided-by", "XLA AlgebraicSimplifier A/rsqrt(B) => A*sqrt(B)", "div")
def root_divided_by(draft: Draft, at: int) -> Replacement:
    """x / rsqrt(y) -> x * sqrt(y): one rounding less."""
    x, root = draft[at].inputs
    return (
        draft.add("mul", x, draft.add("sqrt", draft.operand(root)))
        if (draft.is_op(root, "rsqrt"))
        else None
    )


@rule("exp-of-log", "XLA AlgebraicSimplifier exp(log(A)) (there for every A)", "exp")
def exp_of_log(draft: Draft, at: int) -> Replacement:
    """exp(log(x)) -> x where x is never negative: elsewhere it is NaN."""
    inner = draft[at].inputs[0]
    if not draft.is_op(inner, "log"):
        return None
    x = draft.operand(inner)
    return x if non_negative(draft, x) else None
