"""`jax_patch`: functions that other code gives to `jax.jit` are served by plans."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")  # an extra of its own

import autofuse  # noqa: E402 - after jax
from autofuse.errors import AutofuseError  # noqa: E402 - after jax
from autofuse.interop.jax.patch import JAX, PLAN, JaxPatch, jax_patch  # noqa: E402 - after jax

jnp = jax.numpy
X = np.linspace(-1.0, 1.0, 48, dtype=np.float32).reshape(6, 8)
OF_JAX = jax.jit


@pytest.fixture
def patch(tmp_path: Path) -> Iterator[JaxPatch]:
    with jax_patch(db=str(tmp_path / "t.db")) as found:
        yield found
    assert jax.jit is OF_JAX


def served(patch: JaxPatch) -> dict[str, str]:
    return {one.name: one.by for one in patch.calls}


def scaled(x: Any) -> Any:
    return jnp.tanh(x) * 2.0 - x


def test_a_function_is_served_by_a_plan_and_told(patch: JaxPatch) -> None:
    jitted = jax.jit(scaled)
    np.testing.assert_allclose(jitted(X), np.tanh(X) * 2 - X, rtol=1e-6)
    (call,) = patch.calls
    assert (call.name, call.by) == ("scaled", PLAN) and call.why
    assert "scaled: plan" in str(patch)


def test_options_alone_make_a_decorator(patch: JaxPatch) -> None:
    @jax.jit(static_argnames=("times",))
    def repeated(x: Any, times: int) -> Any:
        for _ in range(times):
            x = jnp.sin(x)
        return x

    np.testing.assert_allclose(repeated(X, times=2), np.sin(np.sin(X)), rtol=1e-6)
    assert served(patch) == {"repeated": PLAN}


def test_what_no_graph_holds_is_left_to_jax_and_said(patch: JaxPatch) -> None:
    def outside(x: Any) -> Any:
        told = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return jax.pure_callback(lambda a: np.asarray(a) + 1, told, x)

    np.testing.assert_allclose(jax.jit(outside)(X), X + 1)
    (call,) = patch.calls
    assert call.by == JAX and "pure_callback" in call.why


def test_what_only_jax_understands_is_left_to_it(patch: JaxPatch) -> None:
    jitted = jax.jit(scaled, device=jax.devices()[0])
    np.testing.assert_allclose(jitted(X), np.tanh(X) * 2 - X, rtol=1e-6)
    (call,) = patch.calls
    assert call.by == JAX and "device" in call.why


def test_options_that_say_nothing_are_no_reason_to_leave_it(patch: JaxPatch) -> None:
    jitted = jax.jit(scaled, in_shardings=(None,), out_shardings=None)
    np.testing.assert_allclose(jitted(X), np.tanh(X) * 2 - X, rtol=1e-6)
    assert served(patch) == {"scaled": PLAN}


def test_a_jitted_function_is_what_jax_makes_besides(patch: JaxPatch) -> None:
    jitted = jax.jit(scaled)
    assert "tanh" in jitted.lower(X).as_text()
    assert jitted.eval_shape(X).shape == X.shape
    assert jitted.__wrapped__ is scaled


def test_gradients_batches_and_loops_go_through(patch: JaxPatch) -> None:
    jitted = jax.jit(lambda x: jnp.sum(scaled(x)))
    np.testing.assert_allclose(jax.grad(jitted)(X), 2 / np.cosh(X) ** 2 - 1, rtol=1e-5, atol=1e-6)
    rows = jax.vmap(jitted)(X)
    np.testing.assert_allclose(rows, np.sum(np.tanh(X) * 2 - X, axis=1), rtol=1e-5, atol=1e-6)
    step = jax.jit(scaled)
    last, _ = jax.lax.scan(lambda c, _: (step(c), None), X, None, length=3)
    wanted = X
    for _ in range(3):
        wanted = np.tanh(wanted) * 2 - wanted
    np.testing.assert_allclose(last, wanted, rtol=1e-5, atol=1e-6)


def test_methods_are_bound(patch: JaxPatch) -> None:
    class Model:
        weight = 3.0

        @jax.jit(static_argnums=0)
        def apply(self, x: Any) -> Any:
            return x * self.weight

    np.testing.assert_allclose(Model().apply(X), X * 3)
    assert served(patch) == {"apply": PLAN}


def test_functions_go_on_afterwards(tmp_path: Path) -> None:
    with jax_patch(db=str(tmp_path / "t.db")):
        jitted = jax.jit(scaled)
    assert jax.jit is OF_JAX
    np.testing.assert_allclose(jitted(X), np.tanh(X) * 2 - X, rtol=1e-6)


def test_an_error_inside_puts_jax_back(tmp_path: Path) -> None:
    with pytest.raises(KeyError), jax_patch(db=str(tmp_path / "t.db")):
        raise KeyError
    assert jax.jit is OF_JAX


def test_one_patch_at_a_time(patch: JaxPatch) -> None:
    with pytest.raises(AutofuseError, match="patched already"), jax_patch():
        pass


def test_ours_inside_is_ours(patch: JaxPatch, tmp_path: Path) -> None:
    """`jax_jit` takes JAX's own `jax.jit`, and is not served twice."""
    found = autofuse.jax_jit(scaled, db=str(tmp_path / "own.db"))(X)
    np.testing.assert_allclose(found, np.tanh(X) * 2 - X, rtol=1e-6)
    assert patch.calls == ()
