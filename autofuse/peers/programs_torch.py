"""The zoo as a PyTorch user writes it, compiled with torch.compile. Importing this imports torch.

A roll-out is a Python loop around a compiled step (ten steps for cartpole_unroll10): unrolling a
hundred steps into one graph takes minutes to compile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name

from autofuse.peers import programs_case, science_torch
from autofuse.peers.physics import dynamics, is_done
from autofuse.peers.types import PeerProgram
from autofuse.zoo.cartpole import FORCE, RESET, UNROLL
from autofuse.zoo.products import ORDERS

Array = Any


Compile = Callable[[Callable[..., Any]], Callable[..., Any]]


def compiled(function: Callable[..., Any], mode: str = "default") -> Callable[..., Any]:
    """torch.compile for the shapes at hand."""
    made: Callable[..., Any] = torch.compile(function, dynamic=False, mode=mode)
    return made


def softmax(x: Array) -> Sequence[Array]:
    return (F.softmax(x, dim=-1),)


def _layer_norm(x: Array, gamma: Array, beta: Array) -> Array:
    return F.layer_norm(x, (x.shape[-1],), gamma, beta, eps=1e-5)


def layer_norm_gelu(x: Array, gamma: Array, beta: Array) -> Sequence[Array]:
    return (F.gelu(_layer_norm(x, gamma, beta), approximate="tanh"),)


def rms_norm_residual(x: Array, residual: Array, weight: Array) -> Sequence[Array]:
    total = x + residual
    return total, F.rms_norm(total, (x.shape[-1],), weight, eps=1e-6)


def swiglu(x: Array) -> Sequence[Array]:
    a, b = x.chunk(2, dim=-1)
    return (F.silu(a) * b,)


def _normal_cdf(x: Array) -> Array:
    return 0.5 * (1.0 + torch.erf(x * 0.5**0.5))


def black_scholes(
    spot: Array, strike: Array, years: Array, rate: Array, volatility: Array
) -> Sequence[Array]:
    spread = volatility * torch.sqrt(years)
    drift = (rate + 0.5 * volatility * volatility) * years
    d1 = (torch.log(spot / strike) + drift) / spread
    n1, n2 = _normal_cdf(d1), _normal_cdf(d1 - spread)
    discounted = strike * torch.exp(-rate * years)
    return spot * n1 - discounted * n2, discounted * (1.0 - n2) - spot * (1.0 - n1)


def adam_16(correction1: Array, correction2: Array, *tensors: Array) -> Sequence[Array]:
    count = len(tensors) // 4
    p, g, m, v = (tensors[i * count : (i + 1) * count] for i in range(4))
    new_m = [0.9 * a + 0.1 * b for a, b in zip(m, g, strict=True)]
    new_v = [0.999 * a + 0.001 * (b * b) for a, b in zip(v, g, strict=True)]
    new_p = [
        old - 1e-3 * ((first / correction1) / (torch.sqrt(second / correction2) + 1e-8))
        for old, first, second in zip(p, new_m, new_v, strict=True)
    ]
    return (*new_p, *new_m, *new_v)


def _feed_forward(x: Array, w1: Array, b1: Array, w2: Array, b2: Array) -> Array:
    return F.gelu(x @ w1 + b1, approximate="tanh") @ w2 + b2


def mlp(x: Array, w1: Array, b1: Array, w2: Array, b2: Array) -> Sequence[Array]:
    return (_feed_forward(x, w1, b1, w2, b2),)


def _attend(q: Array, k: Array, v: Array) -> Array:
    q, k, v = (a.unsqueeze(0) for a in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).squeeze(0)


def attention(q: Array, k: Array, v: Array) -> Sequence[Array]:
    return (_attend(q, k, v),)


def transformer_block(heads: int) -> PeerProgram:
    """The block for `heads` heads, which the arrays do not tell."""

    def block(x: Array, *weights: Array) -> Sequence[Array]:
        gamma1, beta1, w_qkv, w_out, gamma2, beta2, w1, b1, w2, b2 = weights
        n, width = x.shape
        qkv = _layer_norm(x, gamma1, beta1) @ w_qkv
        split = (a.reshape(n, heads, -1).transpose(0, 1) for a in qkv.chunk(3, dim=1))
        x = x + _attend(*split).transpose(0, 1).reshape(n, width) @ w_out
        return (x + _feed_forward(_layer_norm(x, gamma2, beta2), w1, b1, w2, b2),)

    return block


def _batch_norm(x: Array, scale: Array, bias: Array, mean: Array, variance: Array) -> Array:
    return F.batch_norm(x, mean, variance, scale, bias, eps=1e-5)


def convnet_block(x: Array, *tensors: Array) -> Sequence[Array]:
    (k1, *n1), (k2, *n2) = tensors[:5], tensors[5:]
    hidden = F.relu(_batch_norm(F.conv2d(x, k1, padding=1), *n1))
    return (F.relu(x + _batch_norm(F.conv2d(hidden, k2, padding=1), *n2)),)


def depthwise_block(x: Array, *tensors: Array) -> Sequence[Array]:
    (k1, *n1), (k2, *n2), (k3, *n3) = tensors[:5], tensors[5:10], tensors[10:]
    wide = F.relu6(_batch_norm(F.conv2d(x, k1), *n1))
    each = F.relu6(_batch_norm(F.conv2d(wide, k2, padding=1, groups=len(k2)), *n2))
    return (x + _batch_norm(F.conv2d(each, k3), *n3),)


def attention_grouped(q: Array, k: Array, v: Array) -> Sequence[Array]:
    q, k, v = (a.unsqueeze(0) for a in (q, k, v))
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return (mixed.squeeze(0),)


def attention_window(window: int) -> PeerProgram:
    """Attention to the last `window` places."""

    def attend(q: Array, k: Array, v: Array) -> Sequence[Array]:
        at = torch.arange(q.shape[-2], device=q.device)
        behind = at[:, None] - at
        visible = (behind >= 0) & (behind < window)
        q, k, v = (a.unsqueeze(0) for a in (q, k, v))
        return (F.scaled_dot_product_attention(q, k, v, attn_mask=visible).squeeze(0),)

    return attend


def attention_bias(q: Array, k: Array, v: Array, bias: Array) -> Sequence[Array]:
    q, k, v, bias = (a.unsqueeze(0) for a in (q, k, v, bias))
    return (F.scaled_dot_product_attention(q, k, v, attn_mask=bias).squeeze(0),)


def decode_step(
    x: Array, w_qkv: Array, w_out: Array, keys: Array, values: Array, position: Array
) -> Sequence[Array]:
    heads, cached, depth = keys.shape
    q, k, v = (x @ w_qkv).reshape(3, heads, 1, depth)
    at = torch.arange(cached, device=x.device)
    here = (at == position)[:, None]
    keys, values = torch.where(here, k, keys), torch.where(here, v, values)
    visible = (at <= position).expand(heads, 1, cached)
    mixed = F.scaled_dot_product_attention(q, keys, values, attn_mask=visible)
    return mixed.reshape(x.shape) @ w_out, keys, values


def vocabulary_loss(h: Array, w: Array, labels: Array) -> Sequence[Array]:
    return (F.cross_entropy(h @ w.T, labels.long()),)


def gated_mlp(x: Array, w_gate: Array, w_up: Array, w_down: Array) -> Sequence[Array]:
    return ((F.silu(x @ w_gate) * (x @ w_up)) @ w_down,)


def int8_product(x: Array, weights: Array, scale: Array, bias: Array) -> Sequence[Array]:
    return (x @ (weights.float() * scale) + bias,)


def batched_products(*operands: Array) -> Sequence[Array]:
    x, y = operands[: len(ORDERS)], operands[len(ORDERS) :]
    return [torch.einsum(*each) for each in zip(ORDERS, x, y, strict=True)]


def _stacked_step(state: Array, reward: Array, force: Array, fresh: Array) -> tuple[Array, Array]:
    moved = torch.stack(dynamics(torch, state.unbind(0), force))
    done = is_done(torch, moved[0], moved[2])
    return torch.where(done, fresh, moved), reward + torch.where(done, 0.0, 1.0)


def cartpole_naive(steps: int, compiled: Compile) -> PeerProgram:
    """`steps` steps with torch.rand: other numbers, the same distributions."""

    def draw_and_step(state: Array, reward: Array) -> tuple[Array, Array]:
        coins = torch.rand(state.shape[1], device=state.device)
        force = torch.where(coins < 0.5, -FORCE, FORCE)
        fresh = torch.rand(state.shape, device=state.device) * (2 * RESET) - RESET
        return _stacked_step(state, reward, force, fresh)

    step = compiled(draw_and_step)

    def roll(key: Array, state: Array) -> Sequence[Array]:
        reward = torch.zeros(state.shape[1], device=state.device)
        for _ in range(steps):
            state, reward = step(state, reward)
        return state, reward

    return roll


def cartpole_norng(compiled: Compile) -> PeerProgram:
    step = compiled(_stacked_step)

    def roll(state: Array, actions: Array, resets: Array) -> Sequence[Array]:
        reward = torch.zeros(state.shape[1], device=state.device)
        for force, fresh in zip(actions.unbind(0), resets.unbind(0), strict=True):
            state, reward = step(state, reward, force, fresh)
        return state, reward

    return roll


def cartpole_separate(unroll: int, compiled: Compile) -> PeerProgram:
    """Four state arrays, `unroll` steps per call of the compiled function."""

    def steps(carried: Sequence[Array], forces: Array, fresh: Array) -> list[Array]:
        for i in range(unroll):
            *state, reward = carried
            moved = dynamics(torch, state, forces[i])
            done = is_done(torch, moved[0], moved[2])
            kept = [torch.where(done, r, m) for r, m in zip(fresh[i].unbind(0), moved, strict=True)]
            carried = [*kept, reward + torch.where(done, 0.0, 1.0)]
        return list(carried)

    chunk = compiled(steps)

    def roll(*arrays: Array) -> Sequence[Array]:
        *state, actions, resets = arrays
        carried = [*state, torch.zeros_like(state[0])]
        for forces, fresh in zip(actions.split(unroll), resets.split(unroll), strict=True):
            carried = chunk(carried, forces, fresh)
        return carried

    return roll


def program(name: str, sizes: tuple[Any, ...], compiled: Compile = compiled) -> PeerProgram:
    """The zoo workload `name` of these sizes, compiled by `compiled`."""
    found = science_torch.program(name, sizes, compiled)
    if found is not None:
        return found
    if name == "transformer_block":
        return compiled(transformer_block(sizes[2]))
    if name == "attention_window":
        return compiled(attention_window(sizes[3]))
    if name == "cartpole_naive":
        return cartpole_naive(sizes[1], compiled)
    if name == "cartpole_policy":
        return programs_case.torch_policy(sizes[1], compiled)
    if name == "mlp_train_step":
        return compiled(partial(programs_case.train_step, torch))
    return _ROLL_OUTS[name](compiled) if name in _ROLL_OUTS else compiled(_PROGRAMS[name])


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
}
_ROLL_OUTS: dict[str, Callable[[Compile], PeerProgram]] = {
    "cartpole_norng": cartpole_norng,
    "cartpole_noconcat": partial(cartpole_separate, 1),
    "cartpole_unroll10": partial(cartpole_separate, UNROLL),
}
