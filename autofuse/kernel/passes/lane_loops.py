"""Lane loops rewritten where they stand, with what is known there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from autofuse.kernel.ir.spelling import Spelling
from autofuse.kernel.ir.types import Kernel, Loop, LoopKind, Stmt, Var, statements

LaneRewrite = Callable[[Loop, Spelling], Sequence[Stmt]]


def lane_loops_rewritten(kernel: Kernel, rewrite: LaneRewrite) -> Kernel:
    """Every lane loop replaced by what `rewrite` makes of it and of the names around it."""
    registers = {s.sym.name for s in statements(kernel.body) if isinstance(s, Var)}
    return replace(kernel, body=_block(kernel.body, Spelling(registers), rewrite))


def _block(body: tuple[Stmt, ...], around: Spelling, rewrite: LaneRewrite) -> tuple[Stmt, ...]:
    known = around.inner()
    done: list[Stmt] = []
    for stmt in body:
        if not isinstance(stmt, Loop):
            known.note_around(stmt)
            done.append(stmt)
        elif stmt.kind is LoopKind.LANE:
            done.extend(rewrite(stmt, known))
        else:
            done.append(replace(stmt, body=_block(stmt.body, known, rewrite)))
    return tuple(done)
