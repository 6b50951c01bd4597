"""Blocks of convolutional networks as they run after training, channels first."""

from __future__ import annotations

import math

import autofuse.frontends.array_api as xp
from autofuse.frontends.array_api.array import TracedArray
from autofuse.frontends.array_api.tracer import Spec, spec, trace
from autofuse.graph.types import Graph

Array = TracedArray
EPS = 1e-5
# What activations are cut at in MobileNet.
CEILING = 6.0


def _kernel(outs: int, ins: int, size: int) -> Spec:
    """A kernel whose convolutions keep the size of their inputs."""
    bound = math.sqrt(3.0 / (ins * size * size))
    return spec((outs, ins, size, size), low=-bound, high=bound)


def _norm_specs(channels: int) -> tuple[Spec, ...]:
    """Scale, bias, running mean and running variance."""
    around = spec(channels, low=-0.5, high=0.5)
    return (spec(channels, low=0.5, high=1.5), around, around, spec(channels, low=0.5, high=1.5))


def _norm(x: Array, scale: Array, bias: Array, mean: Array, variance: Array) -> Array:
    """Batch norm with running statistics."""
    factor, offset, centre = (
        a[:, None, None] for a in (scale / xp.sqrt(variance + EPS), bias, mean)
    )
    return (x - centre) * factor + offset


def convnet_block(batch: int, size: int, channels: int) -> Graph:
    """A residual block on x f32[batch, channels, size, size]: relu(x + norm(conv(h))) with
    h = relu(norm(conv(x))), both convolutions 3 x 3."""

    def fn(x: Array, k1: Array, n1: list[Array], k2: Array, n2: list[Array]) -> dict[str, Array]:
        hidden = xp.relu(_norm(xp.conv(x, k1, padding=1), *n1))
        return {"y": xp.relu(x + _norm(xp.conv(hidden, k2, padding=1), *n2))}

    kernel, norm = _kernel(channels, channels, 3), list(_norm_specs(channels))
    return trace(fn, spec((batch, channels, size, size)), kernel, norm, kernel, norm)


def depthwise_block(batch: int, size: int, channels: int, expansion: int) -> Graph:
    """An inverted residual block on x f32[batch, channels, size, size]: 1 x 1 to `expansion` times
    the channels, 3 x 3 in each channel, 1 x 1 back, each with a norm; added to x."""

    def fn(
        x: Array, k1: Array, n1: list[Array], k2: Array, n2: list[Array], k3: Array, n3: list[Array]
    ) -> dict[str, Array]:
        wide = xp.clip(_norm(xp.conv(x, k1), *n1), 0.0, CEILING)
        each = xp.conv(wide, k2, padding=1, groups=wide.shape[1])
        mixed = xp.clip(_norm(each, *n2), 0.0, CEILING)
        return {"y": x + _norm(xp.conv(mixed, k3), *n3)}

    width = channels * expansion
    wide, narrow = list(_norm_specs(width)), list(_norm_specs(channels))
    return trace(
        fn, spec((batch, channels, size, size)), _kernel(width, channels, 1), wide,
        _kernel(width, 1, 3), wide, _kernel(channels, width, 1), narrow,
    )  # fmt: skip
