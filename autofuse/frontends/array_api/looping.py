"""Counted loops and random numbers of traced Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autofuse.frontends.array_api.array import TracedArray
from autofuse.frontends.array_api.promotion import as_array
from autofuse.frontends.array_api.recorder import current, recording
from autofuse.frontends.array_api.shaping import shape_of
from autofuse.frontends.array_api.trees import Tree, flatten, structure, unflatten
from autofuse.frontends.errors import TraceError
from autofuse.graph.composites import random as composites
from autofuse.graph.loops import BranchWriter, LoopWriter, WhileWriter
from autofuse.graph.writer import GraphWriter
from autofuse.ops.control import MAX_TRIP
from autofuse.ops.dtypes import DType


def fori_loop(n: int, body: Callable[[TracedArray, Any], Any], init_state: Tree) -> Tree:
    """`state = body(i, state)` for i = 0 .. n-1; returns the last state.

    The state is an array or nested tuples, lists, dicts of arrays whose shapes and dtypes the
    body keeps; `i` is an i32 scalar array. The body may read arrays from around the loop.
    """
    if n == 0:
        return unflatten(init_state, [as_array(leaf) for leaf in flatten(init_state)])
    state, _ = scan(lambda i, s: (body(i, s), ()), init_state, n)
    return state


def scan(
    body: Callable[[TracedArray, Any], tuple[Any, Any]], init_state: Tree, n: int
) -> tuple[Tree, Tree]:
    """`state, y = body(i, state)` for i = 0 .. n-1; returns the last state and every y stacked
    along a new first axis. `n` is a positive Python integer."""
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        raise TraceError(f"a loop runs a fixed whole number of times, at least once: got {n!r}")
    outer = current()
    init = [as_array(leaf) for leaf in flatten(init_state)]
    loop = LoopWriter(outer.writer, n)
    inner = outer.child(loop)
    with recording(inner):
        states = [inner.wrap(loop.state(outer.value_of(a))) for a in init]
        result = body(inner.wrap(loop.step), unflatten(init_state, states))
        if not isinstance(result, tuple) or len(result) != 2:
            raise TraceError("a scan body returns a pair: the new state, the values to stack")
        carried = _carried(init_state, init, result[0])
        stacked = list(map(as_array, flatten(result[1])))
        rows = [[inner.value_of(a) for a in arrays] for arrays in (carried, stacked)]
    found = list(map(outer.wrap, loop.finish(*rows)))
    return (
        unflatten(init_state, found[: len(init)]),
        unflatten(result[1], found[len(init) :]),
    )


def while_loop(
    test: Callable[[Tree], Any], body: Callable[[Any], Any], init_state: Tree,
    max_trips: int = MAX_TRIP,
) -> Tree:  # fmt: skip
    """`state = body(state)` as long as `test(state)`, a bool, holds, at most `max_trips` times;
    returns the last state. A test of shape S, with which the shapes of all states begin, ends each
    of its places alone: where it is false, states stay what they are from then on."""
    outer = current()
    init = [as_array(leaf) for leaf in flatten(init_state)]
    go = _truth(test(unflatten(init_state, init)))
    loop = WhileWriter(outer.writer, outer.value_of(go), max_trips)
    inner = outer.child(loop)
    with recording(inner):
        states = [inner.wrap(loop.state(outer.value_of(a))) for a in init]
        carried = _carried(init_state, init, body(unflatten(init_state, states)))
        again = _truth(test(unflatten(init_state, carried)))
        values = [inner.value_of(a) for a in carried]
        found = loop.end(inner.value_of(again), values)
    return unflatten(init_state, [outer.wrap(value) for value in found])


def cond(taken: Any, yes: Callable[..., Tree], no: Callable[..., Tree], *operands: Any) -> Tree:
    """`yes(*operands)` where `taken` (bool, ()) holds, else `no(*operands)`: only one of the two is
    computed. Both give trees of arrays of the same shapes and dtypes."""
    outer, flag = current(), _truth(taken)
    with recording(outer.child(LoopWriter(outer.writer, 1))):  # only to see what it gives
        like = yes(*operands)
        kinds = [as_array(leaf) for leaf in flatten(like)]
    zeros = [outer.write(GraphWriter.full, 0, a.shape, a.dtype) for a in kinds]
    result = _branch(flag, yes, operands, unflatten(like, zeros))
    return _branch(outer.write(GraphWriter.map, "not", flag), no, operands, result)


def _branch(taken: TracedArray, of: Callable[..., Tree], operands: Any, otherwise: Tree) -> Tree:
    """What a function gives where it is called, else `otherwise`."""
    outer = current()
    begin = [as_array(leaf) for leaf in flatten(otherwise)]
    branch = BranchWriter(outer.writer, outer.value_of(taken), [outer.value_of(a) for a in begin])
    inner = outer.child(branch)
    with recording(inner):
        made = _carried(otherwise, begin, of(*operands))
        found = branch.results([inner.value_of(a) for a in made])
    return unflatten(otherwise, [outer.wrap(value) for value in found])


def _truth(found: Any) -> TracedArray:
    array = as_array(found, DType.BOOL)
    if array.dtype is not DType.BOOL:
        raise TraceError(f"a test gives a bool, not {array.type}")
    return array


def _carried(like: Tree, init: Sequence[TracedArray], new: Tree) -> list[TracedArray]:
    """The new states, checked against the old ones; Python numbers take their dtype."""
    if structure(new) != structure(like):
        raise TraceError(
            f"the loop body returns a state {structure(new)} for a state {structure(like)}"
        )
    found = []
    for k, (old, leaf) in enumerate(zip(init, flatten(new), strict=True)):
        array = leaf if isinstance(leaf, TracedArray) else as_array(leaf, old.dtype)
        if array.type != old.type:
            raise TraceError(f"loop state {k} enters as {old.type} and leaves as {array.type}")
        found.append(array)
    return found


def random_bits(key: Any, shape: Any, stream: Any = 0) -> TracedArray:
    """u32 words of Philox-4x32-10 for `key` (u32[2]) and `stream` (u32 scalar)."""
    number = as_array(stream, DType.U32)
    return current().write(composites.random_bits, as_array(key), number, shape_of(shape))


def uniform(key: Any, shape: Any, stream: Any = 0, low: Any = 0.0, high: Any = 1.0) -> TracedArray:
    """f32 numbers in [low, high) from the upper 24 of 32 random bits."""
    return to_uniform(random_bits(key, shape, stream), low, high)


def to_uniform(bits: TracedArray, low: Any = 0.0, high: Any = 1.0) -> TracedArray:
    """u32 words as f32 numbers in [low, high): (bits >> 8) * 2^-24, scaled and shifted."""
    bounds = (v if isinstance(v, int | float) else as_array(v, DType.F32) for v in (low, high))
    return current().write(composites.to_uniform, bits, *bounds)


def normal(key: Any, shape: Any, stream: Any = 0) -> TracedArray:
    """Standard normal f32 numbers (Box-Muller) from one stream."""
    number = as_array(stream, DType.U32)
    return current().write(composites.normal, as_array(key), number, shape_of(shape))
