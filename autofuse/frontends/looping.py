"""Counted loops and random numbers of traced Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autofuse.frontends.array import TracedArray
from autofuse.frontends.elementwise import bitwise_right_shift
from autofuse.frontends.errors import TraceError
from autofuse.frontends.promotion import as_array
from autofuse.frontends.recorder import Tracer, current, recording
from autofuse.frontends.shaping import shape_of
from autofuse.frontends.trees import Tree, flatten, structure, unflatten
from autofuse.graph import composites
from autofuse.ops.dtypes import DType
from autofuse.ops.types import TensorType

_COUNTER = TensorType((), DType.I32)


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
    inner = Tracer(outer)
    with recording(inner):
        step = inner.input("step", _COUNTER)
        states = [inner.input(f"state_{k}", a.type) for k, a in enumerate(init)]
        result = body(step, unflatten(init_state, states))
        if not isinstance(result, tuple) or len(result) != 2:
            raise TraceError("a scan body returns a pair: the new state, the values to stack")
        carried = _carried(init_state, init, result[0])
        stacked = [as_array(leaf) for leaf in flatten(result[1])]
        graph = inner.finish([*carried, *stacked], ())
    invariants = [outer.wrap(v, outer.builder.type_of(v)) for v in inner.captured]
    found = outer.op_many("loop", *init, *invariants, body=graph, trip=n, carries=len(init))
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
    words = as_array(key)
    if words.type != TensorType((2,), DType.U32):
        raise TraceError(f"a random key is u32[2], got {words.type}")
    number = as_array(stream, DType.U32)
    return current().op("random_bits", words, number, shape=shape_of(shape), generator="philox")


def uniform(key: Any, shape: Any, stream: Any = 0, low: Any = 0.0, high: Any = 1.0) -> TracedArray:
    """f32 numbers in [low, high) from the upper 24 of 32 random bits."""
    return to_uniform(random_bits(key, shape, stream), low, high)


def to_uniform(bits: TracedArray, low: Any = 0.0, high: Any = 1.0) -> TracedArray:
    """u32 words as f32 numbers in [low, high): (bits >> 8) * 2^-24, scaled and shifted."""
    unit = as_array(bitwise_right_shift(bits, 8), DType.F32) * 2.0**-24
    if isinstance(low, int | float) and isinstance(high, int | float):
        scaled: TracedArray = unit if high - low == 1 else unit * float(high - low)
        return scaled if low == 0 else scaled + float(low)
    bound, start = as_array(high, DType.F32), as_array(low, DType.F32)
    return unit * (bound - start) + start


def normal(key: Any, shape: Any, stream: Any = 0) -> TracedArray:
    """Standard normal f32 numbers (Box-Muller) from one stream."""
    tracer = current()
    words, number = tracer.value_of(as_array(key)), tracer.value_of(as_array(stream, DType.U32))
    value = composites.normal(tracer.builder, words, number, shape_of(shape))
    return tracer.wrap(value, tracer.builder.type_of(value))
