"""One call of a JAX function, as a function on the list of its arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autofuse.frontends.errors import FrontendError
from autofuse.frontends.jax.jaxpr import from_jax
from autofuse.frontends.jax.types import as_graph, is_key, jax_module, plain_jit
from autofuse.graph.types import Graph

# The only keys that graphs know.
_KEYS = "threefry2x32"
_CLOSED_OVER = (
    "the function reads a value that JAX is tracing outside of it: pass it as an argument"
)


@dataclass(frozen=True)
class FlatCall:
    """`flat` is the function on `arrays`, everything else of the call fixed; it gives a list of
    arrays, whose types are `results`, and `tree` is what becomes of the list."""

    flat: Callable[..., list[Any]]
    arrays: tuple[Any, ...]
    results: tuple[Any, ...]
    tree: Any

    def whole(self, outputs: Sequence[Any]) -> Any:
        """The function's result, from the list."""
        return jax_module().tree_util.tree_unflatten(self.tree, outputs)

    def graph(self) -> Graph:
        """What the function computes; raises GraphError where no graph can."""
        try:
            return from_jax(self.flat, *map(type_of, self.arrays))
        except jax_module().errors.TracerArrayConversionError as error:
            raise FrontendError(_CLOSED_OVER) from error


def flat_call(fn: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> FlatCall:
    """`fn(*args, **kwargs)`; leaves that are no arrays are fixed. `fn` is traced once, however
    often `flat` is."""
    jax = jax_module()
    trees = jax.tree_util
    leaves, tree = trees.tree_flatten((tuple(args), kwargs))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, jax.Array | np.ndarray)]

    @plain_jit()  # type: ignore[untyped-decorator]  # jax has no types here
    def called(*arrays: Any) -> Any:
        given = dict(zip(places, arrays, strict=True))
        mixed = [given.get(i, leaf) for i, leaf in enumerate(leaves)]
        positional, named = trees.tree_unflatten(tree, mixed)
        return fn(*positional, **named)

    arrays = tuple(leaves[i] for i in places)
    with as_graph():
        results, out_tree = trees.tree_flatten(jax.eval_shape(called, *arrays))
    return FlatCall(lambda *a: trees.tree_leaves(called(*a)), arrays, tuple(results), out_tree)


def words(array: Any) -> Any:
    """An array as graphs have it: typed keys as their words."""
    return jax_module().random.key_data(array) if is_key(array) else array


def word_type(result: Any) -> Any:
    """As `words`, of a type."""
    return jax_module().eval_shape(words, result)


def unworded(array: Any, result: Any) -> Any:
    """What `words` was made of, given its type."""
    return jax_module().random.wrap_key_data(array, impl=_KEYS) if is_key(result) else array


def type_of(array: Any) -> Any:
    """The type of an array, as a `jax.ShapeDtypeStruct`."""
    weak = bool(getattr(array, "weak_type", False))
    return jax_module().ShapeDtypeStruct(array.shape, array.dtype, weak_type=weak)
