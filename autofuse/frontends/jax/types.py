"""What the rules for jax primitives share: keys as two words, static shapes, dtypes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from autofuse.frontends.errors import FrontendError
from autofuse.graph.types import Value
from autofuse.graph.writer import Shape
from autofuse.ops.dtypes import DType, from_numpy
from autofuse.ops.types import AutofuseError, GraphError

# rule(writer, equation, *operands) gives the result or all results.
PrimitiveRule = Callable[..., Any]


_as_graph: ContextVar[bool] = ContextVar("as_graph", default=False)


@contextmanager
def as_graph() -> Iterator[None]:
    """While a graph is traced: functions that plans serve are what they were made of."""
    before = _as_graph.set(True)
    try:
        yield
    finally:
        _as_graph.reset(before)


def is_as_graph() -> bool:
    """Whether JAX traces for a graph."""
    return _as_graph.get()


@dataclass(frozen=True, slots=True)
class PairArray:
    """An array of which every element is two numbers of a graph: two values of its own shape."""

    k0: Value
    k1: Value


class KeyArray(PairArray):
    """An array of typed jax keys: its two u32 words."""


class ComplexArray(PairArray):
    """An array of complex numbers: their real and their imaginary parts."""


Item = Value | PairArray


def values_of(item: Item) -> tuple[Value, ...]:
    """The one or two graph values of an item."""
    return (item.k0, item.k1) if isinstance(item, PairArray) else (item,)


def each(item: Item, fn: Callable[[Value], Value]) -> Item:
    """`fn` applied to every graph value of an item."""
    return type(item)(fn(item.k0), fn(item.k1)) if isinstance(item, PairArray) else fn(item)


def static_shape(aval: Any) -> Shape:
    """The shape jax gives a value; raises FrontendError where it is not static."""
    if not all(isinstance(n, int | np.integer) for n in aval.shape):
        raise FrontendError(f"shape {aval.shape} is not static")
    return tuple(int(n) for n in aval.shape)


def dtype_of(dtype: Any) -> DType:
    """The DType of a jax dtype; raises FrontendError for one graphs do not have."""
    try:
        return from_numpy(np.dtype(dtype))
    except (GraphError, TypeError):
        known = ", ".join(map(str, DType))
        raise FrontendError(f"dtype {dtype} is not supported (supported: {known})") from None


def jax_module() -> Any:
    """jax, which is imported when it is first needed; raises AutofuseError without it."""
    try:
        return import_module("jax")
    except ImportError as error:
        raise AutofuseError("the jax front end needs jax: pip install autofuse[jax]") from error


def plain_jit() -> Any:
    """`jax.jit` as JAX has it, also while `jax_patch` stands in its place."""
    jit = jax_module().jit
    return getattr(jit, "of_jax", jit)


def is_key(aval: Any) -> bool:
    """Whether a jax value is an array of typed keys."""
    jax = jax_module()
    return bool(jax.dtypes.issubdtype(aval.dtype, jax.dtypes.prng_key))


def is_complex(aval: Any) -> bool:
    """Whether a jax value is an array of complex numbers."""
    return not is_key(aval) and np.issubdtype(aval.dtype, np.complexfloating)


def part_dtype(dtype: Any) -> DType:
    """The DType of either part of a complex jax dtype."""
    return dtype_of(np.empty(0, dtype).real.dtype)
