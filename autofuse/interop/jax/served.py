"""A function that a plan serves, as one primitive of JAX programs: its derivatives and batches are
functions that plans serve, too.

What JAX asks of a primitive is answered by another such function: forward derivatives by one that
keeps what the linear part reads and one that is that part, gradients by the transpose of the linear
part, `vmap` by the batched function. A plan is made where a program is lowered, so that nothing is
planned that JAX does not run.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from typing import Any, TypeVar

from autofuse.errors import GraphError
from autofuse.frontends.jax.jaxpr import from_jax
from autofuse.frontends.jax.types import as_graph, jax_module, plain_jit
from autofuse.graph.types import Graph
from autofuse.interop.jax.ffi import plan_call
from autofuse.interop.jax.flat import unworded, word_type, words
from autofuse.runtime.compiled import CompiledPlan

PRIMITIVE = "autofuse_served"  # as the front end knows it
Arrays = Sequence[Any]
Planner = Callable[[Graph, str], CompiledPlan]
Derived = TypeVar("Derived")


@dataclass(frozen=True, eq=False)
class Served:
    """`fn` takes arrays of `takes` and gives a list of arrays of `gives` (`jax.ShapeDtypeStruct`s).

    `graph` is what it computes, where that is known already; without it what cannot become a graph
    is left to JAX, with a warning. `derived` keeps derivatives and batches."""

    fn: Callable[..., list[Any]]
    takes: tuple[Any, ...]
    gives: tuple[Any, ...]
    planner: Planner
    name: str
    graph: Graph | None = None
    derived: dict[Any, Any] = field(default_factory=dict)

    def __call__(self, *arrays: Any) -> list[Any]:
        """The primitive, in whatever JAX does now."""
        return list(primitive().bind(*arrays, served=self))

    def computed(self, *arrays: Any) -> list[Any]:
        """The call of the plan."""
        try:
            graph = self.graph or from_jax(self.fn, *self.takes)
        except (GraphError, jax_module().errors.TracerArrayConversionError) as error:
            text = f"'{self.name}' is left to jax.jit, without autofuse: {error}"
            warnings.warn(text, RuntimeWarning, stacklevel=1)
            return self.fn(*arrays)
        plan = self.planner(graph, self.name)
        run = plan_call(plan, [word_type(r) for r in self.gives])
        return [unworded(*pair) for pair in zip(run(*map(words, arrays)), self.gives, strict=True)]

    def eager(self) -> Callable[..., list[Any]]:
        """`computed` as a program of its own."""
        found: Callable[..., list[Any]] = self._kept("eager", lambda: plain_jit()(self.computed))
        return found

    def batched(self, axes: tuple[int | None, ...], size: int) -> Served:
        """For `size` places along these axes of the arguments; results have theirs first."""

        def made() -> Served:
            jax = jax_module()
            takes = [_wider(t, a, size) for t, a in zip(self.takes, axes, strict=True)]
            gives = tuple(_wider(t, 0, size) for t in self.gives)
            fn = jax.vmap(self.fn, in_axes=axes, out_axes=0, axis_size=size)
            return Served(fn, tuple(takes), gives, self.planner, f"{self.name}_batched")

        return self._kept((axes, size), made)

    def linear(self, moving: tuple[bool, ...]) -> Linear:
        """Its linearisation at the arguments that are `moving`."""
        return self._kept(("linear", moving), lambda: linearised(self, moving))

    def transposed(self, linear: tuple[bool, ...], asked: tuple[bool, ...]) -> Served:
        """Takes the arguments that it is not `linear` in and the cotangents of the results `asked`,
        gives the cotangents of the others."""
        return self._kept(("back", linear, asked), lambda: _transposed(self, linear, asked))

    def _kept(self, key: Any, make: Callable[[], Derived]) -> Derived:
        found: Derived | None = self.derived.get(key)
        if found is None:
            found = self.derived[key] = make()
        return found


@dataclass(frozen=True, slots=True)
class Linear:
    """`forward` gives the results, then what `tangent` reads besides tangents; of that, `sources`
    says for each number whether it is an argument (its place) or what `forward` gives behind the
    results (place - number of arguments). `tangent` gives the tangents of the results of floats."""

    forward: Served
    sources: tuple[int, ...]
    tangent: Served


def linearised(served: Served, moving: tuple[bool, ...]) -> Linear:
    """By `jax.linearize`, traced once."""
    jax, found = jax_module(), []
    floats = [_is_smooth(t) for t in served.gives]

    def forward(*arrays: Any) -> list[Any]:
        def of(*moved: Any) -> tuple[list[Any], list[Any]]:
            results = served.fn(*_merged(moving, moved, _chosen(arrays, moving, False)))
            return _chosen(results, floats), _chosen(results, floats, False)

        smooth, tangent, rest = jax.linearize(of, *_chosen(arrays, moving), has_aux=True)
        kept, tree = jax.tree_util.tree_flatten(tangent)
        places = {id(a): k for k, a in reversed(list(enumerate(arrays)))}
        new = [r for r in kept if id(r) not in places]
        numbers = iter(range(len(arrays), len(arrays) + len(new)))
        found.append(
            (tree, tuple(places[id(r)] if id(r) in places else next(numbers) for r in kept))
        )
        return [*_merged(floats, smooth, rest), *new]

    closed = _traced(forward, served.takes)
    (tree, sources), gives = found[-1], _types(closed.out_avals)
    whole = (*served.takes, *gives[len(served.gives) :])

    def tangent(*arrays: Any) -> list[Any]:
        linear = jax.tree_util.tree_unflatten(tree, list(arrays[: len(sources)]))
        return list(linear(*arrays[len(sources) :]))

    moved = _chosen(served.takes, moving)
    return Linear(
        Served(_evaluated(closed), served.takes, gives, served.planner, f"{served.name}_forward"),
        sources,
        Served(
            tangent, (*(whole[s] for s in sources), *moved), tuple(_chosen(served.gives, floats)),
            served.planner, f"{served.name}_tangent",
        ),
    )  # fmt: skip


def _transposed(served: Served, linear: tuple[bool, ...], asked: tuple[bool, ...]) -> Served:
    jax = jax_module()
    known, moved = _chosen(served.takes, linear, False), _chosen(served.takes, linear)

    def back(*arrays: Any) -> list[Any]:
        fixed, given = arrays[: len(known)], arrays[len(known) :]

        def of(*inner: Any) -> list[Any]:
            return _chosen(served.fn(*_merged(linear, inner, fixed)), asked)

        return list(jax.linear_transpose(of, *moved)(list(given)))

    takes = (*known, *_chosen(served.gives, asked))
    return Served(back, takes, tuple(moved), served.planner, f"{served.name}_backward")


# Lists of arrays


def _chosen(items: Sequence[Any], which: Sequence[bool], value: bool = True) -> list[Any]:
    return [item for item, yes in zip(items, which, strict=True) if bool(yes) is value]


def _merged(which: Sequence[bool], yes: Sequence[Any], no: Sequence[Any]) -> list[Any]:
    """Items of two lists in the order that `which` says."""
    one, other = iter(yes), iter(no)
    return [next(one if each else other) for each in which]


def _is_smooth(type_: Any) -> bool:
    """Whether an array of this type has derivatives."""
    jax = jax_module()
    found: bool = jax.dtypes.issubdtype(type_.dtype, jax.numpy.inexact)
    return found


def _types(avals: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(jax_module().ShapeDtypeStruct(a.shape, a.dtype) for a in avals)


def _wider(type_: Any, axis: int | None, size: int) -> Any:
    shape = list(type_.shape)
    if axis is not None:
        shape.insert(axis, size)
    return jax_module().ShapeDtypeStruct(tuple(shape), type_.dtype)


def _traced(fn: Callable[..., Any], takes: Sequence[Any]) -> Any:
    with as_graph():
        return jax_module().make_jaxpr(fn)(*takes)


def _evaluated(closed: Any) -> Callable[..., list[Any]]:
    run: Callable[..., list[Any]] = import_module("jax.extend.core").jaxpr_as_fun(closed)
    return lambda *arrays: list(run(*arrays))


# What JAX asks of a primitive


@lru_cache(maxsize=1)
def primitive() -> Any:
    """The primitive, with its rules."""
    core: Any = import_module("jax.extend.core")
    ad: Any = import_module("jax.interpreters.ad")
    batching: Any = import_module("jax.interpreters.batching")
    mlir: Any = import_module("jax.interpreters.mlir")
    made = core.Primitive(PRIMITIVE)
    made.multiple_results = True
    made.def_impl(lambda *arrays, served: served.eager()(*arrays))
    made.def_abstract_eval(lambda *_, served: [_aval(t) for t in served.gives])
    lowered = mlir.lower_fun(lambda *a, served: served.computed(*a), multiple_results=True)
    mlir.register_lowering(made, lowered)
    batching.primitive_batchers[made] = _batching_rule
    ad.primitive_jvps[made] = _jvp_rule
    ad.primitive_transposes[made] = _transpose_rule
    return made


def _aval(type_: Any) -> Any:
    return jax_module().core.ShapedArray(type_.shape, type_.dtype)


def _still(type_: Any) -> Any:
    """The type of tangents of what has none."""
    jax = jax_module()
    return jax.core.ShapedArray(type_.shape, jax.dtypes.float0)


def _batching_rule(arrays: Arrays, axes: Sequence[Any], *, served: Served) -> tuple[Any, Any]:
    chosen = tuple(axis if isinstance(axis, int) else None for axis in axes)
    sizes = {a.shape[i] for a, i in zip(arrays, chosen, strict=True) if i is not None}
    found = served.batched(chosen, sizes.pop())(*arrays)
    return found, [0] * len(found)


def _jvp_rule(arrays: Arrays, tangents: Arrays, *, served: Served) -> tuple[list[Any], list[Any]]:
    ad: Any = import_module("jax.interpreters.ad")
    moving = tuple(
        not isinstance(t, ad.Zero) and _is_smooth(a)
        for t, a in zip(tangents, served.takes, strict=True)
    )
    linear = served.linear(moving)
    found = linear.forward(*arrays)
    results, whole = found[: len(served.gives)], [*arrays, *found[len(served.gives) :]]
    moved = linear.tangent(*(whole[s] for s in linear.sources), *_chosen(tangents, moving))
    smooth = [_is_smooth(t) for t in served.gives]
    still = [ad.Zero(_still(t)) for t in _chosen(served.gives, smooth, False)]
    return results, _merged(smooth, moved, still)


def _transpose_rule(cotangents: Arrays, *arrays: Any, served: Served) -> list[Any]:
    ad: Any = import_module("jax.interpreters.ad")
    linear = tuple(bool(ad.is_undefined_primal(a)) for a in arrays)
    asked = tuple(not isinstance(c, ad.Zero) for c in cotangents)
    known, given = _chosen(arrays, linear, False), _chosen(cotangents, asked)
    found = iter(served.transposed(linear, asked)(*known, *given))
    return [next(found) if each else None for each in linear]
