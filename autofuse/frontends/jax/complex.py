"""Rules for jax primitives on complex numbers, pairs of arrays, and Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autofuse.frontends.errors import FrontendError
from autofuse.frontends.jax.types import ComplexArray, Item, PrimitiveRule, part_dtype, static_shape
from autofuse.graph.composites import layers as composites
from autofuse.graph.composites.fourier import (
    Pair,
    fourier,
    inverse_real_fourier,
    over,
    real_fourier,
    times,
)
from autofuse.graph.composites.moves import stack
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter


def _parts(w: GraphWriter, item: Item) -> Pair:
    """Real and imaginary parts, also of a real number."""
    if isinstance(item, Value):
        return item, w.full(0.0, w.shape(item), w.dtype(item))
    return item.k0, item.k1


def _partwise(op: str) -> PrimitiveRule:
    """An op that each part has for itself."""

    def rule(w: GraphWriter, eqn: Any, *items: ComplexArray) -> ComplexArray:
        return ComplexArray(w.map(op, *(i.k0 for i in items)), w.map(op, *(i.k1 for i in items)))

    return rule


def _mul(w: GraphWriter, eqn: Any, x: ComplexArray, y: ComplexArray) -> ComplexArray:
    return ComplexArray(*times(w, _parts(w, x), _parts(w, y)))


def _div(w: GraphWriter, eqn: Any, x: Item, y: Item) -> ComplexArray:
    return ComplexArray(*over(w, _parts(w, x), _parts(w, y)))


def _compared(w: GraphWriter, x: Item, y: Item) -> Value:
    (a, b), (c, d) = _parts(w, x), _parts(w, y)
    return w.map("and", w.map("eq", a, c), w.map("eq", b, d))


def _integer_pow(w: GraphWriter, eqn: Any, x: ComplexArray) -> ComplexArray:
    """By squaring, as XLA expands it."""
    power, base = abs(int(eqn.params["y"])), _parts(w, x)
    one = w.full(1.0, w.shape(x.k0), w.dtype(x.k0)), w.full(0.0, w.shape(x.k0), w.dtype(x.k0))
    result: Pair | None = None
    while power:
        if power & 1:
            result = base if result is None else times(w, result, base)
        power >>= 1
        base = times(w, base, base) if power else base
    found = one if result is None else result
    return ComplexArray(*(over(w, one, found) if int(eqn.params["y"]) < 0 else found))


def _log(w: GraphWriter, eqn: Any, x: ComplexArray) -> ComplexArray:
    return ComplexArray(w.map("log", _abs(w, eqn, x)), w.map("atan2", x.k1, x.k0))


def _dot_general(w: GraphWriter, eqn: Any, x: Item, y: Item) -> ComplexArray:
    contract, batch = eqn.params["dimension_numbers"]
    dtype = part_dtype(eqn.outvars[0].aval.dtype)

    def dot(p: Value, q: Value) -> Value:
        return composites.dot(w, w.cast(p, dtype), w.cast(q, dtype), contract, batch)

    (a, b), (c, d) = _parts(w, x), _parts(w, y)
    re, im = w.sub(dot(a, c), dot(b, d)), w.add(dot(a, d), dot(b, c))
    return ComplexArray(re, im)


def _convert(w: GraphWriter, eqn: Any, x: Item) -> ComplexArray:
    dtype = part_dtype(eqn.params["new_dtype"])
    re, im = _parts(w, x if not isinstance(x, Value) else w.cast(x, dtype))
    return ComplexArray(w.cast(re, dtype), w.cast(im, dtype))


def _conj(w: GraphWriter, eqn: Any, x: Item) -> ComplexArray:
    re, im = _parts(w, x)
    return ComplexArray(re, w.map("neg", im))


def _exp(w: GraphWriter, eqn: Any, x: ComplexArray) -> ComplexArray:
    size = w.map("exp", x.k0)
    return ComplexArray(w.mul(size, w.map("cos", x.k1)), w.mul(size, w.map("sin", x.k1)))


def _abs(w: GraphWriter, eqn: Any, x: ComplexArray) -> Value:
    """By the larger part, so that no square overflows."""
    re, im = w.map("abs", x.k0), w.map("abs", x.k1)
    large, small = w.map("max", re, im), w.map("min", re, im)
    some = w.select(w.map("eq", large, 0.0), 1.0, large)
    ratio = w.div(small, some)
    return w.mul(large, w.map("sqrt", w.add(1.0, w.mul(ratio, ratio))))


def _sqrt(w: GraphWriter, eqn: Any, x: ComplexArray) -> ComplexArray:
    """The root right of the imaginary axis, by the larger of its parts, which cancels nothing."""
    size = w.map("abs", x.k0)
    large = w.map("sqrt", w.mul(w.add(_abs(w, eqn, x), size), 0.5))
    none = w.map("eq", large, 0.0)
    small = w.div(w.mul(x.k1, 0.5), w.select(none, 1.0, large))
    left = w.map("lt", x.k0, 0.0)
    below = w.map("lt", x.k1, 0.0)
    turned = w.select(below, w.map("neg", large), large)
    re = w.select(left, w.map("abs", small), large)
    return ComplexArray(re, w.select(left, turned, small))


def _turned(x: Item) -> ComplexArray:
    """The parts of i x but for the sign of the real one, which is even or odd in what follows."""
    assert isinstance(x, ComplexArray)
    return ComplexArray(x.k1, x.k0)


def _sinh(w: GraphWriter, eqn: Any, x: ComplexArray) -> ComplexArray:
    a, b = x.k0, x.k1
    re = w.mul(w.map("sinh", a), w.map("cos", b))
    return ComplexArray(re, w.mul(w.map("cosh", a), w.map("sin", b)))


def _cosh(w: GraphWriter, eqn: Any, x: ComplexArray) -> ComplexArray:
    a, b = x.k0, x.k1
    re = w.mul(w.map("cosh", a), w.map("cos", b))
    return ComplexArray(re, w.mul(w.map("sinh", a), w.map("sin", b)))


def _tanh(w: GraphWriter, eqn: Any, x: ComplexArray) -> ComplexArray:
    """By tanh and tan of the parts, none of which overflows."""
    t, u, rest = w.map("tanh", x.k0), w.map("tan", x.k1), w.map("cosh", x.k0)
    product = w.mul(t, u)
    below = w.add(1.0, w.mul(product, product))
    re = w.div(w.mul(t, w.add(1.0, w.mul(u, u))), below)
    return ComplexArray(re, w.div(w.div(w.div(u, rest), rest), below))


def _of_turned(function: Callable[..., ComplexArray]) -> PrimitiveRule:
    """sin from sinh, tan from tanh: f(x) = -i h(i x), of odd h."""

    def rule(w: GraphWriter, eqn: Any, x: ComplexArray) -> ComplexArray:
        return _turned(function(w, eqn, _turned(x)))

    return rule


def _cos(w: GraphWriter, eqn: Any, x: ComplexArray) -> ComplexArray:
    found = _cosh(w, eqn, _turned(x))
    return ComplexArray(found.k0, w.map("neg", found.k1))


def _expm1(w: GraphWriter, eqn: Any, x: ComplexArray) -> ComplexArray:
    half = w.map("sin", w.mul(x.k1, 0.5))
    grown = w.mul(w.map("expm1", x.k0), w.map("cos", x.k1))
    re = w.sub(grown, w.mul(w.mul(half, half), 2.0))
    return ComplexArray(re, w.mul(w.map("exp", x.k0), w.map("sin", x.k1)))


def _log1p(w: GraphWriter, eqn: Any, x: ComplexArray) -> ComplexArray:
    a, b = x.k0, x.k1
    power = w.add(w.mul(a, w.add(a, 2.0)), w.mul(b, b))
    return ComplexArray(w.mul(w.map("log1p", power), 0.5), w.map("atan2", b, w.add(a, 1.0)))


def _sign(w: GraphWriter, eqn: Any, x: ComplexArray) -> ComplexArray:
    size = _abs(w, eqn, x)
    some = w.select(w.map("eq", size, 0.0), 1.0, size)
    return ComplexArray(w.div(x.k0, some), w.div(x.k1, some))


def _pow(w: GraphWriter, eqn: Any, x: Item, y: Item) -> ComplexArray:
    """exp(y log x); a power of zero is zero, and one if the power is zero."""
    base, power = ComplexArray(*_parts(w, x)), ComplexArray(*_parts(w, y))
    grown = _exp(w, eqn, _mul(w, eqn, power, _log(w, eqn, base)))
    zero, none = (_compared(w, v, ComplexArray(*_zeros(w, base))) for v in (base, power))
    re = w.select(
        zero, w.select(none, 1.0, w.full(0.0, w.shape(base.k0), w.dtype(base.k0))), grown.k0
    )
    return ComplexArray(re, w.select(zero, 0.0, grown.k1))


def _zeros(w: GraphWriter, like: ComplexArray) -> Pair:
    zero = w.full(0.0, w.shape(like.k0), w.dtype(like.k0))
    return zero, zero


def _cumsum(w: GraphWriter, eqn: Any, x: ComplexArray) -> ComplexArray:
    axis, reverse = int(eqn.params["axis"]), bool(eqn.params["reverse"])
    re, im = (composites.running(w, "cumsum", v, axis, reverse) for v in (x.k0, x.k1))
    return ComplexArray(re, im)


def from_words(w: GraphWriter, words: Value) -> ComplexArray:
    """Complex numbers from both parts along a last axis, as they lie in memory."""
    shape = w.shape(words)
    axis = len(shape) - 1
    re, im = (w.reshape(w.part(words, axis, k, k + 1), shape[:-1]) for k in (0, 1))
    return ComplexArray(re, im)


def to_words(w: GraphWriter, x: ComplexArray) -> Value:
    """Both parts along a last axis."""
    return stack(w, (x.k0, x.k1), len(w.shape(x.k0)))


def _reduce_sum(w: GraphWriter, eqn: Any, x: ComplexArray) -> ComplexArray:
    axes = tuple(sorted(int(a) for a in eqn.params["axes"]))
    if not axes:
        return x
    return ComplexArray(*(w.op("reduce_sum", v, axes=axes) for v in (x.k0, x.k1)))


def _fft(w: GraphWriter, eqn: Any, x: Item) -> Item:
    """Over the last axes: of real numbers the last one first, to real numbers the last one last."""
    kind = str(getattr(eqn.params["fft_type"], "name", eqn.params["fft_type"])).rpartition(".")[2]
    rank = len(static_shape(eqn.invars[0].aval))
    lengths = tuple(map(int, eqn.params["fft_lengths"]))
    axes = list(range(rank - len(lengths), rank))
    if not all(lengths):
        raise FrontendError("it transforms nothing")
    if kind == "RFFT":
        assert isinstance(x, Value)
        found = real_fourier(w, x)
        return ComplexArray(*_along(w, found, axes[:-1], inverse=False))
    pair = _parts(w, x)
    if kind == "IRFFT":
        return inverse_real_fourier(w, _along(w, pair, axes[:-1], inverse=True), lengths[-1])
    return ComplexArray(*_along(w, pair, axes, inverse=kind == "IFFT"))


def _along(w: GraphWriter, x: Pair, axes: list[int], inverse: bool) -> Pair:
    """Transformed along each of these axes."""
    for axis in axes:
        x = fourier(w, x, inverse, axis)
    return x


COMPLEX_RULES: dict[str, Callable[..., Item]] = {
    "abs": _abs,
    "add": _partwise("add"),
    "add_any": _partwise("add"),
    "complex": lambda w, eqn, re, im: ComplexArray(re, im),
    "conj": _conj,
    "convert_element_type": _convert,
    "cos": _cos,
    "cosh": _cosh,
    "cumsum": _cumsum,
    "div": _div,
    "dot_general": _dot_general,
    "eq": lambda w, eqn, x, y: _compared(w, x, y),
    "exp": _exp,
    "expm1": _expm1,
    "fft": _fft,
    "imag": lambda w, eqn, x: x.k1,
    "integer_pow": _integer_pow,
    "log": _log,
    "log1p": _log1p,
    "mul": _mul,
    "ne": lambda w, eqn, x, y: w.map("not", _compared(w, x, y)),
    "neg": _partwise("neg"),
    "pow": _pow,
    "real": lambda w, eqn, x: x.k0,
    "reduce_sum": _reduce_sum,
    "sign": _sign,
    "sin": _of_turned(_sinh),
    "sinh": _sinh,
    "sqrt": _sqrt,
    "square": lambda w, eqn, x: ComplexArray(*times(w, _parts(w, x), _parts(w, x))),
    "sub": _partwise("sub"),
    "tan": _of_turned(_tanh),
    "tanh": _tanh,
}
