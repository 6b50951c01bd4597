"""short_indices: positions whose quotients and remainders meet again are written without them.

Before: lane l < 1000 {let p = l / 40; let i = l % 40; out[p*40 + i] = x[p*40 + i]}
After:  lane l < 1000 {.. out[l] = x[l]}
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from autofuse.kernel.ir.indices import has_load, rebuild, spelled_out
from autofuse.kernel.ir.types import Kernel, Let, Loop, Stmt, Store, map_exprs, substitute, walk
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Call, Expr, Load


def short_indices(kernel: Kernel) -> Kernel:
    """Rewrite the indices of loads and stores that lose divisions when names are spelled out."""
    return replace(kernel, body=_Scope().block(kernel.body))


@dataclass
class _Scope:
    """What index names stand for: as written, and simplified."""

    raw: dict[str, Expr] = field(default_factory=dict)
    full: dict[str, Expr] = field(default_factory=dict)

    def block(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        inner = _Scope(dict(self.raw), dict(self.full))
        return tuple(inner.stmt(stmt) for stmt in body)

    def stmt(self, stmt: Stmt) -> Stmt:
        match stmt:
            case Let(sym, value) if sym.dtype is DType.I64 and not has_load(value):
                full = spelled_out(value, self.full, sym)
                self.full[sym.name] = full
                self.raw[sym.name] = sym if full == sym else substitute(value, self.raw)
                return stmt
            case Store(buffer, index, value):
                return Store(buffer, self.short(index), self.loads(value))
            case Loop():
                return replace(stmt, body=self.block(stmt.body))
        return map_exprs(stmt, self.loads)

    def loads(self, expr: Expr) -> Expr:
        match expr:
            case Load(buffer, index, dtype):
                return Load(buffer, self.short(index), dtype)
            case Call(fn, args, dtype):
                return Call(fn, tuple(self.loads(a) for a in args), dtype)
        return expr

    def short(self, index: Expr) -> Expr:
        if has_load(index):
            return self.loads(index)
        full = rebuild(index, self.full)
        return full if _divisions(full) < _divisions(substitute(index, self.raw)) else index


def _divisions(expr: Expr) -> int:
    return sum(isinstance(e, Call) and e.fn in ("div", "rem") for e in walk(expr))
