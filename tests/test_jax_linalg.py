"""Small dense linear algebra of JAX programs as loops over columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy as jsp
import numpy as np
import pytest

import autofuse
from autofuse.frontends.jax.jaxpr import from_jax
from autofuse.graph.reference import evaluate
from tests.support.jax_check import check

RNG = np.random.default_rng(7)
A = RNG.standard_normal((2, 5, 5))
SPD = A @ A.swapaxes(1, 2) + 5 * np.eye(5)
B = RNG.standard_normal((2, 5, 3))
_cg: Callable[..., Any] = jsp.sparse.linalg.cg
TALL, WIDE = RNG.standard_normal((6, 4)), RNG.standard_normal((2, 3, 5))


@pytest.fixture(autouse=True)
def _wide_numbers() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "cholesky": (jnp.linalg.cholesky, (SPD,)),
    "cholesky_upper": (jsp.linalg.cholesky, (SPD[0],)),
    "cholesky_f32": (jnp.linalg.cholesky, (SPD.astype(np.float32),)),
    "not_positive": (jnp.linalg.cholesky, (-SPD,)),
    "solve": (jnp.linalg.solve, (A, B)),
    "inv": (jnp.linalg.inv, (A,)),
    "det": (jnp.linalg.det, (A,)),
    "slogdet": (jnp.linalg.slogdet, (A,)),
    "lu_wide": (jsp.linalg.lu, (WIDE[0],)),
    "lu_tall": (lambda a: jax.lax.linalg.lu(a), (TALL,)),
    "singular": (lambda a: jax.lax.linalg.lu(a)[0], (np.ones((3, 3)),)),
    "qr": (lambda a: jnp.linalg.qr(a), (TALL,)),
    "qr_whole": (lambda a: jnp.linalg.qr(a, mode="complete"), (TALL,)),
    "qr_wide": (lambda a: jnp.linalg.qr(a), (WIDE,)),
    "eigenvalues": (jnp.linalg.eigvalsh, (SPD,)),
    "eigenvalues_even": (jnp.linalg.eigvalsh, (SPD[:, :4, :4],)),
    "eigenvalues_equal": (jnp.linalg.eigvalsh, (np.ones((6, 6)) + 3 * np.eye(6),)),
    "singular_values": (lambda a: jnp.linalg.svd(a, compute_uv=False), (WIDE,)),
    "lstsq": (lambda a, b: jnp.linalg.lstsq(a, b)[0], (TALL, RNG.standard_normal(6))),
    "pinv": (jnp.linalg.pinv, (TALL,)),
    "expm": (jsp.linalg.expm, (A[0],)),
    "cg": (lambda a, b: _cg(lambda u: a @ u, b)[0], (SPD[0], B[0, :, 0])),
    "tridiagonal": (
        jax.lax.linalg.tridiagonal_solve,
        (RNG.random(5), RNG.random(5), RNG.random(5), RNG.random((5, 2))),
    ),
    "one_by_one": (jnp.linalg.solve, (np.full((1, 1), 3.0), np.ones((1, 2)))),
    **{
        f"solve_{left}_{lower}_{turned}_{unit}": (
            lambda a, b, o=(left, lower, turned, unit): jax.lax.linalg.triangular_solve(
                a, b, left_side=o[0], lower=o[1], transpose_a=o[2], unit_diagonal=o[3]
            ),
            (SPD[0], B[0] if left else B[0].T),
        )
        for left in (0, 1)
        for lower in (0, 1)
        for turned in (0, 1)
        for unit in (0, lower)
    },
}
GRADIENTS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "solve": (lambda a, b: jnp.sin(jnp.linalg.solve(a, b)).sum(), (A, B)),
    "cholesky": (lambda a: jnp.cos(jnp.linalg.cholesky(a)).sum(), (SPD,)),
    "logdet": (lambda a: jnp.linalg.slogdet(a)[1].sum(), (A,)),
    "eigenvalues": (lambda a: (jnp.linalg.eigvalsh(a) ** 2 * jnp.arange(5.0)).sum(), (SPD,)),
    "qr": (lambda a: jnp.sin(jnp.linalg.qr(a)[1]).sum(), (TALL,)),
}


@pytest.mark.parametrize("name", CASES)
def test_linear_algebra(name: str) -> None:
    fn, args = CASES[name]
    check(fn, *args)


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name: str) -> None:
    fn, args = GRADIENTS[name]
    check(jax.grad(fn), *args)


@pytest.mark.parametrize("order", [1, 2, 3, 4, 8, 16, 40])
def test_eigenvectors_make_the_matrix_again(order: int) -> None:
    a = RNG.standard_normal((3, order, order))
    a = a + a.swapaxes(1, 2)
    values, vectors = evaluate(from_jax(jnp.linalg.eigh, a), [a])
    np.testing.assert_allclose(values, np.linalg.eigvalsh(a), atol=1e-12)
    whole = vectors @ (values[..., None] * vectors.swapaxes(1, 2))
    np.testing.assert_allclose(whole, a, atol=1e-12)
    np.testing.assert_allclose(vectors.swapaxes(1, 2) @ vectors, np.eye(order) + 0 * a, atol=1e-12)


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("shape", [(6, 4), (2, 3, 5), (4, 4)])
def test_singular_vectors_make_the_matrix_again(shape: tuple[int, ...], full: bool) -> None:
    a = RNG.standard_normal(shape)
    a[..., -1] = a[..., 0]  # of less than full rank
    u, s, v = evaluate(from_jax(lambda x: jnp.linalg.svd(x, full_matrices=full), a), [a])
    assert u.shape == np.linalg.svd(a, full_matrices=full)[0].shape
    k = s.shape[-1]
    np.testing.assert_allclose(s, np.linalg.svd(a, compute_uv=False), atol=1e-12)
    whole = u[..., :k] @ (s[..., None] * v[..., :k, :])
    np.testing.assert_allclose(whole, a, atol=1e-12)
    np.testing.assert_allclose(
        u.swapaxes(-1, -2) @ u, np.eye(u.shape[-1]) + 0 * (u.swapaxes(-1, -2) @ u), atol=1e-12
    )


def test_a_plan_solves_a_batch() -> None:
    found = autofuse.jax_jit(jnp.linalg.solve)(A, B)
    np.testing.assert_allclose(np.asarray(found), np.linalg.solve(A, B), rtol=1e-10)


def test_a_plan_steps_through_mass_matrices() -> None:
    """As a robot arm does: a system is solved in every step of a scan."""

    def run(q: Any) -> Any:
        def step(q: Any, _: Any) -> Any:
            mass = jnp.eye(3) * 2 + jnp.cos(q[:, None] - q[None]) * 0.1
            q = q + 0.01 * jnp.linalg.solve(mass, -jnp.sin(q))
            return q, q

        return jax.lax.scan(step, q, None, length=20)

    q = np.array([0.3, -0.2, 1.0])
    for found, want in zip(autofuse.jax_jit(run)(q), jax.jit(run)(q), strict=True):
        np.testing.assert_allclose(np.asarray(found), np.asarray(want), rtol=1e-10)
