"""Identities that are not applied, because they do not hold: no silent fast math.

Others do some of them, for instance under -ffast-math. Each comes with operands for which the two
sides differ; what they differ in may be seen after a division, or is seen at once.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RefusedIdentity:
    """`before` is not rewritten as `after`; at `operands` (x, y, ... as f32) they differ."""

    name: str
    before: str
    after: str
    source: str
    operands: tuple[float, ...]
    because: str


_INF, _NAN = float("inf"), float("nan")

REFUSED: tuple[RefusedIdentity, ...] = (
    RefusedIdentity("zero-product", "x * 0.0", "0.0", "LLVM -ffinite-math-only",
                    (_INF,), "infinity times zero is NaN"),
    RefusedIdentity("plus-zero", "x + 0.0", "x", "XLA AlgebraicSimplifier; LLVM nsz",
                    (-0.0,), "-0.0 + 0.0 is 0.0, whose reciprocal has another sign"),
    RefusedIdentity("zero-minus", "0.0 - x", "-x", "LLVM nsz",
                    (0.0,), "0.0 - 0.0 is 0.0, not -0.0"),
    RefusedIdentity("difference-with-itself", "x - x", "0.0", "LLVM nnan",
                    (_INF,), "infinity minus infinity is NaN"),
    RefusedIdentity("quotient-with-itself", "x / x", "1.0", "LLVM nnan",
                    (0.0,), "0 / 0 is NaN"),
    RefusedIdentity("equal-to-itself", "x == x", "True", "LLVM nnan",
                    (_NAN,), "NaN is not equal to itself"),
    RefusedIdentity("negated-comparison", "not (x < y)", "x >= y", "LLVM nnan",
                    (_NAN, 1.0), "with NaN both comparisons are false"),
    RefusedIdentity("log-of-exp", "log(exp(x))", "x", "XLA AlgebraicSimplifier",
                    (1000.0,), "the power overflows"),
    RefusedIdentity("exp-of-log", "exp(log(x))", "x", "XLA AlgebraicSimplifier",
                    (-1.0,), "the logarithm of a negative number is NaN"),
    RefusedIdentity("root-of-square", "sqrt(x * x)", "abs(x)", "XLA AlgebraicSimplifier",
                    (1e30,), "the square overflows in f32"),
    RefusedIdentity("square-of-root", "sqrt(x) * sqrt(x)", "x", "XLA AlgebraicSimplifier",
                    (-1.0,), "the root of a negative number is NaN"),
    RefusedIdentity("power-as-root", "x ** 0.5", "sqrt(x)", "LLVM ninf, nsz",
                    (-_INF,), "the power of minus infinity is infinity, its root is NaN"),
    RefusedIdentity("reciprocal-product", "x / 3.0", "x * (1.0 / 3.0)", "XLA; LLVM arcp",
                    (5.0,), "a third is rounded, so most quotients are other numbers"),
    RefusedIdentity("reassociation", "(x + 1e8) + -1e8", "x", "LLVM reassoc",
                    (1.0,), "the first sum is rounded"),
    RefusedIdentity("distribution", "x * 3.0 + x * -2.0", "x", "LLVM reassoc",
                    (2e38,), "the first product overflows"),
    RefusedIdentity("nested-quotient", "(x / y) / z", "x / (y * z)", "XLA AlgebraicSimplifier",
                    (1e30, 1e30, 1e30), "the product overflows where the quotients do not"),
    RefusedIdentity("scaled-sum", "sum(x * c)", "sum(x) * c", "XLA AlgebraicSimplifier",
                    (3e38, 3e38), "the sum overflows where scaled terms do not"),
    RefusedIdentity("masked-product", "x * cast(mask)", "select(mask, x, 0.0)", "LLVM nnan",
                    (_NAN,), "NaN comes through a product with zero"),
    RefusedIdentity("narrowing-round-trip", "cast(cast(x, f16), f32)", "x", "Inductor, by default",
                    (1.0001,), "the number is rounded on its way"),
    RefusedIdentity("identity-product", "x @ identity", "x", "XLA AlgebraicSimplifier",
                    (_INF,), "infinity times the zeros beside the diagonal is NaN"),
)  # fmt: skip
