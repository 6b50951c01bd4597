"""The graph being recorded: where traced arrays live and how they enter loop bodies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from autofuse.frontends.array import TracedArray
from autofuse.frontends.errors import TraceError
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph, Value
from autofuse.ops.dtypes import DType
from autofuse.ops.types import TensorType


class Tracer:
    """One graph being recorded; a loop body is recorded by a child of the tracer around it."""

    def __init__(self, parent: Tracer | None = None) -> None:
        self.parent = parent
        self.builder = GraphBuilder()
        self.captured: dict[Value, Value] = {}
        self._literals: dict[Value, np.ndarray] = {}
        self._reshaped: dict[Value, Value] = {}

    def wrap(self, value: Value, like: TensorType) -> TracedArray:
        return TracedArray(self, value, like)

    def input(
        self, name: str, of: TensorType, low: float | None = None, high: float | None = None
    ) -> TracedArray:
        """Add a graph input; `low` and `high` bound its random test values."""
        value = self.builder.input(name, of.shape, of.dtype, low=low, high=high)
        return self.wrap(value, of)

    def op(self, name: str, *arrays: TracedArray, **attrs: Any) -> TracedArray:
        """Add an op with one output."""
        (out,) = self.op_many(name, *arrays, **attrs)
        return out

    def op_many(self, name: str, *arrays: TracedArray, **attrs: Any) -> tuple[TracedArray, ...]:
        """Add an op; one array per output."""
        ins = tuple(self.value_of(a) for a in arrays)
        values = self.builder.add_multi(name, *ins, **attrs)
        return tuple(self.wrap(v, self.builder.type_of(v)) for v in values)

    def reshape(self, array: TracedArray, shape: tuple[int, ...]) -> TracedArray:
        """`array` with another shape; a reshape of a reshape reads the original."""
        source = self.unreshaped(array)
        if source.shape == shape:
            return source
        out = self.op("reshape", source, shape=shape)
        self._reshaped[out.value] = source.value
        return out

    def unreshaped(self, array: TracedArray) -> TracedArray:
        """The array that `array` is a reshape of, or itself."""
        value = self.value_of(array)
        source = self._reshaped.get(value, value)
        return self.wrap(source, self.builder.type_of(source))

    def constant(self, data: np.ndarray, dtype: DType) -> TracedArray:
        """A literal; equal scalars are one node."""
        value = self.builder.constant(data, dtype)
        kind = self.builder.type_of(value)
        if kind.shape == ():
            self._literals[value] = data
        return self.wrap(value, kind)

    def value_of(self, array: TracedArray) -> Value:
        """The value of `array` in this graph, captured from an enclosing one where needed."""
        if array.tracer is self:
            return array.value
        if self.parent is None:
            raise TraceError(
                "an array is used outside the trace or loop body that made it: return it from there"
            )
        outer = self.parent.value_of(array)
        if outer in self.parent._literals:
            return self.constant(self.parent._literals[outer], array.dtype).value
        if outer not in self.captured:
            name = f"captured_{len(self.captured)}"
            self.captured[outer] = self.builder.input(name, array.shape, array.type.dtype)
        return self.captured[outer]

    def finish(self, outputs: Sequence[TracedArray], names: Sequence[str]) -> Graph:
        """The recorded graph in canonical form."""
        return canonical(self.builder.build([self.value_of(a) for a in outputs], names))


_ACTIVE: ContextVar[tuple[Tracer, ...]] = ContextVar("autofuse_tracers", default=())


def current() -> Tracer:
    """The innermost tracer; raises TraceError outside `trace`."""
    active = _ACTIVE.get()
    if not active:
        raise TraceError("array functions record a graph: call them inside autofuse.trace")
    return active[-1]


@contextmanager
def recording(tracer: Tracer) -> Iterator[Tracer]:
    """Make `tracer` the current one."""
    token = _ACTIVE.set((*_ACTIVE.get(), tracer))
    try:
        yield tracer
    finally:
        _ACTIVE.reset(token)
