"""jax_jit: JAX functions served by plans, on their own and inside JAX programs."""

from __future__ import annotations

import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autofuse
from autofuse import AutofuseError
from autofuse.interop.jax import ffi as jax_ffi
from autofuse.interop.jax import jit as jax_jit
from autofuse.tuning.job import tuner
from tests.support.toy_device import QUICK

RNG = np.random.default_rng(5)
X = RNG.random((6, 8), np.float32)
W = RNG.random(8, np.float32)


class Pair(NamedTuple):
    a: Any
    b: Any


@pytest.fixture
def db(tmp_path: Path) -> str:
    return str(tmp_path / "tuning.db")


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, two_baselines: None) -> None:
    """Little is sampled."""
    monkeypatch.setattr(tuner, "Sampling", lambda cache, **_: replace(QUICK, cache=cache))


def score(x: Any, w: Any) -> dict[str, Any]:
    return {"y": jax.nn.softmax(x * w, axis=-1), "total": jnp.sum(x)}


def same(found: Any, wanted: Any, rtol: float = 1e-5) -> None:
    """Equal pytrees of jax arrays of equal types, values within `rtol`."""
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert isinstance(one, jax.Array)
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        np.testing.assert_allclose(
            np.asarray(one, np.float64), np.asarray(other, np.float64), rtol=rtol, atol=1e-6
        )


def agrees(fn: Callable[..., Any], *args: Any, rtol: float = 1e-5, **kwargs: Any) -> None:
    same(autofuse.jax_jit(fn)(*args, **kwargs), jax.jit(fn)(*args, **kwargs), rtol)


@pytest.mark.parametrize("as_array", [np.asarray, jnp.asarray], ids=["numpy", "jax"])
def test_a_call_gives_what_jax_gives(as_array: Callable[[Any], Any]) -> None:
    agrees(score, as_array(X), as_array(W))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int32", "uint8", "bool"])
def test_dtypes(dtype: str) -> None:
    def fn(x: Any) -> Any:
        return jnp.where(x > x[0], x, x[1]), jnp.max(x)

    agrees(fn, jnp.asarray(RNG.integers(0, 9, (5, 4))).astype(dtype), rtol=1e-2)


def test_pytrees_go_in_and_come_out() -> None:
    def fn(state: dict[str, Any], pair: Pair, none: None) -> Any:
        return Pair({"sum": state["x"] + pair.a}, [pair.b * 2, None, (none, pair.a)])

    agrees(fn, {"x": X}, Pair(X + 1, W), None)


def test_arguments_that_nobody_reads_and_results_that_are_given_twice() -> None:
    agrees(lambda x, w, n: (x, jnp.ones(3), x + 0, n * 2, x), X, W, jnp.int32(4))


def test_numbers_keywords_and_static_arguments() -> None:
    def fn(x: Any, power: int, *, scale: Any, kind: str) -> Any:
        return (jnp.sin if kind == "sin" else jnp.cos)(x) ** power * scale

    fast = autofuse.jax_jit(fn, static_argnums=1, static_argnames="kind")
    for kind, power in (("sin", 2), ("cos", 3)):
        same(fast(X, power, scale=2.0, kind=kind), fn(X, power, scale=2.0, kind=kind))
    assert fast.plan_of(X, 2, scale=2.0, kind="sin") is not fast.plan_of(
        X, 2, scale=2.0, kind="cos"
    )


def test_a_function_is_traced_once_for_all_calls_of_a_shape() -> None:
    traced: list[Any] = []

    @autofuse.jax_jit
    def fn(x: Any) -> Any:
        traced.append(x.shape)
        return x + 1

    for _ in range(2):
        same(fn(X), X + 1)
        same(fn(X[:2]), X[:2] + 1)
    assert traced == [X.shape, (2, 8)]


def test_each_shape_has_its_plan_and_says_where_it_is_from() -> None:
    fast = autofuse.jax_jit(score)
    fast(X, W)
    plan, smaller = fast.plan_of(X, W), fast.plan_of(X[:3], W)
    assert plan is fast.plan_of(jax.ShapeDtypeStruct(X.shape, X.dtype), W)
    assert plan.graph.input_types[0].shape == (6, 8)
    assert smaller.graph.input_types[0].shape == (3, 8)
    assert fast.origin(X, W) == plan.origin == "untuned: expected"
    same(jnp.asarray(plan(X, W)[1]), score(X, W)["y"])


def test_inside_a_jax_program() -> None:
    fast = autofuse.jax_jit(score)

    def program(of: Callable[..., Any]) -> Callable[..., Any]:
        def step(carry: Any, row: Any) -> Any:
            return carry + of(row[None], W)["total"], of(row[None] + carry, W)["y"]

        def run(x: Any) -> Any:
            first = jax.lax.cond(x[0, 0] > 0, lambda: of(x, W)["y"], lambda: x)
            return first, jax.lax.scan(step, jnp.float32(0), x * 2)

        return jax.jit(run)

    same(program(fast)(X), program(score)(X))
    assert "autofuse_plan" in program(fast).lower(X).as_text()


def test_gradients_are_those_of_the_function() -> None:
    fast = autofuse.jax_jit(score)

    def loss(of: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x, w: (of(x, w)["y"] ** 2).sum() + of(x, w)["total"]

    for way in (jax.value_and_grad(loss(fast), (0, 1)), jax.jit(jax.grad(loss(fast), (0, 1)))):
        wanted = jax.value_and_grad(loss(score), (0, 1))(X, W)
        found = way(X, W)
        same(found, wanted if found[0].ndim == 0 else wanted[1])

    def twice(of: Callable[..., Any]) -> Callable[..., Any]:
        return jax.grad(lambda x: (jax.grad(loss(of))(x, W) ** 2).sum())

    same(twice(fast)(X), twice(score)(X))


def test_gradients_beside_integers_and_keys() -> None:
    def noisy(key: Any, x: Any, rows: Any) -> Any:
        first, second = jax.random.split(key)
        return jnp.where(jax.random.bernoulli(first, 0.5, x.shape), x, 0)[rows], second

    def loss(of: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x: (of(jax.random.key(3), x, jnp.array([2, 0]))[0] ** 2).sum()

    fast = autofuse.jax_jit(noisy)
    same(jax.grad(loss(fast))(X), jax.grad(loss(noisy))(X))
    found, key = fast(jax.random.key(3), X, np.array([2, 0], np.int32))
    assert jax.random.key_data(key).tolist() == [1946498123, 2217676430]
    same(found, noisy(jax.random.key(3), X, jnp.array([2, 0]))[0])


def test_one_inside_another_is_what_it_was_made_of() -> None:
    inner = autofuse.jax_jit(score)

    def fn(x: Any) -> Any:
        return inner(x + 1, W)["y"] * 2

    same(autofuse.jax_jit(fn)(X), score(X + 1, W)["y"] * 2)
    assert len(autofuse.from_jax(inner, X, W).nodes) > 2


def test_methods_and_attributes_of_the_function() -> None:
    class Model:
        @autofuse.jax_jit(static_argnums=0)
        def __call__(self, x: Any) -> Any:
            """Doubles."""
            return x * 2

    same(Model()(X), X * 2)
    assert Model.__call__.__doc__ == "Doubles."
    assert autofuse.jax_jit(score).__name__ == "score"


def test_denormals_are_numbers_on_the_threads_of_jax() -> None:
    tiny = np.full(4, 1e-40, np.float32)
    double = autofuse.jax_jit(lambda x: x + x)
    for call in (double, jax.jit(lambda x: double(x))):
        assert np.array_equal(np.asarray(call(tiny)), tiny + tiny)


def test_plans_outlive_what_made_them_and_take_turns() -> None:
    program = jax.jit(autofuse.jax_jit(lambda x: jnp.cumsum(jnp.sin(x), axis=-1)))
    big = RNG.random((64, 4096), np.float32)
    wanted = np.asarray(program(big))
    gc.collect()
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: np.asarray(program(big)), range(40)):
            assert np.array_equal(found, wanted)


def test_without_jit_it_still_runs() -> None:
    with jax.disable_jit():
        same(autofuse.jax_jit(score)(jnp.asarray(X), W), score(jnp.asarray(X), W))


# What is refused


def test_what_cannot_become_a_graph_is_named_with_its_line() -> None:
    fast = autofuse.jax_jit(lambda x: jax.scipy.linalg.schur(x)[0])
    for call in (fast, fast.plan_of, jax.jit(fast)):
        with pytest.raises(AutofuseError, match=r"primitive 'schur' .*\(test_jax_jit\.py:\d+\)"):
            call(X[:6, :6])


def test_a_value_traced_outside_is_refused() -> None:
    program = jax.jit(lambda a: autofuse.jax_jit(lambda b: a + b)(X))
    with pytest.raises(AutofuseError, match="pass it as an argument"):
        program(X)


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(AutofuseError, match="takes a function, not a float"):
        autofuse.jax_jit(2.0)


def test_other_devices_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AutofuseError, match="'cpu', not on 'cuda-emulated'"):
        autofuse.jax_jit(score, device="cuda-emulated")
    with pytest.raises(AutofuseError, match="nowhere"):
        autofuse.jax_jit(device="nowhere")
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    with pytest.raises(AutofuseError, match="JAX runs its programs on 'gpu' here"):
        autofuse.jax_jit(score)(X, W)
    with jax.default_device(jax.devices("cpu")[0]):
        same(autofuse.jax_jit(score, device="cpu")(X, W), score(X, W))


def test_a_jax_without_the_interface_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(jax, "ffi")
    monkeypatch.setattr(jax_ffi, "_added", {})
    monkeypatch.setattr(jax_ffi, "_handler", jax_ffi._handler.__wrapped__)
    with pytest.raises(AutofuseError, match=r"needs jax\.ffi, which jax .* does not have"):
        autofuse.jax_jit(lambda x: x - 3)(X)


def test_the_handler_refuses_what_it_does_not_know() -> None:
    fast = autofuse.jax_jit(lambda x: x + 41)
    fast(X)
    key = list(jax_ffi._added)[-1]
    typ = jax.ShapeDtypeStruct((2,), np.float32)
    call = jax.ffi.ffi_call(jax_ffi.TARGET, [typ])
    for attributes, why in (
        ({"plan": np.int64(7)}, "has not made the plan"),
        ({"plan": np.int64(key)}, "does not fit"),
        ({}, "names no plan"),
    ):
        with pytest.raises(jax.errors.JaxRuntimeError, match=why):
            jax.block_until_ready(call(*[X] * 9, **attributes))


# Where plans come from


@pytest.mark.usefixtures("quick")
def test_tuning_is_done_once_and_what_it_found_is_served(
    db: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    budgets: list[float] = []

    def counted(*args: Any, budget_s: float, **more: Any) -> Any:
        budgets.append(budget_s)
        return tuner.tune(*args, budget_s=budget_s, **more)

    monkeypatch.setattr(jax_jit, "tune", counted)
    fast = autofuse.jax_jit(tune=3, db=db)(score)
    same(fast(X, W), score(X, W))
    same(jax.jit(fast)(X, W), score(X, W))
    assert fast.origin(X, W).startswith("best (")
    again = autofuse.jax_jit(score, tune=3, db=db)
    assert again.origin(X, W).startswith("best (") and budgets == [3]


@pytest.mark.usefixtures("quick")
def test_what_was_tuned_elsewhere_is_served(db: str) -> None:
    types = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in (X, W)]
    autofuse.tune(autofuse.from_jax(score, *types), db=db, budget_s=3)
    assert autofuse.jax_jit(score, db=db).origin(X, W).startswith("best (")
    assert autofuse.jax_jit(score).origin(X, W) == "untuned: expected"


# Falling back


def test_fallback_runs_jax_and_says_which_primitive_once(recwarn: pytest.WarningsRecorder) -> None:
    def spectrum(x: Any) -> Any:
        return jax.scipy.linalg.schur(x @ x.T)[0]

    fast = autofuse.jax_jit(spectrum, fallback=True)
    for call in (fast, fast, jax.jit(fast)):
        call(X)
    same(fast(X), jax.jit(spectrum)(X))
    same(autofuse.jax_jit(score, fallback=True)(X, W), score(X, W))
    told = [str(w.message) for w in recwarn if "autofuse" in str(w.message)]
    assert len(told) == 1
    assert told[0].startswith(
        "'spectrum' is left to jax.jit, without autofuse: jax primitive 'schur"
    )
    assert "test_jax_jit.py:" in told[0]


def test_fallback_takes_a_value_traced_outside() -> None:
    program = jax.jit(lambda a: autofuse.jax_jit(lambda b: a + b, fallback=True)(X))
    with pytest.warns(RuntimeWarning, match="pass it as an argument"):
        same(program(X), X + X)
