"""Derivatives and batches of what `jax_jit` serves are served by plans."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autofuse

RNG = np.random.default_rng(5)
X = RNG.random((3, 4), np.float32)
W = RNG.random(4, np.float32)
Use = Callable[[Callable[..., Any]], Any]


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


def loss(x: Any, w: Any) -> Any:
    return jnp.sum(jnp.sin(x * w) ** 2)


def steps(x: Any, w: Any) -> Any:
    """A scan that stacks, and a number that has no derivative."""

    def step(c: Any, row: Any) -> Any:
        c = jnp.tanh(c * w + row)
        return c, c.sum()

    last, sums = jax.lax.scan(step, w, x)
    return {"last": last, "sums": sums, "best": jnp.argmax(sums)}


@jax.custom_vjp
def clipped(x: Any) -> Any:
    return x * 2


clipped.defvjp(lambda x: (x * 2, x), lambda x, g: (jnp.clip(g, -0.1, 0.1) * x,))


def _total(f: Callable[..., Any], x: Any) -> Any:
    found = f(x, W)
    return (found["last"] ** 2).sum() + found["sums"][0]


def _scanned(f: Callable[..., Any], x: Any) -> Any:
    return jax.lax.scan(lambda c, row: (c + f(row[None], W), c), jnp.float32(0), x)[0]


def _branched(f: Callable[..., Any], x: Any) -> Any:
    return jax.lax.cond(x[0, 0] > 0, lambda: f(x, W), lambda: jnp.float32(0))


USES: dict[str, tuple[Callable[..., Any], Use]] = {
    "grad": (loss, lambda f: jax.grad(f, (0, 1))(X, W)),
    "value_and_grad": (loss, lambda f: jax.jit(jax.value_and_grad(f))(X, W)),
    "vjp": (loss, lambda f: jax.vjp(f, X, W)[1](jnp.float32(2))),
    "jvp": (loss, lambda f: jax.jvp(f, (X, W), (X + 1, W))),
    "linearize": (loss, lambda f: jax.linearize(f, X, W)[1](X, W)),
    "jacrev": (steps, lambda f: jax.jacrev(lambda x: f(x, W)["last"])(X)),
    "jacfwd": (steps, lambda f: jax.jacfwd(lambda x: f(x, W)["last"])(X)),
    "hessian": (loss, lambda f: jax.hessian(f, 1)(X, W)),
    "second": (loss, lambda f: jax.grad(lambda x: (jax.grad(f)(x, W) ** 2).sum())(X)),
    "scan": (steps, lambda f: jax.grad(partial(_total, f))(X)),
    "in_scan": (loss, lambda f: jax.grad(partial(_scanned, f))(X)),
    "in_checkpoint": (loss, lambda f: jax.grad(jax.checkpoint(lambda x: f(x, W) ** 2))(X)),
    "vmap": (loss, lambda f: jax.vmap(f, (0, None))(X, W)),
    "vmap_of_last": (loss, lambda f: jax.vmap(f, (1, 0))(X, W)),
    "vmap_twice": (loss, lambda f: jax.vmap(jax.vmap(f), (None, 0))(X[0], X)),
    "vmap_of_grad": (loss, lambda f: jax.vmap(jax.grad(f), (0, None))(X, W)),
    "grad_of_vmap": (loss, lambda f: jax.grad(lambda w: jax.vmap(f, (0, None))(X, w).prod())(W)),
    "vmap_steps": (steps, lambda f: jax.vmap(f, (None, 0))(X, X)),
    "in_cond": (loss, lambda f: jax.grad(partial(_branched, f))(X)),
    "custom_vjp": (lambda x, w: (clipped(x) * w).sum(), lambda f: jax.grad(f, (0, 1))(X, W)),
}  # fmt: skip


@pytest.mark.wide(6)
@pytest.mark.filterwarnings("error:.*left to jax")
@pytest.mark.parametrize("name", USES)
def test_plans_serve(name: str) -> None:
    fn, use = USES[name]
    for found, want in zip(
        jax.tree.leaves(use(autofuse.jax_jit(fn))), jax.tree.leaves(use(fn)), strict=True
    ):
        assert (found.shape, found.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(np.asarray(found), np.asarray(want), rtol=1e-4, atol=1e-5)


def test_programs_hold_plans_of_forward_and_backward() -> None:
    text = jax.jit(jax.grad(autofuse.jax_jit(loss))).lower(X, W).as_text()
    assert text.count("custom_call @autofuse_plan") == 2
    assert "sine" not in text


def test_what_of_a_derivative_cannot_become_a_graph_is_left_to_jax_and_told() -> None:
    @jax.custom_vjp
    def odd(x: Any) -> Any:
        return x * 2

    odd.defvjp(lambda x: (x * 2, x), lambda x, g: (jax.pure_callback(np.cos, x, x) * g,))
    with pytest.warns(RuntimeWarning, match=r"'<lambda>_tangent_backward' is left .*pure_callback"):
        found = jax.grad(autofuse.jax_jit(lambda x: odd(x).sum()))(X)
    np.testing.assert_allclose(np.asarray(found), np.cos(X), rtol=1e-6)


def test_a_graph_of_a_program_that_plans_serve() -> None:
    program = jax.jit(lambda x: autofuse.jax_jit(loss)(x, W) * 2)
    program(X)
    graph = autofuse.from_jax(program, X)
    assert "sin" in {node.op for node in graph.nodes}
