"""On which inputs a candidate is checked besides those that it is timed on.

Random numbers of one size hide much: a lost last term of a long sum, a lost last element of a
maximum, a wrong sign of zero's neighbours (McKeeman, Differential Testing for Software, 1998: what
is compared is as good as what it is run on). Each draw keeps to the range in which the ops that an
input reaches are defined (`input_ranges`), and to the range that the input itself asks for.

A draw costs a reference of its own, so they are made in the order of what they find, as many as a
part of a second is estimated to do. Inputs that somebody gave may be the only ones that make sense,
and a `while` may not end on others: then there are none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from autofuse.graph.domains import input_ranges
from autofuse.graph.reference import random_inputs
from autofuse.graph.types import Graph
from autofuse.measure.workload import Workload
from autofuse.ops.control import is_counted
from autofuse.ops.domains import Interval
from autofuse.ops.dtypes import DType
from autofuse.ops.spec import Family
from autofuse.ops.types import TensorType

RANDOM = "random"
# What all references of extra draws may take, in seconds, and what they are made of: runs of one
# reference, and rough times of NumPy (an op, an element of a result, an operation of a product).
MOST_S = 0.4
_RUNS = 7
_OP_S, _ELEMENT_S, _FLOP_S = 8e-6, 8e-9, 3e-10
# What is not at an edge is smaller than that by so much.
_SMALL = 2.0**-10
# Exponents between which magnitudes are drawn.
_EXPONENTS = (-12, 3)


@dataclass(frozen=True, slots=True)
class _Input:
    """The least and largest number that an input usually has; `free`: nobody asked for that."""

    type: TensorType
    low: float
    high: float
    free: bool

    def clipped(self, array: np.ndarray) -> np.ndarray:
        return np.asarray(np.clip(array, self.low, self.high))

    @property
    def near(self) -> float:
        """Where numbers are small: 0, or the end that is next to it."""
        return float(min(max(0.0, self.low), self.high))

    @property
    def reach(self) -> float:
        return max(abs(self.low), abs(self.high))


_Make = Callable[[_Input, np.random.Generator, np.ndarray], np.ndarray]


def extra_draws(workload: Workload) -> tuple[tuple[str, Workload], ...]:
    """Names and workloads, in the order in which they find most."""
    graph = workload.graph
    if workload.arrays is not None or _may_go_on(graph):
        return ()
    each = _RUNS * reference_seconds(graph)
    names = list(_DRAWS)[: int(min(len(_DRAWS), MOST_S / each))]
    return tuple((n, replace(workload, arrays=_drawn(graph, n, workload.seed))) for n in names)


def reference_seconds(graph: Graph) -> float:
    """About what one run of the reference takes."""
    total = 0.0
    for i, node in enumerate(graph.nodes):
        attrs, call = dict(node.attrs), graph.call(i)
        body, trip = attrs.get("body"), attrs.get("trip", 1)
        if isinstance(body, Graph) and isinstance(trip, int):
            total += trip * reference_seconds(body)
            continue
        size = sum(t.size for t in (*node.types, *call.ins))
        products = node.spec.flops(call) if node.spec.family is not Family.ELEMENTWISE else 0.0
        total += _OP_S + _ELEMENT_S * size + _FLOP_S * products
    return total


def _may_go_on(graph: Graph) -> bool:
    for node in graph.nodes:
        if node.spec.family is Family.CONTROL and not is_counted(node.op):
            return True
        if any(_may_go_on(value) for _, value in node.attrs if isinstance(value, Graph)):
            return True
    return False


def _drawn(graph: Graph, name: str, seed: int) -> tuple[np.ndarray, ...]:
    draw = np.random.default_rng([seed, list(_DRAWS).index(name)])
    usual, ranges = random_inputs(graph, seed + 1), input_ranges(graph, -1.0, 1.0)
    found = []
    for node, array in zip(graph.inputs, usual, strict=True):
        asked = _limits(graph[node].types[0], dict(graph[node].attrs), ranges.get(node))
        with np.errstate(all="ignore"):
            made = _DRAWS[name](asked, draw, array.astype(np.float64))
        found.append(_stored(made, array, asked))
    return tuple(found)


def _stored(made: np.ndarray, usual: np.ndarray, asked: _Input) -> np.ndarray:
    """In the input's own dtype; whole numbers beyond 2^53 stay what they were."""
    dtype = asked.type.dtype
    if not dtype.is_float and asked.reach > 2**53:
        return usual
    return np.asarray(made.astype(dtype.numpy))


def _limits(type_: TensorType, attrs: Mapping[str, float], range_: Interval | None) -> _Input:
    dtype = type_.dtype
    if dtype is DType.BOOL:
        usual: Interval = (0.0, 1.0)
    elif dtype.is_float:
        usual = range_ or (-1.0, 1.0)
    elif dtype is DType.U32:
        usual = (0.0, 2.0**32 - 1)
    else:
        usual = (-4.0 if dtype.is_signed else 0.0, 4.0)
    free = range_ is None and not {"low", "high"} & attrs.keys()
    low, high = (float(attrs.get(k, d)) for k, d in zip(("low", "high"), usual, strict=True))
    return _Input(type_, low, high, free)


def _edges(array: np.ndarray, first: float, last: float) -> np.ndarray:
    """`array` with its first and last slices along every axis replaced, the last axis's at last."""
    array = np.array(array)
    for axis in range(array.ndim):
        moved = np.moveaxis(array, axis, 0)
        if moved.size:
            moved[0] = first
            moved[-1] = last
    if not array.ndim:
        array[...] = last
    return array


def _small(asked: _Input, usual: np.ndarray) -> np.ndarray:
    if not asked.type.dtype.is_float:
        return usual
    return asked.near + _SMALL * (usual - asked.near)


def _last_large(asked: _Input, draw: np.random.Generator, usual: np.ndarray) -> np.ndarray:
    """All is small, but for the edges: the last is the largest."""
    return _edges(_small(asked, usual), asked.low, asked.high)


def _last_least(asked: _Input, draw: np.random.Generator, usual: np.ndarray) -> np.ndarray:
    return _edges(_small(asked, usual), asked.high, asked.low)


def _magnitudes(asked: _Input, draw: np.random.Generator, usual: np.ndarray) -> np.ndarray:
    """Numbers of very different sizes."""
    if not asked.type.dtype.is_float:
        return usual
    size = np.exp2(draw.uniform(*_EXPONENTS, usual.shape))
    made = np.where(draw.random(usual.shape) < 0.5, -size, size)
    return made if asked.free else asked.clipped(made)


def _zeros(asked: _Input, draw: np.random.Generator, usual: np.ndarray) -> np.ndarray:
    """One number in four is 0, of either sign, where 0 is in range; so is one in eight equal to
    its neighbour."""
    if not asked.type.dtype.is_float:
        return usual
    chosen, flat = draw.random(usual.size), usual.reshape(-1).copy()
    same = np.flatnonzero(chosen > 0.875)
    flat[same] = flat[np.maximum(same - 1, 0)]
    if asked.low < 0.0 < asked.high:
        flat[chosen < 0.25] = 0.0
        flat[chosen < 0.125] = -0.0
    return flat.reshape(usual.shape)


def _ones(asked: _Input, draw: np.random.Generator, usual: np.ndarray) -> np.ndarray:
    return asked.clipped(np.ones_like(usual))


def _not_finite(asked: _Input, draw: np.random.Generator, usual: np.ndarray) -> np.ndarray:
    """One NaN and two infinities, where there is room for more."""
    if asked.type.dtype.is_float and asked.free and usual.size >= 64:
        at = draw.choice(usual.size, 3, replace=False)
        usual.reshape(-1)[at] = np.nan, np.inf, -np.inf
    return usual


_DRAWS: Mapping[str, _Make] = {
    "last element large": _last_large,
    "last element least": _last_least,
    "magnitudes": _magnitudes,
    "zeros and equals": _zeros,
    "ones": _ones,
    "NaN and infinities": _not_finite,
}
