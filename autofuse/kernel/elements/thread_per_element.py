"""Item form: every lane computes one item; what is local to an item stays in its registers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from itertools import pairwise

from autofuse.graph.types import Graph, Value
from autofuse.kernel.elements.values import UNROLLED, ElementSource, Frame
from autofuse.kernel.ir.emit import LoweringError, narrow
from autofuse.ops import index as ix
from autofuse.ops.control import MAX_TRIP, is_counted
from autofuse.ops.dtypes import DType
from autofuse.ops.pull import Index
from autofuse.ops.scalar import Call, Expr, Lit, Sym
from autofuse.ops.spec import Family, Motion
from autofuse.plan.schedules.forms import (
    Form,
    Tags,
    carries_inside,
    is_stack,
    join,
    local_shape,
    unrolled,
)

# Below this extent the last parallel axis is too short for lanes, and items are numbered flat.
SHORT = 32
# What is local to an item, element by element.
Registers = Mapping[Index, Expr]


class ThreadPerElement:
    """Emits one segment in the thread-per-element schedule. `targets` names the buffer of each
    output."""

    def __init__(self, form: Form, frame: Frame, targets: dict[Value, str]) -> None:
        self.graph, self.form, self.e = frame.graph, form, frame.e
        self.frame, self.targets = frame, targets
        self.tags = dict(form.tags)
        self.carries = dict(form.carries)
        self.items: Index = ()
        self.unroll = 1

    def emit(self, tile: int, unroll: int = 1) -> None:
        """The grid over tiles of items, the lanes of one tile, and each lane's work; of counted
        loops `unroll` iterations at a time. Raises LoweringError when a loop's iterations are no
        multiple."""
        self.unroll = unroll
        extents = self.form.parallel
        first = self._first_of_item()
        nested = first > 0 and math.prod(extents[first:]) >= SHORT and not self._is_flat()
        rows = math.prod(extents[:first]) if nested else 1
        width = math.prod(extents[first:]) if nested else math.prod(extents)
        tile = max(1, min(tile, width))
        tiles = -(-width // tile)
        block = self.e.open("b", rows * tiles)
        row = self.e.let_index(ix.idiv(block, tiles), "r", rows)
        start = ix.imul(ix.imod(block, tiles), tile)
        lane = self.e.open("l", tile)
        at = self.e.let_index(ix.iadd(start, lane), "i", width)
        if nested:
            inner = ix.delinearize(at, extents[first:])
            self.items = (*ix.delinearize(row, extents[:first]), *inner)
        else:
            self.items = ix.delinearize(at, extents)
        self._work()
        left = ix.isub(ix.lit(width), start)
        extent = ix.lit(tile) if width % tile == 0 else Call("min", (ix.lit(tile), left), DType.I64)
        self.e.close("lane", lane, extent)
        self.e.close("grid", block, ix.lit(rows * tiles))

    def _first_of_item(self) -> int:
        """The first of the last parallel axes that are numbered through as one: every value has all
        of them, next to each other, or none."""
        first, known = len(self.form.parallel) - 1, list(self.tags.values())
        values = {v for n in self.form.nodes for v in (*self.graph[n].inputs, Value(n))}
        while first > 0 and values <= self.tags.keys() and not self.carries:
            if not all(_are_neighbours(tags, first - 1, first) for tags in known):
                break
            first -= 1
        return first

    def _is_flat(self) -> bool:
        """Every access is at the item's own number, so axes need not be told apart."""
        every = tuple(range(len(self.form.parallel)))
        for n in self.form.nodes:
            node = self.graph[n]
            if node.spec.family is Family.ELEMENTWISE:
                continue
            repeats = node.spec.motion is Motion.REPEAT
            if not (repeats and self.graph.type_of(node.inputs[0]).size == 1):
                return False
        return all(self.tags.get(v) == every for v in self.form.outputs)

    def _work(self) -> None:
        for n in self.form.nodes:
            if self.graph[n].spec.family is Family.CONTROL:
                (self._loop if is_counted(self.graph[n].op) else self._while)(n)
            else:
                self._compute_early(n)
        for value in self.form.outputs:
            if not is_stack(self.graph, value):
                self._output(value)

    def _compute_early(self, n: int) -> None:
        """Values in node order: reduction roots before the loops that read them, and shallow
        recursion."""
        for i in range(len(self.graph[n].types)):
            value = Value(n, i)
            tags = self.tags.get(value)
            if tags is None or any(isinstance(t, frozenset) and t for t in tags):
                continue
            local = local_shape(self.graph, value, tags)
            anchor = self.graph[n].spec.family is Family.REDUCTION
            if math.prod(local) == 1 or (anchor and math.prod(local) <= UNROLLED):
                for at in unrolled(local):
                    self.frame.pull(value, self.full_index(tags, at))

    def full_index(self, tags: Tags, local: Index) -> Index:
        """The index of a value from this lane's item and a local position."""
        return join(tags, self.items, local)

    def _output(self, value: Value) -> None:
        tags = self.tags[value]
        local = local_shape(self.graph, value, tags)
        if math.prod(local) <= UNROLLED:
            for at in unrolled(local):
                self._store(value, self.full_index(tags, at), self.frame)
            return
        loops = [(self.e.open("k", extent), extent) for extent in local]
        self._store(value, self.full_index(tags, tuple(s for s, _ in loops)), self.frame)
        for sym, extent in reversed(loops):
            self.e.close("serial", sym, ix.lit(extent))

    def _store(self, value: Value, index: Index, frame: Frame) -> None:
        out = self.graph.type_of(value)
        element = narrow(frame.pull(value, index), out.dtype)
        self.e.store(self.targets[value], frame.place(value, index), element)

    def _loop(self, n: int) -> None:
        """The whole counted loop with its state in registers."""
        call = self.graph.call(n)
        carries, trips = int(call["carries"]), int(call["trip"])
        if self.unroll < 1 or trips % self.unroll:
            raise LoweringError(f"a loop of {trips} iterations cannot be unrolled by {self.unroll}")
        state = [self._state(n, k) for k in range(carries)]
        turn = self.e.open("t", trips // self.unroll)
        now: list[Registers] = [
            {at: self.e.bind(sym) for at, sym in registers.items()} for registers in state
        ]
        for copy in range(self.unroll):
            # Between copies the state is named values, and needs no register that is assigned.
            now = self._trip(n, self._trip_number(turn, copy, trips), now)
        for registers, values in zip(state, now, strict=True):
            for at, sym in registers.items():
                self.e.assign(sym, values[at])
        self.e.close("serial", turn, ix.lit(trips // self.unroll))
        self._leave(n, state)

    def _leave(self, n: int, state: list[dict[Index, Sym]]) -> None:
        """What the loop has left in its registers is from now on its results."""
        for k, registers in enumerate(state):
            final = {at: self.e.bind(sym) for at, sym in registers.items()}
            self.frame.sources[Value(n, k)] = self._register_source(self.carries[n, k], final)

    def _assign(self, state: Sequence[Mapping[Index, Sym]], now: Sequence[Registers]) -> None:
        for registers, values in zip(state, now, strict=True):
            for at, sym in registers.items():
                self.e.assign(sym, values[at])

    def _while(self, n: int) -> None:
        """The loop of this item, which ends when its flags are false. Iterations change nothing
        where they are, so that lanes may go on together."""
        call = self.graph.call(n)
        most = int(call["max_trips"])
        turns = -(-most // self.unroll)
        state = [self._state(n, k) for k in range(int(call["carries"]))]
        flags = list(state[0].values())
        single = len(flags) == 1 and most == MAX_TRIP
        on = flags[0] if single else self.e.variable(_any(flags), "on")
        turn = self.e.open("t", turns)
        now: list[Registers] = [
            {at: self.e.bind(sym) for at, sym in registers.items()} for registers in state
        ]
        for copy in range(self.unroll):
            number = self._trip_number(turn, copy, turns * self.unroll)
            inside = ix.ilt(number, ix.lit(most)) if copy else Lit(True, DType.BOOL)
            now = self._kept(n, inside, now, self._trip(n, number, now))
        self._assign(state, now)
        if not single:
            more = ix.ilt(ix.iadd(turn, ix.lit(1)), ix.lit(turns))
            self.e.assign(on, ix.iand(more, _any(list(now[0].values()))))
        self.e.close("while", turn, on)
        self._leave(n, state)

    def _kept(
        self, n: int, inside: Expr, old: list[Registers], new: list[Registers]
    ) -> list[Registers]:
        """The new states where flags are set and the iteration is one, else the old ones."""
        flags = {at: ix.iand(inside, flag) for at, flag in old[0].items()}
        rank, found = self.graph[n].types[0].rank, list[Registers]()
        for k, registers in enumerate(new):
            tags = self.carries[n, k][:rank]
            if tags != self.carries[n, 0]:
                raise LoweringError("a state of a while does not lie as its flags do")
            depth = sum(not isinstance(tag, int) for tag in tags)
            pairs = ((at, flags[at[:depth]], old[k][at], value) for at, value in registers.items())
            found.append(
                {at: self.e.bind(_chosen(on, value, before)) for at, on, before, value in pairs}
            )
        return found

    def _trip_number(self, turn: Sym, copy: int, trips: int) -> Expr:
        if self.unroll == 1:
            return turn
        return self.e.let_index(ix.iadd(ix.imul(turn, self.unroll), ix.lit(copy)), "u", trips)

    def _trip(self, n: int, trip: Expr, state: list[Registers]) -> list[Registers]:
        """One iteration from a state to the next; its stacks are stored."""
        call, body = self.graph.call(n), self.graph.call(n)["body"]
        sources: dict[Value, ElementSource] = {
            Value(body.inputs[0]): lambda _: Call("cast", (trip,), DType.I32)
        }
        for k, registers in enumerate(state):
            source = self._register_source(self.carries[n, k], registers)
            sources[Value(body.inputs[1 + k])] = source
        for k in range(len(state), len(call.ins)):
            sources[Value(body.inputs[1 + k])] = self._outer(self.graph[n].inputs[k])
        inner = Frame(body, self.e, sources)
        self._loops_inside(inner, n)
        new = [self._next_state(inner, n, k) for k in range(len(state))]
        self._stacks(inner, n, trip)
        return new

    def _loops_inside(self, inner: Frame, n: int) -> None:
        """The loops of a loop's body, whose results are from then on in registers."""
        count = len(self.form.parallel)
        carries = carries_inside(self.graph, n, self.carries, self.tags, count)
        form = Form(self.form.kind, self.form.parallel, (), (), (), tuple(carries.items()))
        nested = ThreadPerElement(form, inner, {})
        nested.items = self.items
        for m in sorted({node for node, _ in carries}):
            (nested._loop if is_counted(inner.graph[m].op) else nested._while)(m)

    def _outer(self, value: Value) -> ElementSource:
        return lambda index: self.frame.pull(value, index)

    def _locals(self, n: int, k: int) -> Iterator[Index]:
        value = self.graph[n].inputs[k]
        return unrolled(local_shape(self.graph, value, self.carries[n, k]))

    def _state(self, n: int, k: int) -> dict[Index, Sym]:
        value = self.graph[n].inputs[k]
        tags = self.carries[n, k]
        first = {at: self.frame.pull(value, self.full_index(tags, at)) for at in self._locals(n, k)}
        return {at: self.e.variable(init, "s") for at, init in first.items()}

    def _next_state(self, inner: Frame, n: int, k: int) -> Registers:
        body, tags = inner.graph, self.carries[n, k]
        return {
            at: self.e.bind(inner.pull(body.outputs[k], self.full_index(tags, at)))
            for at in self._locals(n, k)
        }

    def _stacks(self, inner: Frame, n: int, trip: Expr) -> None:
        """What each iteration leaves behind goes straight to memory."""
        body: Graph = inner.graph
        for value in self.form.outputs:
            if value.node != n or not is_stack(self.graph, value):
                continue
            tags = self.tags[value]
            out = self.graph.type_of(value)
            for at in unrolled(local_shape(self.graph, value, tags)[1:]):
                index = join(tags, self.items, (trip, *at))
                element = inner.pull(body.outputs[value.index], index[1:])
                place = ix.linearize(index, out.shape)
                self.e.store(self.targets[value], place, narrow(element, out.dtype))

    def _register_source(self, tags: Tags, registers: Registers) -> ElementSource:
        def read(index: Index) -> Expr:
            items, local = split(tags, index)
            for k, i in items:
                if i != self.items[k]:
                    raise LoweringError("loop state is read at another item's index")
            if all(isinstance(i, Lit) for i in local):
                return registers[local]
            found: Expr | None = None
            for at, sym in registers.items():
                test: Expr = Lit(True, DType.BOOL)
                for want, have in zip(at, local, strict=True):
                    test = ix.iand(test, Call("eq", (have, want), DType.BOOL))
                found = sym if found is None else Call("select", (test, sym, found), sym.dtype)
            assert found is not None
            return found

        return read


def _chosen(on: Expr, yes: Expr, no: Expr) -> Expr:
    """A select; of bools made of conjunctions, because GCC makes no vectors of others."""
    if yes.dtype is not DType.BOOL or isinstance(on, Lit):
        return ix.iselect(on, yes, no)
    kept = Call("and", (Call("not", (on,), DType.BOOL), no), DType.BOOL)
    return ix.iand(on, yes) if on == no else _any((ix.iand(on, yes), kept))


def _any(flags: Sequence[Expr]) -> Expr:
    """Whether one of these holds."""
    return reduce(lambda a, b: Call("or", (a, b), DType.BOOL), flags)


def _are_neighbours(tags: Tags, a: int, b: int) -> bool:
    """Axis b comes right after axis a, or a value has neither."""
    if any(not isinstance(t, int) and t & {a, b} for t in tags):
        return False
    return (a, b) in pairwise(tags) or not {a, b} & set(tags)


def split(tags: Tags, index: Index) -> tuple[list[tuple[int, Expr]], Index]:
    """An index as its parallel and its local positions."""
    items = [(t, i) for t, i in zip(tags, index, strict=True) if isinstance(t, int)]
    return items, tuple(i for t, i in zip(tags, index, strict=True) if not isinstance(t, int))
