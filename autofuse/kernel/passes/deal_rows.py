"""deal_rows: between tile products, rows of a block are dealt to its warps.

Before: grid b {.. tile ..; serial r < 64 {var s; lane l < 100 {s += acc[r*100 + l]} add->s; ..}}
After:  grid b {.. tile ..; warp r < 64 {var s; lane l < 100 {..} add->s; ..}}
A block would fold one row after another, with barriers, while its threads outnumber the elements.
"""

from __future__ import annotations

from dataclasses import replace

from autofuse.kernel.cuda.settings import settings
from autofuse.kernel.ir.types import (
    Assign,
    Kernel,
    Let,
    Local,
    Loop,
    LoopKind,
    Stmt,
    Var,
    has_product,
    names_read,
    names_written,
    statements,
)
from autofuse.plan.parameters import LaunchSettingError


def deal_rows(kernel: Kernel) -> Kernel:
    """Rewrite the loops over rows in every segment that computes tiles. Raises LaunchSettingError
    for a block that has no whole warp."""
    own = settings(kernel)
    if not own.warps and any(map(has_product, kernel.body)):
        raise LaunchSettingError(
            f"a block of {own.threads} threads cannot compute tiles: whole warps do"
        )
    outs = frozenset(p.name for p in kernel.params if p.role == "out")
    body = tuple(
        replace(s, body=_block(s.body, outs)) if isinstance(s, Loop) and has_product(s) else s
        for s in kernel.body
    )
    return replace(kernel, body=body)


def _block(body: tuple[Stmt, ...], outs: frozenset[str]) -> tuple[Stmt, ...]:
    done: list[Stmt] = []
    for stmt in body:
        if isinstance(stmt, Loop) and stmt.kind in (LoopKind.SERIAL, LoopKind.WHEN):
            if stmt.kind is LoopKind.SERIAL and not has_product(stmt) and _is_rows(stmt, outs):
                stmt = replace(stmt, kind=LoopKind.WARP)
            else:
                stmt = replace(stmt, body=_block(stmt.body, outs))
        done.append(stmt)
    return tuple(done)


def _is_rows(loop: Loop, outs: frozenset[str]) -> bool:
    """Lanes work in it, and no iteration reads or changes what another one has made."""
    inner = list(statements(loop.body))
    own = {s.name for s in inner if isinstance(s, Local)}
    own |= {s.sym.name for s in inner if isinstance(s, Let | Var)}
    changed = names_written(loop) - own - outs
    assigned = {s.sym.name for s in inner if isinstance(s, Assign)}
    return _has_lanes(loop) and assigned <= own and not changed & names_read(loop)


def _has_lanes(loop: Loop) -> bool:
    return any(isinstance(s, Loop) and s.kind is LoopKind.LANE for s in loop.body)
