"""exact_copies: an element that is made wide only to be made narrow again is copied.

Before: let v: f32 = cast(x[i]); out[i] = cast:f16(v)
After:  let v: f32 = cast(x[i]); out[i] = x[i]
Half floats are computed as f32, so whatever only moves them would convert them twice.
"""

from __future__ import annotations

from dataclasses import replace

from autofuse.kernel.ir.types import Kernel, Let, Loop, Stmt, Store
from autofuse.ops.scalar import Call, Expr, Load, Sym


def exact_copies(kernel: Kernel) -> Kernel:
    """Stores of casts of casts that undo each other, without them."""
    kept = frozenset(p.name for p in kernel.params if p.role == "in")
    return replace(kernel, body=_block(kernel.body, {}, kept))


def _block(
    body: tuple[Stmt, ...], outer: dict[str, Expr], kept: frozenset[str]
) -> tuple[Stmt, ...]:
    known, done = dict(outer), list[Stmt]()
    for stmt in body:
        match stmt:
            case Let(sym, Call(fn="cast", args=(Load(buffer=buffer) as load,))) if buffer in kept:
                known[sym.name] = load
            case Store(value=Call(fn="cast", args=(Sym(name=name, dtype=wide),), dtype=narrow)):
                found = known.get(name)
                if found is not None and found.dtype is narrow and wide is narrow.compute:
                    stmt = replace(stmt, value=found)
            case Loop():
                stmt = replace(stmt, body=_block(stmt.body, known, kept))
        done.append(stmt)
    return tuple(done)
