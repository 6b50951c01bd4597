"""Graphs from jax: complex numbers, the total order of floats, and what only shows values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax._src.lax import lax as private

import autofuse
from autofuse.frontends.jax.jaxpr import from_jax
from autofuse.graph.reference import evaluate
from tests.support.jax_check import check

RE = jnp.array([1.5, -2.0, 0.0, 3e19, -1e-3, 2.0], jnp.float32)
IM = jnp.array([0.5, 0.0, -4.0, 1e19, 2e-3, -2.0], jnp.float32)
OF = jnp.array([-0.7, 3.0, 2.0, 2e19, 4e-3, 0.0], jnp.float32)


def _parts(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn` of two complex numbers as a function of real ones."""

    def parts(a: Any, b: Any, c: Any, d: Any) -> Any:
        z = fn(lax.complex(a, b), lax.complex(c, d))
        return (jnp.real(z), jnp.imag(z)) if jnp.iscomplexobj(z) else z

    return parts


@pytest.mark.parametrize(
    "fn",
    {
        "div": lambda x, y: x / y,
        "over_real": lambda x, y: x / 8,
        "real_over": lambda x, y: 3.0 / y,
        "eq": lambda x, y: x == y,
        "ne": lambda x, y: x != y,
        "reciprocal_square": lambda x, y: (x / 1e19 + 1) ** -2,
        "cube": lambda x, y: (x / 1e19) ** 3,
        "square": lambda x, y: jnp.square(x / 1e19),
        "log": lambda x, y: jnp.log(x),
        "dot": lambda x, y: jnp.dot(x / 1e19, y / 1e19),
        "outer": lambda x, y: jnp.outer(x / 1e19, y.real),
        "written": lambda x, y: x.at[jnp.array([3, 1])].set(y[:2]),
        "added": lambda x, y: x.at[jnp.array([1, 1, 4])].add(y[:3]),
        "taken_off": lambda x, y: x.at[2].subtract(y[0]),
    }.values(),
)
def test_complex_numbers(fn: Callable[..., Any]) -> None:
    check(_parts(fn), RE, IM, OF, IM[::-1])


def test_a_spectral_poisson_solver() -> None:
    def solve(f: Any) -> Any:
        n = f.shape[0]
        k = jnp.fft.fftfreq(n, 1 / n) * 1j
        laplacian = k[:, None] ** 2 + k[None, :] ** 2
        found = jnp.fft.fft2(f) / jnp.where(laplacian == 0, 1, laplacian)
        return jnp.fft.ifft2(found).real

    check(solve, jnp.asarray(np.random.default_rng(0).normal(size=(16, 16)), jnp.float32))


def test_the_total_order_of_floats() -> None:
    kinds = np.array([-np.nan, -np.inf, -1.0, -0.0, 0.0, 1e-45, 2.0, np.inf, np.nan], np.float32)
    kinds[0] = np.copysign(np.float32(np.nan), np.float32(-1))

    def bound(x: Any, y: Any) -> Any:
        found = (private.lt_to_p, private.le_to_p, private.eq_to_p)
        return [p.bind(x, y) for p in found]

    x, y = (jnp.asarray(a.reshape(-1)) for a in np.meshgrid(kinds, kinds))
    check(bound, x, y)


@pytest.mark.parametrize("side", ["left", "right"])
def test_searching_sorted_numbers(side: str) -> None:
    table = jnp.array([-2.0, -0.0, 0.5, 0.5, 3.0, jnp.inf, jnp.nan], jnp.float32)
    sought = jnp.array([-5.0, 0.0, 0.5, 0.6, jnp.inf, jnp.nan], jnp.float32)
    check(lambda a, b: jnp.searchsorted(a, b, side=side), table, sought)
    check(lambda a, b: jnp.digitize(b, a[:5], right=side == "right"), table, sought[:4])


def test_interpolation_and_histograms() -> None:
    x = jnp.linspace(-3.0, 4.0, 23, dtype=jnp.float32)
    check(lambda v: jnp.interp(v, x[::3] * 0.9, jnp.sin(x[::3])), x)
    check(lambda v: jnp.histogram(v, bins=5, range=(-2.0, 3.0))[0], x)


def test_what_only_shows_values_is_left_out_and_told() -> None:
    def noisy(x: Any) -> Any:
        jax.debug.print("x is {}", x)
        jax.debug.callback(lambda v: None, x)
        return x * 2

    with pytest.warns(RuntimeWarning) as told:
        graph = from_jax(noisy, 1.5)
    said = [str(w.message) for w in told]
    assert [
        f"jax primitive '{n}' is left out: a plan shows nothing" in s
        for n, s in zip(("debug_print", "debug_callback"), said, strict=True)
    ] == [True, True]
    assert all("test_frontend_jax_numbers.py:" in s for s in said)
    assert float(evaluate(graph, [np.array(1.5, np.float32)])[0]) == 3.0


def test_showing_values_inside_a_loop() -> None:
    def body(i: Any, x: Any) -> Any:
        jax.debug.print("{}", i)
        return x + i

    with pytest.warns(RuntimeWarning, match="debug_print"):
        graph = from_jax(lambda x: lax.fori_loop(0, 5, body, x), 1.0)
    assert float(evaluate(graph, [np.array(1.0, np.float32)])[0]) == 11.0


def test_reductions_by_any_computation() -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4) - 7

    def largest(p: Any, q: Any) -> tuple[Any, Any]:
        """Of pairs, the one whose first number is the larger."""
        keep = p[0] >= q[0]
        return jnp.where(keep, p[0], q[0]), jnp.where(keep, p[1], q[1])

    check(lambda v: jax.lax.reduce(v, np.float32(1), lambda a, b: a * 0.5 + b, (1,)), x)
    check(lambda v: jax.lax.reduce((v, -v), (np.float32(-99), np.float32(0)), largest, (0, 2)), x)
    check(lambda v: jax.lax.reduce(v, np.float32(3), lambda a, b: a * b + 1, (0,)), x[:0])


def test_approximate_top_k_is_exact() -> None:
    x = np.random.default_rng(2).random((3, 40), np.float32)
    check(lambda v: jax.lax.approx_max_k(v, 4), x)
    check(lambda v: jax.lax.approx_min_k(v, 4), x)


Z = np.array(
    [1.5 + 0.5j, -2.0, 0.0, -0.25 - 3j, 1e-3j, 2.0 - 2j, -1e-4 + 1e-4j, 1e3 - 40j], np.complex64
)


@pytest.mark.parametrize(
    "name",
    [
        "sqrt",
        "sin",
        "cos",
        "tan",
        "sinh",
        "cosh",
        "tanh",
        "expm1",
        "log1p",
        "sign",
        "cumsum",
        "exp",
    ],
)
def test_functions_of_complex_numbers(name: str) -> None:
    z = Z if name in ("sqrt", "log1p", "sign", "cumsum") else Z[:7]
    graph = from_jax(getattr(jnp, name), z)
    assert [t.shape for t in graph.input_types] == [(*z.shape, 2)]
    (found,) = evaluate(graph, [z.view(np.float32).reshape(*z.shape, 2)])
    want = np.asarray(jax.jit(getattr(jnp, name))(z))
    np.testing.assert_allclose(found[..., 0] + 1j * found[..., 1], want, rtol=1e-5, atol=1e-6)


def test_powers_of_complex_numbers() -> None:
    powers: list[Callable[[Any], Any]] = [
        lambda x: x**1.5, lambda x: x ** (0.5 + 1j), lambda x: 2.0**x,
    ]  # fmt: skip
    for fn in powers:
        (found,) = evaluate(from_jax(fn, Z[:7]), [Z[:7].view(np.float32).reshape(7, 2)])
        want = np.asarray(fn(Z[:7].astype(np.complex128)))
        np.testing.assert_allclose(found[..., 0] + 1j * found[..., 1], want, rtol=1e-5, atol=1e-6)


def test_plans_take_and_give_complex_arrays() -> None:
    def fn(z: Any) -> Any:
        return jnp.exp(z) * 1j, jnp.abs(z).sum()

    fast = autofuse.jax_jit(fn)
    for found, want in zip(fast(Z[:7]), fn(Z[:7]), strict=True):
        assert found.dtype == want.dtype
        np.testing.assert_allclose(np.asarray(found), np.asarray(want), rtol=1e-5)

    def loss(of: Callable[..., Any]) -> Any:
        return jax.grad(lambda x: jnp.abs(of(x + 1j)[0]).sum())(RE[:3])

    np.testing.assert_allclose(np.asarray(loss(fast)), np.asarray(loss(fn)), rtol=1e-5)
