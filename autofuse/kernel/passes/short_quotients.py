"""short_quotients: lanes that call functions divide positions as 32-bit numbers, as vectors can.

Before: lane l < 1000 {out[l] = sin(x[l] + y[l % 21])}
After:  lane l < 1000 {out[l] = sin(x[l] + y[i64(u32(l) % 21)])}
A quotient by a constant that is no power of two is the high half of a product. Vectors have no such
product of 64 bits, so that one quotient keeps all of a loop scalar, and each lane calls its
functions by itself. Without functions a loop is left alone: what lies apart is loaded one by one in
any case. Positions keep their 64 bits: numbers of 32 bits wrap, and what may wrap cannot be read as
a vector.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from autofuse.kernel.ir.indices import Range, value_range
from autofuse.kernel.ir.types import (
    Kernel,
    Let,
    Loop,
    LoopKind,
    Stmt,
    expressions,
    map_exprs,
    statements,
    walk,
)
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Call, Expr, Lit, Load

I64, U32 = DType.I64, DType.U32
LARGEST = 2**32 - 1
# Functions that C has for vectors: of libmvec, or written out in the prelude.
VECTOR_FUNCTIONS = frozenset(
    ("acos", "asin", "atan", "atan2", "cos", "cosh", "erf", "exp", "expm1", "log", "log1p", "pow",
     "sin", "sinh", "tan", "tanh")
)  # fmt: skip


def short_quotients(kernel: Kernel) -> Kernel:
    """Rewrite quotients and remainders of positions by constants in lanes that call functions."""
    return replace(kernel, body=_Scope().block(kernel.body))


def _calls_functions(loop: Loop) -> bool:
    parts = (part for stmt in statements(loop.body) for e in expressions(stmt) for part in walk(e))
    return any(isinstance(part, Call) and part.fn in VECTOR_FUNCTIONS for part in parts)


@dataclass
class _Scope:
    """The ranges of what is named so far, and whether these are lanes that call functions."""

    ranges: dict[str, Range] = field(default_factory=dict)
    calls: bool = False

    def block(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        inner = _Scope(dict(self.ranges), self.calls)
        return tuple(inner.stmt(stmt) for stmt in body)

    def stmt(self, stmt: Stmt) -> Stmt:
        match stmt:
            case Let(sym, value) if sym.dtype is I64:
                known = value_range(value, self.ranges)
                if known is not None:
                    self.ranges[sym.name] = known
                return Let(sym, self.short(value)) if self.calls else stmt
            case Loop():
                return self.loop(stmt)
        return map_exprs(stmt, self.short) if self.calls else stmt

    def loop(self, loop: Loop) -> Stmt:
        lanes = loop.kind is LoopKind.LANE and _calls_functions(loop)
        inner = _Scope(dict(self.ranges), self.calls or lanes)
        most = value_range(loop.extent, self.ranges) if loop.extent.dtype is I64 else None
        limit = loop.var.extent if loop.var.extent is not None else most[1] if most else None
        if limit is not None:
            inner.ranges[loop.var.name] = (0, max(limit - 1, 0))
        return replace(loop, body=inner.block(loop.body))

    def short(self, expr: Expr) -> Expr:
        match expr:
            case Load(buffer, index, dtype):
                return Load(buffer, self.short(index), dtype)
            case Call(fn="div" | "rem" as fn, args=(a, Lit() as b), dtype=dtype) if dtype is I64:
                known, by = value_range(a, self.ranges), int(b.value)
                shifts = by & (by - 1) == 0
                if known is None or known[0] < 0 or max(known[1], by) > LARGEST or shifts or by < 0:
                    return Call(fn, (self.short(a), b), dtype)
                quotient = Call(fn, (Call("cast", (self.short(a),), U32), Lit(by, U32)), U32)
                return Call("cast", (quotient,), I64)
            case Call(fn, args, dtype):
                return Call(fn, tuple(map(self.short, args)), dtype)
        return expr
