"""Powers, roots, exponentials: where another op has the very same value, or rounds less."""

from __future__ import annotations

from autofuse.simplify.facts import non_negative
from autofuse.simplify.patterns import Identity, holes, ops, rewrite

x, y = holes("x y")
mul, div, power, sqrt, rsqrt = ops("mul div pow sqrt rsqrt")
exp, log, reciprocal = ops("exp log reciprocal")

rewrite(
    "powers", "known-exponent",
    "XLA AlgebraicSimplifier HandlePower; LLVM LibCallSimplifier::optimizePow",
    "x ** 2, 3 -> products, ** 0 -> 1, ** -1 -> 1 / x; ** 0.5 and -0.5 -> roots, of numbers that "
    "are never negative: the root of -0.0 is -0.0, its power is not.",
    Identity(power(x, 0), 1),
    Identity(power(x, 2), mul(x, x)),
    Identity(power(x, 3), mul(mul(x, x), x), exact=False),
    Identity(power(x, -1), div(1, x)),
    Identity(power(x.where(non_negative), 0.5), sqrt(x), exact=False),
    Identity(power(x.where(non_negative), -0.5), rsqrt(x), exact=False),
)  # fmt: skip
rewrite(
    "powers", "inverse-root", "XLA AlgebraicSimplifier 1/sqrt(A) => rsqrt(A); LLVM",
    "1 / sqrt(x) -> rsqrt(x); 1 / rsqrt(x) -> sqrt(x), where no zero loses its sign.",
    Identity(div(1, sqrt(x)), rsqrt(x), exact=False),
    Identity(div(1, rsqrt(x)), sqrt(x), exact=False),
    Identity(reciprocal(sqrt(x)), rsqrt(x), exact=False),
    Identity(reciprocal(rsqrt(x)), sqrt(x), exact=False),
)  # fmt: skip
rewrite(
    "powers", "root-divided-by", "XLA AlgebraicSimplifier A/rsqrt(B) => A*sqrt(B)",
    "x / rsqrt(y) -> x * sqrt(y): one rounding less.",
    Identity(div(x, rsqrt(y)), mul(x, sqrt(y)), exact=False),
)  # fmt: skip
rewrite(
    "powers", "exp-of-log", "XLA AlgebraicSimplifier exp(log(A)) (there for every A)",
    "exp(log(x)) -> x where x is never negative: elsewhere it is NaN.",
    Identity(exp(log(x.where(non_negative))), x, exact=False),
)  # fmt: skip
