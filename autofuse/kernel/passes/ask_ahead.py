"""ask_ahead: while a row is computed, memory is asked for the next one.

Before: grid r {lane a < n {s += x[r*n + a]}; lane b < n {out[r*n + b] = exp(x[r*n + b]) / s}}
After:  grid r {lane a ..; serial c {ahead x[(r+1)*n + c*256 .. 256]; lane b < 256 {..}}}
A processor asks by itself for what follows what is read, but only while something is read: in the
passes over a row that has been read already memory waits, and at the end of a page it stops. Asked
for by the launch setting `ahead`; the hints are spread over the pass that computes most, because a
core can wait for a dozen lines at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from autofuse.kernel.ir.indices import has_load, mentions, rebuild
from autofuse.kernel.ir.spelling import Spelling
from autofuse.kernel.ir.types import (
    Ahead,
    Kernel,
    Let,
    Loop,
    LoopKind,
    Param,
    Stmt,
    Store,
    Var,
    expressions,
    statements,
    substitute_stmt,
    walk,
)
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import LIBM, Call, Expr, Lit, Load, Sym
from autofuse.plan.parameters import AHEAD
from autofuse.plan.types import LaunchConfig

I64 = DType.I64
# Elements that lanes compute between hints.
PIECE = 128
# Bytes of a row, all arrays together: two of them and scratch share a cache of 32 KiB; what is
# shorter than some lines is fetched by the processor itself.
LEAST_BYTES, MOST_BYTES = 512, 14 << 10
JOIN = 10
# Instructions that a function and a quotient count as.
_COSTS = {**dict.fromkeys(LIBM, 15), "div": 5, "sqrt": 5}


@dataclass(frozen=True, slots=True)
class _Run:
    """Elements of a buffer from a start on, which a row has one after another."""

    buffer: str
    start: Expr
    written: bool
    itemsize: int


def ask_ahead(kernel: Kernel) -> Kernel:
    """Rewrite grid loops of several passes over rows, when `ahead` is set."""
    if not AHEAD.of(LaunchConfig(kernel.facts)):
        return kernel
    params = {p.name: p for p in kernel.params}
    body = tuple(_grid(s, params) if isinstance(s, Loop) else s for s in kernel.body)
    return replace(kernel, body=body)


def _grid(grid: Loop, params: dict[str, Param]) -> Loop:
    passes = [s for s in grid.body if isinstance(s, Loop) and _plain(s)]
    busiest = max(passes, key=_work, default=None)
    if grid.kind is not LoopKind.GRID or len(passes) < 2 or busiest is None or _work(busiest) <= 0:
        return grid
    same = [s for s in passes if s.extent == busiest.extent]
    runs = tuple(dict.fromkeys(_runs(grid, same, params)))
    length = int(busiest.extent.value) if isinstance(busiest.extent, Lit) else 0
    if not LEAST_BYTES <= length * sum(run.itemsize for run in runs) <= MOST_BYTES:
        return grid
    body = [_spread(s, length, runs) if s is busiest else [s] for s in grid.body]
    return replace(grid, body=tuple(each for part in body for each in part))


def _plain(loop: Loop) -> bool:
    """Lanes along a row of known length."""
    inner = any(isinstance(s, Loop) for s in loop.body)
    return loop.kind is LoopKind.LANE and isinstance(loop.extent, Lit) and not inner


def _work(loop: Loop) -> float:
    """Instructions of one lane, less what joining the totals of a piece costs: a cheap sum is left
    whole."""
    found = (e for s in loop.body for expr in expressions(s) for e in walk(expr))
    cost = sum(_COSTS.get(e.fn, 1) for e in found if isinstance(e, Call) and e.dtype.is_float)
    return cost - JOIN * len(loop.folds)


def _moves(start: Expr, row: Sym) -> bool:
    """Whether the next row is somewhere else, and it is known where."""
    return mentions(start, {row.name}) and not has_load(start) and _known(start, row)


def _runs(grid: Loop, passes: list[Loop], params: dict[str, Param]) -> Iterator[_Run]:
    """What the next row has where this one has what its passes read and write."""
    registers = {s.sym.name for s in statements(grid.body) if isinstance(s, Var)}
    known = Spelling(registers)
    for stmt in grid.body:
        known.note(stmt)
    following = {grid.var.name: ix.iadd(grid.var, ix.lit(1))}
    for loop in passes:
        inside = known.inner()
        for stmt in loop.body:
            for buffer, index in _places(stmt):
                start = ix.isub(inside.settled(index), loop.var)
                if buffer not in params or not _moves(start, grid.var):
                    continue
                written = params[buffer].role == "out"
                size = params[buffer].dtype.itemsize
                yield _Run(buffer, rebuild(start, following), written, size)
            if isinstance(stmt, Let):
                inside.note(stmt)


def _known(start: Expr, row: Sym) -> bool:
    """A start follows from the number of the row alone."""
    return all(e == row for e in walk(start) if isinstance(e, Sym))


def _places(stmt: Stmt) -> Iterator[tuple[str, Expr]]:
    if isinstance(stmt, Store):
        yield stmt.buffer, stmt.index
    for whole in expressions(stmt):
        yield from ((e.buffer, e.index) for e in walk(whole) if isinstance(e, Load))


def _spread(loop: Loop, length: int, runs: tuple[_Run, ...]) -> list[Stmt]:
    """The loop a piece at a time, before each the hints for as much of the next row."""
    whole, rest = divmod(length, PIECE)
    step = Sym(f"{loop.var.name}_p", I64, whole)
    done: list[Stmt] = []
    if whole:
        inner = _piece(loop, Sym(f"{loop.var.name}_a", I64, PIECE), ix.imul(step, PIECE), runs)
        done.append(Loop(LoopKind.SERIAL, step, ix.lit(whole), tuple(inner)))
    if rest:
        done += _piece(loop, Sym(f"{loop.var.name}_b", I64, rest), ix.lit(whole * PIECE), runs)
    return done


def _piece(loop: Loop, lane: Sym, base: Expr, runs: tuple[_Run, ...]) -> list[Stmt]:
    assert lane.extent is not None
    count = ix.lit(lane.extent)
    at: dict[str, Expr] = {loop.var.name: ix.iadd(base, lane)}
    body = tuple(substitute_stmt(stmt, at) for stmt in loop.body)
    hints = (Ahead(r.buffer, ix.iadd(r.start, base), count, r.written) for r in runs)
    return [*hints, replace(loop, var=lane, extent=count, body=body)]
