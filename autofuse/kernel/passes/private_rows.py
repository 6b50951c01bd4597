"""private_rows: rows that every thread reads only where it wrote stay in its registers.

Before: local row[512]; lane l < 512 {row[l] = x(l)}; lane m < 512 {out[m] = row[m] / s}
After:  private row[2]; lane l < 512 pass l_n {row[l_n] = x(l)}; lane m < 512 pass m_n {.. row[m_n]}
Asked for by keep="registers". A lane's number decides which thread runs it, the same in every loop
of the same length and team.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeGuard

from autofuse.kernel.cuda.settings import WARP, settings
from autofuse.kernel.ir.types import (
    Join,
    Kernel,
    Let,
    LoadVector,
    Local,
    Loop,
    LoopKind,
    Stmt,
    Store,
    StoreVector,
    TileProduct,
    expressions,
    map_exprs,
    names_read,
    walk,
)
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Call, Expr, Lit, Load, Sym

# Elements of one row in the registers of one thread.
MOST_PRIVATE = 128
I64 = DType.I64


def private_rows(kernel: Kernel) -> Kernel:
    """Rewrite the rows of every segment that qualify."""
    own = settings(kernel)
    if own.keep != "registers":
        return kernel
    return replace(kernel, body=tuple(_segment(s, own.threads) for s in kernel.body))


def _segment(stmt: Stmt, team: int) -> Stmt:
    """Rows are declared in a grid loop or in the warp loop inside it."""
    if not isinstance(stmt, Loop) or stmt.kind not in (LoopKind.GRID, LoopKind.WARP):
        return stmt
    team = WARP if stmt.kind is LoopKind.WARP else team
    body = tuple(_segment(s, team) for s in stmt.body)
    shapes = {s.name: _shape(s.name, body, team) for s in body if _is_kept(s)}
    chosen = {name: shape for name, shape in shapes.items() if shape is not None}
    return replace(stmt, body=tuple(_rewrite(s, chosen, team) for s in body))


def _is_kept(stmt: Stmt) -> TypeGuard[Local]:
    return isinstance(stmt, Local) and stmt.source is None


@dataclass(frozen=True)
class _Shape:
    """How a row is dealt: lanes of its loops, and elements of one lane."""

    lanes: int
    width: int


def _shape(name: str, body: tuple[Stmt, ...], team: int) -> _Shape | None:
    """The one way in which all loops deal this row, None when there is none."""
    shapes: set[_Shape | None] = set()
    for loop, inside in _accesses(name, body):
        shapes.add(None if loop is None else _dealt(loop, inside))
    if len(shapes) != 1:
        return None
    shape = shapes.pop()
    if shape is None or -(-shape.lanes // team) * shape.width > MOST_PRIVATE:
        return None
    return shape


def _accesses(
    name: str, body: tuple[Stmt, ...], lane: Loop | None = None
) -> Iterator[tuple[Loop | None, tuple[Expr, int]]]:
    """Every access with its lane loop (None outside of one): its index, and how many elements."""
    for stmt in body:
        for expr in expressions(stmt):
            for e in walk(expr):
                if isinstance(e, Load) and e.buffer == name:
                    yield lane, (e.index, 1)
        match stmt:
            case Store(buffer, index, _) if buffer == name:
                yield lane, (index, 1)
            case LoadVector(syms, buffer, index) if buffer == name:
                yield lane, (index, len(syms))
            case StoreVector(buffer, index, values) if buffer == name:
                yield lane, (index, len(values))
            case TileProduct() | Join() if name in names_read(stmt):
                yield None, (ix.lit(0), 1)
            case Loop(kind=LoopKind.LANE):
                yield from _accesses(name, stmt.body, stmt)
            case Loop(kind=LoopKind.PART):
                yield from _accesses(name, stmt.body, lane)
            case Loop():
                # A loop in between: which pass it is would not be a constant.
                yield from ((None, a) for _, a in _accesses(name, stmt.body, lane))


def _dealt(loop: Loop, access: tuple[Expr, int]) -> _Shape | None:
    """The shape of index = lane * width + j with 0 <= j, j + count <= width."""
    index, count = access
    zero = ix.isub(index, loop.var)
    lanes = loop.var.extent
    if lanes is None:
        return None
    if zero == ix.lit(0) and count == 1:
        return _Shape(lanes, 1)
    for width in (2, 4, 8):
        rest = ix.isub(index, ix.imul(loop.var, width))
        if isinstance(rest, Lit) and 0 <= int(rest.value) <= width - count:
            return _Shape(lanes, width)
    return None


def _rewrite(stmt: Stmt, chosen: dict[str, _Shape], team: int) -> Stmt:
    match stmt:
        case Local(name, dtype, _) if name in chosen:
            shape = chosen[name]
            return Local(name, dtype, -(-shape.lanes // team) * shape.width, True)
        case Loop(kind=LoopKind.LANE):
            return _lane(stmt, chosen)
        case Loop():
            return replace(stmt, body=tuple(_rewrite(s, chosen, team) for s in stmt.body))
    return stmt


def _lane(loop: Loop, chosen: dict[str, _Shape]) -> Stmt:
    counter = Sym(f"{loop.var.name}_n", I64, MOST_PRIVATE)
    body: list[Stmt] = []
    used = False
    for stmt in loop.body:
        for part in _single(stmt, chosen):
            new = _moved(part, loop.var, counter, chosen)
            used = used or new != part
            body.append(new)
    return replace(loop, body=tuple(body), counter=counter) if used else loop


def _single(stmt: Stmt, chosen: dict[str, _Shape]) -> list[Stmt]:
    """A vector access of a private row as single ones."""
    match stmt:
        case LoadVector(syms, buffer, index) if buffer in chosen:
            return [
                Let(sym, Load(buffer, ix.iadd(index, ix.lit(j)), sym.dtype))
                for j, sym in enumerate(syms)
            ]
        case StoreVector(buffer, index, values) if buffer in chosen:
            return [
                Store(buffer, ix.iadd(index, ix.lit(j)), value) for j, value in enumerate(values)
            ]
    return [stmt]


def _moved(stmt: Stmt, lane: Sym, counter: Sym, chosen: dict[str, _Shape]) -> Stmt:
    """Accesses by pass number instead of by lane number."""

    def place(buffer: str, index: Expr) -> Expr:
        width = chosen[buffer].width
        rest = ix.isub(index, ix.imul(lane, width))
        return ix.iadd(ix.imul(counter, width), rest)

    def change(expr: Expr) -> Expr:
        match expr:
            case Load(buffer, index, dtype) if buffer in chosen:
                return Load(buffer, place(buffer, index), dtype)
            case Load(buffer, index, dtype):
                return Load(buffer, change(index), dtype)
            case Call(fn, args, dtype):
                return Call(fn, tuple(change(a) for a in args), dtype)
        return expr

    new = map_exprs(stmt, change)
    if isinstance(new, Store) and new.buffer in chosen:
        return Store(new.buffer, place(new.buffer, new.index), new.value)
    return new
