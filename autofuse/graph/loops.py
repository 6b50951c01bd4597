"""Loops written beside the graph that they stand in: counted ones, and those that end by a flag."""

from __future__ import annotations

from collections.abc import Sequence

from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter
from autofuse.ops.control import COUNTER, MAX_TRIP
from autofuse.ops.dtypes import DType
from autofuse.ops.types import GraphError


class LoopBodyWriter:
    """A loop of at most `trip` >= 1 iterations in the graph of `outer`; `body` writes one of them.

    `step` is the number of the iteration inside the body (i32, from 0). First every state is named,
    then the body is written, which reads values from around the loop by `capture`.
    """

    def __init__(self, outer: GraphWriter, trip: int) -> None:
        if trip < 1:
            raise GraphError(f"a loop runs at least once, not {trip} times")
        self.outer, self.trip, self.body = outer, trip, GraphWriter()
        self.step = self.body.input("step", COUNTER.shape, COUNTER.dtype)
        self.body.bound(self.step, 0, trip - 1)
        self._init: list[Value] = []
        self._captured: dict[Value, Value] = {}

    def state(self, init: Value, name: str = "") -> Value:
        """A state that starts as `init` (a value of `outer`), as the body sees it."""
        if self._captured:
            raise GraphError("a loop names its states before its body reads values around it")
        kind = self.outer.type_of(init)
        label = name or f"state_{len(self._init)}"
        self._init.append(init)
        return self.body.input(label, kind.shape, kind.dtype)

    def capture(self, value: Value) -> Value:
        """A value of `outer` inside the body: a small constant again, else an invariant."""
        known = self.outer.known(value)
        if known is not None:
            return self.body.constant(known, self.outer.dtype(value))
        if value not in self._captured:
            kind, name = self.outer.type_of(value), f"invariant_{len(self._captured)}"
            self._captured[value] = self.body.input(name, kind.shape, kind.dtype)
        return self._captured[value]

    def _written(
        self, op: str, outputs: Sequence[Value], carries: int, limit: str
    ) -> tuple[Value, ...]:
        attrs = {"body": self.body.build(outputs), "carries": carries, limit: self.trip}
        return self.outer.op_many(op, *self._init, *self._captured, **attrs)


class LoopWriter(LoopBodyWriter):
    """A loop of `trip` iterations."""

    def finish(self, states: Sequence[Value], stacks: Sequence[Value] = ()) -> tuple[Value, ...]:
        """Write the loop: `states` and `stacks` are values of the body, the new states in order,
        and what is stacked along a new first axis. Returns last states, then stacks, of `outer`."""
        if len(states) != len(self._init):
            raise GraphError(f"the loop has {len(self._init)} states, not {len(states)}")
        return self._written("loop", (*states, *stacks), len(states), "trip")


class WhileWriter(LoopBodyWriter):
    """A loop in the graph of `outer` that goes on while `go` (bool) is true anywhere, but at most
    `max_trips` times; where `go` is false, states keep what they are from then on.

    Shapes of states begin with that of `go`. Otherwise as LoopBodyWriter."""

    def __init__(self, outer: GraphWriter, go: Value, max_trips: int = MAX_TRIP) -> None:
        super().__init__(outer, max_trips)
        self.go = self.state(go, "go")

    def end(self, go: Value, states: Sequence[Value]) -> tuple[Value, ...]:
        """Write the loop: values of the body, whether it goes on and the new states in order.
        Returns the last states, of `outer`."""
        if len(states) != len(self._init) - 1:
            raise GraphError(f"the loop has {len(self._init) - 1} states, not {len(states)}")
        outputs = (go, *states)
        return self._written("while", outputs, len(outputs), "max_trips")[1:]


class BranchWriter(WhileWriter):
    """What is computed where `taken` (bool, ()) holds only: a loop of at most one iteration, whose
    states begin as `otherwise`."""

    def __init__(self, outer: GraphWriter, taken: Value, otherwise: Sequence[Value]) -> None:
        super().__init__(outer, taken, 1)
        for value in otherwise:
            self.state(value)

    def results(self, values: Sequence[Value]) -> tuple[Value, ...]:
        """Write the branch: its results, values of the body. Returns them or `otherwise`."""
        return self.end(self.body.constant(False, DType.BOOL), values)
