"""The zoo as a NumPy user writes it: f32 arrays in, f32 arrays out, one operation at a time.

CuPy has the same functions, so each program takes the library as its first argument.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy import special

from autofuse.peers import programs_case, science_numpy
from autofuse.peers.physics import dynamics, is_done
from autofuse.peers.types import PeerProgram
from autofuse.zoo.cartpole import FORCE, RESET
from autofuse.zoo.products import ORDERS

Array = Any


@dataclass(frozen=True)
class Library:
    """An array module like NumPy, and the error function, which NumPy leaves to SciPy."""

    xp: Any
    erf: Callable[[Array], Array]


NUMPY = Library(np, special.erf)


def _softmax(lib: Library, x: Array) -> Array:
    powers = lib.xp.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def _layer_norm(lib: Library, x: Array, gamma: Array, beta: Array) -> Array:
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = lib.xp.square(centred).mean(axis=-1, keepdims=True)
    return centred / lib.xp.sqrt(variance + np.float32(1e-5)) * gamma + beta


def _gelu(lib: Library, x: Array) -> Array:
    inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * (x * x * x))
    return 0.5 * x * (1.0 + lib.xp.tanh(inner))


def softmax(lib: Library, x: Array) -> Sequence[Array]:
    return (_softmax(lib, x),)


def layer_norm_gelu(lib: Library, x: Array, gamma: Array, beta: Array) -> Sequence[Array]:
    return (_gelu(lib, _layer_norm(lib, x, gamma, beta)),)


def rms_norm_residual(lib: Library, x: Array, residual: Array, weight: Array) -> Sequence[Array]:
    total = x + residual
    power = lib.xp.square(total).mean(axis=-1, keepdims=True)
    return total, total / lib.xp.sqrt(power + np.float32(1e-6)) * weight


def gated(lib: Library, a: Array, b: Array) -> Array:
    """silu(a) * b."""
    return a / (1.0 + lib.xp.exp(-a)) * b


def swiglu(lib: Library, x: Array) -> Sequence[Array]:
    return (gated(lib, *lib.xp.split(x, 2, axis=-1)),)


def _normal_cdf(lib: Library, x: Array) -> Array:
    return 0.5 * (1.0 + lib.erf(x * math.sqrt(0.5)))


def black_scholes(
    lib: Library, spot: Array, strike: Array, years: Array, rate: Array, volatility: Array
) -> Sequence[Array]:
    xp = lib.xp
    spread = volatility * xp.sqrt(years)
    drift = (rate + 0.5 * volatility * volatility) * years
    d1 = (xp.log(spot / strike) + drift) / spread
    n1, n2 = _normal_cdf(lib, d1), _normal_cdf(lib, d1 - spread)
    discounted = strike * xp.exp(-rate * years)
    return spot * n1 - discounted * n2, discounted * (1.0 - n2) - spot * (1.0 - n1)


def adam_one(
    lib: Library, correction1: Array, correction2: Array, *tensor: Array
) -> Sequence[Array]:
    """Parameters and both moments of one tensor after a step; it comes with its gradient."""
    p, g, m, v = tensor
    first, second = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * (g * g)
    root = lib.xp.sqrt(second / correction2) + 1e-8
    return p - 1e-3 * ((first / correction1) / root), first, second


def adam_16(
    lib: Library, correction1: Array, correction2: Array, *tensors: Array
) -> Sequence[Array]:
    return each_tensor(partial(adam_one, lib), correction1, correction2, *tensors)


def each_tensor(
    one: PeerProgram, correction1: Array, correction2: Array, *tensors: Array
) -> Sequence[Any]:
    """`one` step for every tensor; results are all parameters, then all moments."""
    count = len(tensors) // 4
    groups = zip(*(tensors[i * count : (i + 1) * count] for i in range(4)), strict=True)
    stepped = [one(correction1, correction2, *group) for group in groups]
    return tuple(result for kind in zip(*stepped, strict=True) for result in kind)


def mlp(lib: Library, x: Array, w1: Array, b1: Array, w2: Array, b2: Array) -> Sequence[Array]:
    return (_gelu(lib, x @ w1 + b1) @ w2 + b2,)


def _attend(lib: Library, q: Array, k: Array, v: Array) -> Array:
    length, depth = q.shape[-2:]
    scores = q @ k.swapaxes(-1, -2) * np.float32(1.0 / math.sqrt(depth))
    visible = lib.xp.tri(length, dtype=np.bool_)
    return _softmax(lib, lib.xp.where(visible, scores, np.float32(-1e30))) @ v


def attention(lib: Library, q: Array, k: Array, v: Array) -> Sequence[Array]:
    return (_attend(lib, q, k, v),)


def transformer_block(heads: int, lib: Library, x: Array, *weights: Array) -> Sequence[Array]:
    """The block for `heads` heads, which the arrays do not tell."""
    gamma1, beta1, w_qkv, w_out, gamma2, beta2, w1, b1, w2, b2 = weights
    n, width = x.shape
    qkv = _layer_norm(lib, x, gamma1, beta1) @ w_qkv
    split = (a.reshape(n, heads, -1).swapaxes(0, 1) for a in lib.xp.split(qkv, 3, axis=1))
    x = x + _attend(lib, *split).swapaxes(0, 1).reshape(n, width) @ w_out
    return (x + _gelu(lib, _layer_norm(lib, x, gamma2, beta2) @ w1 + b1) @ w2 + b2,)


def _batch_norm(lib: Library, x: Array, norm: Sequence[Array]) -> Array:
    scale, bias, mean, variance = (a[:, None, None] for a in norm)
    return (x - mean) * (scale / lib.xp.sqrt(variance + np.float32(1e-5))) + bias


def _conv(lib: Library, x: Array, kernel: Array, by_channel: bool = False) -> Array:
    """Images of one size, a place of the kernel at a time."""
    size, (high, wide) = kernel.shape[-1], x.shape[2:]
    ends = (size // 2, size // 2)
    padded = lib.xp.pad(x, ((0, 0), (0, 0), ends, ends))
    total: Array = np.float32(0)
    for i, j in np.ndindex(size, size):
        part, taps = padded[:, :, i : i + high, j : j + wide], kernel[:, :, i, j]
        if by_channel:
            total = total + part * taps[:, :, None]
        else:
            total = total + (taps @ part.reshape(*x.shape[:2], -1)).reshape(len(x), -1, high, wide)
    return total


def convnet_block(lib: Library, x: Array, *tensors: Array) -> Sequence[Array]:
    (k1, *n1), (k2, *n2) = tensors[:5], tensors[5:]
    hidden = lib.xp.maximum(_batch_norm(lib, _conv(lib, x, k1), n1), 0)
    return (lib.xp.maximum(x + _batch_norm(lib, _conv(lib, hidden, k2), n2), 0),)


def depthwise_block(lib: Library, x: Array, *tensors: Array) -> Sequence[Array]:
    (k1, *n1), (k2, *n2), (k3, *n3) = tensors[:5], tensors[5:10], tensors[10:]
    wide = lib.xp.clip(_batch_norm(lib, _conv(lib, x, k1), n1), 0, 6)
    each = lib.xp.clip(_batch_norm(lib, _conv(lib, wide, k2, by_channel=True), n2), 0, 6)
    return (x + _batch_norm(lib, _conv(lib, each, k3), n3),)


def _scores(q: Array, k: Array) -> Array:
    return q @ k.swapaxes(-1, -2) * np.float32(1.0 / math.sqrt(q.shape[-1]))


def attention_grouped(lib: Library, q: Array, k: Array, v: Array) -> Sequence[Array]:
    together = q.reshape(len(k), -1, *q.shape[1:])
    return (_attend(lib, together, k[:, None], v[:, None]).reshape(q.shape),)


def attention_window(window: int, lib: Library, q: Array, k: Array, v: Array) -> Sequence[Array]:
    """Attention to the last `window` places."""
    at = lib.xp.arange(q.shape[-2])
    behind = at[:, None] - at
    visible = (behind >= 0) & (behind < window)
    return (_softmax(lib, lib.xp.where(visible, _scores(q, k), np.float32(-1e30))) @ v,)


def attention_bias(lib: Library, q: Array, k: Array, v: Array, bias: Array) -> Sequence[Array]:
    return (_softmax(lib, _scores(q, k) + bias) @ v,)


def decode_step(
    lib: Library, x: Array, w_qkv: Array, w_out: Array, keys: Array, values: Array, position: Array
) -> Sequence[Array]:
    heads, cached, depth = keys.shape
    q, k, v = (x @ w_qkv).reshape(3, heads, 1, depth)
    keys, values = keys.copy(), values.copy()
    keys[:, int(position)], values[:, int(position)] = k[:, 0], v[:, 0]
    visible = lib.xp.arange(cached) <= position
    weights = _softmax(lib, lib.xp.where(visible, _scores(q, keys), np.float32(-1e30)))
    return (weights @ values).reshape(x.shape) @ w_out, keys, values


def vocabulary_loss(lib: Library, h: Array, w: Array, labels: Array) -> Sequence[Array]:
    logits = h @ w.T
    top = logits.max(axis=1, keepdims=True)
    total = lib.xp.log(lib.xp.exp(logits - top).sum(axis=1)) + top[:, 0]
    return ((total - logits[lib.xp.arange(len(h)), labels]).mean(),)


def gated_mlp(lib: Library, x: Array, w_gate: Array, w_up: Array, w_down: Array) -> Sequence[Array]:
    return (gated(lib, x @ w_gate, x @ w_up) @ w_down,)


def int8_product(
    lib: Library, x: Array, weights: Array, scale: Array, bias: Array
) -> Sequence[Array]:
    return (x @ (weights.astype(np.float32) * scale) + bias,)


def batched_products(lib: Library, *operands: Array) -> Sequence[Array]:
    x, y = operands[: len(ORDERS)], operands[len(ORDERS) :]
    return [lib.xp.einsum(*each) for each in zip(ORDERS, x, y, strict=True)]


def _stacked_step(lib: Library, state: Array, force: Array, fresh: Array) -> tuple[Array, Array]:
    moved = dynamics(lib.xp, list(state), force)
    done = is_done(lib.xp, moved[0], moved[2])
    return lib.xp.where(done, fresh, lib.xp.stack(moved)), ~done


def cartpole_naive(steps: int, lib: Library, key: Array, state: Array) -> Sequence[Array]:
    """`steps` steps with the library's own generator: other numbers, the same distributions."""
    xp = lib.xp
    rng = xp.random.default_rng([int(word) for word in key])
    reward = xp.zeros(state.shape[1], np.float32)
    for _ in range(steps):
        coins = rng.random(state.shape[1], np.float32)
        force = xp.where(coins < 0.5, np.float32(-FORCE), np.float32(FORCE))
        fresh = rng.random(state.shape, np.float32) * (2 * RESET) - RESET
        state, alive = _stacked_step(lib, state, force, fresh)
        reward += alive
    return state, reward


def cartpole_norng(lib: Library, state: Array, actions: Array, resets: Array) -> Sequence[Array]:
    reward = lib.xp.zeros(state.shape[1], np.float32)
    for force, fresh in zip(actions, resets, strict=True):
        state, alive = _stacked_step(lib, state, force, fresh)
        reward += alive
    return state, reward


def separate_step(lib: Library, *arrays: Array) -> Sequence[Array]:
    """Four state arrays and the reward after one step."""
    *state, reward, force = arrays[:6]
    fresh = arrays[6:]
    moved = dynamics(lib.xp, state, force)
    done = is_done(lib.xp, moved[0], moved[2])
    kept = [lib.xp.where(done, r, m) for r, m in zip(fresh, moved, strict=True)]
    return (*kept, reward + ~done)


def each_step(step: PeerProgram, lib: Library, *arrays: Array) -> Sequence[Array]:
    """`step` once for each row of actions and resets."""
    *state, actions, resets = arrays
    carried: Sequence[Array] = (*state, lib.xp.zeros(state[0].shape, np.float32))
    for force, fresh in zip(actions, resets, strict=True):
        carried = step(*carried, force, *fresh)
    return carried


def cartpole_separate(lib: Library, *arrays: Array) -> Sequence[Array]:
    """Four state arrays; unrolling by ten changes nothing without a compiler."""
    return each_step(partial(separate_step, lib), lib, *arrays)


def program(name: str, sizes: tuple[Any, ...], library: Library = NUMPY) -> PeerProgram:
    """The zoo workload `name` of these sizes, on arrays of `library`."""
    found = science_numpy.program(name, sizes, library.xp)
    if found is not None:
        return found
    if name == "transformer_block":
        return partial(transformer_block, sizes[2], library)
    if name == "attention_window":
        return partial(attention_window, sizes[3], library)
    if name == "cartpole_naive":
        return partial(cartpole_naive, sizes[1], library)
    if name == "cartpole_policy":
        return programs_case.numpy_policy(library.xp, sizes[1])
    if name == "mlp_train_step":
        return partial(programs_case.train_step, library.xp)
    return partial(_PROGRAMS[name], library)


_PROGRAMS: dict[str, PeerProgram] = {
    "softmax": softmax,
    "layer_norm_gelu": layer_norm_gelu,
    "rms_norm_residual": rms_norm_residual,
    "swiglu": swiglu,
    "black_scholes": black_scholes,
    "adam_16": adam_16,
    "mlp": mlp,
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
    "cartpole_noconcat": cartpole_separate,
    "cartpole_unroll10": cartpole_separate,
}
