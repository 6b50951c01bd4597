"""The reference interpreter: NumPy, every float a float64; kernels are checked against it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate

import numpy as np

from autofuse.graph.domains import input_ranges
from autofuse.graph.noise import Noise
from autofuse.graph.types import Graph, Value
from autofuse.ops.control import is_counted
from autofuse.ops.dtypes import DType
from autofuse.ops.reduction import SUM
from autofuse.ops.spec import Family, OpSpec
from autofuse.ops.types import GraphError, OpCall, TensorType

Arrays = tuple[np.ndarray, ...]
# The body of a loop and its inputs in reference dtypes -> outputs
EvaluateBody = Callable[[Graph, Arrays], Arrays]
# By node: of each result of a fold, how far the order of its terms may move it.
FoldSizes = dict[int, tuple[np.ndarray | None, ...]]
# Iterations of a `while` after which the reference takes it to be endless: a checker must end.
MOST_TRIPS = 1 << 20
_NO_LIMIT: list[float] = [math.inf]
_TRIPS_LEFT: ContextVar[list[float]] = ContextVar("trips_left", default=_NO_LIMIT)


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
        self._products: dict[int, Arrays] = dict.fromkeys(untouched_products(graph), ())
        self._sizes: FoldSizes = {}

    @property
    def inputs(self) -> Arrays:
        """The inputs, rounded to their dtypes, in those of the reference."""
        return self._inputs

    def __call__(self, noise: Noise | None = None) -> Arrays:
        """Outputs: float ones are float64 arrays, others have their exact dtype."""
        return run(self._graph, self._inputs, noise, self._products, self._sizes)


def untouched_products(graph: Graph) -> Iterator[int]:
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


def run(
    graph: Graph, inputs: Arrays, noise: Noise | None = None,
    products: dict[int, Arrays] | None = None, sizes: FoldSizes | None = None,
) -> Arrays:  # fmt: skip
    """Outputs for inputs already in reference dtypes; each value is freed after its last use.
    `products` keeps results of the nodes that it has as keys, before noise, and `sizes` those of
    folds."""
    order = _order(graph)
    known = dict(zip(order.inputs, inputs, strict=True))
    again = partial(run, noise=noise)
    kept = {} if products is None else products
    for i, reads, first, free in order.steps:
        operands = tuple(known[k] for k in reads)
        results = kept.get(i, ())
        if not results:
            results = apply(graph, i, operands, again)
            if i in kept:
                kept[i] = results
        if noise is not None:
            results = noisy(graph, i, operands, results, noise, sizes)
        del operands
        for k, array in enumerate(results, first):
            known[k] = array
        for k in free:
            del known[k]
    return tuple(known[k] for k in order.outputs)


@dataclass(frozen=True, slots=True)
class _Order:
    """What is to be done of a graph, values by number: for each node its place, what it reads, its
    first result and what nothing after it reads. A body is run thousands of times."""

    inputs: tuple[int, ...]
    steps: tuple[tuple[int, tuple[int, ...], int, tuple[int, ...]], ...]
    outputs: tuple[int, ...]


@lru_cache(maxsize=64)
def _order(graph: Graph) -> _Order:
    counts = [0, *accumulate(len(node.types) for node in graph.nodes)]

    def places(values: Iterable[Value]) -> tuple[int, ...]:
        return tuple(counts[v.node] + v.index for v in values)

    reads, outputs = [places(node.inputs) for node in graph.nodes], places(graph.outputs)
    last: dict[int, int] = {}
    kept = set(outputs)
    run = [i for i, node in enumerate(graph.nodes) if node.op != "input"]
    for i in run:
        last.update(dict.fromkeys((*range(counts[i], counts[i + 1]), *reads[i]), i))
    free: dict[int, list[int]] = defaultdict(list)
    for value, i in last.items():
        if value not in kept:
            free[i].append(value)
    steps = tuple((i, reads[i], counts[i], tuple(free[i])) for i in run)
    return _Order(tuple(counts[i] for i in graph.inputs), steps, outputs)


def apply(graph: Graph, i: int, operands: Arrays, run: EvaluateBody) -> Arrays:
    """Results of node `i`, without noise of its own; `run` evaluates the bodies of loops."""
    node, spec = graph[i], graph[i].spec
    if spec.family is Family.CONTROL:
        attrs = dict(node.attrs)
        if not is_counted(node.op):
            return _while(attrs, operands, run)
        return _loop(attrs, operands, node.types, run)
    return spec.reference(operands, graph.call(i))


def noisy(
    graph: Graph, i: int, operands: Arrays, results: Arrays, noise: Noise | None,
    kept: FoldSizes | None = None, evaluate: Callable[[Arrays], Arrays] | None = None,
) -> Arrays:  # fmt: skip
    """Results of node `i` with noise, if it rounds; `kept` has what the orders of folds may do,
    `evaluate` computes the node where its row's reference is not to."""
    if noise is None:
        return results
    node, call = graph[i], graph.call(i)
    control = node.spec.family is Family.CONTROL  # has its noise inside
    if control or not node.spec.rounds(call):
        return results
    if node.spec.blurs is not None:
        results = _blurred(node.spec, call, operands, noise)
    kept = {} if kept is None else kept
    if i not in kept:
        kept[i] = _fold_sizes(node.spec, call, operands, results, evaluate)
    return tuple(
        noise.stored(array, type_.dtype, size) if type_.dtype.is_float else array
        for array, type_, size in zip(results, node.types, kept[i], strict=True)
    )


def _blurred(spec: OpSpec, call: OpCall, operands: Arrays, noise: Noise) -> Arrays:
    """Results of operands that rounding may as well have moved."""
    assert spec.blurs is not None
    eps = call.out.dtype.eps
    pairs = zip(operands, spec.blurs(operands, call), strict=True)
    return spec.reference(tuple(a + noise(size, eps) - size for a, size in pairs), call)


# Partial sums are this many times the root of the sum of squares of the terms, now and then.
_ON_THE_WAY = 4.0


def fold_error(spec: OpSpec, call: OpCall) -> float:
    """How far the order of a fold may move a result, relative to `sqrt(result^2 + sum of the
    squares of its terms)`: about an epsilon for the square root of the terms, as partial results
    are rounded at random (Higham and Mary 2019). 0.0 for what is no fold of floats."""
    eps = max((t.dtype.compute.eps for t in call.outs), default=0.0)
    terms = spec.terms(call) if call.ins and eps > 0 else 1
    # What has weights of its own that are rounded moves by that even as one term.
    return eps * math.sqrt(terms) if terms > 1 or spec.squares is not None else 0.0


def _squares(
    spec: OpSpec, call: OpCall, operands: Arrays, evaluate: Callable[[Arrays], Arrays] | None
) -> Arrays:
    """The fold of the squares of its terms."""
    if spec.squares is not None:
        return spec.squares(operands, call)
    squared = tuple(a * a if a.dtype.kind == "f" else a for a in operands)
    return spec.reference(squared, call) if evaluate is None else evaluate(squared)


def _fold_sizes(
    spec: OpSpec, call: OpCall, operands: Arrays, results: Arrays,
    evaluate: Callable[[Arrays], Arrays] | None,
) -> tuple[np.ndarray | None, ...]:  # fmt: skip
    """Of each result of a fold, by how much the order of its terms may move it; None of others."""
    error = fold_error(spec, call)
    if error == 0.0:
        return (None,) * len(results)
    with np.errstate(all="ignore"):
        squares = _squares(spec, call, operands, evaluate)
        # Sums of terms that cancel may leave the range of their arithmetic on the way.
        top = max(t.dtype.compute.largest for t in call.outs if t.dtype.is_float)
        top = top / _ON_THE_WAY if spec.fold is SUM else math.inf
        pairs = zip(results, squares, strict=True)
        return tuple(
            _fold_size(error, r, s, top) if r.dtype.kind == "f" else None for r, s in pairs
        )


def _fold_size(error: float, result: np.ndarray, squares: np.ndarray, top: float) -> np.ndarray:
    """Infinite where partial results of a finite result may be."""
    size = np.sqrt(np.square(result) + np.abs(squares))
    # A term that is no number makes the result none either, whatever the order.
    finite = np.isfinite(size)
    found = np.where(finite, error * size, 0.0)
    found[finite & (size > top)] = np.inf
    return found.astype(np.float32)


def _loop(
    attrs: dict[str, object], operands: Arrays, types: tuple[TensorType, ...], run: EvaluateBody
) -> Arrays:
    """The counted loop: `trip` runs of the body, states carried, the other outputs stacked."""
    body, trip, carries = attrs["body"], attrs["trip"], attrs["carries"]
    assert isinstance(body, Graph) and isinstance(trip, int) and isinstance(carries, int)
    states, invariants = operands[:carries], operands[carries:]
    stacks = [np.empty(t.shape, t.dtype.reference) for t in types[carries:]]
    for step in range(trip):
        results = run(body, (np.asarray(step, np.int32), *states, *invariants))
        states = results[:carries]
        for stack, row in zip(stacks, results[carries:], strict=True):
            stack[step] = row
    return (*states, *stacks)


def _while(attrs: dict[str, object], operands: Arrays, run: EvaluateBody) -> Arrays:
    """Iterations as long as some flag is set; places whose flag is not keep their states."""
    body, most, carries = attrs["body"], attrs["max_trips"], attrs["carries"]
    assert isinstance(body, Graph) and isinstance(most, int) and isinstance(carries, int)
    states, invariants = operands[:carries], operands[carries:]
    left = _TRIPS_LEFT.get()
    for step in range(most):
        go = states[0]
        if not go.any():
            break
        left[0] -= 1
        if step == MOST_TRIPS or left[0] < 0:
            raise endless()
        results = run(body, (np.asarray(step, np.int32), *states, *invariants))
        states = kept(results, states)
    return states


@contextmanager
def trips_up_to(count: int) -> Iterator[None]:
    """Inside, all `while` loops together may go on for so many iterations: GraphError is
    raised after that."""
    before = _TRIPS_LEFT.set([count])
    try:
        yield
    finally:
        _TRIPS_LEFT.reset(before)


def endless() -> GraphError:
    """What is said of a `while` that goes on for more than MOST_TRIPS iterations."""
    return GraphError(f"a while goes on after {MOST_TRIPS} iterations: give it 'max_trips'")


def kept(results: Arrays, states: Arrays) -> Arrays:
    """The new states of a `while`; those of places that have ended are the old ones."""
    go = states[0]
    if go.all():
        return results
    masks = (go.reshape(go.shape + (1,) * (s.ndim - go.ndim)) for s in states)
    pairs = zip(masks, results, states, strict=True)
    return tuple(np.where(mask, new, old) for mask, new, old in pairs)


def random_inputs(
    graph: Graph, seed: int, low: float = -1.0, high: float = 1.0, period: int | None = None
) -> Arrays:
    """One random array per input, of its declared dtype.

    Floats are uniform in [low, high), or in a range in which every op is defined that they reach
    (`input_ranges`); u32 takes any value, other integers lie in -4..4 (0..4 when unsigned), bools
    are either. An input's attributes `low` and `high` replace its range. Arrays of more than
    `period` elements repeat as many drawn ones: drawing takes longer than most programs.
    """
    rng, ranges = np.random.default_rng(seed), input_ranges(graph, low, high)
    made = []
    for i in graph.inputs:
        attrs = dict(graph[i].attrs)
        type_, bounds = graph[i].types[0], ranges.get(i, (low, high))
        few = period is not None and type_.size > period
        drawn = TensorType((period or 0,), type_.dtype) if few else type_
        array = _draw(rng, drawn, attrs, *bounds)
        made.append(np.resize(array, type_.shape) if few else array)
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
