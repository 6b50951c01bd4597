"""What libraries add to JAX: primitives of their own, and checks that raise."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")  # an extra of its own

import jax.extend.core as core  # noqa: E402 - after jax

from autofuse.frontends.errors import FrontendError  # noqa: E402 - after jax
from autofuse.frontends.jax.jaxpr import from_jax  # noqa: E402 - after jax
from autofuse.graph.reference import evaluate  # noqa: E402 - after jax

jnp = jax.numpy
X = np.linspace(-1.0, 1.0, 6, dtype=np.float32)
TYPE = jax.ShapeDtypeStruct(X.shape, X.dtype)


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def _primitive(name: str, impl: Any) -> Any:
    made = core.Primitive(name)
    made.def_impl(impl)
    made.def_abstract_eval(lambda aval, **_: aval)
    return made


def test_a_primitive_of_a_library_is_what_it_computes_it_by() -> None:
    scaled = _primitive("scaled_of_a_library", lambda x, *, by: jnp.tanh(x) * by)
    graph = from_jax(lambda x: scaled.bind(x, by=3.0) + 1.0, TYPE)
    (found,) = evaluate(graph, [X])
    np.testing.assert_allclose(found, np.tanh(X) * 3 + 1, rtol=1e-6)


def test_one_that_needs_numbers_is_refused_by_name() -> None:
    outside = _primitive("outside_of_jax", lambda x: np.sort(np.asarray(x)))
    with pytest.raises(FrontendError, match="'outside_of_jax' is not supported"):
        from_jax(lambda x: outside.bind(x), TYPE)


def test_one_that_is_itself_is_refused_by_name() -> None:
    again = _primitive("again_and_again", lambda x: again.bind(x))
    with pytest.raises(FrontendError, match="'again_and_again' is not supported"):
        from_jax(lambda x: again.bind(x), TYPE)


def _raises(_: Any) -> None:
    raise ValueError("the data are not as they should be")


def _returns(x: Any) -> Any:
    if np.any(x > 5):
        raise ValueError("too large")
    return x


def _checked(function: Any) -> Any:
    def run(x: Any) -> Any:
        types = (TYPE, jax.ShapeDtypeStruct((), np.int32), jax.ShapeDtypeStruct((), np.bool_))

        def fails() -> Any:
            return jax.pure_callback(function, types, x)

        return jax.lax.cond(x.sum() > 1, fails, lambda: (2 * x, jnp.int32(7), jnp.bool_(True)))

    return run


def test_a_branch_that_raises_gives_nan_and_that_is_told() -> None:
    with pytest.warns(RuntimeWarning, match="gives NaN where it would raise.*test_jax_foreign"):
        graph = from_jax(_checked(_raises), TYPE)
    good, number, truth = evaluate(graph, [X])
    np.testing.assert_allclose(good, 2 * X)
    assert (number, truth) == (7, True)
    bad, number, truth = evaluate(graph, [X + 1])
    assert np.isnan(bad).all()
    assert (number, truth) == (np.iinfo(np.int32).min, False)


def test_a_branch_that_may_return_is_refused_by_name() -> None:
    with pytest.raises(FrontendError, match="'pure_callback' is not supported"):
        from_jax(_checked(_returns), TYPE)


def test_what_is_left_empty_is_of_the_type_that_was_asked() -> None:
    if not hasattr(jax.lax, "empty"):
        pytest.skip("this jax has no lax.empty")
    filled = from_jax(lambda x: jax.lax.empty((4, 6), x.dtype).at[:].set(x), TYPE)
    (found,) = evaluate(filled, [X])
    np.testing.assert_array_equal(found, np.broadcast_to(X, (4, 6)))
