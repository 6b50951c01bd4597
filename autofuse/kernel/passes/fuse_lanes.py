"""fuse_lanes: two passes over the same row become one where the second needs no total of the first.

Before: lane c {row[c] = e(c)}; var s; lane c {s += row[c]}
After:  var s; lane c {row[c] = e(c); s += row[c]}
"""

from __future__ import annotations

from dataclasses import replace

from autofuse.kernel.ir.types import (
    Join,
    Kernel,
    Loop,
    LoopKind,
    Stmt,
    Store,
    TileProduct,
    expressions,
    names_read,
    names_written,
    statements,
    substitute_stmt,
    walk,
)
from autofuse.ops.scalar import Expr, Load


def fuse_lanes(kernel: Kernel) -> Kernel:
    """Merge neighbouring lane loops of equal extent in every block."""
    return replace(kernel, body=_block(kernel.body))


def _block(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    done: list[Stmt] = []
    for stmt in body:
        if isinstance(stmt, Loop) and stmt.kind is not LoopKind.LANE:
            stmt = replace(stmt, body=_block(stmt.body))
        done.append(stmt)
        if isinstance(stmt, Loop) and stmt.kind is LoopKind.LANE:
            done = _try_merge(done)
    return tuple(done)


def _try_merge(body: list[Stmt]) -> list[Stmt]:
    """Merge the last statement, a lane loop, into the lane loop before it, if that is legal."""
    second = body[-1]
    assert isinstance(second, Loop)
    at = next((i for i in range(len(body) - 2, -1, -1) if isinstance(body[i], Loop)), None)
    if at is None:
        return body
    first, between = body[at], body[at + 1 : -1]
    assert isinstance(first, Loop)
    if first.kind is not LoopKind.LANE or first.extent != second.extent:
        return body
    if any(
        isinstance(s, TileProduct | Join) and names_read(s) & names_written(second) for s in between
    ):
        return body
    moved, left = _needed(second, between)
    totals = names_written(first)
    if any(names_read(s) & totals or isinstance(s, Store) for s in moved):
        return body
    renamed = tuple(substitute_stmt(s, {second.var.name: first.var}) for s in second.body)
    if not _same_index(first, renamed):
        return body
    merged = replace(first, body=first.body + renamed, folds=first.folds + second.folds)
    return [*body[:at], *moved, merged, *left]


def _needed(loop: Loop, between: list[Stmt]) -> tuple[list[Stmt], list[Stmt]]:
    """Statements before the loop that it depends on, and the rest, in order."""
    wanted = names_read(loop) | names_written(loop)
    moved: list[Stmt] = []
    left: list[Stmt] = []
    for stmt in reversed(between):
        if names_written(stmt) & wanted:
            moved.append(stmt)
            wanted |= names_read(stmt)
        else:
            left.append(stmt)
    return moved[::-1], left[::-1]


def _same_index(first: Loop, second: tuple[Stmt, ...]) -> bool:
    """The second body reads what the first writes only in the lane that wrote it."""
    stores: dict[str, set[Expr]] = {}
    for stmt in statements(first.body):
        if isinstance(stmt, Store):
            stores.setdefault(stmt.buffer, set()).add(stmt.index)
    totals = {f.target.name for f in first.folds}
    return not any(names_read(s) & totals or _reads_elsewhere(s, stores) for s in second)


def _reads_elsewhere(stmt: Stmt, stores: dict[str, set[Expr]]) -> bool:
    for inner in statements((stmt,)):
        for expr in expressions(inner):
            for e in walk(expr):
                if isinstance(e, Load) and e.buffer in stores and stores[e.buffer] != {e.index}:
                    return True
    return False
