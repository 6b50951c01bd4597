"""flatten_lanes: a serial loop around one lane loop becomes one longer lane loop.

Before: serial k < 9 {lane l < 100 {s += x[k*100 + l]} add->s}
After:  lane l < 900 {s += x[l]} add->s
Lanes have no order, and a block that folds once waits once.
"""

from __future__ import annotations

from dataclasses import replace

from autofuse.kernel.ir.indices import rebuild, stored_where_data_say
from autofuse.kernel.ir.types import (
    Assign,
    Kernel,
    Let,
    Loop,
    LoopKind,
    Stmt,
    Store,
    map_exprs,
    only_lets,
)
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Expr, Lit, Sym


def flatten_lanes(kernel: Kernel) -> Kernel:
    """Merge serial loops with the lane loop that is all they contain, inner ones first."""
    return replace(kernel, body=_block(kernel.body))


def _block(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    done: list[Stmt] = []
    for stmt in body:
        if isinstance(stmt, Loop) and stmt.kind is not LoopKind.LANE:
            stmt = replace(stmt, body=_block(stmt.body))
            lane = stmt.body[-1] if stmt.kind is LoopKind.SERIAL and stmt.body else None
            if isinstance(lane, Loop) and _can_merge(stmt, lane):
                stmt = _merged(stmt, lane)
        done.append(stmt)
    return tuple(done)


def _is_simple(stmt: Stmt, targets: set[str]) -> bool:
    return isinstance(stmt, Let | Store) or (isinstance(stmt, Assign) and stmt.sym.name in targets)


def _can_merge(serial: Loop, lane: Loop) -> bool:
    known = isinstance(serial.extent, Lit) or serial.var.extent is not None
    if lane.kind is not LoopKind.LANE or not known or not isinstance(lane.extent, Lit):
        return False
    targets = {f.target.name for f in lane.folds}
    simple = only_lets(serial.body[:-1]) and all(_is_simple(s, targets) for s in lane.body)
    # Of two iterations that store in one place the later must be the last.
    return simple and not stored_where_data_say((*serial.body[:-1], *lane.body))


def _merged(serial: Loop, lane: Loop) -> Loop:
    assert isinstance(lane.extent, Lit)
    width, most = int(lane.extent.value), serial.var.extent
    most = int(serial.extent.value) if isinstance(serial.extent, Lit) else most
    assert most is not None
    total = most * width
    var = Sym(lane.var.name, DType.I64, total)
    values: dict[str, Expr] = {
        serial.var.name: ix.idiv(var, width),
        lane.var.name: ix.imod(var, width),
    }
    inner = (*serial.body[:-1], *lane.body)
    body = tuple(map_exprs(s, lambda e: rebuild(e, values)) for s in inner)
    return Loop(LoopKind.LANE, var, ix.imul(serial.extent, width), body, lane.folds)
