"""Tiles of rows: what stencils read again is computed once for a tile and its halo, then read from
scratch."""

from __future__ import annotations

import math
from collections.abc import Iterator

from autofuse.graph.types import Value
from autofuse.kernel.elements.values import ElementSource, Frame
from autofuse.kernel.ir.emit import narrow, widen
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.pull import Index
from autofuse.ops.scalar import Call, Expr, Lit, Load
from autofuse.plan.schedules.forms import Form
from autofuse.plan.schedules.halo import HaloRows, tile_extent


class HaloTiles:
    """Emits one segment whose grid iterations are tiles of rows. `targets` names the buffer of each
    output."""

    def __init__(self, form: Form, frame: Frame, targets: dict[Value, str]) -> None:
        self.graph, self.form, self.e = frame.graph, form, frame.e
        self.frame, self.targets = frame, targets
        # What each array in scratch can hold, and the last value that is computed from it.
        self.rooms: dict[str, tuple[DType, int, Value]] = {}
        self.rows = form.parallel[0]
        self.width = math.prod(form.parallel[1:])
        self.line = len(form.parallel) == 1

    def emit(self, kept: tuple[HaloRows, ...], rows: int) -> None:
        """Tiles of `rows` rows (the last one may have fewer), `kept` values first."""
        size = tile_extent(self.form, rows)
        tiles = -(-self.rows // size)
        if not self.line:
            self._tiles(kept, size, 0, tiles)
            return
        # Lanes that wrap around one by one are no vectors, so tiles that do are texts of their own.
        before = max((each.before for each in kept), default=0)
        behind = max((each.behind for each in kept), default=0)
        inner = [
            t for t in range(tiles) if before <= t * size and (t + 1) * size + behind <= self.rows
        ]
        for t in range(tiles):
            if t not in inner:
                self._tiles(kept, size, t, 1)
        if inner:
            self._tiles(kept, size, inner[0], len(inner))

    def _tiles(self, kept: tuple[HaloRows, ...], size: int, at: int, tiles: int) -> None:
        """`tiles` tiles from number `at` on; where there is but one its place is a number."""
        self.rooms = {}
        for each in kept:
            self.frame.sources.pop(each.value, None)
        block = self.e.open("b", tiles)
        number = ix.iadd(block, ix.lit(at)) if tiles > 1 else ix.lit(at)
        first = ix.imul(number, size)
        for each in kept:
            self._keep(each, first, size)
        left = ix.isub(ix.lit(self.rows), first)
        whole = (at + tiles) * size <= self.rows
        extent = ix.lit(size) if whole else Call("min", (ix.lit(size), left), DType.I64)
        if self.line:
            known = extent if whole else left
            lane = self.e.open("l", size)
            self._results((ix.iadd(first, lane),))
            self.e.close("lane", lane, known)
        else:
            step = self.e.open("k", size)
            row = self.e.let_index(ix.iadd(first, step), "r", self.rows)
            lane = self.e.open("l", self.width)
            self._results((row, *ix.delinearize(lane, self.form.parallel[1:])))
            self.e.close("lane", lane, ix.lit(self.width))
            self.e.close("serial", step, extent)
        self.e.close("grid", block, ix.lit(tiles))

    def _results(self, index: Index) -> None:
        for value in self.form.outputs:
            own = self.graph.type_of(value)
            element = narrow(self.frame.pull(value, index), own.dtype)
            self.e.store(self.targets[value], ix.linearize(index, own.shape), element)

    def _keep(self, kept: HaloRows, first: Expr, size: int) -> None:
        """Rows of a value, those around the tile too, into scratch."""
        own = self.graph.type_of(kept.value)
        width = math.prod(own.shape[1:])
        count = min(size + kept.before + kept.behind, self.rows)
        name = self._room(kept, own.dtype, count * width)
        if self.line:
            for place, start, length in self._stretches(first, kept.before, count):
                lane = self.e.open("l", length)
                index: Index = (ix.iadd(start, lane),)
                element = narrow(self.frame.pull(kept.value, index), own.dtype)
                self.e.store(name, ix.iadd(lane, ix.lit(place)), element)
                self.e.close("lane", lane, ix.lit(length))
        else:
            step = self.e.open("k", count)
            around = ix.iadd(ix.iadd(first, step), ix.lit(self.rows - kept.before))
            row = self.e.let_index(ix.imod(around, self.rows), "r", self.rows)
            lane = self.e.open("l", width)
            index = (row, *ix.delinearize(lane, own.shape[1:]))
            element = narrow(self.frame.pull(kept.value, index), own.dtype)
            self.e.store(name, ix.iadd(ix.imul(step, width), lane), element)
            self.e.close("lane", lane, ix.lit(width))
            self.e.close("serial", step, ix.lit(count))
        origin = ix.isub(first, ix.lit(kept.before))
        self.frame.sources[kept.value] = self._scratch(kept.value, name, origin, count)

    def _stretches(self, first: Expr, before: int, count: int) -> Iterator[tuple[int, Expr, int]]:
        """Elements of a line from `before` before a tile on, cut where the line goes round: where
        each part lies in scratch, its first element and its length."""
        if not isinstance(first, Lit):
            yield 0, ix.isub(first, ix.lit(before)), count
            return
        begin = int(first.value) - before
        for turn in (-1, 0, 1):
            low = max(begin, turn * self.rows)
            high = min(begin + count, (turn + 1) * self.rows)
            if low < high:
                yield low - begin, ix.lit(low - turn * self.rows), high - low

    def _room(self, kept: HaloRows, dtype: DType, size: int) -> str:
        """Scratch that nobody reads any more, or new scratch."""
        for name, (known, room, last) in self.rooms.items():
            if known is dtype and room >= size and last < kept.value:
                self.rooms[name] = dtype, room, kept.last
                return name
        name = self.e.local(dtype, size, "tile")
        self.rooms[name] = dtype, size, kept.last
        return name

    def _scratch(self, value: Value, name: str, origin: Expr, count: int) -> ElementSource:
        """Elements of a kept value at indices of the whole array."""
        own = self.graph.type_of(value)

        def read(index: Index) -> Expr:
            around = ix.iadd(ix.isub(index[0], origin), ix.lit(self.rows))
            # Rows that no select chooses may be anywhere.
            place = ix.iclamp(ix.imod(around, self.rows), 0, count - 1)
            at = ix.linearize((self.e.name_index(place, count), *index[1:]), own.shape)
            return widen(Load(name, at, own.dtype))

        return read
