"""Whether compiled parts of a reference compute what NumPy says: at drawn places of real results.

Places are the first, the last, those around ends of rows, and random ones. Elements of what a
kernel reads are taken there, through moves as NumPy has them, and its ops evaluated on them alone:
each op on a shape of its own form, cut down. Both sides compute in float64, so they agree within a
few units in its last place; where they do not, runs of NumPy's side with noise of that size say
whether the program itself is that ill-conditioned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from autofuse.graph.noise import Noise
from autofuse.graph.reference import noisy
from autofuse.graph.types import Graph, Value
from autofuse.measure.truth.plan import TruthKernel, is_light
from autofuse.measure.truth.text import ROW
from autofuse.ops.spec import Family
from autofuse.ops.types import OpCall, TensorType

Arrays = tuple[np.ndarray, ...]
# What both sides may differ by: units in the last place of a float64, of the value and of the root
# mean square of all values.
_OWN, _ALL = 2.0**-42, 2.0**-47
_EPS = 2.0**-52
# Runs with noise, units of noise, and by how much more than they moved results may differ.
_RUNS, _ULPS, _FACTOR = 3, 8.0, 64.0
_PLACES = 96
# Places along an axis that is cut, and elements of a result that is not cut further.
_KEPT, _ENOUGH = 16, 1 << 14


class FineNoise(Noise):
    """Noise of a few units in the last place of a float64, whatever the dtype is."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, _ULPS)

    def __call__(self, array: np.ndarray, eps: float) -> np.ndarray:
        return super().__call__(array, _EPS)


def difference(
    found: Sequence[np.ndarray],
    wanted: Sequence[np.ndarray],
    again: Callable[[Noise], Sequence[np.ndarray]],
) -> str:
    """What `found` has that `wanted` has not, in a few words; empty where they agree. `again` gives
    what is wanted under noise, which is asked for only where something differs."""
    moved: list[Sequence[np.ndarray]] = []
    for k, (ours, theirs) in enumerate(zip(found, wanted, strict=True)):
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            return f"result {k} is {ours.dtype}{ours.shape}, not {theirs.dtype}{theirs.shape}"
        bad = _apart(ours, theirs, np.zeros(()))
        if not bad.any():
            continue
        moved = moved or [again(FineNoise(seed)) for seed in range(1, _RUNS + 1)]
        spread = np.max([_distance(each[k], theirs) for each in moved], axis=0)
        bad = _apart(ours, theirs, _FACTOR * spread)
        if bad.any():
            at = int(np.flatnonzero(bad)[0])
            here = f"{ours.reshape(-1)[at]!s} instead of {theirs.reshape(-1)[at]!s}"
            return f"{np.count_nonzero(bad)} of {bad.size} elements differ, first {here}"
    return ""


def _distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """|a - b|; 0 where they are the same infinity or both NaN, infinite where only one is."""
    if a.dtype.kind != "f":
        return np.where(a == b, 0.0, np.inf)
    with np.errstate(all="ignore"):
        apart = np.abs(a - b)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
    return np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart))


def _apart(a: np.ndarray, b: np.ndarray, room: np.ndarray) -> np.ndarray:
    distance = _distance(a, b)
    if b.dtype.kind != "f":
        return distance > room
    with np.errstate(all="ignore"):
        size = np.where(np.isfinite(b), np.abs(b), 0.0)
        top = float(size.max(initial=0.0))
        mean = top * float(np.sqrt(np.mean((size / top) ** 2))) if 0.0 < top < np.inf else 0.0
        return np.asarray(distance > _OWN * size + _ALL * mean + room)


def places(size: int, rng: np.random.Generator) -> np.ndarray:
    """Positions in a result of `size` elements: all, if they are few."""
    if size <= _PLACES:
        return np.arange(size)
    ends = [k for row in (1, 2, size // ROW) for k in (row * ROW - 1, row * ROW) if 0 <= k < size]
    drawn = rng.integers(0, size, _PLACES - len(ends) - 4)
    return np.unique(np.concatenate([[0, 1, size - 2, size - 1], ends, drawn]).astype(np.int64))


def kernel_difference(
    graph: Graph, item: TruthKernel, known: Mapping[Value, np.ndarray], found: Arrays, seed: int
) -> str:
    """As `difference`, of a kernel's results given what it reads."""
    first = graph[item.nodes[0]]
    if first.spec.family is not Family.ELEMENTWISE:
        return _alone_difference(graph, item.nodes[0], known, found, seed)
    shape = first.types[0].shape
    flat = places(first.types[0].size, np.random.default_rng(seed))
    at = np.unravel_index(flat, shape) if shape else ()
    taken = [array.reshape(-1)[flat] for array in found]

    def again(noise: Noise | None) -> Arrays:
        return _at(graph, item, known, at, len(flat), noise)

    return difference(taken, again(None), again)


def _alone_difference(
    graph: Graph, i: int, known: Mapping[Value, np.ndarray], found: Arrays, seed: int
) -> str:
    """Of an op that is a kernel by itself: on operands cut along axes that pass through."""
    call, spec = graph.call(i), graph[i].spec
    operands = tuple(_moved(graph, v, known) for v in graph[i].inputs)
    mapped = spec.axes(call) if spec.axes is not None else ()
    rng = np.random.default_rng(seed)
    for axis in sorted(range(call.out.rank), key=lambda a: -call.out.shape[a]):
        theirs = [axes[axis] for axes in mapped]
        if not any(a is not None for a in theirs) or call.out.shape[axis] <= _KEPT:
            continue
        n = call.out.shape[axis]
        at = np.unique([0, n - 1, *rng.integers(0, n, _KEPT - 2)])
        cut = tuple(
            x if a is None else np.take(x, at, a) for x, a in zip(operands, theirs, strict=True)
        )
        types = zip(cut, call.ins, strict=True)
        ins = tuple(TensorType(x.shape, t.dtype) for x, t in types)
        outs = spec.infer(OpCall(call.attrs, ins))
        taken = tuple(np.take(x, at, axis) for x in found)
        if any(t.shape != x.shape for t, x in zip(outs, taken, strict=True)):
            continue
        operands, found, call = cut, taken, OpCall(call.attrs, ins, outs)
        mapped = spec.axes(call) if spec.axes is not None else ()
        if call.out.size <= _ENOUGH:
            break
    wanted = spec.reference(operands, call)
    return difference(found, wanted, lambda noise: wanted)


def _at(
    graph: Graph, item: TruthKernel, known: Mapping[Value, np.ndarray], at: tuple[np.ndarray, ...],
    count: int, noise: Noise | None,
) -> Arrays:  # fmt: skip
    """The results of an elementwise kernel at some places."""
    made: dict[Value, np.ndarray] = {}
    for i in item.nodes:
        node = graph[i]
        operands = []
        for value in node.inputs:
            if value not in made:
                taken = np.asarray(_moved(graph, value, known)[at])
                made[value] = np.broadcast_to(taken, (count,)).copy()
            operands.append(made[value])
        call = graph.call(i)
        cut = OpCall(
            call.attrs, tuple(map(_cut(count), call.ins)), tuple(map(_cut(count), call.outs))
        )
        results = node.spec.reference(tuple(operands), cut)
        results = noisy(graph, i, tuple(operands), results, noise)
        made.update((Value(i, k), array) for k, array in enumerate(results))
    return tuple(made[v] for v in item.outs)


def _cut(count: int) -> Callable[[TensorType], TensorType]:
    return lambda type_: TensorType((count,), type_.dtype)


def _moved(graph: Graph, value: Value, known: Mapping[Value, np.ndarray]) -> np.ndarray:
    """A value as a view of what is in memory: moves without copies."""
    if value in known:
        return known[value]
    node, call = graph[value.node], graph.call(value.node)
    if not is_light(graph, value.node):
        raise AssertionError(f"{value} is neither in memory nor moved from there")
    operands = tuple(_moved(graph, v, known) for v in node.inputs)
    shape = call.out.shape
    match node.op:
        case "broadcast":
            spread = [1] * len(shape)
            for d in call["dims"]:
                spread[d] = shape[d]
            return np.broadcast_to(operands[0].reshape(spread), shape)
        case "transpose":
            return np.transpose(operands[0], call["perm"])
        case "reverse":
            return np.flip(operands[0], call["axes"])
        case "slice":
            parts = zip(call["start"], call["stop"], call["stride"], strict=True)
            return np.asarray(operands[0][tuple(slice(*part) for part in parts)])
    (result,) = node.spec.reference(operands, call)
    return result
