"""transpose_tiles: strided reads go through a tile in shared memory.

Before: grid r < 100 {lane l < 200 {out[r*200 + l] = x[l*100 + r]}}
After:  grid b < 28 {local t[32*33]; lane m < 1024 {t[..] = x[..]}; lane n < 1024 {out[..] = t[..]}}
Threads walk along the axis that is contiguous in the input when they read, and along the one that
is contiguous in the output when they store; the odd row length keeps them off each other's banks.
Asked for by transpose=True. Tiles are 32 by 32; what lies beyond an edge is read clamped and not
stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from autofuse.kernel.cuda_settings import WARP, settings
from autofuse.kernel.indices import has_load, mentions, rebuild, spelled_out
from autofuse.kernel.ir import (
    Kernel,
    Let,
    Local,
    Loop,
    Stmt,
    Store,
    expressions,
    map_exprs,
    names_read,
    walk,
)
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Call, Expr, Lit, Load, Sym

I64 = DType.I64
PITCH = WARP + 1


def transpose_tiles(kernel: Kernel) -> Kernel:
    """Rewrite thread-per-element segments that read along another axis than they store."""
    if not settings(kernel).transpose:
        return kernel
    inputs = frozenset(p.name for p in kernel.params if p.role == "in")
    body: list[Stmt] = []
    for n, stmt in enumerate(kernel.body):
        found = _pattern(stmt, inputs) if isinstance(stmt, Loop) else None
        body.append(stmt if found is None else _Tiles(found, n).run())
    return replace(kernel, body=tuple(body))


@dataclass(frozen=True)
class _Pattern:
    """A segment over rows `row` and items `item` of a row, whose `loads` (index, in terms of both)
    are contiguous along an axis of the rows: row = (outer * size + axis) * inner + rest."""

    row: Sym
    item: Sym
    before: tuple[Let, ...]
    work: tuple[Stmt, ...]
    loads: tuple[tuple[Load, Expr], ...]
    inner: int
    size: int


def _pattern(grid: Loop, inputs: frozenset[str]) -> _Pattern | None:
    if grid.kind != "grid" or not isinstance(grid.extent, Lit) or len(grid.body) < 2:
        return None
    row, lane = grid.body[0], grid.body[-1]
    if not isinstance(row, Let) or row.sym.extent is None or not isinstance(lane, Loop):
        return None
    before = grid.body[1:-1]
    if lane.kind != "lane" or lane.folds or not all(isinstance(s, Let) for s in before):
        return None
    item, work = lane.body[0], lane.body[1:]
    if not isinstance(item, Let) or item.sym.extent is None or item.sym.dtype is not I64:
        return None
    if not all(isinstance(s, Let | Store) for s in work):
        return None
    names: set[str] = set().union(*(names_read(s) for s in (*before, *work)))
    if {grid.var.name, lane.var.name} & names or not mentions(item.value, {lane.var.name}):
        return None
    made = _loads(row.sym, item.sym, work, inputs)
    if made is None:
        return None
    loads, inner, size = made
    return _Pattern(
        row.sym, item.sym, tuple(s for s in before if isinstance(s, Let)), work, loads, inner, size
    )


def _loads(
    row: Sym, item: Sym, work: tuple[Stmt, ...], inputs: frozenset[str]
) -> tuple[tuple[tuple[Load, Expr], ...], int, int] | None:
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
    for inner, size in _axes(row, list(found.values())):
        chosen = tuple(
            (load, index)
            for load, index in found.items()
            if _strided(index, row, item, inner, size)
        )
        if chosen:
            return chosen, inner, size
    return None


def _axes(row: Sym, indices: list[Expr]) -> Iterator[tuple[int, int]]:
    """(inner, size) of the axes of the rows that some index names: row // inner % size."""
    rows = row.extent or 1
    seen: list[tuple[int, int]] = []
    for index in indices:
        for e in walk(index):
            match e:
                case Sym() if e == row:
                    seen.append((1, rows))
                case Call(fn="rem", args=(a, Lit(value=int(n)))) if a == row:
                    seen.append((1, n))
                case Call(fn="div", args=(a, Lit(value=int(d)))) if a == row:
                    seen.append((d, rows // d))
                case Call(fn="rem", args=(Call(fn="div", args=(a, Lit(value=int(d)))), b)):
                    if a == row and isinstance(b, Lit):
                        seen.append((d, int(b.value)))
    for inner, size in dict.fromkeys(seen):
        if rows % (inner * size) == 0 and size >= WARP:
            yield inner, size


def _strided(index: Expr, row: Sym, item: Sym, inner: int, size: int) -> bool:
    """`index` grows by one along the axis and by more along the items."""
    axis = Sym("axis", I64, size)
    at = rebuild(index, {row.name: _row_of(axis, row, inner, size)})
    if mentions(ix.isub(at, axis), {"axis"}):
        return False
    step = ix.isub(rebuild(at, {item.name: ix.lit(1)}), rebuild(at, {item.name: ix.lit(0)}))
    if not isinstance(step, Lit) or int(step.value) < 2:
        return False
    return not mentions(ix.isub(at, ix.imul(item, int(step.value))), {item.name})


def _row_of(axis: Sym, row: Sym, inner: int, size: int, outer: Expr | None = None) -> Expr:
    """The row at a place along the axis; the other axes together are `outer`."""
    others = (row.extent or 1) // size
    rest = Sym("others", I64, others) if outer is None else outer
    high, low = ix.idiv(rest, inner), ix.imod(rest, inner)
    return ix.iadd(ix.imul(ix.iadd(ix.imul(high, size), axis), inner), low)


class _Tiles:
    def __init__(self, found: _Pattern, number: int) -> None:
        self.p = found
        width = found.item.extent or 1
        self.across, self.down = -(-width // WARP), -(-found.size // WARP)
        others = (found.row.extent or 1) // found.size
        self.name = f"t{number}"
        self.block = Sym(f"{self.name}_b", I64, others * self.across * self.down)
        self.exact = width % WARP == 0 and found.size % WARP == 0
        self.tiles = [f"{self.name}_tile{n}" for n in range(len(found.loads))]

    def run(self) -> Loop:
        locals_ = [
            Local(tile, load.dtype, WARP * PITCH)
            for tile, (load, _) in zip(self.tiles, self.p.loads, strict=True)
        ]
        body: tuple[Stmt, ...] = (*locals_, self.read(), self.write())
        return Loop("grid", self.block, ix.lit(self.block.extent or 0), body)

    def places(self, tag: str, lane: Sym, along_items: bool) -> tuple[list[Stmt], Sym, Sym]:
        """Where a thread is: row and item, clamped to what there is when it only reads."""
        fast, slow = ix.imod(lane, WARP), ix.idiv(lane, WARP)
        tile = ix.imod(self.block, self.across * self.down)
        item0 = ix.imul(ix.imod(tile, self.across), WARP)
        axis0 = ix.imul(ix.idiv(tile, self.across), WARP)
        item = ix.iadd(item0, fast if along_items else slow)
        axis = ix.iadd(axis0, slow if along_items else fast)
        if not along_items:
            item = _at_most(item, (self.p.item.extent or 1) - 1)
            axis = _at_most(axis, self.p.size - 1)
        own_item = Sym(
            self.p.item.name if along_items else f"{self.name}_i", I64, self.p.item.extent
        )
        own_axis = Sym(f"{self.name}_a{tag}", I64, self.p.size)
        return [Let(own_item, item), Let(own_axis, axis)], own_item, own_axis

    def row(self, axis: Sym) -> Expr:
        outer = ix.idiv(self.block, self.across * self.down)
        return _row_of(axis, self.p.row, self.p.inner, self.p.size, outer)

    def read(self) -> Loop:
        lane = Sym(f"{self.name}_m", I64, WARP * WARP)
        places, item, axis = self.places("r", lane, False)
        values: dict[str, Expr] = {self.p.item.name: item, self.p.row.name: self.row(axis)}
        slot = ix.iadd(ix.imul(ix.idiv(lane, WARP), PITCH), ix.imod(lane, WARP))
        stores = [
            Store(tile, slot, Load(load.buffer, rebuild(index, values), load.dtype))
            for tile, (load, index) in zip(self.tiles, self.p.loads, strict=True)
        ]
        body: tuple[Stmt, ...] = (*places, *stores)
        return Loop("lane", lane, ix.lit(WARP * WARP), body)

    def write(self) -> Loop:
        lane = Sym(f"{self.name}_n", I64, WARP * WARP)
        places, item, axis = self.places("w", lane, True)
        slot = ix.iadd(ix.imul(ix.imod(lane, WARP), PITCH), ix.idiv(lane, WARP))
        swaps = {
            load: Load(tile, slot, load.dtype)
            for tile, (load, _) in zip(self.tiles, self.p.loads, strict=True)
        }
        values: dict[str, Expr] = {self.p.row.name: self.row(axis)}

        def change(expr: Expr) -> Expr:
            match expr:
                case Load() if expr in swaps:
                    return swaps[expr]
                case Load(buffer, index, dtype):
                    return Load(buffer, change(index), dtype)
                case Call(fn, args, dtype) if has_load(expr):
                    return Call(fn, tuple(change(a) for a in args), dtype)
            return rebuild(expr, values)

        old: tuple[Stmt, ...] = (*self.p.before, *self.p.work)
        work: tuple[Stmt, ...] = tuple(map_exprs(s, change) for s in old)
        if not self.exact:
            inside = ix.iand(
                Call("lt", (item, ix.lit(self.p.item.extent or 0)), DType.BOOL),
                Call("lt", (axis, ix.lit(self.p.size)), DType.BOOL),
            )
            work = (Loop("when", Sym(f"{self.name}_o", I64, 1), inside, work),)
        return Loop("lane", lane, ix.lit(WARP * WARP), (*places, *work))


def _at_most(value: Expr, limit: int) -> Expr:
    known = ix.bounds(value)
    if known is not None and known[1] <= limit:
        return value
    return Call("min", (value, ix.lit(limit)), I64)
