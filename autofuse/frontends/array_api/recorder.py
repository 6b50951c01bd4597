"""The graph being recorded: where traced arrays live and how they enter loop bodies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from autofuse.frontends.array_api.array import TracedArray
from autofuse.frontends.errors import TraceError
from autofuse.graph.canonical import canonical
from autofuse.graph.loops import LoopBodyWriter
from autofuse.graph.types import Graph, Value
from autofuse.graph.writer import GraphWriter
from autofuse.ops.dtypes import DType
from autofuse.ops.types import GraphError, TensorType


class Tracer:
    """One graph being recorded; a loop body is recorded by a child of the tracer around it.

    `functions` is the table that the operators and methods of its arrays are looked up in.
    """

    def __init__(
        self,
        functions: Mapping[str, Callable[..., Any]],
        parent: Tracer | None = None,
        loop: LoopBodyWriter | None = None,
    ) -> None:
        self.functions = functions
        self.writer = GraphWriter() if loop is None else loop.body
        self._parent = parent
        self._loop = loop

    def child(self, loop: LoopBodyWriter) -> Tracer:
        """Records the body of a loop in this graph."""
        return Tracer(self.functions, self, loop)

    def wrap(self, value: Value) -> TracedArray:
        return TracedArray(self, value, self.writer.type_of(value))

    def input(
        self, name: str, of: TensorType, low: float | None = None, high: float | None = None,
        constant: bool = False,
    ) -> TracedArray:  # fmt: skip
        """Add a graph input; `low` and `high` bound its random test values, and a `constant` one is
        bound once."""
        bounds = {"low": low, "high": high}
        return self.wrap(self.writer.input(name, of.shape, of.dtype, **bounds, constant=constant))

    def write(self, function: Callable[..., Value], *args: Any, **kwargs: Any) -> TracedArray:
        """What a method of GraphWriter or a composite makes of arrays; the writer goes first.

        Raises TraceError for operands that do not fit.
        """
        try:
            return self.wrap(function(self.writer, *map(self._plain, args), **kwargs))
        except GraphError as error:
            raise TraceError(str(error)) from error

    def op(self, name: str, *arrays: TracedArray, **attrs: Any) -> TracedArray:
        """Add an op with one output."""
        return self.write(GraphWriter.op, name, *arrays, **attrs)

    def constant(self, data: np.ndarray, dtype: DType) -> TracedArray:
        """A literal."""
        return self.wrap(self.writer.constant(data, dtype))

    def _plain(self, argument: Any) -> Any:
        """Arrays as values of this graph, also inside sequences; anything else as it is."""
        if isinstance(argument, TracedArray):
            return self.value_of(argument)
        if isinstance(argument, list):
            return [self._plain(part) for part in argument]
        return argument

    def value_of(self, array: TracedArray) -> Value:
        """The value of `array` in this graph, captured from an enclosing one where needed."""
        if array.tracer is self:
            return array.value
        if self._parent is None or self._loop is None:
            raise TraceError(
                "an array is used outside the trace or loop body that made it: return it from there"
            )
        return self._loop.capture(self._parent.value_of(array))

    def finish(self, outputs: Sequence[TracedArray], names: Sequence[str]) -> Graph:
        """The recorded graph in canonical form."""
        return canonical(self.writer.build([self.value_of(a) for a in outputs], names))


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
