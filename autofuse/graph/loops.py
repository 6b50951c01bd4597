"""LoopWriter: a counted loop, its body written beside the graph that it stands in."""

from __future__ import annotations

from collections.abc import Sequence

from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter
from autofuse.ops.control import COUNTER
from autofuse.ops.types import GraphError


class LoopWriter:
    """A loop of `trip` >= 1 iterations in the graph of `outer`; `body` writes one iteration.

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

    def finish(self, states: Sequence[Value], stacks: Sequence[Value] = ()) -> tuple[Value, ...]:
        """Write the loop: `states` and `stacks` are values of the body, the new states in order,
        and what is stacked along a new first axis. Returns last states, then stacks, of `outer`."""
        if len(states) != len(self._init):
            raise GraphError(f"the loop has {len(self._init)} states, not {len(states)}")
        return self.outer.op_many(
            "loop",
            *self._init,
            *self._captured,
            body=self.body.build((*states, *stacks)),
            trip=self.trip,
            carries=len(states),
        )
