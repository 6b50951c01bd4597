"""The zoo as a JAX user writes it. Importing this module imports jax."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from autofuse.peers import programs_case, science_jax
from autofuse.peers.physics import dynamics, is_done
from autofuse.peers.types import PeerProgram
from autofuse.zoo.cartpole import FORCE, RESET, UNROLL
from autofuse.zoo.products import ORDERS

Array = Any


def softmax(x: Array) -> Sequence[Array]:
    return (jax.nn.softmax(x, axis=-1),)


def _layer_norm(x: Array, gamma: Array, beta: Array) -> Array:
    mean = jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.var(x, axis=-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-5) * gamma + beta


def layer_norm_gelu(x: Array, gamma: Array, beta: Array) -> Sequence[Array]:
    return (jax.nn.gelu(_layer_norm(x, gamma, beta), approximate=True),)


def rms_norm_residual(x: Array, residual: Array, weight: Array) -> Sequence[Array]:
    total = x + residual
    power = jnp.mean(jnp.square(total), axis=-1, keepdims=True)
    return total, total * lax.rsqrt(power + 1e-6) * weight


def swiglu(x: Array) -> Sequence[Array]:
    a, b = jnp.split(x, 2, axis=-1)
    return (jax.nn.silu(a) * b,)


def _normal_cdf(x: Array) -> Array:
    return 0.5 * (1.0 + lax.erf(x * math.sqrt(0.5)))


def black_scholes(
    spot: Array, strike: Array, years: Array, rate: Array, volatility: Array
) -> Sequence[Array]:
    spread = volatility * jnp.sqrt(years)
    drift = (rate + 0.5 * volatility * volatility) * years
    d1 = (jnp.log(spot / strike) + drift) / spread
    n1, n2 = _normal_cdf(d1), _normal_cdf(d1 - spread)
    discounted = strike * jnp.exp(-rate * years)
    return spot * n1 - discounted * n2, discounted * (1.0 - n2) - spot * (1.0 - n1)


def adam_16(correction1: Array, correction2: Array, *tensors: Array) -> Sequence[Array]:
    count = len(tensors) // 4
    p, g, m, v = (tensors[i * count : (i + 1) * count] for i in range(4))
    new_m = [0.9 * a + 0.1 * b for a, b in zip(m, g, strict=True)]
    new_v = [0.999 * a + 0.001 * (b * b) for a, b in zip(v, g, strict=True)]
    new_p = [
        old - 1e-3 * ((first / correction1) / (jnp.sqrt(second / correction2) + 1e-8))
        for old, first, second in zip(p, new_m, new_v, strict=True)
    ]
    return (*new_p, *new_m, *new_v)


def _feed_forward(x: Array, w1: Array, b1: Array, w2: Array, b2: Array) -> Array:
    return jax.nn.gelu(x @ w1 + b1, approximate=True) @ w2 + b2


def mlp(x: Array, w1: Array, b1: Array, w2: Array, b2: Array) -> Sequence[Array]:
    return (_feed_forward(x, w1, b1, w2, b2),)


def _attend(q: Array, k: Array, v: Array) -> Array:
    length, depth = q.shape[-2:]
    scores = q @ jnp.swapaxes(k, -1, -2) * (1.0 / math.sqrt(depth))
    visible = jnp.tri(length, dtype=bool)
    return jax.nn.softmax(jnp.where(visible, scores, -1e30), axis=-1) @ v


def attention(q: Array, k: Array, v: Array) -> Sequence[Array]:
    return (_attend(q, k, v),)


def transformer_block(heads: int) -> PeerProgram:
    """The block for `heads` heads, which the arrays do not tell."""

    def block(x: Array, *weights: Array) -> Sequence[Array]:
        gamma1, beta1, w_qkv, w_out, gamma2, beta2, w1, b1, w2, b2 = weights
        n, width = x.shape
        qkv = _layer_norm(x, gamma1, beta1) @ w_qkv
        split = (a.reshape(n, heads, -1).swapaxes(0, 1) for a in jnp.split(qkv, 3, axis=1))
        x = x + _attend(*split).swapaxes(0, 1).reshape(n, width) @ w_out
        return (x + _feed_forward(_layer_norm(x, gamma2, beta2), w1, b1, w2, b2),)

    return block


def _batch_norm(x: Array, norm: Sequence[Array]) -> Array:
    scale, bias, mean, variance = (a[:, None, None] for a in norm)
    return (x - mean) * (scale * lax.rsqrt(variance + 1e-5)) + bias


def _conv(x: Array, kernel: Array, groups: int = 1) -> Array:
    return lax.conv_general_dilated(x, kernel, (1, 1), "SAME", feature_group_count=groups)


def convnet_block(x: Array, *tensors: Array) -> Sequence[Array]:
    (k1, *n1), (k2, *n2) = tensors[:5], tensors[5:]
    hidden = jax.nn.relu(_batch_norm(_conv(x, k1), n1))
    return (jax.nn.relu(x + _batch_norm(_conv(hidden, k2), n2)),)


def depthwise_block(x: Array, *tensors: Array) -> Sequence[Array]:
    (k1, *n1), (k2, *n2), (k3, *n3) = tensors[:5], tensors[5:10], tensors[10:]
    wide = jax.nn.relu6(_batch_norm(_conv(x, k1), n1))
    each = jax.nn.relu6(_batch_norm(_conv(wide, k2, len(k2)), n2))
    return (x + _batch_norm(_conv(each, k3), n3),)


def _mix(scores: Array, v: Array) -> Array:
    return jax.nn.softmax(scores, axis=-1) @ v


def _scores(q: Array, k: Array) -> Array:
    return q @ jnp.swapaxes(k, -1, -2) * (1.0 / math.sqrt(q.shape[-1]))


def attention_grouped(q: Array, k: Array, v: Array) -> Sequence[Array]:
    together = q.reshape(len(k), -1, *q.shape[1:])
    return (_attend(together, k[:, None], v[:, None]).reshape(q.shape),)


def attention_window(window: int) -> PeerProgram:
    """Attention to the last `window` places."""

    def attend(q: Array, k: Array, v: Array) -> Sequence[Array]:
        at = jnp.arange(q.shape[-2])
        behind = at[:, None] - at
        visible = (behind >= 0) & (behind < window)
        return (_mix(jnp.where(visible, _scores(q, k), -1e30), v),)

    return attend


def attention_bias(q: Array, k: Array, v: Array, bias: Array) -> Sequence[Array]:
    return (_mix(_scores(q, k) + bias, v),)


def decode_step(
    x: Array, w_qkv: Array, w_out: Array, keys: Array, values: Array, position: Array
) -> Sequence[Array]:
    heads, cached, depth = keys.shape
    q, k, v = (x @ w_qkv).reshape(3, heads, 1, depth)
    keys = lax.dynamic_update_slice(keys, k, (0, position, 0))
    values = lax.dynamic_update_slice(values, v, (0, position, 0))
    scores = jnp.where(jnp.arange(cached) <= position, _scores(q, keys), -1e30)
    return _mix(scores, values).reshape(x.shape) @ w_out, keys, values


def vocabulary_loss(h: Array, w: Array, labels: Array) -> Sequence[Array]:
    logits = h @ w.T
    picked = jnp.take_along_axis(logits, labels[:, None], axis=1)[:, 0]
    return (jnp.mean(jax.nn.logsumexp(logits, axis=1) - picked),)


def gated_mlp(x: Array, w_gate: Array, w_up: Array, w_down: Array) -> Sequence[Array]:
    return ((jax.nn.silu(x @ w_gate) * (x @ w_up)) @ w_down,)


def int8_product(x: Array, weights: Array, scale: Array, bias: Array) -> Sequence[Array]:
    return (x @ (weights.astype(jnp.float32) * scale) + bias,)


def batched_products(*operands: Array) -> Sequence[Array]:
    x, y = operands[: len(ORDERS)], operands[len(ORDERS) :]
    return [jnp.einsum(*each) for each in zip(ORDERS, x, y, strict=True)]


def _stacked_step(state: Array, force: Array, fresh: Array) -> tuple[Array, Array]:
    moved = jnp.stack(dynamics(jnp, state, force))
    done = is_done(jnp, moved[0], moved[2])
    return jnp.where(done, fresh, moved), jnp.where(done, 0.0, 1.0)


def cartpole_naive(steps: int) -> PeerProgram:
    """`steps` steps with jax.random: other numbers, the same distributions."""

    def roll(key: Array, state: Array) -> Sequence[Array]:
        n = state.shape[1]

        def step(t: Array, carried: tuple[Array, Array]) -> tuple[Array, Array]:
            coin_key, reset_key = jax.random.split(jax.random.fold_in(key, t))
            coins = jax.random.uniform(coin_key, (n,))
            fresh = jax.random.uniform(reset_key, (4, n), minval=-RESET, maxval=RESET)
            force = jnp.where(coins < 0.5, -FORCE, FORCE)
            state, alive = _stacked_step(carried[0], force, fresh)
            return state, carried[1] + alive

        final, reward = lax.fori_loop(0, steps, step, (state, jnp.zeros(n)))
        return final, reward

    return roll


def cartpole_norng(state: Array, actions: Array, resets: Array) -> Sequence[Array]:
    def step(carried: tuple[Array, Array], drawn: tuple[Array, Array]) -> Any:
        state, alive = _stacked_step(carried[0], *drawn)
        return (state, carried[1] + alive), None

    (final, reward), _ = lax.scan(step, (state, jnp.zeros(state.shape[1])), (actions, resets))
    return final, reward


def cartpole_separate(unroll: int) -> PeerProgram:
    """Four state arrays, `unroll` steps per iteration of the scan."""

    def roll(
        x: Array, x_dot: Array, theta: Array, theta_dot: Array, actions: Array, resets: Array
    ) -> Sequence[Array]:
        def step(carried: tuple[Array, ...], drawn: tuple[Array, Array]) -> Any:
            *state, reward = carried
            moved = dynamics(jnp, state, drawn[0])
            done = is_done(jnp, moved[0], moved[2])
            kept = [jnp.where(done, r, m) for r, m in zip(drawn[1], moved, strict=True)]
            return (*kept, reward + jnp.where(done, 0.0, 1.0)), None

        start = (x, x_dot, theta, theta_dot, jnp.zeros(x.shape))
        final, _ = lax.scan(step, start, (actions, resets), unroll=unroll)
        return tuple(final)

    return roll


def program(name: str, sizes: tuple[Any, ...]) -> PeerProgram:
    """The zoo workload `name` of these sizes."""
    found = science_jax.program(name, sizes)
    if found is not None:
        return found
    if name == "transformer_block":
        return transformer_block(sizes[2])
    if name == "attention_window":
        return attention_window(sizes[3])
    if name == "cartpole_naive":
        return cartpole_naive(sizes[1])
    if name == "cartpole_policy":
        return programs_case.jax_policy(sizes[1])
    return _PROGRAMS[name]


_PROGRAMS: dict[str, PeerProgram] = {
    "softmax": softmax,
    "layer_norm_gelu": layer_norm_gelu,
    "rms_norm_residual": rms_norm_residual,
    "swiglu": swiglu,
    "black_scholes": black_scholes,
    "adam_16": adam_16,
    "mlp": mlp,
    "mlp_train_step": programs_case.jax_train_step,
    "attention": attention,
    "convnet_block": convnet_block,
    "depthwise_block": depthwise_block,
    "attention_grouped": attention_grouped,
    "attention_bias": attention_bias,
    "decode_step": decode_step,
    "vocabulary_loss": vocabulary_loss,
    "gated_mlp": gated_mlp,
    "int8_product": int8_product,
    "batched_products": batched_products,
    "cartpole_norng": cartpole_norng,
    "cartpole_noconcat": cartpole_separate(1),
    "cartpole_unroll10": cartpole_separate(UNROLL),
}
