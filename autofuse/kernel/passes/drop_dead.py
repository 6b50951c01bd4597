"""drop_dead: values that nothing reads go.

Before: let r = b; let v = x[i]; out[i] = 1
After:  out[i] = 1
Lowering binds positions and operands before it knows which of them a body asks for; scratch that
is only written goes too.
"""

from __future__ import annotations

from dataclasses import replace

from autofuse.kernel.ir.types import (
    Kernel,
    Let,
    Local,
    Loop,
    LoopKind,
    Stmt,
    Store,
    StoreVector,
    expressions,
    names_read,
    statements,
    walk,
)
from autofuse.ops.scalar import Expr, Sym


def drop_dead(kernel: Kernel) -> Kernel:
    """Remove every Let that no later statement needs, and every Local that none reads."""
    read = set[str]().union(*map(names_read, kernel.body))
    scratch = {s.name for s in statements(kernel.body) if isinstance(s, Local)}
    return replace(kernel, body=_block(_unwritten(kernel.body, scratch - read))[0])


def _unwritten(body: tuple[Stmt, ...], unread: set[str]) -> tuple[Stmt, ...]:
    """The body without scratch that nothing reads, and what stores to it."""
    kept: list[Stmt] = []
    for stmt in body if unread else ():
        match stmt:
            case Local(name=name) | Store(buffer=name) | StoreVector(buffer=name):
                if name not in unread:
                    kept.append(stmt)
            case Loop():
                kept.append(replace(stmt, body=_unwritten(stmt.body, unread)))
            case _:
                kept.append(stmt)
    return tuple(kept) if unread else body


def _block(body: tuple[Stmt, ...]) -> tuple[tuple[Stmt, ...], set[str]]:
    """The body without dead values, and the names that it reads from around it. Bodies that follow
    each other may give one name to different values."""
    kept: list[Stmt] = []
    read: set[str] = set()
    for stmt in reversed(body):
        if isinstance(stmt, Let):
            if stmt.sym.name not in read:
                continue
            read.discard(stmt.sym.name)
        if isinstance(stmt, Loop):
            inner, needs = _block(stmt.body)
            stmt = replace(stmt, body=inner)
            if not inner and stmt.kind is not LoopKind.GRID:
                continue
            read |= needs
        for expr in expressions(stmt):
            read |= _symbols(expr)
        kept.append(stmt)
    return tuple(reversed(kept)), read


def _symbols(expr: Expr) -> set[str]:
    return {e.name for e in walk(expr) if isinstance(e, Sym)}
