"""Programs whose dependent reductions become one pass, and how they are checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from autofuse import trace
from autofuse.frontends.array_api.tracer import spec
from autofuse.graph.canonical import canonical
from autofuse.graph.reference import evaluate, random_inputs
from autofuse.graph.types import Graph
from autofuse.plan.parameters import LaunchConfig
from autofuse.plan.types import Candidate, FusionPlan
from tests.support.batching import quick_library
from tests.support.tile_programs import masked, softmax, whole

Function = Callable[..., Any]
Shapes = tuple[tuple[int, ...], ...]
ROWS, KEYS, DEPTH = 70, 150, 16
QKV: Shapes = ((2, ROWS, DEPTH), (2, KEYS, DEPTH), (2, KEYS, 20))
SQUARE: Shapes = ((2, KEYS, DEPTH),) * 3


def scores(q: Any, k: Any) -> Any:
    return q @ np.swapaxes(k, -1, -2) * 0.3


def capped(q: Any, k: Any, v: Any) -> Any:
    return softmax(5 * np.tanh(scores(q, k) / 5)) @ v


def with_log_sum(q: Any, k: Any, v: Any) -> Any:
    s = scores(q, k)
    top = np.max(s, axis=-1, keepdims=True)
    e = np.exp(s - top)
    total = np.sum(e, axis=-1, keepdims=True)
    return e / total @ v, (np.log(total) + top)[..., 0]


def grouped(q: Any, k: Any, v: Any) -> Any:
    return softmax(scores(q, k[:, None])) @ v[:, None]


def temperature(q: Any, k: Any, v: Any, t: Any) -> Any:
    s = scores(q, k)
    e = np.exp((s - np.max(s, axis=-1, keepdims=True)) * t)
    return e / np.sum(e, axis=-1, keepdims=True) @ v


def dropped(q: Any, k: Any, v: Any, keep: Any) -> Any:
    return softmax(scores(q, k)) * keep @ v


def statistics(q: Any, k: Any) -> Any:
    s = scores(q, k)
    low, high = np.min(s, axis=-1), np.max(s, axis=-1)
    return low, high, np.sum(s * s, axis=-1), np.argmax(s, axis=-1), np.argmin(s, axis=-1)


def two_sums(q: Any, k: Any, v: Any) -> Any:
    s = scores(q, k)
    down = np.exp(np.min(s, axis=-1, keepdims=True) - s)
    return np.sum(down, axis=-1, keepdims=True) + softmax(s) @ v


def gated(a: Any, b: Any, c: Any, d: Any) -> Any:
    return np.tanh(a @ b) * (a @ c) @ d


def causal(r: Any, c: Any) -> Any:
    return c <= r


def window(r: Any, c: Any) -> Any:
    return (c <= r) & (c > r - 9)


def never_first(r: Any, c: Any) -> Any:
    return (c > 90) & (r > 5)


RELATIVES: dict[str, tuple[Function, Shapes]] = {
    "attention": (lambda q, k, v: softmax(scores(q, k)) @ v, QKV),
    "causal": (masked(causal, -np.inf), SQUARE),
    "causal, finite": (masked(causal, -1e30), SQUARE),
    "window": (masked(window, -np.inf), SQUARE),
    "window, finite": (masked(window, -1e30), SQUARE),
    "first blocks and some rows masked": (masked(never_first, -np.inf), SQUARE),
    "rows masked by a number": (masked(never_first, -1e30), SQUARE),
    "bias": (lambda q, k, v, b: softmax(scores(q, k) + b) @ v, (*QKV, (2, ROWS, KEYS))),
    "capped": (capped, QKV),
    "with log-sum-exp": (with_log_sum, QKV),
    "grouped": (grouped, ((2, 3, ROWS, DEPTH), (2, KEYS, DEPTH), (2, KEYS, 20))),
    "temperature": (temperature, (*QKV, ())),
    "dropped": (dropped, (*QKV, (2, ROWS, KEYS))),
    "statistics": (statistics, QKV[:2]),
    "two sums": (two_sums, QKV),
    "keys computed": (lambda q, k, v: softmax(q @ np.swapaxes(np.tanh(k), -1, -2)) @ (v + 1), QKV),
    "keys lying across": (lambda q, k, v: softmax(q @ k) @ v, (QKV[0], (2, DEPTH, KEYS), QKV[2])),
    "gated": (gated, ((ROWS, 30), (30, KEYS), (30, KEYS), (KEYS, 40))),
    "two layers": (lambda a, b, c: np.tanh(a @ b) @ c, ((ROWS, 30), (30, KEYS), (KEYS, 40))),
}  # fmt: skip


def relative(name: str, dtype: str = "f32") -> Graph:
    function, shapes = RELATIVES[name]
    return canonical(trace(function, *(spec(shape, dtype) for shape in shapes)))


def launch_of(**chosen: int | str | bool) -> LaunchConfig:
    plain: dict[str, int | str | bool] = {
        "threads": 1, "impl": "loops", "micro": "6x64", "row_block": 64, "pack": False,
        "stage": True, "column_block": 64,
    }  # fmt: skip
    return LaunchConfig.of(**{**plain, **chosen})


def check(graph: Graph, launch: LaunchConfig, tolerance: float = 2e-5) -> None:
    """The whole graph as one kernel gives what the float64 reference does, NaN for NaN."""
    candidate = Candidate(FusionPlan((whole(graph),)), (launch,))
    inputs = random_inputs(graph, 5)
    found = quick_library(graph, candidate).run(inputs)
    with np.errstate(all="ignore"):
        wanted = evaluate(graph, inputs)
    for got, want in zip(found, wanted, strict=True):
        scale = np.nanmax(np.abs(want), initial=1.0)
        np.testing.assert_allclose(got.astype(np.float64), want, rtol=0, atol=tolerance * scale)
