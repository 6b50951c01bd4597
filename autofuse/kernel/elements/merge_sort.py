"""A stable merge sort of one row in scratch, in two ways.

Runs of 1, 2, 4, ... elements are merged in pairs. By `runs` a merge is two loops without a branch,
one from each end, which no run's end can stop: that is what one thread does fastest. By `ranks`
every lane finds the place of one element: its place in its own run, and how many elements of the
other run go before it, by a binary search of as many steps for all (as in Satish, Harris and
Garland, "Designing efficient sorting algorithms for manycore GPUs", 2009): no lane waits for
another.

Elements are compared as whole numbers of the same order. Numbers of 32 bits have their positions
below them in one of 64, so that no two are equal and only one row is moved. Rows end with numbers
above all others, so that all runs that are merged are whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autofuse.kernel.ir.emit import Emitter
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Expr, Lit, Load, Sym, call, cast
from autofuse.ops.sorting import order_number

_PLACES = 1 << 32
_ABOVE_ALL = Lit((1 << 63) - 1, DType.I64)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Numbers (i64) in scratch, and the positions they came from where they do not hold them."""

    numbers: str
    places: str | None


@dataclass(frozen=True, slots=True)
class Merging:
    """How rows of `count` elements of `dtype` are put in order: `by` runs or ranks."""

    e: Emitter
    count: int
    dtype: DType
    descending: bool
    by: str

    @property
    def room(self) -> int:
        """Places of a row: a whole number of the longest runs."""
        return 1 << max(0, self.count - 1).bit_length()

    def positions(self, element: Callable[[Expr], Expr], target: str, place: Callable[[Expr], Expr]
    ) -> None:  # fmt: skip
        """Write to `place(i)` of the scratch `target` where the i-th of the elements was that
        `element` gives."""
        rows, spare = self._rows(), self._rows()
        merge = {"runs": self._merge_runs, "ranks": self._merge_ranks}[self.by]
        lane = self.e.open("l", self.count)
        number = order_number(element(lane), self.descending)
        if rows.places is None:
            number = call("add", call("mul", number, Lit(_PLACES, DType.I64)), lane)
        self._put(rows, lane, number, cast(lane, DType.I32))
        self.e.close("lane", lane, ix.lit(self.count))
        run = 1
        while run < self.count:
            merge(rows, spare, run)
            rows, spare = spare, rows
            run *= 2
        lane = self.e.open("l", self.count)
        self.e.store(target, place(lane), self._place(rows, lane))
        self.e.close("lane", lane, ix.lit(self.count))

    def _rows(self) -> _Rows:
        """A row of scratch that ends with what is above all."""
        numbers = self.e.local(DType.I64, self.room, "numbers")
        packed = self.dtype.itemsize <= DType.I32.itemsize
        rows = _Rows(numbers, None if packed else self.e.local(DType.I32, self.room, "places"))
        if self.room > self.count:
            lane = self.e.open("l", self.room - self.count)
            self._put(rows, ix.iadd(lane, ix.lit(self.count)), _ABOVE_ALL, Lit(0, DType.I32))
            self.e.close("lane", lane, ix.lit(self.room - self.count))
        return rows

    def _number(self, rows: _Rows, at: Expr) -> Sym:
        return self.e.bind(Load(rows.numbers, at, DType.I64))

    def _place(self, rows: _Rows, at: Expr) -> Expr:
        if rows.places is None:
            return cast(Load(rows.numbers, at, DType.I64), DType.I32)
        return Load(rows.places, at, DType.I32)

    def _put(self, rows: _Rows, at: Expr, number: Expr, place: Expr) -> None:
        self.e.store(rows.numbers, at, number)
        if rows.places is not None:
            self.e.store(rows.places, at, place)

    def _pairs(self, run: int) -> int:
        """Pairs of runs that hold any element."""
        return -(-self.count // (2 * run))

    def _merge_runs(self, rows: _Rows, target: _Rows, run: int) -> None:
        """The first half of what a pair becomes is taken from the fronts, the second from the
        backs: neither run can end before its half is full."""
        pair = self.e.open("k", self._pairs(run))
        start = ix.imul(pair, 2 * run)
        ends = [ix.iadd(start, ix.lit(at)) for at in (0, run, run - 1, 2 * run - 1)]
        fronts = [self.e.variable(at, "f") for at in ends[:2]]
        backs = [self.e.variable(at, "b") for at in ends[2:]]
        step = self.e.open("k", run)
        self._take(rows, target, ix.iadd(start, step), fronts, 1)
        self._take(rows, target, ix.isub(ends[3], step), backs, -1)
        self.e.close("serial", step, ix.lit(run))
        self.e.close("serial", pair, ix.lit(self._pairs(run)))

    def _take(self, rows: _Rows, target: _Rows, at: Expr, heads: list[Sym], forward: int) -> None:
        """Move the lesser of two heads, the later run's where it is really less; or, from behind,
        the greater, which is the earlier run's where that is really greater."""
        early, late = (self._number(rows, head) for head in heads)
        less = self.e.bind(cast(call("lt", late, early), DType.I64))
        is_late = less if forward > 0 else self.e.bind(call("sub", Lit(1, DType.I64), less))
        from_late = call("ne", is_late, Lit(0, DType.I64))
        taken = call("select", from_late, heads[1], heads[0])
        number = call("select", from_late, late, early)
        self._put(target, at, number, self._place(rows, taken))
        step = Lit(forward, DType.I64)
        moved = call("mul", step, is_late)
        self.e.assign(heads[0], call("add", heads[0], call("sub", step, moved)))
        self.e.assign(heads[1], call("add", heads[1], moved))

    def _merge_ranks(self, rows: _Rows, target: _Rows, run: int) -> None:
        reach = self._pairs(run) * 2 * run
        lane = self.e.open("l", reach)
        pair = self.e.let(ix.imul(ix.idiv(lane, 2 * run), 2 * run))
        late = ix.ige(ix.isub(lane, pair), ix.lit(run))
        own = self._number(rows, lane)
        other = self.e.let(call("select", late, pair, ix.iadd(pair, ix.lit(run))))
        first = self._before_own(rows, own, late, other, run)
        at = self.e.let(ix.iadd(ix.iadd(pair, ix.imod(lane, run)), first))
        self._put(target, at, own, self._place(rows, lane))
        self.e.close("lane", lane, ix.lit(reach))

    def _before_own(self, rows: _Rows, own: Sym, late: Expr, other: Expr, run: int) -> Expr:
        """How many numbers of the other run go before a lane's own. Of equal ones those of the
        earlier run do."""
        found: Expr = ix.lit(0)
        step = run
        while step:
            # Past the end, which only the first step of 1 after `run` may try, nothing goes before.
            tried = self.e.let(ix.iadd(found, ix.lit(step)))
            last = call("min", tried, ix.lit(run))
            met = self._number(rows, ix.isub(ix.iadd(other, last), ix.lit(1)))
            equal = call("and", late, call("eq", met, own))
            first = call("or", call("lt", met, own), equal)
            reached = call("and", call("le", tried, ix.lit(run)), first)
            found = self.e.let(call("select", reached, tried, found))
            step //= 2
        return found
