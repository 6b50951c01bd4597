"""Memory-bound workloads: normalisations, activations, option prices, an optimiser step."""

from __future__ import annotations

import math

import autofuse.frontends.array_api as xp
from autofuse.frontends.array_api.array import TracedArray
from autofuse.frontends.array_api.tracer import spec, trace
from autofuse.graph.types import Graph

Array = TracedArray


def softmax(rows: int, columns: int) -> Graph:
    """Softmax of x f32[rows, columns] along the rows."""
    return trace(lambda x: {"probs": xp.softmax(x)}, spec((rows, columns), low=-4, high=4))


def layer_norm_gelu(rows: int, columns: int) -> Graph:
    """gelu (tanh form) of the layer norm of x f32[rows, columns] with gamma and beta."""

    def fn(x: Array, gamma: Array, beta: Array) -> dict[str, Array]:
        return {"y": xp.gelu(xp.layer_norm(x, gamma, beta), approximate=True)}

    return trace(
        fn,
        spec((rows, columns), low=-2, high=2),
        spec(columns, low=0.5, high=1.5),
        spec(columns, low=-0.5, high=0.5),
    )


def rms_norm_residual(rows: int, columns: int) -> Graph:
    """sum = x + residual, and its RMS norm with a weight per column; both f32[rows, columns]."""

    def fn(x: Array, residual: Array, weight: Array) -> dict[str, Array]:
        total = x + residual
        return {"sum": total, "normed": xp.rms_norm(total, weight)}

    tokens = spec((rows, columns), low=-2, high=2)
    return trace(fn, tokens, tokens, spec(columns, low=0.5, high=1.5))


def swiglu(rows: int, width: int) -> Graph:
    """silu(a) * b, where a and b are the halves of x f32[rows, 2 * width]."""

    def fn(x: Array) -> dict[str, Array]:
        return {"y": xp.silu(x[:, :width]) * x[:, width:]}

    return trace(fn, spec((rows, 2 * width), low=-4, high=4))


def black_scholes(options: int) -> Graph:
    """Prices of European calls and puts, f32[options] each.

    Inputs: spot, strike and years to expiry per option; one rate and one volatility.
    """

    def fn(
        spot: Array, strike: Array, years: Array, rate: Array, volatility: Array
    ) -> dict[str, Array]:
        spread = volatility * xp.sqrt(years)
        drift = (rate + 0.5 * volatility * volatility) * years
        d1 = (xp.log(spot / strike) + drift) / spread
        d2 = d1 - spread
        discounted = strike * xp.exp(-rate * years)
        n1, n2 = _normal_cdf(d1), _normal_cdf(d2)
        return {
            "call": spot * n1 - discounted * n2,
            "put": discounted * (1.0 - n2) - spot * (1.0 - n1),
        }

    return trace(
        fn,
        spec(options, low=50, high=150),
        spec(options, low=50, high=150),
        spec(options, low=0.25, high=2),
        spec((), low=0.01, high=0.05),
        spec((), low=0.1, high=0.4),
    )


def _normal_cdf(x: Array) -> Array:
    return 0.5 * (1.0 + xp.erf(x * math.sqrt(0.5)))


Shapes = tuple[tuple[int, ...], ...]
_LEARNING_RATE, _BETA1, _BETA2, _EPS = 1e-3, 0.9, 0.999, 1e-8


def adam(shapes: Shapes) -> Graph:
    """One Adam step for a parameter of each shape.

    Inputs: the two bias corrections 1 - beta^t as scalars, then lists of parameters, gradients,
    first and second moments; outputs: lists of new parameters and moments.
    """

    def fn(
        correction1: Array,
        correction2: Array,
        p: list[Array],
        g: list[Array],
        m: list[Array],
        v: list[Array],
    ) -> dict[str, list[Array]]:
        new_m = [_BETA1 * a + (1 - _BETA1) * b for a, b in zip(m, g, strict=True)]
        new_v = [_BETA2 * a + (1 - _BETA2) * (b * b) for a, b in zip(v, g, strict=True)]
        new_p = []
        for old, first, second in zip(p, new_m, new_v, strict=True):
            step = (first / correction1) / (xp.sqrt(second / correction2) + _EPS)
            new_p.append(old - _LEARNING_RATE * step)
        return {"p": new_p, "m": new_m, "v": new_v}

    correction = spec((), low=0.1, high=1)
    anything = [spec(s, low=-1, high=1) for s in shapes]
    squares = [spec(s, low=0.01, high=1) for s in shapes]
    return trace(fn, correction, correction, anything, anything, anything, squares)


def adam_shapes(width: int) -> Shapes:
    """Sixteen shapes of a small network of about 1.6 * width^2 parameters, all different."""
    w = width
    return (
        (w, w), (w,), (w, w // 4), (w // 4,), (w // 4, w // 2), (w // 2,), (w // 8, w // 4),
        (w // 8,), (w // 2, w // 8), (w // 16,), (w // 4, w // 8), (3 * w,), (w // 16, w // 16),
        (5 * w,), (w // 16, w // 4), (7,),
    )  # fmt: skip
