"""The reference interpreter: NumPy, every float a float64; kernels are checked against it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autofuse.graph.types import Graph, Node, Value
from autofuse.ops.dtypes import DType
from autofuse.ops.spec import Family
from autofuse.ops.types import GraphError, TensorType

Arrays = tuple[np.ndarray, ...]


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
        errors = self._table[start : start + self._LENGTH]
        if array.size > self._LENGTH:
            errors = np.resize(errors, array.size)
        errors = errors[: array.size].reshape(array.shape)
        with np.errstate(all="ignore"):
            return np.asarray(array * (1.0 + eps * errors))


def evaluate(
    graph: Graph, inputs: Sequence[np.ndarray], noise: Noise | None = None
) -> tuple[np.ndarray, ...]:
    """Outputs of `graph` on `inputs` (one array per input, by position).

    Inputs are rounded to their declared dtype first. Float outputs are float64 arrays, others have
    their exact dtype. Raises GraphError when the inputs do not fit.
    """
    if len(inputs) != len(graph.inputs):
        raise GraphError(f"the graph takes {len(graph.inputs)} inputs, got {len(inputs)}")
    named = zip(inputs, graph.input_types, graph.input_names, strict=True)
    return _run(graph, tuple(_rounded(*each) for each in named), noise)


def _rounded(array: np.ndarray, type_: TensorType, name: str) -> np.ndarray:
    array = np.asarray(array)
    if array.shape != type_.shape:
        raise GraphError(f"input '{name}' is {type_}, got shape {list(array.shape)}")
    with np.errstate(all="ignore"):
        return array.astype(type_.dtype.numpy).astype(type_.dtype.reference)


def _run(graph: Graph, inputs: Arrays, noise: Noise | None) -> Arrays:
    """Outputs for inputs already in reference dtypes; each value is freed after its last use."""
    known: dict[Value, np.ndarray] = {}
    for i, array in zip(graph.inputs, inputs, strict=True):
        known[Value(i)] = array
    last = _last_uses(graph)
    for i, node in enumerate(graph.nodes):
        if node.op != "input":
            operands = tuple(known[v] for v in node.inputs)
            results = _apply(graph, i, node, operands, noise)
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
        return _loop(dict(node.attrs), operands, node.types, noise)
    call = graph.call(i)
    results = spec.reference(operands, call)
    if noise is None or not spec.rounds(call):
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


def random_inputs(graph: Graph, seed: int, low: float = -1.0, high: float = 1.0) -> Arrays:
    """One random array per input, of its declared dtype.

    Floats are uniform in [low, high); u32 takes any value, other integers lie in -4..4 (0..4 when
    unsigned), bools are either. An input's attributes `low` and `high` replace its range.
    """
    rng = np.random.default_rng(seed)
    made = []
    for i in graph.inputs:
        attrs = dict(graph[i].attrs)
        made.append(_draw(rng, graph[i].types[0], attrs, low, high))
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
