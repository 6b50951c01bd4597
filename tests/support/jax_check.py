"""A function's graph against jax itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from autofuse.frontends.jax.jaxpr import from_jax
from autofuse.graph.reference import evaluate
from autofuse.graph.types import Graph
from autofuse.graph.verify import verify


def check(fn: Callable[..., Any], *args: Any, exact: bool = False) -> Graph:
    """The graph of `fn`, once it is known to give what jax gives."""
    graph = verify(from_jax(fn, *args))
    inputs = [np.asarray(_words(leaf)) for leaf in jax.tree.leaves(args)]
    found = evaluate(graph, inputs)
    wanted = [np.asarray(_words(leaf)) for leaf in jax.tree.leaves(jax.jit(fn)(*args))]
    assert len(found) == len(wanted)
    for value, want, kind in zip(found, wanted, graph.output_types, strict=True):
        assert value.shape == want.shape
        assert kind.dtype.numpy == want.dtype
        if exact or not kind.dtype.is_float:
            np.testing.assert_array_equal(value.astype(want.dtype), want)
        else:
            eps = 8 * kind.dtype.eps
            want = want.astype(np.float64)
            np.testing.assert_allclose(value, want, rtol=max(eps, 1e-5), atol=max(eps, 2e-6))
    return graph


def _words(leaf: Any) -> Any:
    typed = hasattr(leaf, "dtype") and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(leaf) if typed else leaf
