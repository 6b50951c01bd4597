"""A scan as the counted loop: states, invariants, rows by step number, stacked results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from autofuse.frontends.jax_emit import Emitter, FrontendError, Item, Key, is_key
from autofuse.frontends.prune import prune
from autofuse.graph.types import Value
from autofuse.ops.dtypes import DType


class Runner(Protocol):
    """What expands a jaxpr into the ops of one graph."""

    e: Emitter

    def on(self, e: Emitter) -> Runner: ...

    def closed(self, closed: Any, args: Sequence[Item]) -> list[Item]: ...


@dataclass(frozen=True)
class Loop:
    """A body jaxpr (consts, carries, rows of `xs`) run `trip` times; `live` marks wanted stacks.

    A carry the body returns unchanged becomes an invariant; one that only counts up from a known
    integer is computed from the step number.
    """

    body: Any
    consts: Sequence[Item]
    init: Sequence[Item]
    xs: Sequence[Item]
    trip: int
    reverse: bool
    live: tuple[bool, ...]

    def emit(self, runner: Runner) -> list[Item]:
        """Final carries, then the stacked results; an unwanted stack is some other value."""
        if self.trip == 0:
            if any(self.live):
                raise FrontendError("a scan of no steps stacks nothing")
            return list(self.init)
        outer, inner = runner.e, runner.on(Emitter())
        scope = _Scope(inner.e, outer, {})
        step = inner.e.builder.input("step", (), DType.I32)
        inner.e.spans[step] = (0, self.trip - 1)
        moving = [k for k in range(len(self.init)) if self._moves(outer, k)]
        # States come before invariants among the inputs of the body.
        inputs = {k: _state(inner.e, outer, self.init[k], f"state_{k}") for k in moving}
        results = inner.closed(self.body, self._arguments(scope, step, inputs))
        finals = [self._final(outer, k) for k in range(len(self.init))]
        rows = results[len(self.init) :]
        states = [v for k in moving for v in values_of(results[k])]
        stacks = [v for r, live in zip(rows, self.live, strict=True) if live for v in values_of(r)]
        if not states and not stacks:
            return finals + [outer.constant(np.int32(0))] * len(self.live)
        made = outer.op_many(
            "loop",
            *(v for k in moving for v in values_of(self.init[k])),
            *scope.captured,
            body=prune(inner.e.builder.build((*states, *stacks))),
            trip=self.trip,
            carries=len(states),
        )
        values = iter(made)
        for k in moving:
            finals[k] = _rebuild(results[k], values)
        return finals + self._stacks(outer, rows, values)

    def _moves(self, outer: Emitter, k: int) -> bool:
        consts = len(self.consts)
        return not unchanged(self.body.jaxpr, consts, k) and self._first(outer, k) is None

    def _first(self, outer: Emitter, k: int) -> int | None:
        """The known start of carry `k` when the body only adds 1 to it."""
        item = self.init[k]
        known = outer.known_int(item) if isinstance(item, Value) else None
        counts = known is not None and counts_up(self.body.jaxpr, len(self.consts), k)
        return known if counts else None

    def _arguments(self, scope: _Scope, step: Value, inputs: dict[int, Item]) -> list[Item]:
        """What the body jaxpr is called with, inside the body."""
        e, used = scope.e, _used(self.body.jaxpr)
        pairs = zip(self.consts, self.body.jaxpr.invars, strict=False)
        found = [scope.capture(item) if var in used else item for item, var in pairs]
        for k, item in enumerate(self.init):
            if k in inputs:
                found.append(inputs[k])
            elif unchanged(self.body.jaxpr, len(self.consts), k):
                found.append(scope.capture(item))
            else:
                assert isinstance(item, Value)
                at = e.cast(step, scope.outer.dtype(item))
                first = self._first(scope.outer, k)
                found.append(at if first == 0 else e.add(at, e.scalar(first, at)))
        at = e.map("sub", e.constant(np.int32(self.trip - 1)), step) if self.reverse else step
        for xs in self.xs:
            found.append(each(scope.capture(xs), lambda v: e.op("gather", v, at, axis=0)))
        return found

    def _final(self, outer: Emitter, k: int) -> Item:
        """Carry `k` after the loop, where it is not a state."""
        item = self.init[k]
        if not isinstance(item, Value) or self._first(outer, k) is None:
            return item
        return outer.add(item, outer.scalar(self.trip, item))

    def _stacks(self, outer: Emitter, rows: list[Item], values: Iterator[Value]) -> list[Item]:
        """The wanted stacks in the order of the rows they came from."""
        found: list[Item] = []
        for row, live in zip(rows, self.live, strict=True):
            if not live:
                found.append(outer.constant(np.int32(0)))
                continue
            stack = _rebuild(row, values)
            if self.reverse:
                stack = each(stack, lambda v: outer.op("reverse", v, axes=(0,)))
            found.append(stack)
        return found


@dataclass(frozen=True)
class _Scope:
    """A loop body `e` inside graph `outer`, and which values of it became inputs of the body."""

    e: Emitter
    outer: Emitter
    captured: dict[Value, Value]

    def capture(self, item: Item) -> Item:
        """An item of the graph around the body: a constant again, or an invariant."""
        return each(item, self._take)

    def _take(self, value: Value) -> Value:
        if value in self.outer.known:
            return self.e.constant(self.outer.known[value], self.outer.dtype(value))
        if value not in self.captured:
            name, kind = f"invariant_{len(self.captured)}", self.outer.type_of(value)
            self.captured[value] = self.e.builder.input(name, kind.shape, kind.dtype)
        return self.captured[value]


def unchanged(body: Any, consts: int, carry: int) -> bool:
    return body.outvars[carry] is body.invars[consts + carry]


def counts_up(body: Any, consts: int, carry: int) -> bool:
    """Whether the body returns an integer carry plus the literal 1."""
    source, result = body.invars[consts + carry], body.outvars[carry]
    if source.aval.shape or is_key(source.aval) or not np.issubdtype(source.aval.dtype, np.integer):
        return False
    for eqn in body.eqns:
        if any(v is result for v in eqn.outvars):
            atoms = eqn.invars
            one = [a for a in atoms if hasattr(a, "val") and int(a.val) == 1]
            return eqn.primitive.name == "add" and len(one) == 1 and any(a is source for a in atoms)
    return False


def values_of(item: Item) -> tuple[Value, ...]:
    """The one or two graph values of an item."""
    return (item.k0, item.k1) if isinstance(item, Key) else (item,)


def each(item: Item, fn: Callable[[Value], Value]) -> Item:
    """`fn` applied to every graph value of an item."""
    return Key(fn(item.k0), fn(item.k1)) if isinstance(item, Key) else fn(item)


def _rebuild(like: Item, values: Iterator[Value]) -> Item:
    return each(like, lambda _: next(values))


def _state(e: Emitter, outer: Emitter, item: Item, name: str) -> Item:
    """Inputs of the body for one carried item."""
    names = iter((f"{name}_k0", f"{name}_k1") if isinstance(item, Key) else (name,))
    return each(item, lambda v: e.builder.input(next(names), outer.shape(v), outer.dtype(v)))


def _used(jaxpr: Any) -> set[Any]:
    atoms = [a for eqn in jaxpr.eqns for a in eqn.invars] + list(jaxpr.outvars)
    return {a for a in atoms if not hasattr(a, "val")}
