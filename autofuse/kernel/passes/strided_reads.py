"""Where a segment reads along another axis than it stores: what its transposing passes look for.

Both ask the index expressions. An op's name says nothing: a transpose may be fused with anything,
and of several operands some may be turned and some not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from autofuse.kernel.ir.indices import has_load, mentions, rebuild, spelled_out
from autofuse.kernel.ir.types import (
    Let,
    Loop,
    LoopKind,
    Panel,
    Stmt,
    Store,
    expressions,
    map_exprs,
    names_read,
    substitute,
    walk,
)
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Call, Expr, Lit, Load, Sym

I64 = DType.I64


@dataclass(frozen=True, slots=True)
class StridedRead:
    """A load that is contiguous along the axis of a `Turned` segment: its index in terms of row and
    item, and how far apart the elements of two neighbouring items are."""

    load: Load
    index: Expr
    step: int


@dataclass(frozen=True)
class Turned:
    """A segment over rows `row` and items `item` of a row, some of whose `reads` are contiguous
    along an axis of the rows: row = (outer * size + axis) * inner + rest."""

    row: Sym
    item: Sym
    before: tuple[Let, ...]
    work: tuple[Stmt, ...]
    reads: tuple[StridedRead, ...]
    inner: int
    size: int

    @property
    def width(self) -> int:
        """Items of a row."""
        return self.item.extent or 1

    @property
    def others(self) -> int:
        """Rows at one place of the axis."""
        return (self.row.extent or 1) // self.size

    def row_at(self, axis: Expr, outer: Expr) -> Expr:
        """The row at a place along the axis; the other axes together are `outer`."""
        return _row_of(axis, self.inner, self.size, outer)

    def work_at(self, row: Expr, swaps: Mapping[Load, Load]) -> tuple[Stmt, ...]:
        """What is done for an item of a row, with other loads in the place of some."""
        values: dict[str, Expr] = {self.row.name: row}

        def change(expr: Expr) -> Expr:
            match expr:
                case Load() if expr in swaps:
                    return swaps[expr]
                case Load(buffer, index, dtype):
                    return Load(buffer, change(index), dtype)
                case Call(fn, args, dtype) if has_load(expr):
                    return Call(fn, tuple(change(a) for a in args), dtype)
            return rebuild(expr, values)

        return tuple(map_exprs(s, change) for s in (*self.before, *self.work))

    def copied(self) -> Panel | None:
        """Where the one strided load goes if it is all that is stored, unchanged: a matrix whose
        rows are along the axis and whose columns are items, its start in terms of row and item."""
        stores = [s for s in self.work if isinstance(s, Store)]
        if len(stores) != 1 or len(self.reads) != 1:
            return None
        names = {s.sym.name: s.value for s in (*self.before, *self.work) if isinstance(s, Let)}
        if substitute(stores[0].value, names) != self.reads[0].load:
            return None
        index = rebuild(stores[0].index, names)
        pitch, step = _steps(index, self.row, self.item, self.inner, self.size)
        return Panel(stores[0].buffer, index, pitch) if step == 1 else None


def turned(grid: Stmt, inputs: frozenset[str], least: int) -> Turned | None:
    """A segment with strided reads along an axis of at least `least` elements, or None."""
    if not isinstance(grid, Loop):
        return None
    if grid.kind is not LoopKind.GRID or not isinstance(grid.extent, Lit) or len(grid.body) < 2:
        return None
    row, lane = grid.body[0], grid.body[-1]
    if not isinstance(row, Let) or row.sym.extent is None or not isinstance(lane, Loop):
        return None
    before = grid.body[1:-1]
    if lane.kind is not LoopKind.LANE or lane.folds or not all(isinstance(s, Let) for s in before):
        return None
    item, work = lane.body[0], lane.body[1:]
    if not isinstance(item, Let) or item.sym.extent is None or item.sym.dtype is not I64:
        return None
    if not all(isinstance(s, Let | Store) for s in work):
        return None
    names: set[str] = set().union(*(names_read(s) for s in (*before, *work)))
    if {grid.var.name, lane.var.name} & names or not mentions(item.value, {lane.var.name}):
        return None
    made = _reads(row.sym, item.sym, work, inputs, least)
    if made is None:
        return None
    reads, inner, size = made
    return Turned(
        row.sym, item.sym, tuple(s for s in before if isinstance(s, Let)), work, reads, inner, size
    )


def _reads(
    row: Sym, item: Sym, work: tuple[Stmt, ...], inputs: frozenset[str], least: int
) -> tuple[tuple[StridedRead, ...], int, int] | None:
    """The strided loads along the first axis that has any."""
    full: dict[str, Expr] = {}
    found: dict[Load, Expr] = {}
    for stmt in work:
        for expr in expressions(stmt):
            for e in walk(expr):
                if isinstance(e, Load) and e.buffer in inputs and not has_load(e.index):
                    found[e] = rebuild(e.index, full)
        if isinstance(stmt, Let) and stmt.sym.dtype is I64 and not has_load(stmt.value):
            full[stmt.sym.name] = spelled_out(stmt.value, full, stmt.sym)
    for inner, size in _axes(row, list(found.values()), least):
        steps = {load: _steps(index, row, item, inner, size) for load, index in found.items()}
        chosen = tuple(StridedRead(e, found[e], s) for e, (a, s) in steps.items() if a == 1 < s)
        if chosen:
            return chosen, inner, size
    return None


def _axes(row: Sym, indices: list[Expr], least: int) -> Iterator[tuple[int, int]]:
    """(inner, size) of the axes of the rows that some index names: row // inner % size."""
    rows = row.extent or 1
    seen = dict.fromkeys(_axis(e, row) for index in indices for e in walk(index))
    for inner, size in filter(None, seen):
        if rows % (inner * size) == 0 and size >= least:
            yield inner, size


def _axis(e: Expr, row: Sym) -> tuple[int, int] | None:
    rows = row.extent or 1
    match e:
        case Sym() if e == row:
            return 1, rows
        case Call(fn="rem", args=(a, Lit(value=int(n)))) if a == row:
            return 1, n
        case Call(fn="div", args=(a, Lit(value=int(d)))) if a == row:
            return d, rows // d
        case Call(fn="rem", args=(Call(fn="div", args=(a, Lit(value=int(d)))), Lit(value=b))):
            return (d, int(b)) if a == row else None
    return None


def _steps(index: Expr, row: Sym, item: Sym, inner: int, size: int) -> tuple[int, ...]:
    """How much `index` grows along the axis and from item to item; zeros where it is not a sum of
    both."""
    axis, rest = Sym("axis", I64, size), Sym("others", I64, (row.extent or 1) // size)
    at = rebuild(index, {row.name: _row_of(axis, inner, size, rest)})
    known = ix.coefficients(at, (axis.name, item.name))
    return (0, 0) if known is None else known[0]


def _row_of(axis: Expr, inner: int, size: int, outer: Expr) -> Expr:
    high, low = ix.idiv(outer, inner), ix.imod(outer, inner)
    return ix.iadd(ix.imul(ix.iadd(ix.imul(high, size), axis), inner), low)
