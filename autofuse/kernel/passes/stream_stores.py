"""stream_stores: large results go past the cache, a short piece at a time.

Before: lane l < n {out[s + l] = x(l)}
After:  serial c { lane l < 1024 {piece[l] = x(c*1024+l)}; stream out[s + c*1024 ..] = piece }; rest
A plain store first reads the line it is about to overwrite; a streaming store does not. Asked for
by the launch setting `stream`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from autofuse.kernel.ir.types import (
    Kernel,
    Let,
    Local,
    Loop,
    LoopKind,
    Param,
    Stmt,
    Store,
    Stream,
    has_loop,
    names_read,
    substitute,
    substitute_stmt,
)
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Expr, Lit, Sym
from autofuse.plan.parameters import STREAM
from autofuse.plan.types import LaunchConfig

PIECE = 1024
I64 = DType.I64


@dataclass(frozen=True, slots=True)
class _Piece:
    """An output that is stored from `start` on, and the scratch that its lanes fill instead."""

    output: str
    start: Expr
    scratch: str
    dtype: DType


def stream_stores(kernel: Kernel) -> Kernel:
    """Rewrite lane loops whose stores to outputs are contiguous, when `stream` is set."""
    if not STREAM.of(LaunchConfig(kernel.facts)):
        return kernel
    outs = {p.name: p for p in kernel.params if p.role == "out"}
    return replace(kernel, body=_block(kernel.body, outs))


def _block(body: tuple[Stmt, ...], outs: dict[str, Param]) -> tuple[Stmt, ...]:
    done: list[Stmt] = []
    lanes = Counter[str]()
    for stmt in body:
        if not isinstance(stmt, Loop):
            done.append(stmt)
        elif stmt.kind is not LoopKind.LANE:
            done.append(replace(stmt, body=_block(stmt.body, outs)))
        else:
            starts = _starts(stmt, outs)
            # Loops that were cut from one have its lanes' name.
            name = stmt.var.name
            again = f"{name}_{lanes[name]}" if lanes[name] else name
            lanes[name] += 1
            done.extend(_rewrite(stmt, starts, outs, again) if starts else [stmt])
    return tuple(done)


def _starts(loop: Loop, outs: dict[str, Param]) -> dict[str, Expr]:
    """For each output stored at start + lane: its start. Empty when some store is not."""
    if loop.folds or has_loop(loop.body):
        return {}
    defined: dict[str, Expr] = {}
    starts: dict[str, Expr] = {}
    for stmt in loop.body:
        if isinstance(stmt, Let) and stmt.sym.dtype is I64:
            defined[stmt.sym.name] = substitute(stmt.value, defined)
        if isinstance(stmt, Store) and stmt.buffer in outs:
            start = ix.isub(substitute(stmt.index, defined), loop.var)
            if loop.var.name in names_read(Let(loop.var, start)) or stmt.buffer in starts:
                return {}
            starts[stmt.buffer] = start
    return starts


def _rewrite(loop: Loop, starts: dict[str, Expr], outs: dict[str, Param], lanes: str) -> list[Stmt]:
    """`lanes` is a name for the loop's lanes that no other loop beside it has."""
    pieces = [_Piece(n, s, f"{n}_{lanes}", outs[n].dtype) for n, s in starts.items()]
    limit = loop.var.extent
    if not isinstance(loop.extent, Lit):
        assert limit is not None
        return _streamed(loop, loop.var, loop.extent, ix.lit(0), pieces)
    whole, rest = divmod(int(loop.extent.value), PIECE)
    done: list[Stmt] = []
    if whole:
        step = Sym(f"{loop.var.name}_p", I64, whole)
        lane = Sym(f"{loop.var.name}_s", I64, PIECE)
        base = ix.imul(step, PIECE)
        inner = _streamed(loop, lane, ix.lit(PIECE), base, pieces)
        done.append(Loop(LoopKind.SERIAL, step, ix.lit(whole), tuple(inner)))
    if rest:
        lane = Sym(f"{loop.var.name}_s", I64, rest)
        last = [replace(p, scratch=f"{p.scratch}_rest") for p in pieces]
        done += _streamed(loop, lane, ix.lit(rest), ix.lit(whole * PIECE), last)
    return done


def _streamed(
    loop: Loop, lane: Sym, extent: Expr, base: Expr, pieces: Sequence[_Piece]
) -> list[Stmt]:
    """One lane loop into scratch, and the scratch streamed out."""
    at, into = {loop.var.name: ix.iadd(base, lane)}, {p.output: p.scratch for p in pieces}
    size = lane.extent
    assert size is not None
    body: list[Stmt] = []
    for stmt in loop.body:
        if isinstance(stmt, Store) and stmt.buffer in into:
            body.append(Store(into[stmt.buffer], lane, substitute(stmt.value, at)))
        else:
            body.append(substitute_stmt(stmt, at))
    done: list[Stmt] = [Local(p.scratch, p.dtype, size) for p in pieces]
    done.append(Loop(LoopKind.LANE, lane, extent, tuple(body)))
    done += [Stream(p.output, ix.iadd(p.start, base), p.scratch, extent) for p in pieces]
    return done
