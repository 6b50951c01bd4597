"""Graphs from jax: trace a function to a jaxpr and write its primitives."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from autofuse.frontends.errors import FrontendError
from autofuse.frontends.jax.complex import from_words, to_words
from autofuse.frontends.jax.interp import Walker
from autofuse.frontends.jax.random import unwrap, wrap
from autofuse.frontends.jax.types import (
    ComplexArray,
    Item,
    KeyArray,
    as_graph,
    dtype_of,
    is_complex,
    is_key,
    jax_module,
    part_dtype,
    static_shape,
)
from autofuse.frontends.leaves import label_of, range_of, unique_names
from autofuse.graph.types import Graph, Value
from autofuse.graph.writer import GraphWriter
from autofuse.ops.dtypes import DType

__all__ = ["FrontendError", "from_jax"]


def from_jax(
    fn: Callable[..., Any], *example_args: Any, constant_argnums: int | Sequence[int] = ()
) -> Graph:
    """The graph of `fn` traced by jax on arguments like `example_args`.

    Arguments and results are pytrees of arrays, `jax.ShapeDtypeStruct`s or numbers; every leaf is
    a graph input or output, named after its path. Typed keys become u32[..., 2], complex numbers
    both of their parts along a last axis. The values of
    concrete float and integer leaves only set the range that random test inputs are drawn from.
    All leaves of the arguments `constant_argnums` (weights) are constants, bound once (`compile`).
    Calls are inlined, scans of fixed length become loops, all branches of a `cond` are computed.
    Raises FrontendError naming a primitive that cannot be expressed and the line that uses it,
    and AutofuseError when jax is not installed.
    """
    jax = jax_module()
    fixed = _positions(constant_argnums, len(example_args))
    with as_graph():
        closed, results = jax.make_jaxpr(fn, return_shape=True)(*example_args)
    leaves = jax.tree_util.tree_flatten_with_path(example_args)[0]
    writer = GraphWriter()
    walker = Walker(writer)
    names = unique_names(_input_names(fn, [path for path, _ in leaves]))
    variables = zip(names, closed.jaxpr.invars, leaves, strict=True)
    items = [
        _input(writer, name, var.aval, leaf, path[0].idx in fixed)
        for name, var, (path, leaf) in variables
    ]
    outputs = [_output(writer, item) for item in walker.closed(closed, items)]
    if not outputs:
        raise FrontendError("the function returns no array")
    paths = [path for path, _ in jax.tree_util.tree_flatten_with_path(results)[0]]
    labels = unique_names([label_of("out", path) for path in paths])
    return writer.build(outputs, labels)


def _positions(argnums: int | Sequence[int], count: int) -> frozenset[int]:
    """Argument numbers as jax takes them, negative ones from the end."""
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    beyond = [n for n in numbers if not -count <= n < count]
    if beyond:
        raise FrontendError(f"constant_argnums has {beyond[0]}, but there are {count} arguments")
    return frozenset(n % count for n in numbers)


def _input(w: GraphWriter, name: str, aval: Any, leaf: Any, constant: bool) -> Item:
    shape = static_shape(aval)
    if is_key(aval):
        if aval.dtype.itemsize != 8:
            raise FrontendError(f"input '{name}' holds {aval.dtype}: only threefry keys are known")
        words = w.input(name, (*shape, 2), DType.U32, constant=constant)
        return wrap(w, None, words)
    if is_complex(aval):
        kind = part_dtype(aval.dtype)
        return from_words(w, w.input(name, (*shape, 2), kind, constant=constant))
    dtype = dtype_of(aval.dtype)
    low, high = range_of(leaf, dtype)
    return w.input(name, shape, dtype, low=low, high=high, constant=constant)


def _output(w: GraphWriter, item: Item) -> Value:
    if isinstance(item, KeyArray):
        return unwrap(w, item)
    if isinstance(item, ComplexArray):
        return to_words(w, item)
    assert isinstance(item, Value)
    return item


def _input_names(fn: Callable[..., Any], paths: Sequence[Any]) -> list[str]:
    """Parameter names, followed by the path inside the parameter."""
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    plain = [p.name for p in parameters if p.kind in kinds]
    found = []
    for path in paths:
        position = path[0].idx
        base = plain[position] if position < len(plain) else f"in{position}"
        found.append(label_of(base, path[1:]))
    return found
