"""column_blocks: 32 columns to a block, whose threads share the rows of each.

Before: grid b < 1 {lane l < 64 {var s; serial k < 900 {s += x[k*64 + l]}; out[l] = s}}
After:  grid b < 2 {column x < 32 {var s; lane k < 900 {..} add->s; out[b*32 + x] = s}}
Asked for by reduce="block"; by reduce="split" several blocks share the columns too, and the one
that finishes last goes on alone.
"""

from __future__ import annotations

from dataclasses import replace

from autofuse.kernel.cuda.settings import WARP, Settings, settings
from autofuse.kernel.ir.indices import mentions, rebuild
from autofuse.kernel.ir.types import (
    Assign,
    Fold,
    Kernel,
    Let,
    Loop,
    LoopKind,
    Stmt,
    Var,
    expressions,
    has_loop,
    map_exprs,
    only_lets,
)
from autofuse.kernel.passes.split_rows import chunk_of, parts_of
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Call, Expr, Lit, Sym

I64 = DType.I64
OPERATORS = ("add", "mul", "max", "min", "or", "and")


def column_blocks(kernel: Kernel) -> Kernel:
    """Rewrite the segments whose lanes fold one after another."""
    own = settings(kernel)
    if own.reduce not in ("block", "split"):
        return kernel
    body = tuple(_segment(s, own) if isinstance(s, Loop) else s for s in kernel.body)
    return replace(kernel, body=body)


def _segment(grid: Loop, own: Settings) -> Loop:
    loops = [s for s in grid.body if isinstance(s, Loop)]
    if grid.kind is not LoopKind.GRID or not isinstance(grid.extent, Lit) or len(loops) != 1:
        return grid
    lane = loops[0]
    plain = only_lets(tuple(s for s in grid.body if s is not lane))
    if (
        lane.kind is not LoopKind.LANE
        or lane.folds
        or not isinstance(lane.extent, Lit)
        or not plain
    ):
        return grid
    inner = [s for s in lane.body if isinstance(s, Loop)]
    if len(inner) != 1:
        return grid
    rows = _flat(inner[0])
    folds = _folds(rows, lane) if rows is not None else None
    if rows is None or folds is None:
        return grid
    return _columns(grid, lane, (inner[0], rows, folds), own)


def _flat(loop: Loop) -> Loop | None:
    """Nested serial loops as one over all rows; None for anything else."""
    if loop.kind is not LoopKind.SERIAL or not isinstance(loop.extent, Lit):
        return None
    if not has_loop(loop.body):
        return loop
    *before, last = loop.body
    if not isinstance(last, Loop) or not only_lets(tuple(before)):
        return None
    inner = _flat(last)
    if inner is None or not isinstance(inner.extent, Lit):
        return None
    width = int(inner.extent.value)
    total = int(loop.extent.value) * width
    var = Sym(inner.var.name, I64, total)
    values: dict[str, Expr] = {
        loop.var.name: ix.idiv(var, width),
        inner.var.name: ix.imod(var, width),
    }
    parts = (*before, *inner.body)
    body = tuple(map_exprs(s, lambda e: rebuild(e, values)) for s in parts)
    return Loop(LoopKind.SERIAL, var, ix.lit(total), body)


def _fold(stmt: Stmt, declared: set[str]) -> Fold | None:
    match stmt:
        case Assign(sym, Call(fn=fn, args=(a, b))) if fn in OPERATORS and sym.name in declared:
            return Fold(sym, fn) if (a == sym) != (b == sym) else None
    return None


def _folds(rows: Loop, lane: Loop) -> tuple[Fold, ...] | None:
    """The folds that the loop is, None when it is more than folds."""
    declared = {s.sym.name for s in lane.body if isinstance(s, Var)}
    found: list[Fold] = []
    for stmt in rows.body:
        if isinstance(stmt, Let):
            continue
        fold = _fold(stmt, declared)
        if fold is None:
            return None
        found.append(fold)
    names = [f.target.name for f in found]
    if not found or len(set(names)) != len(names) or _is_read(rows, set(names)):
        return None
    return tuple(found)


def _is_read(rows: Loop, names: set[str]) -> bool:
    """Some running total is read by more than its own fold."""
    for stmt in rows.body:
        operands = expressions(stmt)
        if isinstance(stmt, Assign) and isinstance(stmt.value, Call):
            operands = tuple(a for a in stmt.value.args if a != stmt.sym)
        if any(mentions(e, names) for e in operands):
            return True
    return False


def _columns(
    grid: Loop, lane: Loop, found: tuple[Loop, Loop, tuple[Fold, ...]], own: Settings
) -> Loop:
    assert isinstance(grid.extent, Lit) and isinstance(lane.extent, Lit)
    old, rows, folds = found
    lanes = int(lane.extent.value)
    width = WARP * own.vector if lanes % own.vector == 0 else WARP
    blocks = -(-lanes // width)
    total = int(grid.extent.value) * blocks
    parts = 1
    assert isinstance(rows.extent, Lit)
    length = int(rows.extent.value)
    if own.reduce == "split":
        parts = parts_of(replace(own, threads=own.warps), total, length)
    var = Sym(grid.var.name, I64, total * parts)
    block = ix.idiv(var, parts)
    column = Sym(f"{lane.var.name}_x", I64, min(width, lanes))
    start = ix.imul(ix.imod(block, blocks), width)
    extent: Expr = ix.lit(min(width, lanes))
    if lanes % width and blocks > 1:
        extent = Call("min", (ix.lit(width), ix.isub(ix.lit(lanes), start)), I64)
    values: dict[str, Expr] = {
        grid.var.name: ix.idiv(block, blocks),
        lane.var.name: ix.iadd(start, column),
    }
    dealt = _dealt(rows, folds, own, parts)
    body = tuple(
        map_exprs(dealt if s is old else s, lambda e: rebuild(e, values)) for s in lane.body
    )
    before = tuple(map_exprs(s, lambda e: rebuild(e, values)) for s in grid.body if s is not lane)
    loop = Loop(LoopKind.COLUMN, column, extent, body)
    return Loop(LoopKind.GRID, var, ix.lit(total * parts), (*before, loop))


def _dealt(rows: Loop, folds: tuple[Fold, ...], own: Settings, parts: int) -> Loop:
    """The rows as lanes, in one part or several."""
    assert isinstance(rows.extent, Lit)
    length = int(rows.extent.value)
    if parts == 1:
        return Loop(LoopKind.LANE, rows.var, rows.extent, rows.body, folds)
    chunk = chunk_of(replace(own, vector=1), length, parts)
    part = Sym(f"{rows.var.name}_q", I64, parts)
    var = Sym(rows.var.name, I64, chunk)
    start = ix.imul(part, chunk)
    extent: Expr = ix.lit(chunk)
    if chunk * parts != length:
        extent = Call("min", (ix.lit(chunk), ix.isub(ix.lit(length), start)), I64)
    values: dict[str, Expr] = {var.name: ix.iadd(start, var)}
    body = tuple(map_exprs(s, lambda e: rebuild(e, values)) for s in rows.body)
    lane = Loop(LoopKind.LANE, var, extent, body, folds)
    return Loop(LoopKind.PART, part, ix.lit(parts), (lane,), folds)
