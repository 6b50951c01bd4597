"""Loops over a few numbers: tables, scalar leaves, small matrices, chains of states."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from benchmarks.jax_cpu.types import LoopCase, LoopProgram, drawn, module

Dtype = np.dtype[Any]


def _table(dtype: Dtype) -> LoopCase:
    """Follows a table of 2^14 places from one to the next, and sums what lies there."""
    jax = module("jax")
    size = 1 << 14
    nexts = np.random.default_rng(3).permutation(size).astype(np.int32)

    def run(weights: Any, nexts: Any) -> Any:
        def go(state: Any) -> Any:
            at, total, count = state
            return nexts[at], total + weights[at], count + 1

        start = (jax.numpy.int32(0), weights[0] * 0, jax.numpy.int32(0))
        return jax.lax.while_loop(lambda s: s[2] < size, go, start)[1]

    return LoopCase(run, (drawn(dtype, size), nexts))


def _rotations(dtype: Dtype, count: int = 2000) -> LoopCase:
    """Products of 3 x 3 matrices, one after another."""
    jax = module("jax")
    steps = 0.01 * drawn(dtype, count, 3, 3)

    def run(start: Any, steps: Any) -> Any:
        eye = jax.numpy.eye(3, dtype=start.dtype)
        return jax.lax.scan(lambda c, x: ((eye + x) @ c, c[0, 0]), start, steps)

    return LoopCase(run, (np.eye(3, dtype=dtype), steps))


def _leaves(dtype: Dtype) -> LoopCase:
    """A scan whose state is 24 numbers, each a leaf of its own."""
    jax = module("jax")
    np_, count = jax.numpy, 24
    start = tuple(np.asarray(x) for x in 0.1 * drawn(dtype, count))

    def step(state: Any, force: Any) -> Any:
        left, right = (*state[1:], state[0]), (state[-1], *state[:-1])
        new = tuple(
            x + 0.05 * (np_.tanh(a - x) + np_.sin(b) - 0.1 * x + force)
            for x, a, b in zip(state, left, right, strict=True)
        )
        return new, new[0] * new[1]

    return LoopCase(lambda s, f: jax.lax.scan(step, s, f), (start, 0.1 * drawn(dtype, 1000)))


def _rolls(dtype: Dtype) -> LoopCase:
    """Advection and diffusion on a ring of 64 places by rolls, 1,000 steps."""
    jax = module("jax")
    roll = jax.numpy.roll

    def step(_: Any, u: Any) -> Any:
        slope = 0.5 * (roll(u, -1) - roll(u, 1))
        return u + 0.05 * (roll(u, -1) - 2 * u + roll(u, 1)) - 0.05 * u * slope

    return LoopCase(lambda u: jax.lax.fori_loop(0, 1000, step, u), (drawn(dtype, 64),))


def _six(dtype: Dtype) -> LoopCase:
    """A 6 x 6 matrix applied and normalised 1,000 times: the largest eigenvalue."""
    jax = module("jax")

    def run(matrix: Any) -> Any:
        def step(_: Any, state: Any) -> Any:
            product = matrix @ state
            return product / jax.numpy.sqrt((product * product).sum())

        found = jax.lax.fori_loop(0, 1000, step, jax.numpy.eye(6, dtype=matrix.dtype))
        return (found * (matrix @ found)).sum()

    symmetric = drawn(dtype, 6, 6)
    return LoopCase(run, (symmetric + symmetric.T + 8 * np.eye(6, dtype=dtype),))


def _markov(dtype: Dtype) -> LoopCase:
    """10,000 steps of a chain of 8 states by search in its cumulative rows."""
    jax = module("jax")
    rows = np.abs(drawn(dtype, 8, 8)) + 0.1
    sums = np.cumsum(rows / rows.sum(1, keepdims=True), 1).astype(dtype)
    draws = np.random.default_rng(5).random(10_000, np.float32).astype(dtype)

    def run(sums: Any, draws: Any) -> Any:
        def step(state: Any, draw: Any) -> Any:
            new = jax.numpy.searchsorted(sums[state], draw).astype(jax.numpy.int32)
            return jax.numpy.minimum(new, 7), state

        return jax.lax.scan(step, jax.numpy.int32(0), draws)[1]

    return LoopCase(run, (sums, draws))


def _inventory(dtype: Dtype) -> LoopCase:
    """Stock under a rule of two bounds for 128 firms and 500 days, demand given."""
    jax = module("jax")
    demand = np.exp(0.5 * drawn(dtype, 500, 128)).astype(dtype)

    def run(start: Any, demand: Any) -> Any:
        def step(stock: Any, wanted: Any) -> Any:
            filled = jax.numpy.where(stock <= 2.0, 10.0, stock)
            new = jax.numpy.maximum(filled - wanted, 0.0)
            return new, new.mean()

        return jax.lax.scan(step, start, demand)

    return LoopCase(run, (np.full(128, 10, dtype), demand))


def _bellman(dtype: Dtype) -> LoopCase:
    """200 iterations of a value function over 60 states and 40 choices."""
    jax = module("jax")

    def run(reward: Any, moves: Any) -> Any:
        def step(_: Any, value: Any) -> Any:
            return (reward + 0.96 * (moves @ value)).max(1)

        start = jax.numpy.zeros(60, reward.dtype)
        return jax.lax.fori_loop(0, 200, step, start)

    moves = np.abs(drawn(dtype, 60, 40, 60))
    return LoopCase(
        run, (drawn(dtype, 60, 40), (moves / moves.sum(2, keepdims=True)).astype(dtype))
    )


def _growth(dtype: Dtype) -> LoopCase:
    """The logistic map, 10^6 times, one number."""
    jax = module("jax")

    def run(x: Any) -> Any:
        return jax.lax.fori_loop(0, 1_000_000, lambda _, y: 2.9 * y * (1 - y), x)

    return LoopCase(run, (np.asarray(0.3, dtype),))


PROGRAMS = (
    LoopProgram("table_walk", _table, "jax#25190", gradients=False),
    LoopProgram("rotations", _rotations, "jax#36799", wide=True),
    LoopProgram("scalar_leaves", _leaves, "jax#40150"),
    LoopProgram("rolls", _rolls, "xla#18478"),
    LoopProgram("six_by_six", _six, "jax#26616"),
    LoopProgram("markov_chain", _markov, "QuantEcon#622", gradients=False),
    LoopProgram("inventories", _inventory, "QuantEcon#622"),
    LoopProgram("value_function", _bellman, gradients=False),
    LoopProgram("logistic_map", _growth, wide=True),
    # So long that calling it takes no part.
    LoopProgram("long_rotations", partial(_rotations, count=20_000), wide=True, gradients=False),
)
