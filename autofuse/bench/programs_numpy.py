"""The zoo as a NumPy user writes it: f32 arrays in, f32 arrays out, one operation at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import special

from autofuse.bench.physics import dynamics, is_done
from autofuse.bench.types import Program
from autofuse.zoo.cartpole import FORCE, RESET

Array = np.ndarray


def _softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def _layer_norm(x: Array, gamma: Array, beta: Array) -> Array:
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = np.square(centred).mean(axis=-1, keepdims=True)
    return np.asarray(centred / np.sqrt(variance + np.float32(1e-5)) * gamma + beta)


def _gelu(x: Array) -> Array:
    inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * (x * x * x))
    return np.asarray(0.5 * x * (1.0 + np.tanh(inner)))


def softmax(x: Array) -> Sequence[Array]:
    return (_softmax(x),)


def layer_norm_gelu(x: Array, gamma: Array, beta: Array) -> Sequence[Array]:
    return (_gelu(_layer_norm(x, gamma, beta)),)


def rms_norm_residual(x: Array, residual: Array, weight: Array) -> Sequence[Array]:
    total = x + residual
    power = np.square(total).mean(axis=-1, keepdims=True)
    return total, total / np.sqrt(power + np.float32(1e-6)) * weight


def swiglu(x: Array) -> Sequence[Array]:
    a, b = np.split(x, 2, axis=-1)
    return (a / (1.0 + np.exp(-a)) * b,)


def _normal_cdf(x: Array) -> Array:
    return np.asarray(0.5 * (1.0 + special.erf(x * math.sqrt(0.5))))


def black_scholes(
    spot: Array, strike: Array, years: Array, rate: Array, volatility: Array
) -> Sequence[Array]:
    spread = volatility * np.sqrt(years)
    drift = (rate + np.float32(0.5) * volatility * volatility) * years
    d1 = (np.log(spot / strike) + drift) / spread
    n1, n2 = _normal_cdf(d1), _normal_cdf(d1 - spread)
    discounted = strike * np.exp(-rate * years)
    return spot * n1 - discounted * n2, discounted * (1.0 - n2) - spot * (1.0 - n1)


def adam_16(correction1: Array, correction2: Array, *tensors: Array) -> Sequence[Array]:
    count = len(tensors) // 4
    p, g, m, v = (tensors[i * count : (i + 1) * count] for i in range(4))
    new_m = [0.9 * a + 0.1 * b for a, b in zip(m, g, strict=True)]
    new_v = [0.999 * a + 0.001 * (b * b) for a, b in zip(v, g, strict=True)]
    new_p = [
        old - 1e-3 * ((first / correction1) / (np.sqrt(second / correction2) + 1e-8))
        for old, first, second in zip(p, new_m, new_v, strict=True)
    ]
    return (*new_p, *new_m, *new_v)


def mlp(x: Array, w1: Array, b1: Array, w2: Array, b2: Array) -> Sequence[Array]:
    return (_gelu(x @ w1 + b1) @ w2 + b2,)


def _attend(q: Array, k: Array, v: Array) -> Array:
    length, depth = q.shape[-2:]
    scores = q @ k.swapaxes(-1, -2) * np.float32(1.0 / math.sqrt(depth))
    visible = np.tri(length, dtype=np.bool_)
    return np.asarray(_softmax(np.where(visible, scores, np.float32(-1e30))) @ v)


def attention(q: Array, k: Array, v: Array) -> Sequence[Array]:
    return (_attend(q, k, v),)


def transformer_block(heads: int) -> Program:
    """The block for `heads` heads, which the arrays do not tell."""

    def block(
        x: Array, gamma1: Array, beta1: Array, w_qkv: Array, w_out: Array, gamma2: Array,
        beta2: Array, w1: Array, b1: Array, w2: Array, b2: Array,
    ) -> Sequence[Array]:  # fmt: skip
        n, width = x.shape
        qkv = _layer_norm(x, gamma1, beta1) @ w_qkv
        split = (a.reshape(n, heads, -1).swapaxes(0, 1) for a in np.split(qkv, 3, axis=1))
        x = x + _attend(*split).swapaxes(0, 1).reshape(n, width) @ w_out
        return (x + _gelu(_layer_norm(x, gamma2, beta2) @ w1 + b1) @ w2 + b2,)

    return block


def _stacked_step(state: Array, force: Array, fresh: Array) -> tuple[Array, Array]:
    moved = np.stack(dynamics(np, list(state), force))
    done = is_done(np, moved[0], moved[2])
    return np.where(done, fresh, moved), ~done


def cartpole_naive(steps: int) -> Program:
    """`steps` steps with NumPy's own generator: other numbers, the same distributions."""

    def roll(key: Array, state: Array) -> Sequence[Array]:
        rng = np.random.default_rng([int(word) for word in key])
        reward = np.zeros(state.shape[1], np.float32)
        for _ in range(steps):
            coins = rng.random(state.shape[1], np.float32)
            force = np.where(coins < 0.5, np.float32(-FORCE), np.float32(FORCE))
            fresh = rng.random(state.shape, np.float32) * (2 * RESET) - RESET
            state, alive = _stacked_step(state, force, fresh)
            reward += alive
        return state, reward

    return roll


def cartpole_norng(state: Array, actions: Array, resets: Array) -> Sequence[Array]:
    reward = np.zeros(state.shape[1], np.float32)
    for force, fresh in zip(actions, resets, strict=True):
        state, alive = _stacked_step(state, force, fresh)
        reward += alive
    return state, reward


def cartpole_separate(
    x: Array, x_dot: Array, theta: Array, theta_dot: Array, actions: Array, resets: Array
) -> Sequence[Array]:
    """Four state arrays; unrolling by ten changes nothing without a compiler."""
    state: list[Array] = [x, x_dot, theta, theta_dot]
    reward = np.zeros(x.shape, np.float32)
    for force, fresh in zip(actions, resets, strict=True):
        moved = dynamics(np, state, force)
        done = is_done(np, moved[0], moved[2])
        state = [np.where(done, r, m) for r, m in zip(fresh, moved, strict=True)]
        reward += ~done
    return (*state, reward)


def program(name: str, sizes: tuple[Any, ...]) -> Program:
    """The zoo workload `name` of these sizes."""
    if name == "transformer_block":
        return transformer_block(sizes[2])
    if name == "cartpole_naive":
        return cartpole_naive(sizes[1])
    return _PROGRAMS[name]


_PROGRAMS: dict[str, Program] = {
    "softmax": softmax,
    "layer_norm_gelu": layer_norm_gelu,
    "rms_norm_residual": rms_norm_residual,
    "swiglu": swiglu,
    "black_scholes": black_scholes,
    "adam_16": adam_16,
    "mlp": mlp,
    "attention": attention,
    "cartpole_norng": cartpole_norng,
    "cartpole_noconcat": cartpole_separate,
    "cartpole_unroll10": cartpole_separate,
}
