"""Rules for ONNX operators that have bodies: branches and loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autofuse.errors import GraphError
from autofuse.frontends.errors import FrontendError
from autofuse.frontends.onnx.types import (
    STANDARD,
    Datum,
    OnnxCall,
    OnnxRules,
    Subgraph,
    UnknownValueError,
)
from autofuse.graph.composites import moves
from autofuse.graph.loops import BranchWriter, LoopBodyWriter, LoopWriter, WhileWriter
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter
from autofuse.ops.control import MAX_TRIP
from autofuse.ops.dtypes import DType
from autofuse.ops.types import TensorType

# Iterations that may be written one after another, where a loop cannot hold what they decide.
MOST_UNROLLED = 128
_TRUE = np.asarray(True)


def _inside(c: OnnxCall, loop: LoopBodyWriter, datum: Datum) -> Value:
    """What a body gives, as a value of the body."""
    if isinstance(datum, Value):
        return datum
    if isinstance(datum, np.ndarray):
        return loop.body.constant(datum)
    return loop.capture(c.holder.value_of(datum))


def _flag(c: OnnxCall, k: int) -> Value | np.ndarray:
    """A condition, true where it is left out."""
    known = c.known(k) if c.has(k) else _TRUE
    return c.w.reshape(c.value(k), ()) if known is None else known


# Branches


def _if(c: OnnxCall) -> list[Datum]:
    """The branch that a known condition takes; of an unknown one both, of which one is run. Where
    not both can be written (as of a model that has one for each shape), it has to be known."""
    taken, branches = _flag(c, 0), (c["then_branch"], c["else_branch"])
    if not isinstance(taken, Value):
        body: Subgraph = branches[0 if bool(np.reshape(taken, ())) else 1]
        return body.write(c.w, [])
    try:
        return _both(c, taken, branches)
    except GraphError as error:
        reason = f"which branch it takes is not known before it is run, but one is refused: {error}"
        raise UnknownValueError(taken, c.w, reason) from error


def _both(c: OnnxCall, taken: Value, branches: Sequence[Subgraph]) -> list[Datum]:
    """Each branch, run where its flag holds."""
    found: list[Value] = []
    for branch, flag in zip(branches, (taken, c.w.map("not", taken)), strict=True):
        types = _branch_types(c, branch)
        found = found or [c.w.full(0, t.shape, t.dtype) for t in types]
        if [c.w.type_of(v) for v in found] != types:
            raise FrontendError("its branches give values of different types")
        writer = BranchWriter(c.w, flag, found)
        made = branch.write(writer.body, [], writer.capture)
        found = list(writer.results([_inside(c, writer, each) for each in made]))
    return list(found)


def _branch_types(c: OnnxCall, branch: Subgraph) -> list[TensorType]:
    """What a branch gives, seen by writing it to a graph that is thrown away."""
    trial = LoopWriter(c.w, 1)
    made = branch.write(trial.body, [], trial.capture)
    return [trial.body.type_of(_inside(c, trial, each)) for each in made]


# Loops


def _looped(
    c: OnnxCall, trip: int, init: Sequence[Datum],
    write: Callable[[LoopWriter, list[Value]], list[Datum]],
) -> list[Datum]:  # fmt: skip
    """`trip` iterations of what `write` gives of the states: new ones, and rows to stack."""
    loop = LoopWriter(c.w, trip)
    states = [loop.state(c.holder.value_of(each)) for each in init]
    made = [_inside(c, loop, each) for each in write(loop, states)]
    return list(loop.finish(made[: len(init)], made[len(init) :]))


def _loop(c: OnnxCall) -> list[Datum]:
    """A counted loop where the number of iterations is known and nothing ends it before; one after
    another where iterations decide shapes; else a loop that ends by its condition."""
    body, init = c["body"], [c.datum(k) for k in range(2, len(c.operands))]
    stacks = len(body.outputs) - 1 - len(init)
    if stacks < 0:
        raise FrontendError(f"its body gives {len(body.outputs)} outputs for {len(init)} states")
    if stacks:  # How long they are has to be known.
        trip = min(c.ints(0, "the trip count")) if c.has(0) else None
        go: Value | np.ndarray = c.needs(1, "the condition") if c.has(1) else _TRUE
    else:
        known = c.known(0) if c.has(0) else None
        trip = None if known is None else int(known.reshape(()))
        go = _flag(c, 1)
    if isinstance(go, np.ndarray) and (not go.all() or (trip is not None and trip < 1)):
        return [*init, *_no_rows(c, body, init)]
    if trip is None or trip > MAX_TRIP or isinstance(go, Value):
        return _by_condition(c, body, init, go, trip, stacks)
    try:
        return _looped(c, trip, init, lambda loop, states: _counted(body, loop, states))
    except GraphError as error:
        refused = error
    if trip <= MOST_UNROLLED:
        unrolled = _unrolled(c, body, init, trip)
        if unrolled is not None:
            return unrolled
    if stacks:
        raise refused
    return _by_condition(c, body, init, go, trip, stacks)


def _counted(body: Subgraph, loop: LoopWriter, states: list[Value]) -> list[Datum]:
    step = loop.body.cast(loop.step, DType.I64)
    go, *made = body.write(loop.body, [step, _TRUE, *states], loop.capture)
    if not (isinstance(go, np.ndarray) and go.all()):
        raise FrontendError("a condition that is computed decides how long its results are")
    return made


def _no_rows(c: OnnxCall, body: Subgraph, init: Sequence[Datum]) -> list[Datum]:
    """The stacks of a loop without an iteration."""
    loop = LoopWriter(c.w, 1)
    states = [loop.state(c.holder.value_of(each)) for each in init]
    step = loop.body.cast(loop.step, DType.I64)
    _, *made = body.write(loop.body, [step, _TRUE, *states], loop.capture)
    types = [loop.body.type_of(_inside(c, loop, each)) for each in made[len(init) :]]
    return [np.zeros((0, *t.shape), t.dtype.numpy) for t in types]


def _unrolled(
    c: OnnxCall, body: Subgraph, init: Sequence[Datum], trip: int
) -> list[Datum] | None:  # fmt: skip
    """Iterations one after another, each of which knows its number; None where a condition that is
    not known would end them."""
    states, rows = list(init), []
    for step in range(trip):
        go, *made = body.write(c.w, [np.asarray(step, np.int64), _TRUE, *states])
        if not isinstance(go, np.ndarray):
            return None
        states = made[: len(init)]
        rows.append([c.holder.value_of(each) for each in made[len(init) :]])
        if not go.all():
            break
    stacks = (moves.stack(c.w, list(each), 0) for each in zip(*rows, strict=True))
    return [*states, *stacks]


def _by_condition(
    c: OnnxCall, body: Subgraph, init: Sequence[Datum], go: Datum, trip: int | None, stacks: int
) -> list[Datum]:  # fmt: skip
    if stacks:
        raise FrontendError("how many iterations it has, and so how long its results are, is not "
                            "known before it is run")  # fmt: skip
    w = c.w
    begin = c.holder.value_of(go)
    limit = w.cast(w.reshape(c.value(0), ()), DType.I64) if c.has(0) and trip is None else None
    if limit is not None:
        begin = w.map("and", begin, w.map("gt", limit, 0))
    loop = WhileWriter(w, begin, min(trip or MAX_TRIP, MAX_TRIP))
    states = [loop.state(c.holder.value_of(each)) for each in init]
    inner = loop.body
    step = inner.cast(loop.step, DType.I64)
    again, *made = body.write(inner, [step, _TRUE, *states], loop.capture)
    flag = inner.reshape(_inside(c, loop, again), ())
    if limit is not None:
        left = inner.map("lt", inner.add(step, 1), loop.capture(limit))
        flag = inner.map("and", flag, left)
    return list(loop.end(flag, [_inside(c, loop, each) for each in made]))


# Scans


def _per_scan(c: OnnxCall, name: str, count: int) -> list[int]:
    return list(c.attr(name) or [0] * count)


def _scan(c: OnnxCall) -> list[Datum]:
    """Slices of operands, states, and rows that are stacked, along axes and in directions of the
    node's choice."""
    count, body = int(c["num_scan_inputs"]), c["body"]
    init = [c.datum(k) for k in range(len(c.operands) - count)]
    xs = [c.value(k) for k in range(len(init), len(c.operands))]
    directions = _per_scan(c, "scan_input_directions", count)
    axes = [a % len(c.w.shape(x)) for x, a in zip(xs, _per_scan(c, "scan_input_axes", count),
                                                  strict=True)]  # fmt: skip
    trips = {c.w.shape(x)[axis] for x, axis in zip(xs, axes, strict=True)}
    if len(trips) != 1:
        raise FrontendError(f"it scans along axes of extents {sorted(trips)}")
    made = _scanned(c, body, init, xs, list(zip(axes, directions, strict=True)), trips.pop())
    rows = [c.holder.value_of(each) for each in made[len(init) :]]
    ways = _per_scan(c, "scan_output_directions", len(rows))
    places = _per_scan(c, "scan_output_axes", len(rows))
    turned = (_placed(c.w, v, way, at) for v, way, at in zip(rows, ways, places, strict=True))
    return [*made[: len(init)], *turned]


def _scanned(
    c: OnnxCall, body: Subgraph, init: Sequence[Datum], xs: Sequence[Value],
    how: Sequence[tuple[int, int]], trip: int,
) -> list[Datum]:  # fmt: skip
    def write(loop: LoopWriter, states: list[Value]) -> list[Datum]:
        w, rows = loop.body, []
        for x, (axis, backwards) in zip(xs, how, strict=True):
            at = w.sub(trip - 1, loop.step) if backwards else loop.step
            rows.append(w.op("gather", loop.capture(x), at, axis=axis))
        return body.write(w, [*states, *rows], loop.capture)

    return _looped(c, trip, init, write)


def _placed(w: GraphWriter, rows: Value, backwards: int, axis: int) -> Value:
    """A stack, first to last or turned round, its first axis in the place of `axis`."""
    rank = len(w.shape(rows))
    rows = w.reverse(rows, 0) if backwards else rows
    rest = list(range(1, rank))
    rest.insert(axis % rank, 0)
    return w.transpose(rows, rest)


def _batched_scan(c: OnnxCall) -> list[Datum]:
    """As Scan was at first: for each of a batch on its own, along the second axis."""
    if c.has(0):
        raise FrontendError("sequences of different lengths are not supported")
    w, count, body = c.w, int(c["num_scan_inputs"]), c["body"]
    values = [c.value(k) for k in range(1, len(c.operands))]
    ways: Any = c.attr("directions") or [0] * count
    batch, states = w.shape(values[0])[0], len(values) - count
    found = []
    for b in range(batch):
        own = [w.reshape(w.part(v, 0, b, b + 1), w.shape(v)[1:]) for v in values]
        trip = w.shape(own[states])[0]
        made = _scanned(c, body, own[:states], own[states:], [(0, way) for way in ways], trip)
        found.append([c.holder.value_of(each) for each in made])
    return [moves.stack(w, list(each), 0) for each in zip(*found, strict=True)]


ONNX_CONTROL: OnnxRules = {
    (STANDARD, "If", 1): _if,
    (STANDARD, "Loop", 1): _loop,
    (STANDARD, "Scan", 8): _batched_scan,
    (STANDARD, "Scan", 9): _scan,
}
