"""Special functions of floats beyond those of the op table, with the edge cases of XLA.

Each takes floats of any dtype; half floats are computed in f32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from autofuse.graph.composites.math import trunc
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter, Operand

# Lanczos, "A precision approximation of the gamma function" (1964), for g = 7 and 9 terms, as
# Godfrey worked them out.
_G, _FIRST = 7.0, 0.99999999999980993227684700473478
_TERMS = (676.520368121885098567009190444019, -1259.13921672240287047156078755283,
          771.3234287776530788486528258894, -176.61502916214059906584551354,
          12.507343278686904814458936853, -0.13857109526572011689554706,
          9.984369578019570859563e-6, 1.50563273514931155834e-7)  # fmt: skip
# Chebyshev series of exp(-x) I1(x) / x in x / 4 - 1 below 8, and of exp(-x) I1(x) sqrt(x) in
# 16 / x - 1 above, worked out with 40 digits.
_I1_NEAR = (
    0.25258718644363365, -0.17641651835783406, 0.1026436586898471, -0.052945981208094991,
    0.024726449030626517, -0.010564084894626198, 0.0041564229443128882, -0.0015135724506312531,
    0.00051228595616857577, -0.00016176081582589675, 4.7815651075500542e-5, -1.3273163656039436e-5,
    3.4702513081376785e-6, -8.5687202646954547e-7, 2.0032947535521353e-7, -4.4450591287963281e-8,
    9.3815373864957718e-9, -1.8872497517228293e-9, 3.625590281552117e-10, -6.6634897235020277e-11,
    1.1736186298890902e-11, -1.9839743977649437e-12, 3.2237933659455747e-13,
    -5.0421855047279117e-14, 7.6006842947354069e-15, -1.1055969477353863e-15,
    1.5536319577362005e-16, -2.1114212143581661e-17, 2.7779141127610464e-18,
)  # fmt: skip
_I1_FAR = (
    0.77857623501828012, -0.0097610974913614684, -0.00011058893876262372, -3.8825648088776904e-6,
    -2.5122362378702089e-7, -2.6314688468895195e-8, -3.835380385964237e-9, -5.5897434621965838e-10,
    -1.8974958123505412e-11, 3.2526035830154882e-11, 1.4125807436613781e-11,
    2.0356285441470895e-12, -7.1985517762459085e-13, -4.0835511110921973e-13,
    -2.1015418427726643e-14, 4.2724400167119514e-14, 1.0420276984128803e-14,
    -3.8144030724370078e-15, -1.8803547755107824e-15, 3.3082023109209283e-16,
    2.9626289976459501e-16, -3.209525921993424e-17, -4.6503053684893583e-17, 4.4143483230717079e-18,
    7.5172963108421048e-18,
)  # fmt: skip
# Terms of a zeta function before and after Euler and Maclaurin's formula begins.
_SUMMED, _BERNOULLI = 9, 12


def _computed(function: Callable[..., Value]) -> Callable[..., Value]:
    """A function of floats of one dtype, computed in the dtype of its sums."""

    def wide(w: GraphWriter, *values: Value) -> Value:
        dtype = w.dtype(values[0])
        cast = [w.cast(v, dtype.compute) for v in w.aligned(*values)]
        return w.cast(function(w, *cast), dtype)

    wide.__name__, wide.__doc__ = function.__name__, function.__doc__
    return wide


# The gamma function


@_computed
def lgamma(w: GraphWriter, x: Value) -> Value:
    """log |gamma(x)|; infinite at 0, -1, -2, ..."""
    mirrored = w.map("lt", x, 0.5)
    z = w.select(mirrored, w.map("neg", x), w.sub(x, 1.0))
    total = w.scalar(_FIRST, x)
    for k, term in enumerate(_TERMS, 1):
        total = w.add(w.div(term, w.add(z, float(k))), total)
    t, log_t = w.add(z, _G + 0.5), _log_shifted(w, z)
    power = w.mul(w.sub(w.add(z, 0.5), w.div(t, log_t)), log_t)
    above = w.add(w.add(power, math.log(2 * math.pi) / 2), w.map("log", total))
    size = w.map("abs", x)
    apart = w.sub(size, w.map("floor", size))
    near = w.select(w.map("gt", apart, 0.5), w.sub(1.0, apart), apart)
    sine = w.map("log", w.map("sin", w.mul(near, math.pi)))
    below = w.sub(w.sub(math.log(math.pi), sine), above)
    below = w.select(w.map("isfinite", sine), below, w.map("neg", sine))
    found = w.select(mirrored, below, above)
    return w.select(w.map("eq", size, math.inf), math.inf, found)


def _log_shifted(w: GraphWriter, z: Value) -> Value:
    """log(z + g + 1/2)."""
    return w.add(w.map("log1p", w.mul(z, 1 / (_G + 0.5))), math.log(_G + 0.5))


@_computed
def digamma(w: GraphWriter, x: Value) -> Value:
    """The derivative of lgamma; NaN at 0, -1, -2, ..."""
    mirrored = w.map("lt", x, 0.5)
    z = w.select(mirrored, w.map("neg", x), w.sub(x, 1.0))
    total, slope = w.scalar(_FIRST, x), w.scalar(0.0, x)
    for k, term in enumerate(_TERMS, 1):
        below = w.add(z, float(k))
        part = w.div(term, below)
        total, slope = w.add(total, part), w.sub(slope, w.div(part, below))
    inner = w.sub(w.div(slope, total), w.div(_G, w.add(z, _G + 0.5)))
    above = w.add(_log_shifted(w, z), inner)
    # The nearest whole number is taken away first: the tangent of a large angle is not precise.
    rest = w.mul(w.add(x, w.map("abs", w.map("floor", w.add(x, 0.5)))), math.pi)
    turned = w.div(w.mul(w.map("cos", rest), math.pi), w.map("sin", rest))
    found = w.select(mirrored, w.sub(above, turned), above)
    pole = w.map("and", w.map("le", x, 0.0), w.map("eq", x, w.map("floor", x)))
    return w.select(pole, math.nan, found)


# Zeta functions


@_computed
def zeta(w: GraphWriter, x: Value, q: Value) -> Value:
    """Hurwitz's: the sum over k >= 0 of (q + k)^-x, by Euler and Maclaurin's formula."""
    minus = w.map("neg", x)
    total = w.map("pow", q, minus)
    for k in range(1, _SUMMED):
        total = w.add(total, w.map("pow", w.add(q, float(k)), minus))
    a = w.add(q, float(_SUMMED))
    last = w.map("pow", a, minus)
    total = w.add(total, w.div(w.mul(last, a), w.sub(x, 1.0)))
    total = w.add(total, w.mul(last, 0.5))
    factor, step = w.mul(x, w.div(last, a)), w.mul(a, a)
    rest = w.scalar(0.0, x)
    for j, number in enumerate(_bernoulli(_BERNOULLI), 1):
        rest = w.add(rest, w.mul(factor, float(number / math.factorial(2 * j))))
        low, high = w.add(x, float(2 * j - 1)), w.add(x, float(2 * j))
        factor = w.div(w.mul(factor, w.mul(low, high)), step)
    return _zeta_edges(w, x, q, w.add(total, rest))


def _zeta_edges(w: GraphWriter, x: Value, q: Value, found: Value) -> Value:
    """Poles, and what is no number: x below 1, or a power of something negative that is none."""
    whole = w.map("eq", x, w.map("floor", x))
    even = w.map("and", whole, w.map("eq", w.map("rem", x, 2.0), 0.0))
    below = w.map("le", q, 0.0)
    pole = w.map("and", below, w.map("eq", q, w.map("floor", q)))
    found = w.select(w.map("and", below, w.map("not", whole)), math.nan, found)
    found = w.select(pole, w.select(even, math.inf, w.mul(x, math.nan)), found)
    found = w.select(w.map("lt", x, 1.0), math.nan, found)
    return w.select(w.map("eq", x, 1.0), math.inf, found)


def _bernoulli(count: int) -> list[Fraction]:
    """Bernoulli's numbers 2, 4, ..., 2 * count."""
    known = [Fraction(1)]
    for n in range(1, 2 * count + 1):
        known.append(
            -sum((math.comb(n + 1, k) * b for k, b in enumerate(known)), Fraction()) / (n + 1)
        )
    return known[2::2]


@_computed
def polygamma(w: GraphWriter, n: Value, x: Value) -> Value:
    """The n-th derivative of digamma; NaN unless n is whole and not negative."""
    after = w.add(n, 1.0)
    sign = w.sub(1.0, w.mul(2.0, w.map("abs", w.map("rem", after, 2.0))))
    found = w.mul(w.mul(sign, w.map("exp", lgamma(w, after))), zeta(w, after, x))
    found = w.select(w.map("eq", n, 0.0), digamma(w, x), found)
    some = w.map("and", w.map("eq", n, trunc(w, n)), w.map("ge", n, 0.0))
    return w.select(some, found, math.nan)


# Bessel functions


@_computed
def bessel_i1e(w: GraphWriter, x: Value) -> Value:
    """exp(-|x|) I1(x), the modified Bessel function of the first kind and order 1."""
    size = w.map("abs", x)
    near = w.mul(_chebyshev(w, w.sub(w.mul(size, 0.25), 1.0), _I1_NEAR), size)
    some = w.map("max", size, 8.0)
    far = _chebyshev(w, w.sub(w.div(16.0, some), 1.0), _I1_FAR)
    far = w.mul(far, w.map("rsqrt", some))
    found = w.select(w.map("le", size, 8.0), near, far)
    return w.select(w.map("lt", x, 0.0), w.map("neg", found), found)


def _chebyshev(w: GraphWriter, x: Value, terms: tuple[float, ...]) -> Value:
    """The sum of a Chebyshev series, half its first term, by Clenshaw's recurrence."""
    twice: Value = w.mul(x, 2.0)
    one: Operand = terms[-1]
    two: Operand = 0.0
    for term in terms[-2:0:-1]:
        new = w.add(w.sub(w.mul(twice, one), two), term)
        one, two = new, one
    return w.add(w.sub(w.mul(x, one), two), terms[0] / 2)
