"""A whole training step in one graph: forward, backward, optimiser."""

from __future__ import annotations

import math

import autofuse.frontends.array_api as xp
from autofuse.frontends.array_api.array import TracedArray
from autofuse.frontends.array_api.tracer import Spec, spec, trace
from autofuse.graph.types import Graph

Array = TracedArray
LEARNING_RATE, BETA1, BETA2, EPS = 1e-3, 0.9, 0.999, 1e-8
# gelu(x) = x / 2 (1 + tanh(SLOPE (x + CUBIC x^3)))
SLOPE, CUBIC = math.sqrt(2.0 / math.pi), 0.044715
TENSORS = 4


def mlp_train_step(batch: int, inputs: int, hidden: int, outputs: int) -> Graph:
    """One Adam step of gelu(x @ w1 + b1) @ w2 + b2 under the mean squared error.

    Inputs: x f32[batch, inputs], y f32[batch, outputs], the bias corrections 1 - beta^t as
    scalars, then w1, b1, w2, b2, their first moments and their second moments. Outputs: loss, then
    the new parameters and moments in the same order.
    """

    def fn(
        x: Array, y: Array, correction1: Array, correction2: Array,
        p: list[Array], m: list[Array], v: list[Array],
    ) -> dict[str, object]:  # fmt: skip
        loss, gradients = _loss_and_gradients(x, y, *p)
        new_m = [BETA1 * a + (1 - BETA1) * g for a, g in zip(m, gradients, strict=True)]
        new_v = [BETA2 * a + (1 - BETA2) * (g * g) for a, g in zip(v, gradients, strict=True)]
        new_p = [
            old - LEARNING_RATE * ((a / correction1) / (xp.sqrt(b / correction2) + EPS))
            for old, a, b in zip(p, new_m, new_v, strict=True)
        ]
        return {"loss": loss, "p": new_p, "m": new_m, "v": new_v}

    shapes = ((inputs, hidden), (hidden,), (hidden, outputs), (outputs,))
    small = [spec(s, low=-0.1, high=0.1) for s in shapes]
    squares = [spec(s, low=0.01, high=0.1) for s in shapes]
    correction = spec((), low=0.1, high=1)
    return trace(
        fn, _data(batch, inputs), _data(batch, outputs), correction, correction,
        [_weights(s) for s in shapes], small, squares,
    )  # fmt: skip


def _loss_and_gradients(
    x: Array, y: Array, w1: Array, b1: Array, w2: Array, b2: Array
) -> tuple[Array, list[Array]]:
    """The loss and its gradients by w1, b1, w2 and b2, written by hand."""
    before = x @ w1 + b1
    bent = xp.tanh(SLOPE * (before + CUBIC * (before * before * before)))
    layer = 0.5 * before * (1.0 + bent)
    error = layer @ w2 + b2 - y
    loss = xp.mean(error * error)
    by_output = error * (2.0 / (y.shape[0] * y.shape[1]))
    inner = SLOPE * (1.0 + 3.0 * CUBIC * (before * before))
    slope = 0.5 * (1.0 + bent) + 0.5 * before * (1.0 - bent * bent) * inner
    by_before = (by_output @ w2.mT) * slope
    return loss, [
        x.mT @ by_before,
        xp.sum(by_before, axis=0),
        layer.mT @ by_output,
        xp.sum(by_output, axis=0),
    ]


def _data(rows: int, columns: int) -> Spec:
    return spec((rows, columns), low=-1, high=1)


def _weights(shape: tuple[int, ...]) -> Spec:
    bound = math.sqrt(3.0 / shape[0]) if len(shape) == 2 else 0.1
    return spec(shape, low=-bound, high=bound)
