"""Fourier transforms and complex numbers, which are pairs of arrays in graphs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autofuse
from autofuse import xp
from autofuse.frontends.errors import TraceError
from autofuse.frontends.jax.jaxpr import from_jax
from autofuse.graph.reference import evaluate

RNG = np.random.default_rng(5)
Array = jax.Array


def close(found: np.ndarray, wanted: np.ndarray) -> None:
    np.testing.assert_allclose(found, wanted, atol=2e-6 * max(1.0, float(np.abs(wanted).max())))


@pytest.mark.parametrize("n", [1, 2, 7, 32, 37, 60, 74, 128, 521, 1024, 1202])
def test_transforms_are_those_of_numpy(n: int) -> None:
    re, im = RNG.standard_normal((2, 3, n), np.float32)
    kind = autofuse.spec((3, n))

    def every(a: xp.TracedArray, b: xp.TracedArray) -> tuple[xp.TracedArray, ...]:
        whole = xp.fft.fft((a, b))
        half = xp.fft.rfft(a)
        return (*whole, *xp.fft.ifft(whole), *half, xp.fft.irfft(half, n=n))

    found = evaluate(autofuse.trace(every, kind, kind), (re, im))
    whole, half = np.fft.fft(re + 1j * im), np.fft.rfft(re)
    wanted = (whole.real, whole.imag, re, im, half.real, half.imag, re)
    for one, other in zip(found, wanted, strict=True):
        close(one, other)


def test_along_another_axis() -> None:
    x = RNG.standard_normal((12, 5), np.float32)
    graph = autofuse.trace(lambda a: xp.fft.rfft(a, axis=0), autofuse.spec((12, 5)))
    wanted = np.fft.rfft(x, axis=0)
    for found, part in zip(evaluate(graph, (x,)), (wanted.real, wanted.imag), strict=True):
        close(found, part)


def spectral(x: Array) -> tuple[Array, ...]:
    z = jnp.fft.rfft(x)
    shifted = jnp.fft.irfft(z * jnp.exp(-0.1j * jnp.arange(z.shape[-1])), n=x.shape[-1])
    grid = jnp.fft.ifft2(jnp.conj(jnp.fft.fft2(x)) - (2 + 1j))
    return shifted, jnp.abs(z), grid.real, jnp.fft.irfft2(jnp.fft.rfft2(x)), jnp.sum(grid).imag


def carried(x: Array) -> Array:
    def step(z: Array, _: None) -> tuple[Array, Array]:
        return jnp.fft.fft(z) * 0.1, z.real

    return jax.lax.scan(step, x + 0j, None, length=3)[1]


@pytest.mark.parametrize("program", [spectral, carried])
def test_jax_programs_may_be_complex_inside(program: object) -> None:
    assert callable(program)
    x = RNG.standard_normal((8, 10), np.float32)
    wanted = jax.tree_util.tree_leaves(program(jnp.asarray(x)))
    for found, other in zip(evaluate(from_jax(program, x), (x,)), wanted, strict=True):
        close(found, np.asarray(other))


def test_a_plan_transforms() -> None:
    x = RNG.standard_normal((4, 96), np.float32)
    graph = autofuse.trace(lambda a: xp.fft.rfft(a), autofuse.spec((4, 96)))
    found, wanted = autofuse.compile(graph, device="cpu", plan="unfused")(x), np.fft.rfft(x)
    close(found[0], wanted.real)
    close(found[1], wanted.imag)


def test_refusals() -> None:
    with pytest.raises(TraceError, match="needs floats, of one dtype and shape"):
        autofuse.trace(lambda a: xp.fft.fft((a, a[:2])), autofuse.spec(4))
    with pytest.raises(TraceError, match="not those of the transform of 9 numbers"):
        autofuse.trace(lambda a: xp.fft.irfft((a, a), n=9), autofuse.spec(4))
