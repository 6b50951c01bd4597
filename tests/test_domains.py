"""Inputs are drawn where the ops that they reach are defined, and as before where nothing asks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autofuse import spec, trace, xp
from autofuse.graph.domains import input_ranges
from autofuse.graph.reference import evaluate, random_inputs
from autofuse.graph.types import Graph
from autofuse.graph.writer import GraphWriter
from autofuse.ops.domains import DOMAINS
from autofuse.ops.dtypes import DType
from autofuse.ops.spec import all_specs

SHAPE = (8, 40)


def traced(function: Callable[..., Any], count: int = 1) -> Graph:
    return trace(lambda *x: {"y": function(*x)}, *(spec(SHAPE) for _ in range(count)))


def written(op: str) -> Graph:
    """An op of inputs alone."""
    writer = GraphWriter()
    count = {"div": 2, "rem": 2, "pow": 2}.get(op, 1)
    inputs = [writer.input(f"x{k}", SHAPE, DType.F32) for k in range(count)]
    return writer.build([writer.op(op, *inputs)])


def results(graph: Graph) -> np.ndarray:
    """Of many draws."""
    found = [evaluate(graph, random_inputs(graph, seed))[0] for seed in range(4)]
    return np.asarray(found, np.float64)


def usual(graph: Graph) -> list[bool]:
    """Which inputs are drawn from the usual range."""
    ranges = input_ranges(graph, -1.0, 1.0)
    return [i not in ranges for i in graph.inputs]


def test_each_op_that_has_a_domain_is_drawn_for() -> None:
    assert {row.name for row in all_specs() if row.domains} == DOMAINS.keys()
    for op, domains in DOMAINS.items():
        graph = written(op)
        assert np.isfinite(results(graph)).all(), op
        # Arcs are defined wherever inputs are drawn from anyway.
        asked = [] if op in ("asin", "acos", "log1p") else list(domains)
        assert usual(graph) == [k not in asked for k in range(len(graph.inputs))], op


ASKING: dict[str, tuple[Callable[..., Any], int, list[bool]]] = {
    "batch norm": (
        lambda x, mean, var: (x - mean) / xp.sqrt(var + 1e-5), 3, [True, True, False],
    ),
    "standard deviation of columns": (
        lambda x, var: x / xp.sqrt(xp.mean(var, axis=0)), 2, [True, False],
    ),
    "moved": (lambda x: xp.log(xp.flip(xp.reshape(x, (40, 8)), axis=0)), 1, [False]),
    "of two parts": (lambda x, y: xp.log(xp.concat([x, y], axis=0)), 2, [False, False]),
    "negative": (lambda x: xp.sqrt(-x), 1, [False]),
    "scaled": (lambda x: xp.sqrt(-0.5 * x), 1, [False]),
    "from one": (lambda x: xp.sqrt(x - 1.0), 1, [False]),
    "arc hyperbolic cosine": (lambda x: xp.log(x + xp.sqrt(x * x - 1.0)), 1, [False]),
    "arc hyperbolic tangent": (lambda x: xp.log((1.0 + x) / (1.0 - x)), 1, [True]),
    "arc of twice": (lambda x: xp.asin(2.0 * x) + xp.acos(2.0 * x), 1, [False]),
    "sum with a square": (lambda x, y: xp.sqrt(x * x + y), 2, [True, False]),
    "sum of two": (lambda x, y: xp.log(x + y), 2, [False, False]),
    "product of two": (lambda x, y: xp.sqrt(x * y), 2, [False, False]),
    "log of log": (lambda x: xp.log(xp.log(x)), 1, [False]),
    "quotient": (lambda x, y: xp.log(x / y), 2, [False, False]),
    "fractional power": (lambda x: x**2.5, 1, [False]),
    "power to a negative": (lambda x: x**-2.5 + x**-3.0, 1, [False]),
    "either": (lambda x, y, z: xp.sqrt(xp.where(x > 0, y, z)), 3, [True, False, False]),
    "clipped": (lambda x: xp.sqrt(xp.clip(x, -5.0, 5.0)), 1, [False]),
    "remainder": (lambda x, y: xp.remainder(x, y), 2, [True, False]),
}  # fmt: skip


@pytest.mark.parametrize("name", ASKING)
def test_what_is_asked_is_carried_back(name: str) -> None:
    function, count, kept = ASKING[name]
    graph = traced(function, count)
    assert np.isfinite(results(graph)).all()
    assert usual(graph) == kept


@pytest.mark.parametrize(
    "function",
    [
        lambda x: xp.exp(x) / xp.sum(xp.exp(x), axis=1, keepdims=True),
        lambda x: xp.sqrt(x * x),
        lambda x: xp.log(xp.exp(x) + 1.0),
        lambda x: xp.sqrt(xp.mean(xp.square(x - xp.mean(x)), axis=0)),
        lambda x: xp.log(xp.abs(x)),
        lambda x: x**2.0 + x**3.0 + x**-2.0,
        lambda x: x / xp.sqrt(xp.maximum(x, 0.25)),
        lambda x: 1.0 / (1.0 + xp.exp(-x)),
        lambda x: xp.tanh(x) + xp.asin(x),
        # What two ranges cannot say is not carried on.
        lambda x: xp.sqrt(xp.mean(x * x) - xp.mean(x) * xp.mean(x)),
    ],
)  # fmt: skip
def test_what_is_defined_anyway_asks_nothing(function: Callable[..., Any]) -> None:
    assert usual(traced(function)) == [True]


def test_what_contradicts_itself_is_drawn_as_usual() -> None:
    graph = traced(lambda x: xp.sqrt(x - 2.0) + xp.sqrt(-x))
    assert usual(graph) == [True]


def test_a_range_of_its_own_stays() -> None:
    writer = GraphWriter()
    x = writer.input("x", SHAPE, DType.F32, low=-3.0, high=-2.0)
    graph = writer.build([writer.op("sqrt", x)])
    assert usual(graph) == [True]
    (drawn,) = random_inputs(graph, 0)
    assert drawn.max() <= -2.0


def test_draws_of_others_are_what_they_were() -> None:
    """Ranges change no other input, and no order of draws."""
    graph = traced(lambda x, var, y: x / xp.sqrt(var) + y, 3)
    x, var, y = random_inputs(graph, 5)
    rng = np.random.default_rng(5)
    first, second, third = (rng.random(SHAPE, np.float32) for _ in range(3))
    assert np.array_equal(x, np.float32(-1) + np.float32(2) * first)
    assert np.array_equal(y, np.float32(-1) + np.float32(2) * third)
    assert var.min() >= 0.125 and var.max() <= 1.0 and np.allclose(var, 0.125 + 0.875 * second)


def test_ranges_lie_inside_where_there_is_little_room() -> None:
    assert input_ranges(traced(lambda x: xp.sqrt(x - 9.0)), -1.0, 1.0)[0] == (9.125, 10.125)
    assert input_ranges(traced(lambda x: xp.sqrt(-9.0 - x)), -1.0, 1.0)[0] == (-10.125, -9.125)
    low, high = input_ranges(traced(lambda x: xp.asin(0.25 * x - 1.0)), -1.0, 1.0)[0]
    assert math.isclose(low, 0.5) and high == 1.0
