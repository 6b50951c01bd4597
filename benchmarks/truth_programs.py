"""Programs whose float64 reference took all of a budget of 20 s when NumPy computed it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autofuse import from_jax
from autofuse.graph.types import Graph

F32 = np.float32


def _normal(*shape: int) -> np.ndarray:
    return np.zeros(shape, F32)


def conv2d() -> Graph:
    """Two convolutions of 3 x 3 with an activation, 64 channels, 8 images of 128 x 128."""

    def run(x: Any, w: Any, v: Any) -> Any:
        conv = jax.lax.conv_general_dilated
        y = jax.nn.gelu(conv(x, w, (1, 1), "SAME"))
        return conv(y, v, (1, 1), "SAME")

    return from_jax(run, _normal(8, 64, 128, 128), _normal(64, 64, 3, 3), _normal(64, 64, 3, 3))


def conv3d() -> Graph:
    """A convolution of 3 x 3 x 3, 32 to 64 channels, 4 volumes of 16 x 64 x 64."""

    def run(x: Any, w: Any) -> Any:
        numbers = ("NCDHW", "OIDHW", "NCDHW")
        y = jax.lax.conv_general_dilated(x, w, (1, 1, 1), "SAME", dimension_numbers=numbers)
        return jax.nn.relu(y)

    return from_jax(run, _normal(4, 32, 16, 64, 64), _normal(64, 32, 3, 3, 3))


def paged_attention() -> Graph:
    """16 sequences of 64 pages of 16 keys, 16 heads of 64."""

    def run(q: Any, keys: Any, values: Any, pages: Any) -> Any:
        k = keys[pages].reshape(16, 64 * 16, 16, 64)
        v = values[pages].reshape(16, 64 * 16, 16, 64)
        scores = jnp.einsum("bhd,bkhd->bhk", q, k) / 8.0
        return jnp.einsum("bhk,bkhd->bhd", jax.nn.softmax(scores), v)

    pages = np.zeros((16, 64), np.int32)
    return from_jax(run, _normal(16, 16, 64), _normal(1024, 16, 16, 64),
                    _normal(1024, 16, 16, 64), pages)  # fmt: skip


def histogram() -> Graph:
    """Counts of 100,000 numbers in 64 bins, one after another."""

    def run(x: Any) -> Any:
        def add(i: Any, counts: Any) -> Any:
            bin_ = jnp.clip((x[i] * 32 + 32).astype(jnp.int32), 0, 63)
            return counts.at[bin_].add(1.0)

        return jax.lax.fori_loop(0, x.shape[0], add, jnp.zeros(64, F32))

    return from_jax(run, _normal(100_000))


def _neurons(current: Any, v: Any, steps: int) -> Any:
    """Hodgkin and Huxley's model, forward Euler."""

    def step(state: tuple[Any, ...], _: None) -> tuple[tuple[Any, ...], Any]:
        v, m, h, n = state
        am = 0.1 * (v + 40.0) / (1.0 - jnp.exp(-(v + 40.0) / 10.0) + 1e-6)
        bm = 4.0 * jnp.exp(-(v + 65.0) / 18.0)
        ah = 0.07 * jnp.exp(-(v + 65.0) / 20.0)
        bh = 1.0 / (1.0 + jnp.exp(-(v + 35.0) / 10.0))
        an = 0.01 * (v + 55.0) / (1.0 - jnp.exp(-(v + 55.0) / 10.0) + 1e-6)
        bn = 0.125 * jnp.exp(-(v + 65.0) / 80.0)
        ion = 120.0 * m**3 * h * (v - 50.0) + 36.0 * n**4 * (v + 77.0) + 0.3 * (v + 54.4)
        dt = 0.01
        new = (
            v + dt * (current - ion),
            m + dt * (am * (1 - m) - bm * m),
            h + dt * (ah * (1 - h) - bh * h),
            n + dt * (an * (1 - n) - bn * n),
        )
        return new, new[0]

    begin = (-65.0 + v, jnp.full_like(v, 0.05), jnp.full_like(v, 0.6), jnp.full_like(v, 0.32))
    (end, *_), trace = jax.lax.scan(step, begin, None, steps)
    return jnp.mean(trace) + jnp.sum(end) * 1e-3


def neurons() -> Graph:
    """4,096 neurons over 200 steps."""
    return from_jax(lambda c, v: _neurons(c, v, 200), _normal(4096), _normal(4096))


def neurons_gradient() -> Graph:
    """The gradient of the same by the current."""
    run = jax.grad(lambda c, v: _neurons(c, v, 200))
    return from_jax(run, _normal(4096), _normal(4096))


PROGRAMS: tuple[Callable[[], Graph], ...] = (
    conv2d, conv3d, paged_attention, histogram, neurons, neurons_gradient,
)  # fmt: skip
