"""The case study's own workloads as users of an array library write them: a simulation steered by a
small network, and a training step. `xp` is NumPy, jax.numpy, torch or the like."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autofuse.peers.physics import dynamics, is_done
from autofuse.peers.types import PeerProgram
from autofuse.zoo.cartpole import FORCE, RESET
from autofuse.zoo.training import BETA1, BETA2, CUBIC, EPS, LEARNING_RATE, SLOPE, TENSORS

Array = Any
Compile = Callable[[Callable[..., Any]], Callable[..., Any]]


def policy_step(
    xp: Any, number: Callable[[float], Any], state: Array, reward: Array, fresh: Array,
    *weights: Array,
) -> tuple[Array, Array]:  # fmt: skip
    """State and reward after a push that the network chose; `number` makes an f32 scalar."""
    w1, b1, w2, b2 = weights
    layer = xp.tanh(w1 @ state + b1[:, None])
    score = (w2 @ layer + b2[:, None])[0]
    force = xp.where(score < 0.0, number(-FORCE), number(FORCE))
    moved = xp.stack(dynamics(xp, [state[k] for k in range(4)], force))
    done = is_done(xp, moved[0], moved[2])
    return xp.where(done, fresh, moved), xp.where(done, reward, reward + 1.0)


def numpy_policy(xp: Any, steps: int) -> PeerProgram:
    """`steps` steps with the library's own generator."""

    def roll(key: Array, state: Array, *weights: Array) -> Sequence[Array]:
        rng = xp.random.default_rng([int(word) for word in key])
        reward = xp.zeros(state.shape[1], np.float32)
        for _ in range(steps):
            fresh = rng.random(state.shape, np.float32) * (2 * RESET) - RESET
            state, reward = policy_step(xp, np.float32, state, reward, fresh, *weights)
        return state, reward

    return roll


def jax_policy(steps: int) -> PeerProgram:
    """`steps` steps with jax.random."""
    import jax
    import jax.numpy as jnp

    def roll(key: Array, state: Array, *weights: Array) -> Sequence[Array]:
        def step(t: Array, carried: tuple[Array, Array]) -> tuple[Array, Array]:
            seed = jax.random.fold_in(key, t)
            fresh = jax.random.uniform(seed, state.shape, minval=-RESET, maxval=RESET)
            return policy_step(jnp, float, *carried, fresh, *weights)

        start = (state, jnp.zeros(state.shape[1]))
        final: Sequence[Array] = jax.lax.fori_loop(0, steps, step, start)
        return final

    return roll


def torch_policy(steps: int, compiled: Compile) -> PeerProgram:
    """`steps` calls of a compiled step with torch.rand."""
    import torch

    def draw_and_step(state: Array, reward: Array, *weights: Array) -> tuple[Array, Array]:
        fresh = torch.rand_like(state) * (2 * RESET) - RESET
        return policy_step(torch, float, state, reward, fresh, *weights)

    step = compiled(draw_and_step)

    def roll(key: Array, state: Array, *weights: Array) -> Sequence[Array]:
        reward = torch.zeros_like(state[0])
        for _ in range(steps):
            state, reward = step(state, reward, *weights)
        return state, reward

    return roll


def train_step(xp: Any, x: Array, y: Array, correction1: Array, correction2: Array,
               *tensors: Array) -> Sequence[Array]:  # fmt: skip
    """The step with its gradients written by hand."""
    w1, b1, w2, b2 = tensors[:TENSORS]
    before = x @ w1 + b1
    bent = xp.tanh(SLOPE * (before + CUBIC * (before * before * before)))
    layer = 0.5 * before * (1.0 + bent)
    error = layer @ w2 + b2 - y
    by_output = error * (2.0 / math.prod(y.shape))
    inner = SLOPE * (1.0 + 3.0 * CUBIC * (before * before))
    slope = 0.5 * (1.0 + bent) + 0.5 * before * (1.0 - bent * bent) * inner
    by_before = (by_output @ w2.T) * slope
    gradients = (x.T @ by_before, by_before.sum(0), layer.T @ by_output, by_output.sum(0))
    return ((error * error).mean(), *_adam(xp, correction1, correction2, gradients, tensors))


def jax_train_step(x: Array, y: Array, correction1: Array, correction2: Array,
                   *tensors: Array) -> Sequence[Array]:  # fmt: skip
    """The step with its gradients by jax.grad."""
    import jax
    import jax.numpy as jnp

    def loss_of(w1: Array, b1: Array, w2: Array, b2: Array) -> Array:
        error = jax.nn.gelu(x @ w1 + b1, approximate=True) @ w2 + b2 - y
        return jnp.mean(error * error)

    chosen = tuple(range(TENSORS))
    loss, gradients = jax.value_and_grad(loss_of, argnums=chosen)(*tensors[:TENSORS])
    return (loss, *_adam(jnp, correction1, correction2, gradients, tensors))


def _adam(
    xp: Any, correction1: Array, correction2: Array, gradients: Sequence[Array],
    tensors: Sequence[Array],
) -> list[Array]:  # fmt: skip
    """New parameters, then both moments, from `tensors` in the same order."""
    p, m, v = (tensors[k * TENSORS : (k + 1) * TENSORS] for k in range(3))
    new_m = [BETA1 * a + (1 - BETA1) * g for a, g in zip(m, gradients, strict=True)]
    new_v = [BETA2 * a + (1 - BETA2) * (g * g) for a, g in zip(v, gradients, strict=True)]
    new_p = [
        old - LEARNING_RATE * ((a / correction1) / (xp.sqrt(b / correction2) + EPS))
        for old, a, b in zip(p, new_m, new_v, strict=True)
    ]
    return [*new_p, *new_m, *new_v]
