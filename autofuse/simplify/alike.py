"""Many numbers that a loop computes alike: lanes of one array.

A program that holds each of its numbers apart (a pytree of scalars) has a body in which every
operation stands once for each of them. Put side by side, as superword-level parallelism does with
statements (Larsen and Amarasinghe, PLDI 2000), the body is as small as one of them, and its
operations are vectors.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Value
from autofuse.ops.spec import Family
from autofuse.ops.types import Literal
from autofuse.order import post_order
from autofuse.simplify.draft import Draft
from autofuse.simplify.loops import LoopParts, parts_of_loop
from autofuse.simplify.rules import Replacement, rule

# So many states must be alike: of fewer, putting them together costs more than it saves.
_LEAST = 8

Lanes = tuple[Value, ...]


@rule("alike-states", "SLP vectorisation (Larsen and Amarasinghe 2000); GCC and LLVM SLP", "loop")
def alike_states(draft: Draft, at: int) -> Replacement:
    """States that are numbers, and of which each becomes the same of itself and others, are one
    state with an axis; so are rows that are computed of them alike."""
    loop = parts_of_loop(draft, at)
    if loop.carries < _LEAST:
        return None
    forms = _forms(loop)
    states = _alike(loop, forms, loop.states, loop.news)
    if not states:
        return None
    rows = _alike(loop, forms, loop.rows, loop.rows)
    alone, single = _others(loop.carries, states), _others(len(loop.rows), rows)
    packed = _Packed(draft, loop)
    packed.begin(states, alone)
    news = packed.arrays_of(loop.news, states, alone)
    rows = [packed.order(own) for own in rows]
    stacks = packed.arrays_of(loop.rows, rows, single)
    made = packed.finish(news, stacks)
    found = _taken_apart(draft, made[: len(news)], states, alone)
    found += _taken_apart(draft, made[len(news) :], rows, single)
    return tuple(found)


def _taken_apart(
    draft: Draft, results: Sequence[Value], groups: Sequence[Sequence[int]], alone: Sequence[int]
) -> list[Value]:
    """Values by their places: lanes of the first results, and the others."""
    found = dict(zip(alone, results[len(groups) :], strict=True))
    for own, array in zip(groups, results, strict=False):
        found |= {k: _column(draft, array, lane) for lane, k in enumerate(own)}
    return [found[k] for k in range(len(found))]


def _others(count: int, groups: Sequence[Sequence[int]]) -> list[int]:
    grouped = {k for own in groups for k in own}
    return [k for k in range(count) if k not in grouped]


def _column(draft: Draft, array: Value, lane: int) -> Value:
    """A lane of an array, or of each row of a stack."""
    *shape, _ = draft.shape(array)
    return draft.reshape(draft.cut(array, len(shape), lane, lane + 1), shape)


def _alike(
    loop: LoopParts, forms: Sequence[int], kinds: Sequence[Value], values: Sequence[Value]
) -> list[list[int]]:
    """Places of numbers of one type that are computed alike, where they are many."""
    found: dict[object, list[int]] = {}
    for k, (own, value) in enumerate(zip(kinds, values, strict=True)):
        type_ = loop.body.type_of(own)
        if type_.shape == () and loop.body[value.node].op != "input":
            found.setdefault((type_, forms[value.node], value.index), []).append(k)
    return [places for places in found.values() if len(places) >= _LEAST]


def _forms(loop: LoopParts) -> list[int]:
    """What each node of the body computes, as a number, whichever states, invariants and literals
    of a type it computes it of."""
    numbers: dict[object, int] = {}
    found: list[int] = []
    for i, node in enumerate(loop.body.nodes):
        if node.op == "input":
            key: object = (node.types, i == loop.body.inputs[0])
        elif node.op == "constant":
            key = ("constant", node.types)
        else:
            operands = tuple((found[v.node], v.index) for v in node.inputs)
            key = (node.op, node.attrs, node.types, operands)
        found.append(numbers.setdefault(key, len(numbers)))
    return found


class _Packed:
    """The loop with states and rows put together, written as a new body in which a value of the old
    one is a lane of an array, or a number as it was."""

    def __init__(self, draft: Draft, loop: LoopParts) -> None:
        self.draft, self.loop, self.body = draft, loop, loop.body
        self.b = GraphBuilder()
        self.init: list[Value] = []
        self.reads: list[Value] = []
        self.alone: dict[Value, Value] = {}
        # Of a value of the old body the array that it is in, and where; arrays by their lanes.
        self.lane: dict[Value, tuple[Value, int]] = {}
        self.arrays: dict[Lanes, Value] = {}

    def begin(self, states: Sequence[Sequence[int]], others: Sequence[int]) -> None:
        """The inputs of the new body, and what they are in the graph."""
        draft, loop, kinds = self.draft, self.loop, self.body.input_types
        self.alone[Value(self.body.inputs[0])] = self.b.input("", (), kinds[0].dtype)
        for places in states:
            size, dtype = len(places), kinds[1 + places[0]].dtype
            parts = [draft.reshape(loop.init[k], (1,)) for k in places]
            self.init.append(draft.concat(parts, 0))
            self._place(tuple(loop.states[k] for k in places), self.b.input("", (size,), dtype))
        own = [(loop.states[k], loop.init[k], self.init) for k in others]
        own += [
            (v, outer, self.reads) for v, outer in zip(loop.reads, loop.invariants, strict=True)
        ]
        for value, outer, outers in own:
            kind = self.body.type_of(value)
            outers.append(outer)
            self.alone[value] = self.b.input("", kind.shape, kind.dtype)

    def arrays_of(
        self, values: Sequence[Value], groups: Sequence[Sequence[int]], alone: Sequence[int]
    ) -> list[Value]:
        """The values of each group together, then the others."""
        together = [self.together(tuple(values[k] for k in own)) for own in groups]
        return [*together, *(self.number(values[k]) for k in alone)]

    def finish(self, states: Sequence[Value], rows: Sequence[Value]) -> tuple[Value, ...]:
        """The outputs of the new loop."""
        body = canonical(self.b.build([*states, *rows]))
        attrs = {"body": body, "carries": len(states), self.loop.named[1]: self.loop.trip}
        return self.draft.add_many("loop", *self.init, *self.reads, **attrs)

    def order(self, places: Sequence[int]) -> list[int]:
        """Rows in the order in which an array has them, if one does."""
        found = [self.lane.get(self.loop.rows[k]) for k in places]
        there = [one for one in found if one is not None]
        if len(there) < len(found) or len({array for array, _ in there}) > 1:
            return list(places)
        return sorted(places, key=lambda k: self.lane[self.loop.rows[k]][1])

    def together(self, lanes: Lanes) -> Value:
        """The array of these numbers."""
        for each in post_order([lanes], lambda lanes: self._operands(lanes) or ()):
            if each not in self.arrays:
                self.arrays[each] = self._array(each)
        return self.arrays[lanes]

    def number(self, value: Value) -> Value:
        """A value by itself."""
        for v in post_order([value], self._missing):
            if v in self.alone:
                continue
            if v in self.lane:
                array, k = self.lane[v]
                self.alone[v] = self.b.add("reshape", self._cut(array, k, k + 1), shape=())
                continue
            node = self.body[v.node]
            operands = (self.alone[x] for x in node.inputs)
            made = self.b.add_multi(node.op, *operands, **dict(node.attrs))
            self.alone |= {Value(v.node, k): one for k, one in enumerate(made)}
        return self.alone[value]

    def _missing(self, value: Value) -> Sequence[Value]:
        known = value in self.alone or value in self.lane
        return () if known else self.body[value.node].inputs

    def _operands(self, lanes: Lanes) -> list[Lanes] | None:
        """What these numbers are computed of by one operation; None where there is none that is the
        same for all of them."""
        first = self.body[lanes[0].node]
        if first.spec.family is not Family.ELEMENTWISE or len(set(lanes)) == 1:
            return None
        nodes = [self.body[v.node] for v in lanes]
        if any((n.op, n.attrs, n.types) != (first.op, first.attrs, first.types) for n in nodes):
            return None
        if lanes in self.arrays or any(v in self.lane for v in lanes):
            return None
        return list(zip(*(node.inputs for node in nodes), strict=True))

    def _array(self, lanes: Lanes) -> Value:
        first, size = self.body[lanes[0].node], len(lanes)
        if len(set(lanes)) == 1:
            return self.b.add("broadcast", self.number(lanes[0]), shape=(size,), dims=())
        operands = self._operands(lanes)
        if operands is not None:
            arrays = (self.arrays[own] for own in operands)
            return self._place(lanes, self.b.add(first.op, *arrays, **dict(first.attrs)))
        nodes = [self.body[v.node] for v in lanes]
        if all(node.op == "constant" for node in nodes):
            numbers = [dict(node.attrs)["value"].scalar for node in nodes]
            dtype = first.types[0].dtype
            return self.b.add("constant", value=Literal.of(np.asarray(numbers), dtype))
        if self._is_row(lanes):
            table = self._table(tuple(node.inputs[0] for node in nodes))
            at = self.number(first.inputs[1])
            return self._place(lanes, self.b.add("gather", table, at, axis=0))
        return self._joined(lanes)

    def _is_row(self, lanes: Lanes) -> bool:
        """Whether these are numbers at one place of different invariants."""
        nodes, reads = [self.body[v.node] for v in lanes], set(self.loop.reads)
        first = nodes[0]
        return first.op == "gather" and all(
            node.op == "gather" and node.inputs[0] in reads and node.inputs[1] == first.inputs[1]
            and len(self.body.type_of(node.inputs[0]).shape) == 1
            and self.body.type_of(node.inputs[0]) == self.body.type_of(first.inputs[0])
            and v not in self.lane
            for v, node in zip(lanes, nodes, strict=True)
        )  # fmt: skip

    def _table(self, reads: Lanes) -> Value:
        """Invariants side by side, joined before the loop."""
        if reads not in self.arrays:
            draft, outer = self.draft, dict(zip(self.loop.reads, self.loop.invariants, strict=True))
            kind = self.body.type_of(reads[0])
            columns = [draft.reshape(outer[v], (*kind.shape, 1)) for v in reads]
            self.reads.append(draft.concat(columns, 1))
            self.arrays[reads] = self.b.input("", (*kind.shape, len(reads)), kind.dtype)
        return self.arrays[reads]

    def _joined(self, lanes: Lanes) -> Value:
        """Parts of other arrays, and numbers, end to end."""
        parts: list[Value] = []
        run: tuple[Value, int, int] | None = None
        for v in lanes:
            array, k = self.lane.get(v, (None, 0))
            if run is not None and array == run[0] and k == run[2]:
                run = (run[0], run[1], k + 1)
                continue
            parts += [] if run is None else [self._cut(*run)]
            run = None if array is None else (array, k, k + 1)
            parts += [self.b.add("reshape", self.number(v), shape=(1,))] if array is None else []
        parts += [] if run is None else [self._cut(*run)]
        return parts[0] if len(parts) == 1 else self.b.add("concat", *parts, axis=0)

    def _cut(self, array: Value, start: int, stop: int) -> Value:
        whole = self.b.type_of(array).shape == (stop - start,)
        if whole:
            return array
        return self.b.add("slice", array, start=(start,), stop=(stop,), stride=(1,))

    def _place(self, lanes: Lanes, array: Value) -> Value:
        for k, v in enumerate(lanes):
            self.lane.setdefault(v, (array, k))
        self.arrays[lanes] = array
        return array
