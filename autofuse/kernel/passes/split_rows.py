"""split_rows: several blocks share each row.

Before: grid r < 2 {var s; lane l < 4000 {s += x[l]} add->s; out[r] = s}
After:  grid r < 8 {var s; part q < 4 {lane l < 1000 {..} add->s} add->s; out[r / 4] = s}
Asked for by reduce="split" (the block that finishes last goes on alone: one fold, at the end),
reduce="barrier" (blocks wait for each other: any number of folds) and reduce="cluster" (likewise,
of blocks that the device starts together: any number of rows).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from autofuse.kernel.cuda.settings import MOST_CLUSTER, Settings, settings
from autofuse.kernel.ir.indices import mentions, rebuild
from autofuse.kernel.ir.types import (
    Kernel,
    Let,
    Local,
    Loop,
    LoopKind,
    Stmt,
    Store,
    Var,
    expressions,
    map_exprs,
    names_read,
    names_written,
    statements,
    substitute_stmt,
    walk,
)
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Call, Expr, Lit, Load, Sym

# Blocks that are enough to fill a device, and that fit on it all at once.
ENOUGH, RESIDENT = 512, 128
# Elements of one thread below which sharing a row brings nothing.
LEAST = 8
I64 = DType.I64


def split_rows(kernel: Kernel) -> Kernel:
    """Rewrite the segments that qualify."""
    own = settings(kernel)
    if own.reduce not in ("split", "barrier", "cluster"):
        return kernel
    grids = [s for s in kernel.body if isinstance(s, Loop) and s.kind is LoopKind.GRID]
    # Blocks that wait must all be there, so nothing else may run before them, and clusters must
    # start where rows do.
    if own.reduce != "split" and len(grids) != 1:
        return kernel
    return replace(kernel, body=tuple(_segment(s, own) for s in kernel.body))


def parts_of(own: Settings, rows: int, lanes: int) -> int:
    """Blocks for each of `rows` rows of `lanes` lanes; in a cluster a power of two."""
    if own.reduce == "cluster":
        asked = own.parts or max(1, lanes // (own.threads * LEAST))
        return 1 << min(asked, lanes, MOST_CLUSTER).bit_length() - 1
    if own.parts:
        return min(own.parts, lanes)
    most = max(1, (RESIDENT if own.reduce == "barrier" else ENOUGH) // max(rows, 1))
    return max(1, min(most, lanes // (own.threads * LEAST)))


def chunk_of(own: Settings, lanes: int, parts: int) -> int:
    """Lanes of one part: whole vectors."""
    return -(-lanes // (parts * own.vector)) * own.vector


def _segment(stmt: Stmt, own: Settings) -> Stmt:
    if (
        not isinstance(stmt, Loop)
        or stmt.kind is not LoopKind.GRID
        or not isinstance(stmt.extent, Lit)
    ):
        return stmt
    loops = [s for s in stmt.body if isinstance(s, Loop)]
    lengths = [int(s.extent.value) for s in loops if isinstance(s.extent, Lit)]
    simple = loops and len(lengths) == len(loops) and all(s.kind is LoopKind.LANE for s in loops)
    if not simple or not _fits(stmt.body, own):
        return stmt
    rows = int(stmt.extent.value)
    parts = parts_of(own, rows, max(lengths))
    return stmt if parts < 2 else _Split(stmt, own, rows, parts).run()


def _fits(body: tuple[Stmt, ...], own: Settings) -> bool:
    """One fold and what follows it; or any number where rows are read where they were written."""
    loops = [s for s in body if isinstance(s, Loop)]
    if own.reduce == "split":
        rows = any(isinstance(s, Local) for s in body)
        return len(loops) == 1 and bool(loops[0].folds) and not rows and _only_folds(loops[0])
    sizes = {s.name: s.size for s in body if isinstance(s, Local)}
    names = set(sizes)
    for loop in loops:
        assert isinstance(loop.extent, Lit)
        used = names & (names_read(loop) | names_written(loop))
        if any(sizes[name] != int(loop.extent.value) for name in used):
            return False
    plain = any(s.folds for s in loops) and all(
        isinstance(s, Let | Var | Local | Store | Loop) for s in body
    )
    return plain and all(_at_lane(loop, names) for loop in loops) and not _outside(body, names)


def _only_folds(loop: Loop) -> bool:
    return not any(isinstance(s, Store | Loop) for s in loop.body)


def _at_lane(loop: Loop, rows: set[str]) -> bool:
    for stmt in statements(loop.body):
        if isinstance(stmt, Loop):
            return False
        places = [e for expr in expressions(stmt) for e in walk(expr) if isinstance(e, Load)]
        if any(_is_beside(place, rows, loop.var) for place in (stmt, *places)):
            return False
    return True


def _is_beside(place: Stmt | Load, rows: set[str], lane: Sym) -> bool:
    """Whether it is of a row, at another lane."""
    return isinstance(place, Store | Load) and place.buffer in rows and place.index != lane


def _outside(body: tuple[Stmt, ...], rows: set[str]) -> bool:
    """Some row is read or written by a uniform statement."""
    for stmt in body:
        if isinstance(stmt, Loop):
            continue
        if isinstance(stmt, Store) and stmt.buffer in rows:
            return True
        if any(mentions(e, rows) for e in expressions(stmt)):
            return True
    return False


@dataclass
class _Split:
    grid: Loop
    own: Settings
    rows: int
    parts: int

    def run(self) -> Loop:
        var = Sym(self.grid.var.name, I64, self.rows * self.parts)
        row = Sym(f"{var.name}_r", I64, self.rows)
        values: dict[str, Expr] = {var.name: row}
        lengths = {s.name: self.length(s) for s in self.grid.body if isinstance(s, Local)}
        body: list[Stmt] = [Let(row, ix.idiv(var, self.parts))]
        for stmt in self.grid.body:
            stmt = substitute_stmt(stmt, values)
            if isinstance(stmt, Loop):
                body.append(self.part(stmt, set(lengths)))
            elif isinstance(stmt, Local):
                body.append(replace(stmt, size=lengths[stmt.name]))
            else:
                body.append(stmt)
        return Loop(LoopKind.GRID, var, ix.lit(self.rows * self.parts), tuple(body))

    def length(self, row: Local) -> int:
        return chunk_of(self.own, row.size, self.parts)

    def part(self, lane: Loop, rows: set[str]) -> Loop:
        """One lane loop, a chunk of it for each part."""
        assert isinstance(lane.extent, Lit)
        lanes = int(lane.extent.value)
        chunk = chunk_of(self.own, lanes, self.parts)
        part = Sym(f"{lane.var.name}_q", I64, self.parts)
        var = Sym(lane.var.name, I64, chunk)
        start = ix.imul(part, chunk)
        extent: Expr = ix.lit(chunk)
        if chunk * self.parts != lanes:
            extent = Call("min", (ix.lit(chunk), ix.isub(ix.lit(lanes), start)), I64)
        values: dict[str, Expr] = {var.name: ix.iadd(start, var)}

        def moved(expr: Expr) -> Expr:
            match expr:
                case Load(buffer, _, dtype) if buffer in rows:
                    return Load(buffer, var, dtype)
                case Load(buffer, index, dtype):
                    return Load(buffer, moved(index), dtype)
                case Call(fn, args, dtype) if any(isinstance(e, Load) for e in walk(expr)):
                    return Call(fn, tuple(moved(a) for a in args), dtype)
            return rebuild(expr, values)

        body: list[Stmt] = []
        for stmt in lane.body:
            new = map_exprs(stmt, moved)
            if isinstance(new, Store) and new.buffer in rows:
                new = Store(new.buffer, var, new.value)
            body.append(new)
        inner = Loop(LoopKind.LANE, var, extent, tuple(body), lane.folds)
        return Loop(LoopKind.PART, part, ix.lit(self.parts), (inner,), lane.folds)
