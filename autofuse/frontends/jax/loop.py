"""A scan as the counted loop: states, invariants, rows by step number, stacked results; a while
loop as the one that ends by its flag."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import compress
from typing import Any, Protocol

import numpy as np

from autofuse.frontends.errors import FrontendError
from autofuse.frontends.jax.types import (
    Item,
    PairArray,
    each,
    is_key,
    jax_module,
    static_shape,
    values_of,
)
from autofuse.graph.loops import LoopBodyWriter, LoopWriter, WhileWriter
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter
from autofuse.ops.dtypes import DType


class Runner(Protocol):
    """What expands a jaxpr into the ops of one graph."""

    w: GraphWriter

    def on(self, w: GraphWriter) -> Runner: ...

    def closed(self, closed: Any, args: Sequence[Item]) -> list[Item]: ...


@dataclass(frozen=True)
class ScanLoop:
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
        outer = runner.w
        loop = LoopWriter(outer, self.trip)
        moving = [k for k in range(len(self.init)) if self._moves(outer, k)]
        inputs = {k: _state(loop, self.init[k], f"state_{k}") for k in moving}
        results = runner.on(loop.body).closed(self.body, self._arguments(loop, inputs))
        finals: list[Item] = [self._final(outer, k) for k in range(len(self.init))]
        rows = results[len(self.init) :]
        states = _values(results[k] for k in moving)
        stacks = _values(compress(rows, self.live))
        if not states and not stacks:
            return finals + [outer.constant(0, DType.I32)] * len(self.live)
        values = iter(loop.finish(states, stacks))
        finals = _with_results(finals, results, moving, values)
        return finals + self._stacks(outer, rows, values)

    def _moves(self, outer: GraphWriter, k: int) -> bool:
        consts = len(self.consts)
        return not unchanged(self.body.jaxpr, consts, k) and self._first(outer, k) is None

    def _first(self, outer: GraphWriter, k: int) -> int | None:
        """The known start of carry `k` when the body only adds 1 to it."""
        item = self.init[k]
        known = outer.known_int(item) if isinstance(item, Value) else None
        counts = known is not None and counts_up(self.body.jaxpr, len(self.consts), k)
        return known if counts else None

    def _arguments(self, loop: LoopWriter, inputs: dict[int, Item]) -> list[Item]:
        """What the body jaxpr is called with, inside the body."""
        w, used = loop.body, _used(self.body.jaxpr)

        def capture(item: Item) -> Item:
            return each(item, loop.capture)

        pairs = zip(self.consts, self.body.jaxpr.invars, strict=False)
        found = [capture(item) if var in used else item for item, var in pairs]
        for k, item in enumerate(self.init):
            if k in inputs:
                found.append(inputs[k])
            elif unchanged(self.body.jaxpr, len(self.consts), k):
                found.append(capture(item))
            else:
                assert isinstance(item, Value)
                at = w.cast(loop.step, loop.outer.dtype(item))
                first = self._first(loop.outer, k)
                found.append(at if not first else w.add(at, first))
        at = w.sub(self.trip - 1, loop.step) if self.reverse else loop.step
        for xs in self.xs:
            found.append(each(capture(xs), lambda v: w.op("gather", v, at, axis=0)))
        return found

    def _final(self, outer: GraphWriter, k: int) -> Item:
        """Carry `k` after the loop, where it is not a state."""
        item = self.init[k]
        if not isinstance(item, Value) or self._first(outer, k) is None:
            return item
        return outer.add(item, self.trip)

    def _stacks(self, outer: GraphWriter, rows: list[Item], values: Iterator[Value]) -> list[Item]:
        """The wanted stacks in the order of the rows they came from."""
        found: list[Item] = []
        for row, live in zip(rows, self.live, strict=True):
            if not live:
                found.append(outer.constant(0, DType.I32))
                continue
            stack = rebuilt_item(row, values)
            if self.reverse:
                stack = each(stack, lambda v: outer.reverse(v, 0))
            found.append(stack)
        return found


@dataclass(frozen=True)
class UntilLoop:
    """A body jaxpr (consts, carries) run as long as a test jaxpr (consts, carries) holds."""

    test: Any
    test_consts: Sequence[Item]
    body: Any
    consts: Sequence[Item]
    init: Sequence[Item]

    def emit(self, runner: Runner) -> list[Item]:
        """The final carries; those that the body returns unchanged are invariants."""
        moving = [k for k in range(len(self.init)) if not self._rests(k)]
        (go,) = runner.closed(self.test, [*self.test_consts, *self.init])
        assert isinstance(go, Value)
        loop = WhileWriter(runner.w, go)
        states = {k: _state(loop, self.init[k], f"state_{k}") for k in moving}
        inner = runner.on(loop.body)
        carried = [
            states[k] if k in states else each(item, loop.capture)
            for k, item in enumerate(self.init)
        ]
        results = inner.closed(self.body, [*captured(loop, self.body.jaxpr, self.consts), *carried])
        for k in moving:
            carried[k] = results[k]
        read = captured(loop, self.test.jaxpr, self.test_consts)
        (again,) = inner.closed(self.test, [*read, *carried])
        assert isinstance(again, Value)
        values = iter(loop.end(again, _values(results[k] for k in moving)))
        return _with_results(self.init, results, moving, values)

    def _rests(self, k: int) -> bool:
        return unchanged(self.body.jaxpr, len(self.consts), k)


def folded(runner: Runner, eqn: Any, live: Sequence[bool], items: Sequence[Item]) -> list[Item]:
    """`reduce` by any computation, as a loop over the elements of a place, first to last."""
    w, count = runner.w, len(items) // 2
    if any(isinstance(item, PairArray) for item in items):
        raise FrontendError("is not supported for complex numbers")
    axes = tuple(sorted(map(int, eqn.params["dimensions"])))
    rows = [_rows_of(w, x, axes) for x in items[:count] if isinstance(x, Value)]
    terms, size = w.shape(rows[0]) if rows else (0, 0)
    first = [w.spread(v, (size,)) for v in items[count:] if isinstance(v, Value)]
    shapes = [static_shape(v.aval) for v in eqn.outvars]
    if not terms or not size:
        return [w.reshape(v, shape) for v, shape in zip(first, shapes, strict=True)]
    jax = jax_module()
    join = jax.vmap(import_module("jax.extend.core").jaxpr_as_fun(eqn.params["jaxpr"]))
    types = [jax.ShapeDtypeStruct((size,), v.aval.dtype) for v in eqn.invars]
    loop = LoopWriter(w, terms)
    states = [loop.state(v) for v in first]
    own = [loop.body.op("gather", loop.capture(v), loop.step, axis=0) for v in rows]
    made = runner.on(loop.body).closed(jax.make_jaxpr(join)(*types), [*states, *own])
    values = loop.finish([v for v in made if isinstance(v, Value)])
    return [w.reshape(v, shape) for v, shape in zip(values, shapes, strict=True)]


def _rows_of(w: GraphWriter, x: Value, axes: tuple[int, ...]) -> Value:
    """The elements along `axes` as rows of all others."""
    shape = w.shape(x)
    rest = tuple(a for a in range(len(shape)) if a not in axes)
    count = math.prod(shape[a] for a in axes)
    moved = w.transpose(x, (*axes, *rest))
    return w.reshape(moved, (count, math.prod(shape[a] for a in rest)))


def captured(loop: LoopBodyWriter, jaxpr: Any, items: Sequence[Item]) -> list[Item]:
    """The first operands of a jaxpr inside a loop, as far as it reads them."""
    used, pairs = _used(jaxpr), zip(items, jaxpr.invars, strict=False)
    return [each(item, loop.capture) if var in used else item for item, var in pairs]


def unchanged(body: Any, consts: int, carry: int) -> bool:
    return body.outvars[carry] is body.invars[consts + carry]


def _values(items: Iterable[Item]) -> list[Value]:
    return [v for item in items for v in values_of(item)]


def _with_results(
    init: Sequence[Item], results: Sequence[Item], moving: Sequence[int], values: Iterator[Value]
) -> list[Item]:
    """What the loop leaves of those that move, and the others as they were."""
    finals = list(init)
    for k in moving:
        finals[k] = rebuilt_item(results[k], values)
    return finals


def counts_up(body: Any, consts: int, carry: int) -> bool:
    """Whether the body returns an integer carry plus the literal 1."""
    source, result = body.invars[consts + carry], body.outvars[carry]
    if source.aval.shape or is_key(source.aval) or not np.issubdtype(source.aval.dtype, np.integer):
        return False
    for eqn in body.eqns:
        if any(v is result for v in eqn.outvars):
            return bool(eqn.primitive.name == "add") and _is_one_more(eqn.invars, source)
    return False


def _is_one_more(terms: Sequence[Any], source: Any) -> bool:
    ones = [a for a in terms if hasattr(a, "val") and int(a.val) == 1]
    return len(ones) == 1 and any(a is source for a in terms)


def rebuilt_item(like: Item, values: Iterator[Value]) -> Item:
    """An item like another, of the next values."""
    return each(like, lambda _: next(values))


def _state(loop: LoopBodyWriter, item: Item, name: str) -> Item:
    """One carried item inside the body."""
    names = iter((f"{name}_k0", f"{name}_k1") if isinstance(item, PairArray) else (name,))
    return each(item, lambda v: loop.state(v, next(names)))


def _used(jaxpr: Any) -> set[Any]:
    atoms = [a for eqn in jaxpr.eqns for a in eqn.invars] + list(jaxpr.outvars)
    return {a for a in atoms if not hasattr(a, "val")}
