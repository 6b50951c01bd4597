"""Special functions and functions of bits in JAX programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.special as js
import numpy as np
import pytest

from autofuse.errors import AutofuseError
from autofuse.frontends.jax import special as jax_special
from autofuse.frontends.jax.jaxpr import from_jax
from tests.support.jax_check import check

RNG = np.random.default_rng(3)
X = RNG.random(40) + 0.1
INTS = np.array([0, 1, 2, 300, -1, -(2**31), 2**31 - 1], np.int32)
EDGES = np.array([0.0, -0.0, -1.0, -2.0, 1.0, 2.0, np.inf, -np.inf, np.nan, 1e-30, -1e-30, 170.0])
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "lgamma": (js.gammaln, (X * 20 - 10,)),
    "lgamma_edges": (js.gammaln, (EDGES,)),
    "digamma": (js.digamma, (X * 20 - 10,)),
    "digamma_edges": (js.digamma, (EDGES,)),
    "polygamma": (lambda x: js.polygamma(2, x), (X * 5,)),
    "zeta": (lambda x, q: js.zeta(x + 1.2, q), (X * 3, X * 4)),
    "zeta_edges": (
        js.zeta,
        (np.repeat([0.5, 1.0, 2.0, 3.0, 2.5], 4), np.tile([2, 0, -3, -1.5], 5)),
    ),
    "igamma": (js.gammainc, (X * 5, X * 4)),
    "igammac": (js.gammaincc, (X * 5, X * 7)),
    "igamma_of_a_row": (jax.lax.igamma, (X[None] * 5, np.stack([X, X + 1]) * 4)),
    "betainc": (js.betainc, (X * 3, X + 1, np.minimum(X, 1))),
    "i0e": (js.i0e, (X * 30 - 12,)),
    "i1e": (js.i1e, (X * 30 - 12,)),
    "i1e_far": (js.i1e, (np.array([0.0, 8.0, 1e4, -1e4, np.inf]),)),
    "gradient_lgamma": (jax.grad(lambda x: js.gammaln(x).sum()), (X,)),
    "gradient_digamma": (jax.grad(lambda x: js.digamma(x).sum()), (X,)),
    "gradient_igamma": (jax.grad(lambda a, x: js.gammainc(a, x).sum(), (0, 1)), (X * 5, X * 4)),
}
EXACT: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "clz": (jax.lax.clz, (INTS,)),
    "clz_u8": (jax.lax.clz, (np.arange(256, dtype=np.uint8),)),
    "population_count": (jax.lax.population_count, (INTS,)),
    "population_count_u16": (jax.lax.population_count, (np.arange(999, dtype=np.uint16),)),
    "mulhi": (lambda x: jax.lax.mulhi(x, x[::-1]), (INTS,)),
    "nextafter": (lambda x: jnp.nextafter(x[:, None], x), (EDGES.astype("f"),)),
    "argmax_bool": (lambda x: (jnp.argmax(x > 0), jnp.argmin(x > 0)), (INTS,)),
    "dot_bool": (lambda x: jnp.dot(x > 0, (x < 0).T), (INTS.reshape(1, 7),)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_special(name: str) -> None:
    fn, args = CASES[name]
    with jax.enable_x64(True):
        check(fn, *args)


@pytest.mark.parametrize("name", EXACT)
def test_bits(name: str) -> None:
    fn, args = EXACT[name]
    check(fn, *args, exact=True)


def test_gamma_distribution() -> None:
    check(lambda k: jax.random.gamma(k, 2.0, (5,)), jax.random.key(0))


def test_a_jax_that_does_not_say_how_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax_special, "_LAX", "jax.no_such_module")
    with pytest.raises(AutofuseError, match=r"'igamma' .*does not say how it is computed"):
        from_jax(js.gammainc, X, X)
