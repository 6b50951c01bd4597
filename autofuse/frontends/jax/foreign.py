"""Primitives that a library made for itself: what it computes them by, where that is JAX."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from autofuse.frontends.errors import FrontendError
from autofuse.frontends.jax.special import ClosedRunner
from autofuse.frontends.jax.types import Item, as_graph, jax_module

_REFUSED = "is not supported"


def is_foreign(primitive: Any) -> bool:
    """Whether somebody else than JAX says how it is computed: JAX's own implementations run
    programs, or call back."""
    impl: Any = primitive.impl
    while isinstance(impl, partial):
        impl = impl.func
    module = getattr(impl, "__module__", None) or "jax"
    return module.partition(".")[0] not in ("jax", "jaxlib")


def as_its_library_computes_it(runner: ClosedRunner, eqn: Any, items: list[Item]) -> list[Item]:
    """The implementation of such a primitive, traced. Raises FrontendError where that is no
    program of JAX."""
    jax = jax_module()
    types = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in eqn.invars]
    compute: Callable[..., Any] = partial(eqn.primitive.impl, **eqn.params)
    try:
        with as_graph():
            closed = jax.make_jaxpr(compute)(*types)
    except Exception as error:  # whatever a library raises where it is not given numbers
        raise FrontendError(_REFUSED) from error
    if any(inner.primitive is eqn.primitive for inner in closed.jaxpr.eqns):
        raise FrontendError(_REFUSED)
    return runner.closed(closed, items)
