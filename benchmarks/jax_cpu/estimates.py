"""Filters, samplers and optimisers."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.jax_cpu.types import LoopCase, LoopProgram, drawn, module

Dtype = np.dtype[Any]


def _kalman(dtype: Dtype) -> LoopCase:
    """The likelihood of 300 pairs of measurements under a model of four states."""
    jax = module("jax")
    jnp = jax.numpy
    move = np.eye(4) + 0.1 * np.eye(4, k=2)
    seen = np.eye(2, 4)

    def run(noise: Any, measured: Any) -> Any:
        a, c = jnp.asarray(move, noise.dtype), jnp.asarray(seen, noise.dtype)
        q, r = noise[0] * jnp.eye(4, dtype=noise.dtype), noise[1] * jnp.eye(2, dtype=noise.dtype)

        def step(state: Any, y: Any) -> Any:
            mean, cov = state
            mean, cov = a @ mean, a @ cov @ a.T + q
            spread, wrong = c @ cov @ c.T + r, y - c @ mean
            gain = jnp.linalg.solve(spread, c @ cov).T
            mean, cov = mean + gain @ wrong, cov - gain @ spread @ gain.T
            told = wrong @ jnp.linalg.solve(spread, wrong) + jnp.linalg.slogdet(spread)[1]
            return (mean, cov), -0.5 * told

        start = (jnp.zeros(4, noise.dtype), jnp.eye(4, dtype=noise.dtype))
        return jax.lax.scan(step, start, measured)[1].sum()

    return LoopCase(run, (np.array([0.1, 0.5], dtype), drawn(dtype, 300, 2)))


def _extended(dtype: Dtype) -> LoopCase:
    """An extended filter whose slopes are `jacfwd`'s, Cholesky's factors inside, 200 steps."""
    jax = module("jax")
    jnp = jax.numpy
    linear = jax.scipy.linalg

    def moved(x: Any) -> Any:
        turn = x[2] + 0.1 * x[3]
        return jnp.stack(
            [x[0] + 0.1 * jnp.cos(turn), x[1] + 0.1 * jnp.sin(turn), turn, 0.99 * x[3]]
        )

    def seen(x: Any) -> Any:
        return jnp.stack([jnp.sqrt(x[0] ** 2 + x[1] ** 2 + 1.0), jnp.arctan2(x[1], x[0] + 3.0)])

    def run(noise: Any, measured: Any) -> Any:
        def step(state: Any, y: Any) -> Any:
            mean, cov = state
            slope = jax.jacfwd(moved)(mean)
            mean = moved(mean)
            cov = slope @ cov @ slope.T + noise[0] * jnp.eye(4, dtype=y.dtype)
            sight = jax.jacfwd(seen)(mean)
            spread = sight @ cov @ sight.T + noise[1] * jnp.eye(2, dtype=y.dtype)
            factor = jnp.linalg.cholesky(spread)
            gain = linear.cho_solve((factor, True), sight @ cov).T
            wrong = y - seen(mean)
            return (mean + gain @ wrong, cov - gain @ spread @ gain.T), mean

        start = (jnp.full(4, 0.1, noise.dtype), jnp.eye(4, dtype=noise.dtype))
        return jax.lax.scan(step, start, measured)[1]

    measured = np.array([1.5, 0.2], dtype) + 0.1 * drawn(dtype, 200, 2)
    return LoopCase(run, (np.array([0.01, 0.1], dtype), measured.astype(dtype)))


def _walk(dtype: Dtype) -> LoopCase:
    """Metropolis's walk on a density of two humps, random numbers drawn inside, 2,000 steps."""
    jax = module("jax")
    jnp = jax.numpy

    def density(x: Any) -> Any:
        return jnp.logaddexp(-((x - 1.5) ** 2).sum(), -((x + 1.5) ** 2).sum())

    def run(start: Any, key: Any) -> Any:
        def step(state: Any, key: Any) -> Any:
            x, value = state
            one, other = jax.random.split(key)
            new = x + 0.8 * jax.random.normal(one, x.shape, x.dtype)
            there = density(new)
            good = jnp.log(jax.random.uniform(other, (), x.dtype)) < there - value
            kept = (jnp.where(good, new, x), jnp.where(good, there, value))
            return kept, kept[0]

        return jax.lax.scan(step, (start, density(start)), jax.random.split(key, 2000))[1]

    return LoopCase(run, (np.zeros(2, dtype), np.array([0, 42], np.uint32)))


def _paths(dtype: Dtype) -> LoopCase:
    """An autoregressive path of 32 series whose shocks are drawn inside of 1,000 steps."""
    jax = module("jax")

    def run(rates: Any, key: Any) -> Any:
        def step(t: Any, state: Any) -> Any:
            x, total = state
            shock = jax.random.normal(jax.random.fold_in(key, t), (32,), rates.dtype)
            x = rates[0] * x + rates[1] * shock
            return x, total + x * x

        zeros = jax.numpy.zeros(32, rates.dtype)
        return jax.lax.fori_loop(0, 1000, step, (zeros, zeros))

    return LoopCase(run, (np.array([0.9, 0.2], dtype), np.array([0, 7], np.uint32)))


def _valley(x: Any) -> Any:
    """Rosenbrock's."""
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def _quasi_newton(dtype: Dtype) -> LoopCase:
    """L-BFGS with a memory of five and halved steps in Rosenbrock's valley, 40 iterations."""
    jax = module("jax")
    jnp, kept, size = jax.numpy, 5, 8

    def direction(slope: Any, steps: Any, changes: Any) -> Any:
        shares = 1 / ((steps * changes).sum(1) + 1e-12)

        def newest_first(q: Any, k: Any) -> Any:
            a = shares[k] * (steps[k] @ q)
            return q - a * changes[k], a

        order = jnp.arange(kept)
        q, given = jax.lax.scan(newest_first, slope, order)
        q = q * (steps[0] @ changes[0] + 1e-12) / (changes[0] @ changes[0] + 1e-12)

        def oldest_first(r: Any, item: Any) -> Any:
            k, a = item
            return r + steps[k] * (a - shares[k] * (changes[k] @ r)), None

        return jax.lax.scan(oldest_first, q, (order[::-1], given[::-1]))[0]

    def run(start: Any) -> Any:
        def iterate(_: Any, state: Any) -> Any:
            x, slope, steps, changes = state
            towards = -direction(slope, steps, changes)
            towards = jnp.where(towards @ slope < 0, towards, -slope)
            here = _valley(x)
            size = jax.lax.while_loop(
                lambda s: (_valley(x + s * towards) > here + 1e-4 * s * (towards @ slope))
                & (s > 1e-8),
                lambda s: 0.5 * s, x[0] * 0 + 1,
            )  # fmt: skip
            new = x + size * towards
            there = jax.grad(_valley)(new)
            steps = jnp.concatenate([(new - x)[None], steps[:-1]])
            changes = jnp.concatenate([(there - slope)[None], changes[:-1]])
            return new, there, steps, changes

        none = jnp.eye(kept, size, dtype=start.dtype)
        first = (start, jax.grad(_valley)(start), none, none)
        return jax.lax.fori_loop(0, 40, iterate, first)[0]

    return LoopCase(run, (0.5 * drawn(dtype, size),))


def _descent(dtype: Dtype) -> LoopCase:
    """Gradient descent with momentum until the slope is small."""
    jax = module("jax")

    def run(start: Any) -> Any:
        def go(state: Any) -> Any:
            x, v, _, count = state
            slope = jax.grad(_valley)(x)
            v = 0.9 * v - 2e-4 * slope
            return x + v, v, (slope * slope).sum(), count + 1

        first = (start, start * 0, start[0] * 0 + 1, jax.numpy.int32(0))
        found = jax.lax.while_loop(lambda s: (s[2] > 1e-6) & (s[3] < 3000), go, first)
        return found[0], found[3]

    return LoopCase(run, (0.5 * drawn(dtype, 6),))


PROGRAMS = (
    LoopProgram("kalman", _kalman, "jax#31284", wide=True),
    LoopProgram("extended_kalman", _extended, "jax#37465", wide=True),
    LoopProgram("metropolis", _walk, "blackjax#746", wide=True, gradients=False),
    LoopProgram("random_paths", _paths, "QuantEcon#622", wide=True),
    LoopProgram("quasi_newton", _quasi_newton, wide=True, gradients=False),
    LoopProgram("descent", _descent, wide=True, gradients=False),
)
