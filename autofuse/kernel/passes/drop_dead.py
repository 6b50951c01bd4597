"""drop_dead: values that nothing reads go.

Before: let r = b; let v = x[i]; out[i] = 1
After:  out[i] = 1
Lowering binds positions and operands before it knows which of them a body asks for.
"""

from __future__ import annotations

from dataclasses import replace

from autofuse.kernel.ir import Kernel, Let, Loop, Stmt, expressions, walk
from autofuse.ops.scalar import Expr, Sym


def drop_dead(kernel: Kernel) -> Kernel:
    """Remove every Let that no later statement needs."""
    return replace(kernel, body=_block(kernel.body, set()))


def _block(body: tuple[Stmt, ...], read: set[str]) -> tuple[Stmt, ...]:
    """The body without dead values, last statement first; `read` collects the names in use."""
    kept: list[Stmt] = []
    for stmt in reversed(body):
        if isinstance(stmt, Let) and stmt.sym.name not in read:
            continue
        if isinstance(stmt, Loop):
            stmt = replace(stmt, body=_block(stmt.body, read))
        for expr in expressions(stmt):
            read |= _symbols(expr)
        kept.append(stmt)
    return tuple(reversed(kept))


def _symbols(expr: Expr) -> set[str]:
    return {e.name for e in walk(expr) if isinstance(e, Sym)}
