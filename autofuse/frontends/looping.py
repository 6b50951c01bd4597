"""Counted loops and random numbers of traced Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autofuse.frontends.array import TracedArray
from autofuse.frontends.errors import TraceError
from autofuse.frontends.promotion import as_array
from autofuse.frontends.recorder import current, recording
from autofuse.frontends.shaping import shape_of
from autofuse.frontends.trees import Tree, flatten, structure, unflatten
from autofuse.graph import composites_random as composites
from autofuse.graph.loops import LoopWriter
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
        stacked = [as_array(leaf) for leaf in flatten(result[1])]
        rows = [[inner.value_of(a) for a in arrays] for arrays in (carried, stacked)]
    found = [outer.wrap(value) for value in loop.finish(*rows)]
    return (
        unflatten(init_state, found[: len(init)]),
        unflatten(result[1], found[len(init) :]),
    )


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
