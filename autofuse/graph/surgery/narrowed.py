"""A graph that computes only some places of another's outputs, from what those places need.

Along an axis whose places are independent of each other (`OpSpec.axes`) a few of them say as much
of a kernel as all: what comes before is computed there only. Where an op reads across an axis, all
of what it reads is computed. So a check of a large program costs what its places cost.

Before: y = reduce_sum(exp(x: f32[4096, 1000]), axes=1)
After:  y = reduce_sum(exp(x: f32[16, 1000]), axes=1), of rows 0, 273, 546, ... of x
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import gcd

import numpy as np

from autofuse.graph.types import Graph, Node, Value
from autofuse.ops.spec import Family, Motion
from autofuse.ops.types import Attrs, GraphError, OpCall, TensorType

# AxisPlaces along an axis, about; axes of fewer elements are left whole.
PLACES, LEAST = 16, 24
# An axis is cut where that leaves at most this part of the work.
WORTH = 0.7
# Extents that are tried.
MOST_CUTS = 4


@dataclass(frozen=True, slots=True)
class AxisPlaces:
    """`count` places of an axis, `step` apart, from `first` on."""

    first: int
    count: int
    step: int

    def slice(self) -> slice:
        return slice(self.first, self.first + (self.count - 1) * self.step + 1, self.step)


# For each axis the places that are wanted, None for all of them.
Wanted = tuple[AxisPlaces | None, ...]


@dataclass(frozen=True)
class Narrowed:
    """`graph` takes and gives, of each array of another graph, the elements at these places."""

    graph: Graph
    inputs: tuple[Wanted, ...]
    outputs: tuple[Wanted, ...]


def places_of(extent: int) -> AxisPlaces:
    """Places of an axis, both ends among them where their distance allows: an odd number apart, so
    that places in blocks of a power of two are all different."""
    most = extent - 1
    counts = sorted(range(PLACES // 2, 2 * PLACES), key=lambda k: abs(k - PLACES))
    exact = (k for k in counts if most % k == 0 and (most // k) % 2 == 1)
    steps = next(exact, PLACES)
    step = most // steps
    step -= 1 - step % 2
    while gcd(step, 6) == 3 and step > 3 and most % step:  # not in step with thirds either
        step -= 2
    return AxisPlaces(most - steps * step, steps + 1, step)


def picked(array: np.ndarray, wanted: Wanted) -> np.ndarray:
    """The elements of an array at these places."""
    return array[tuple(slice(None) if p is None else p.slice() for p in wanted)]


def narrowed(graph: Graph, enough: float) -> Narrowed:
    """`graph` at a few places of its outputs, so few axes of them cut that about `enough`
    operations are left, or as many as that leaves."""
    best = _Narrowing(graph, frozenset()).run()
    work = work_of(best.graph)
    extents = {n for t in graph.output_types for n in t.shape if n >= LEAST}
    cut: frozenset[int] = frozenset()
    for extent in sorted(extents, reverse=True)[:MOST_CUTS]:
        if work <= enough:
            break
        tried = _Narrowing(graph, cut | {extent}).run()
        left = work_of(tried.graph)
        if left <= WORTH * work:
            best, work, cut = tried, left, cut | {extent}
    return best


def work_of(graph: Graph) -> float:
    """Operations of a graph, about: its arithmetic, and every element that is made."""
    found = 0.0
    for i, node in enumerate(graph.nodes):
        found += sum(t.size for t in node.types)
        attrs = dict(node.attrs)
        body = attrs.get("body")
        if isinstance(body, Graph):
            found += int(attrs.get("trip", attrs.get("max_trips", 1))) * work_of(body)
        elif node.spec.family is not Family.SOURCE:
            found += node.spec.flops(graph.call(i))
    return found


class _Narrowing:
    """Backwards what every value is wanted for, then forwards the nodes that make just that."""

    def __init__(self, graph: Graph, cut: frozenset[int]) -> None:
        """`cut` are extents of the outputs' axes of which a few places are wanted."""
        self.graph, self.cut = graph, cut
        # What is asked of a value, and what its node then makes, which may be more.
        self.asked: dict[Value, Wanted] = {}
        self.made: dict[Value, Wanted] = {}
        self.reads: dict[int, tuple[Wanted, ...]] = {}
        self.nodes: list[Node] = []
        self.there: dict[tuple[Value, Wanted], Value] = {}

    def run(self) -> Narrowed:
        graph = self.graph
        outputs = tuple(self._of_output(t) for t in graph.output_types)
        for value, wanted in zip(graph.outputs, outputs, strict=True):
            self._ask(value, wanted)
        for i in reversed(range(len(graph.nodes))):
            self._backwards(i)
        for i in range(len(graph.nodes)):
            self._forwards(i)
        ends = tuple(self._at(v, w) for v, w in zip(graph.outputs, outputs, strict=True))
        made = Graph(tuple(self.nodes), self._inputs(), ends, graph.output_names)
        inputs = tuple(self._given(i) for i in graph.inputs)
        return Narrowed(made, inputs, outputs)

    def _inputs(self) -> tuple[int, ...]:
        found = {dict(n.attrs)["position"]: i for i, n in enumerate(self.nodes) if n.op == "input"}
        return tuple(found[p] for p in range(len(self.graph.inputs)))

    def _of_output(self, type_: TensorType) -> Wanted:
        return tuple(places_of(n) if n in self.cut else None for n in type_.shape)

    def _given(self, node: int) -> Wanted:
        return self.made.get(Value(node), (None,) * self.graph[node].types[0].rank)

    def _ask(self, value: Value, wanted: Wanted) -> None:
        self.asked[value] = _both(self.asked.get(value, wanted), wanted)

    def _backwards(self, i: int) -> None:
        """What a node makes and reads, from what is asked of it. Nobody may ask for an input."""
        node = self.graph[i]
        asked = [
            self.asked[Value(i, k)] for k in range(len(node.types)) if Value(i, k) in self.asked
        ]
        if not asked and node.op != "input":
            return
        wanted: Wanted = (None,) * node.types[0].rank
        if asked and _one_shape(node):
            wanted = reduce(_both, asked)
        wanted, reads = self._possible(i, wanted)
        for k, type_ in enumerate(node.types):
            whole: Wanted = (None,) * type_.rank
            self.made[Value(i, k)] = wanted if type_.rank == len(wanted) else whole
        self.reads[i] = reads
        for value, read in zip(node.inputs, reads, strict=True):
            self._ask(value, read)

    def _possible(self, i: int, wanted: Wanted) -> tuple[Wanted, tuple[Wanted, ...]]:
        """As much of `wanted` as the op can make of fewer operands' elements, and those."""
        node = self.graph[i]
        call = self.graph.call(i)
        if node.op == "input":
            return wanted, ()
        whole: Wanted = (None,) * node.types[0].rank
        axes = None if node.spec.axes is None else node.spec.axes(call)
        if axes is not None and node.inputs:
            along = {a for row in axes for a, theirs in enumerate(row) if theirs is not None}
            if node.spec.motion is Motion.REPEAT:  # along its own axes all places are the same
                along = set(range(len(wanted)))
            tried: Wanted = tuple(w if a in along else None for a, w in enumerate(wanted))
            pairs = zip(call.ins, axes, strict=True)
            reads = tuple(_read(t.rank, row, tried) for t, row in pairs)
            if any(w is not None for w in tried) and self._fits(i, tried, reads):
                return tried, reads
        return whole, tuple((None,) * t.rank for t in call.ins)

    def _fits(self, i: int, made: Wanted, reads: Sequence[Wanted]) -> bool:
        """Whether the op makes just these places from those of its operands."""
        node, call = self.graph[i], self.graph.call(i)
        ins = tuple(_cut(t, w) for t, w in zip(call.ins, reads, strict=True))
        try:
            found = node.spec.infer(OpCall(_attrs(node, made), ins))
        except GraphError:
            return False
        return found == tuple(_cut(t, made) for t in node.types)

    def _forwards(self, i: int) -> None:
        node = self.graph[i]
        if i not in self.reads:
            return
        made = self.made[Value(i)]
        pairs = zip(node.inputs, self.reads[i], strict=True)
        operands = tuple(self._at(value, read) for value, read in pairs)
        types = tuple(_cut(t, self.made[Value(i, k)]) for k, t in enumerate(node.types))
        place = self._add(replace(node, inputs=operands, attrs=_attrs(node, made), types=types))
        for k in range(len(types)):
            self.there[Value(i, k), self.made[Value(i, k)]] = Value(place, k)

    def _at(self, value: Value, wanted: Wanted) -> Value:
        """A value at these places, cut out of what was made of it where that is more."""
        key = (value, wanted)
        if key not in self.there:
            made = self.made[value]
            source = self.there[value, made]
            type_ = self.graph.type_of(value)
            parts = [
                _part(n, have, want)
                for n, have, want in zip(type_.shape, made, wanted, strict=True)
            ]
            start, stop, stride = zip(*parts, strict=True)
            attrs = (("start", start), ("stop", stop), ("stride", stride))
            self.there[key] = Value(
                self._add(Node("slice", (source,), attrs, (_cut(type_, wanted),)))
            )
        return self.there[key]

    def _add(self, node: Node) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1


def _one_shape(node: Node) -> bool:
    return len({t.shape for t in node.types}) == 1


def _both(one: Wanted, other: Wanted) -> Wanted:
    """What has the places of both: those of either where they are the same, else all."""
    return tuple(a if a == b else None for a, b in zip(one, other, strict=True))


def _read(rank: int, row: Iterable[int | None], wanted: Wanted) -> Wanted:
    """What is read of an operand: the places of the axes that pass through, else all."""
    found: dict[int, AxisPlaces | None] = {}
    for mine, theirs in zip(wanted, row, strict=True):
        if theirs is not None:
            found[theirs] = mine if found.get(theirs, mine) == mine else None
    return tuple(found.get(axis) for axis in range(rank))


def _cut(type_: TensorType, wanted: Wanted) -> TensorType:
    pairs = zip(type_.shape, wanted, strict=True)
    return TensorType(tuple(n if w is None else w.count for n, w in pairs), type_.dtype)


def _part(extent: int, made: AxisPlaces | None, wanted: AxisPlaces | None) -> tuple[int, int, int]:
    """Start, stop and stride along an axis of what is there."""
    if made == wanted:
        return (0, extent if made is None else made.count, 1)
    assert made is None and wanted is not None, "more is wanted than was made"
    taken = wanted.slice()
    return (taken.start, taken.stop, taken.step)


def _attrs(node: Node, made: Wanted) -> Attrs:
    """The attributes of a node that makes just these places: those that tell its shape."""
    shape = node.types[0].shape
    fewer = _cut(node.types[0], made).shape
    changed: Mapping[str, object] = {}
    known = dict(node.attrs)
    if fewer == shape:
        return node.attrs
    if known.get("shape") == shape:
        changed = {"shape": fewer}
    elif "stop" in known:
        changed = {
            "stop": tuple(
                stop if w is None else w.count for stop, w in zip(known["stop"], made, strict=True)
            )
        }
    return tuple((key, changed.get(key, value)) for key, value in node.attrs)
