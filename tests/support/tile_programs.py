"""Small programs around products: what the tile schedule must get right, whatever its settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from autofuse import trace
from autofuse.frontends import array_api as xp
from autofuse.frontends.array_api.tracer import spec
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph
from autofuse.plan.fusion.clusters import live
from autofuse.plan.fusion.groups import needed_outputs
from autofuse.plan.types import FusionGroup

Program = tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]


def sigmoid_gated(x: Any) -> Any:
    return x / (1 + np.exp(-1.702 * x))


def softmax(x: Any) -> Any:
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def rms_norm(x: Any) -> Any:
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-5)


def layer_norm(x: Any) -> Any:
    centred = x - np.mean(x, axis=-1, keepdims=True)
    return centred / np.sqrt(np.mean(centred * centred, axis=-1, keepdims=True) + 1e-5)


def attention(q: Any, k: Any, v: Any) -> Any:
    return softmax(q @ np.swapaxes(k, -1, -2) * 0.3) @ v


def masked_attention(q: Any, k: Any, v: Any) -> Any:
    rows, keys = xp.arange(q.shape[-2])[:, None], xp.arange(k.shape[-2])[None, :]
    scores = q @ np.swapaxes(k, -1, -2) * 0.3
    return softmax(xp.where(keys <= rows, scores, -np.inf)) @ v


def convolved(x: Any, w: Any) -> Any:
    return np.maximum(xp.conv(np.maximum(x, 0) * 2, w, stride=2, padding=1), 0)


def convolved_last(x: Any, w: Any, b: Any) -> Any:
    return np.tanh(xp.conv(x, w, padding=1, channels_last=True) + b)


PROGRAMS: dict[str, Program] = {
    "product": (lambda a, b: a @ b, ((13, 70), (70, 100))),
    "epilogue": (
        lambda a, b, c, r: sigmoid_gated(a @ b + c) + r, ((37, 70), (70, 130), (130,), (37, 130)),
    ),
    "second_transposed": (lambda a, b: a @ b.T, ((37, 70), (130, 70))),
    "first_transposed": (lambda a, b: a.T @ b + 1, ((70, 37), (70, 130))),
    "batched": (lambda a, b: a @ b * 2, ((3, 37, 20), (3, 20, 50))),
    "shared_weight": (lambda a, b: np.tanh(a @ b), ((3, 17, 20), (20, 50))),
    "prologue": (lambda a, b: np.tanh(a) @ (b * b), ((37, 70), (70, 130))),
    "gated": (lambda a, b, c: sigmoid_gated(a @ b) * (a @ c), ((37, 70), (70, 130), (70, 130))),
    "softmax_after": (lambda a, b: softmax(a @ b), ((37, 70), (70, 130))),
    "norm_before": (lambda a, b: rms_norm(a) @ b, ((37, 70), (70, 130))),
    "scaled_norm_before": (lambda a, g, b: (rms_norm(a) * g) @ b, ((37, 70), (70,), (70, 130))),
    "layer_norm_between": (
        lambda a, b, c: layer_norm(a @ b) @ c, ((37, 70), (70, 50), (50, 30)),
    ),
    "residual": (lambda a, b: rms_norm(a) @ b + a, ((37, 70), (70, 70))),
    "two_layers": (lambda a, b, c: np.tanh(a @ b) @ c, ((37, 70), (70, 130), (130, 50))),
    "chain": (lambda a, b, c: (a @ b) @ c, ((37, 70), (70, 30), (30, 50))),
    "attention": (attention, ((2, 3, 37, 16), (2, 3, 40, 16), (2, 3, 40, 16))),
    "masked_attention": (masked_attention, ((2, 37, 16), (2, 37, 16), (2, 37, 16))),
    "column_sums": (lambda a, b: np.sum(a @ b, axis=0), ((37, 70), (70, 130))),
    "transposed_result": (lambda a, b: (a @ b).T + 1, ((37, 70), (70, 130))),
    "one_row": (lambda a, b: np.tanh(a @ b), ((1, 70), (70, 130))),
    "largest": (lambda a, b: np.argmax(a @ b, axis=-1), ((37, 70), (70, 130))),
    "log_sum_exp": (lambda a, b: np.log(np.sum(np.exp(a @ b), axis=-1)), ((37, 70), (70, 130))),
    "convolution": (convolved, ((2, 3, 9, 11), (20, 3, 3, 3))),
    "convolution_last": (convolved_last, ((2, 9, 11, 20), (3, 3, 20, 18), (18,))),
}  # fmt: skip


def program(name: str, dtype: str = "f32") -> Graph:
    """The canonical graph of a program, all inputs of one type."""
    function, shapes = PROGRAMS[name]
    return canonical(trace(function, *(spec(shape, dtype) for shape in shapes)))


def whole(graph: Graph) -> FusionGroup:
    """Everything as one group."""
    nodes = live(graph)
    return FusionGroup(nodes, needed_outputs(graph, nodes))


def masked(
    visible: Callable[[Any, Any], Any], hidden: float, keys: Callable[[int], Any] = xp.arange
) -> Callable[..., Any]:
    """Attention where row r sees key c if `visible(r, c)`; scores of the others are `hidden`."""

    def function(q: Any, k: Any, v: Any) -> Any:
        rows, columns = keys(q.shape[-2])[:, None], keys(k.shape[-2])[None, :]
        scores = q @ np.swapaxes(k, -1, -2) * 0.3
        return softmax(xp.where(visible(rows, columns), scores, hidden)) @ v

    return function
