"""Rules for special functions: composites of ours, and functions that JAX itself writes in JAX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any, Protocol

from autofuse.frontends.errors import FrontendError
from autofuse.frontends.jax.rules import composed
from autofuse.frontends.jax.types import Item, PrimitiveRule, dtype_of, each, jax_module
from autofuse.graph.composites import bits, special
from autofuse.graph.writer import GraphWriter

SPECIAL_RULES: dict[str, PrimitiveRule] = {
    "bessel_i1e": composed(special.bessel_i1e),
    "clz": composed(bits.leading_zeros),
    "digamma": composed(special.digamma),
    "lgamma": composed(special.lgamma),
    "mulhi": composed(bits.high_product),
    "nextafter": composed(bits.next_after),
    "polygamma": composed(special.polygamma),
    "population_count": composed(bits.population_count),
    "zeta": composed(special.zeta),
}
# Primitives that jax lowers by these functions of this module, which take `dtype` or do not.
_LAX = "jax._src.lax.special"
_WITH_DTYPE = (
    "igamma", "igamma_grad_a", "igammac", "random_gamma_grad", "regularized_incomplete_beta",
)  # fmt: skip
_WITHOUT = ("bessel_i0e",)
OWN = (*_WITH_DTYPE, *_WITHOUT, "random_gamma")


class ClosedRunner(Protocol):
    """What expands a jaxpr into the ops of one graph."""

    w: GraphWriter

    def closed(self, closed: Any, args: Sequence[Item]) -> list[Item]: ...


def as_jax_writes_it(
    runner: ClosedRunner, eqn: Any, live: Sequence[bool], items: list[Item]
) -> list[Item]:
    """A primitive by the function that JAX lowers it by, traced; half floats as f32, as there."""
    jax, w = jax_module(), runner.w
    # Axes of one element go along with longer ones, which the functions do not know.
    spread = eqn.primitive.name != "random_gamma"
    shapes = [eqn.outvars[0].aval.shape if spread else v.aval.shape for v in eqn.invars]
    types = [
        jax.ShapeDtypeStruct(shape, _wide(v.aval.dtype))
        for shape, v in zip(shapes, eqn.invars, strict=True)
    ]
    args = [each(item, lambda x: w.cast(x, w.dtype(x).compute)) for item in items]
    if spread:
        pairs = zip(args, shapes, strict=True)
        args = [each(item, partial(w.spread, shape=shape)) for item, shape in pairs]
    found = runner.closed(jax.make_jaxpr(_function(eqn, types))(*types), args)
    kind = eqn.outvars[0].aval.dtype
    return [each(item, lambda x: w.cast(x, dtype_of(kind))) for item in found]


def _wide(dtype: Any) -> Any:
    """f32 for half floats."""
    jax = jax_module()
    is_words = jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key)
    return dtype if is_words else dtype_of(dtype).compute.numpy


def _function(eqn: Any, types: Sequence[Any]) -> Callable[..., Any]:
    """Raises FrontendError where this jax has no such function."""
    name = eqn.primitive.name
    if name == "random_gamma":
        return partial(eqn.primitive.impl, **eqn.params)
    try:
        found: Callable[..., Any] = getattr(import_module(_LAX), f"{name}_impl")
    except (ImportError, AttributeError):
        version = jax_module().__version__
        raise FrontendError(f"jax {version} does not say how it is computed") from None
    return partial(found, dtype=types[0].dtype) if name in _WITH_DTYPE else found
