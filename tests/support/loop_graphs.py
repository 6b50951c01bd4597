"""Random programs of loops: recurrences, integrators, steps of environments, cells, filters, loops
in loops, of f32, f64 and i32, of one item and of many. States stay bounded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import pytest

import autofuse.frontends.array_api as xp
from autofuse.frontends import spec, trace
from autofuse.graph.types import Graph
from autofuse.simplify import normal_form
from tests.support import random_graphs
from tests.support.brute_graphs import LARGE, LARGEST
from tests.support.random_graphs import MOVES, random_graph

T = TypeVar("T")
ITEMS, TRIPS = (1, 1, 2, 5, 16, 100, 2000), (7, 50, 200, 1000)
# Elements that all iterations of a loop compute at most, of each state.
MOST = 200_000
TURN, NODES, STEPS, LOOP_STEPS = 4, 240, 120, 8
Array = Any


class _Step:
    """One random iteration: expressions over what is there, each squashed when it is a state."""

    def __init__(self, rng: np.random.Generator, values: Sequence[Array]) -> None:
        self.rng, self.values = rng, list(values)

    def choice(self, items: Sequence[T]) -> T:
        return items[int(self.rng.integers(len(items)))]

    def some(self) -> Array:
        return (
            self.choice(self.values[-4:]) if self.rng.random() < 0.6 else self.choice(self.values)
        )

    def grow(self, count: int) -> None:
        for _ in range(count):
            x, y = self.some(), self.some()
            self.values.append(self.choice(_MOVES)(self, x, y))

    def state(self, old: Array) -> Array:
        e = self.values[-1] if self.rng.random() < 0.5 else self.some()
        kinds = (
            lambda: xp.tanh(e),
            lambda: xp.sin(e),
            lambda: 0.9 * old + 0.1 * xp.maximum(xp.minimum(e, 2.0), -2.0),
            lambda: xp.maximum(xp.minimum(old + 0.05 * e, 3.0), -3.0),
            lambda: e / (1.0 + xp.abs(e)),
            lambda: old * 0.5 + 0.25,
        )
        return self.choice(kinds)()


_MOVES: tuple[Callable[[_Step, Array, Array], Array], ...] = (
    lambda s, x, y: x + y,
    lambda s, x, y: x - y,
    lambda s, x, y: x * 0.3,
    lambda s, x, y: x * y * 0.2,
    lambda s, x, y: xp.tanh(x),
    lambda s, x, y: xp.sin(x) * xp.cos(y),
    lambda s, x, y: xp.exp(-xp.abs(x)),
    lambda s, x, y: x / (1.5 + xp.abs(y)),
    lambda s, x, y: xp.sqrt(xp.abs(x) + 0.1),
    lambda s, x, y: xp.log(xp.abs(x) + 1.1),
    lambda s, x, y: xp.maximum(x, y),
    lambda s, x, y: xp.where(x > y, x, y * 0.5),
    lambda s, x, y: xp.atan2(x, xp.abs(y) + 0.3),
)


def loop_graph(seed: int, loops: int = 5) -> Graph:
    """The program of a seed: several loops that share no states, in normal form."""
    rng = np.random.default_rng(seed)
    specs: list[Any] = []
    makers = [_KINDS[int(rng.integers(len(_KINDS)))](rng, specs) for _ in range(loops)]

    def fn(*arrays: Array) -> tuple[Array, ...]:
        return tuple(out for make in makers for out in make(arrays))

    return normal_form(trace(fn, *specs))


def drawn_graph(seed: int, only_loops: bool) -> tuple[Graph, int]:
    """A program of a seed, and so many steps of a random walk to a plan of it: most of them have
    loops, but those without have as many kernels as the others together."""
    if only_loops or seed % TURN:
        return loop_graph(seed), LOOP_STEPS
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(random_graphs, "MAX_SIZE", LARGEST)
        return normal_form(random_graph(seed, NODES, LARGE, MOVES)), STEPS


Maker = Callable[[Sequence[Array]], tuple[Array, ...]]


def _sizes(rng: np.random.Generator) -> tuple[int, int]:
    items = int(rng.choice(ITEMS))
    return items, max(2, min(int(rng.choice(TRIPS)), MOST // items))


def _input(specs: list[Any], shape: tuple[int, ...], dtype: str) -> int:
    low, high = (-1.0, 1.0) if dtype != "i32" else (-9.0, 9.0)
    specs.append(spec(shape, dtype, low=low, high=high))
    return len(specs) - 1


def _floats(rng: np.random.Generator) -> str:
    return "f64" if rng.random() < 0.35 else "f32"


def _steps(rng: np.random.Generator, specs: list[Any]) -> Maker:
    """Some states, an input for each iteration, and something that never changes; sometimes an
    iteration leaves a result, and sometimes it has a loop of its own."""
    (items, trip), dtype = _sizes(rng), _floats(rng)
    at = [_input(specs, (items,), dtype) for _ in range(int(rng.integers(1, 5)))]
    fixed, each = _input(specs, (items,), dtype), _input(specs, (trip, items), dtype)
    seed, size = int(rng.integers(2**31)), int(rng.integers(1, 10))
    inner = int(rng.integers(2, 9)) if rng.random() < 0.2 else 0
    known = rng.random() < 0.2  # states begin with zeros

    def make(arrays: Sequence[Array]) -> tuple[Array, ...]:
        def body(t: Array, states: tuple[Array, ...]) -> tuple[Array, ...]:
            own = np.random.default_rng(seed)
            given = [*states, arrays[fixed], xp.take(arrays[each], t, axis=0)]
            step = _Step(own, given)
            step.grow(size)
            return tuple(step.state(s) for s in states)

        def whole(t: Array, states: tuple[Array, ...]) -> tuple[Array, ...]:
            return (
                xp.fori_loop(inner, lambda _, s: body(t, s), states) if inner else body(t, states)
            )

        states = [xp.zeros(items, dtype) if known else arrays[k] for k in at]
        return tuple(xp.fori_loop(max(2, trip // max(1, inner)), whole, tuple(states)))

    return make


def _cell(rng: np.random.Generator, specs: list[Any]) -> Maker:
    """A recurrent cell: a product with its weights each iteration."""
    width, trip, dtype = int(rng.choice((3, 8, 24))), int(rng.choice((7, 50, 400))), _floats(rng)
    h, w, xs = (_input(specs, s, dtype) for s in ((width,), (width, width), (trip, width)))

    def make(arrays: Sequence[Array]) -> tuple[Array, ...]:
        def body(t: Array, states: tuple[Array, ...]) -> tuple[Array, ...]:
            return (xp.tanh(arrays[w] @ states[0] * 0.3 + xp.take(arrays[xs], t, axis=0)),)

        return tuple(xp.fori_loop(trip, body, (arrays[h],)))

    return make


def _filter(rng: np.random.Generator, specs: list[Any]) -> Maker:
    """An autoregressive filter of some taps over a signal."""
    taps, trip, dtype = int(rng.integers(2, 7)), int(rng.choice((50, 400, 3000))), _floats(rng)
    last, a, xs = (_input(specs, s, dtype) for s in ((taps,), (taps,), (trip,)))

    def make(arrays: Sequence[Array]) -> tuple[Array, ...]:
        def body(t: Array, states: tuple[Array, ...]) -> tuple[Array, ...]:
            made = xp.sum(states[0] * arrays[a]) * (0.9 / taps) + xp.take(arrays[xs], t, axis=0)
            return (xp.concat([xp.reshape(made, (1,)), states[0][:-1]]),)

        return tuple(xp.fori_loop(trip, body, (arrays[last],)))

    return make


def _whole(rng: np.random.Generator, specs: list[Any]) -> Maker:
    """Whole numbers: a congruential generator and a running sum."""
    items, trip = _sizes(rng)
    x, y = (_input(specs, (items,), "i32") for _ in range(2))

    def make(arrays: Sequence[Array]) -> tuple[Array, ...]:
        def body(t: Array, s: tuple[Array, ...]) -> tuple[Array, ...]:
            return s[0] * 1103515245 + 12345, xp.maximum(s[1] + (s[0] >> 16), -s[1])

        return tuple(xp.fori_loop(trip, body, (arrays[x], arrays[y])))

    return make


_KINDS: tuple[Callable[[np.random.Generator, list[Any]], Maker], ...] = (
    _steps, _steps, _steps, _steps, _cell, _filter, _whole,
)  # fmt: skip
