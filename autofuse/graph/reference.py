"""The reference interpreter: NumPy, every float a float64; kernels are checked against it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from autofuse.graph.domains import input_ranges
from autofuse.graph.types import Graph, Node, Value
from autofuse.ops.control import is_counted
from autofuse.ops.dtypes import DType
from autofuse.ops.spec import Family
from autofuse.ops.types import GraphError, TensorType

Arrays = tuple[np.ndarray, ...]
# Iterations of a `while` after which the reference takes it to be endless: a checker must end.
MOST_TRIPS = 1 << 20


class Noise:
    """Monte Carlo arithmetic (Parker 1997): a relative error of up to `scale` units in the last
    place on every rounded result, so that running twice shows how ill-conditioned an element is.
    """

    _LENGTH = 65_521

    def __init__(self, seed: int, scale: float = 2.0) -> None:
        self._rng = np.random.default_rng(seed)
        self._table = np.tile(self._rng.uniform(-scale, scale, self._LENGTH), 2)

    def __call__(self, array: np.ndarray, eps: float) -> np.ndarray:
        """`array` (float64) with noise relative to `eps`; a new array of the same shape."""
        start = int(self._rng.integers(self._LENGTH))
        factors = 1.0 + eps * self._table[start : start + self._LENGTH]
        # In the order of memory and one table at a time, which stays in cache.
        order = np.argsort([-stride for stride in array.strides], kind="stable")
        flat = np.ascontiguousarray(array.transpose(order)).reshape(-1)
        noisy = np.empty_like(flat)
        with np.errstate(all="ignore"):
            for first in range(0, flat.size, self._LENGTH):
                part = flat[first : first + self._LENGTH]
                out = noisy[first : first + self._LENGTH]
                np.multiply(part, factors[: part.size], out=out)
        moved = noisy.reshape([array.shape[axis] for axis in order])
        return np.asarray(moved.transpose(np.argsort(order)))


class Runs:
    """A graph run again and again on the same inputs (one array per input, by position), each time
    with other noise. What is the same in every run, inputs in their reference dtypes and products
    that no noise has reached yet, is computed once.

    Raises GraphError when the inputs do not fit."""

    def __init__(self, graph: Graph, inputs: Sequence[np.ndarray]) -> None:
        if len(inputs) != len(graph.inputs):
            raise GraphError(f"the graph takes {len(graph.inputs)} inputs, got {len(inputs)}")
        named = zip(inputs, graph.input_types, graph.input_names, strict=True)
        self._graph, self._inputs = graph, tuple(_rounded(*each) for each in named)
        self._products: dict[int, Arrays] = dict.fromkeys(_untouched_products(graph), ())

    def __call__(self, noise: Noise | None = None) -> Arrays:
        """Outputs: float ones are float64 arrays, others have their exact dtype."""
        return _run(self._graph, self._inputs, noise, self._products)


def _untouched_products(graph: Graph) -> Iterator[int]:
    """Contractions of what noise never changes: inputs, constants and what does not round."""
    touched: set[int] = set()
    for i, node in enumerate(graph.nodes):
        if node.op == "input":
            continue
        if not touched.isdisjoint(v.node for v in node.inputs):
            touched.add(i)
            continue
        if node.spec.family is Family.CONTRACTION:
            yield i
        if node.spec.family is Family.CONTROL or node.spec.rounds(graph.call(i)):
            touched.add(i)


def evaluate(
    graph: Graph, inputs: Sequence[np.ndarray], noise: Noise | None = None
) -> tuple[np.ndarray, ...]:
    """Outputs of `graph` on `inputs` (one array per input, by position).

    Inputs are rounded to their declared dtype first. Float outputs are float64 arrays, others have
    their exact dtype. Raises GraphError when the inputs do not fit.
    """
    return Runs(graph, inputs)(noise)


def _rounded(array: np.ndarray, type_: TensorType, name: str) -> np.ndarray:
    array = np.asarray(array)
    if array.shape != type_.shape:
        raise GraphError(f"input '{name}' is {type_}, got shape {list(array.shape)}")
    with np.errstate(all="ignore"):
        stored = array.astype(type_.dtype.numpy, copy=False)
        return stored.astype(type_.dtype.reference, copy=False)


def _run(
    graph: Graph, inputs: Arrays, noise: Noise | None, products: dict[int, Arrays] | None = None
) -> Arrays:
    """Outputs for inputs already in reference dtypes; each value is freed after its last use.
    `products` keeps results of the nodes that it has as keys, before noise."""
    known: dict[Value, np.ndarray] = {}
    for i, array in zip(graph.inputs, inputs, strict=True):
        known[Value(i)] = array
    last = _last_uses(graph)
    for i, node in enumerate(graph.nodes):
        if node.op != "input":
            operands = tuple(known[v] for v in node.inputs)
            results = () if products is None else products.get(i, ())
            if not results:
                results = _apply(graph, i, node, operands, noise)
                if products is not None and i in products:
                    products[i] = results
            results = _noisy(graph, i, node, results, noise)
            del operands
            known.update((Value(i, k), array) for k, array in enumerate(results))
        for value in last[i]:
            known.pop(value, None)
    return tuple(known[v] for v in graph.outputs)


def _last_uses(graph: Graph) -> list[list[Value]]:
    """For each node, the values that nothing after it reads."""
    last: dict[Value, int] = {}
    for i, node in enumerate(graph.nodes):
        last.update((Value(i, k), i) for k in range(len(node.types)))
        last.update((value, i) for value in node.inputs)
    for value in graph.outputs:
        last.pop(value, None)
    found: list[list[Value]] = [[] for _ in graph.nodes]
    for value, i in last.items():
        found[i].append(value)
    return found


def _apply(graph: Graph, i: int, node: Node, operands: Arrays, noise: Noise | None) -> Arrays:
    spec = node.spec
    if spec.family is Family.CONTROL:
        attrs = dict(node.attrs)
        if not is_counted(node.op):
            return _while(attrs, operands, noise)
        return _loop(attrs, operands, node.types, noise)
    return spec.reference(operands, graph.call(i))


def _noisy(graph: Graph, i: int, node: Node, results: Arrays, noise: Noise | None) -> Arrays:
    control = node.spec.family is Family.CONTROL  # has its noise inside
    if noise is None or control or not node.spec.rounds(graph.call(i)):
        return results
    return tuple(
        noise(array, type_.dtype.eps) if type_.dtype.is_float else array
        for array, type_ in zip(results, node.types, strict=True)
    )


def _loop(
    attrs: dict[str, object], operands: Arrays, types: tuple[TensorType, ...], noise: Noise | None
) -> Arrays:
    """The counted loop: `trip` runs of the body, states carried, the other outputs stacked."""
    body, trip, carries = attrs["body"], attrs["trip"], attrs["carries"]
    assert isinstance(body, Graph) and isinstance(trip, int) and isinstance(carries, int)
    states, invariants = operands[:carries], operands[carries:]
    stacks = [np.empty(t.shape, t.dtype.reference) for t in types[carries:]]
    for step in range(trip):
        results = _run(body, (np.asarray(step, np.int32), *states, *invariants), noise)
        states = results[:carries]
        for stack, row in zip(stacks, results[carries:], strict=True):
            stack[step] = row
    return (*states, *stacks)


def _while(attrs: dict[str, object], operands: Arrays, noise: Noise | None) -> Arrays:
    """Iterations as long as some flag is set; places whose flag is not keep their states."""
    body, most, carries = attrs["body"], attrs["max_trips"], attrs["carries"]
    assert isinstance(body, Graph) and isinstance(most, int) and isinstance(carries, int)
    states, invariants = operands[:carries], operands[carries:]
    for step in range(most):
        go = states[0]
        if not go.any():
            break
        if step == MOST_TRIPS:
            raise GraphError(f"a while goes on after {MOST_TRIPS} iterations: give it 'max_trips'")
        results = _run(body, (np.asarray(step, np.int32), *states, *invariants), noise)
        if not go.all():
            masks = (go.reshape(go.shape + (1,) * (s.ndim - go.ndim)) for s in states)
            pairs = zip(masks, results, states, strict=True)
            results = tuple(np.where(mask, new, old) for mask, new, old in pairs)
        states = results
    return states


def random_inputs(graph: Graph, seed: int, low: float = -1.0, high: float = 1.0) -> Arrays:
    """One random array per input, of its declared dtype.

    Floats are uniform in [low, high), or in a range in which every op is defined that they reach
    (`input_ranges`); u32 takes any value, other integers lie in -4..4 (0..4 when unsigned), bools
    are either. An input's attributes `low` and `high` replace its range.
    """
    rng, ranges = np.random.default_rng(seed), input_ranges(graph, low, high)
    made = []
    for i in graph.inputs:
        attrs = dict(graph[i].attrs)
        made.append(_draw(rng, graph[i].types[0], attrs, *ranges.get(i, (low, high))))
    return tuple(made)


def _draw(
    rng: np.random.Generator,
    type_: TensorType,
    attrs: dict[str, int | float],
    low: float,
    high: float,
) -> np.ndarray:
    dtype = type_.dtype
    if dtype is DType.BOOL:
        return np.asarray(rng.integers(0, 2, type_.shape, dtype=np.int8).astype(np.bool_))
    if dtype.is_float:
        width = np.float64 if dtype is DType.F64 else np.float32
        a, b = width(attrs.get("low", low)), width(attrs.get("high", high))
        return np.asarray(a + (b - a) * rng.random(type_.shape, dtype=width)).astype(dtype.numpy)
    default = (0, 2**32 - 1) if dtype is DType.U32 else (-4 if dtype.is_signed else 0, 4)
    first, last = (int(attrs.get(k, d)) for k, d in zip(("low", "high"), default, strict=True))
    return np.asarray(rng.integers(first, last, type_.shape, dtype=dtype.numpy, endpoint=True))
