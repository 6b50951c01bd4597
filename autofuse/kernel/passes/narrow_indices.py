"""narrow_indices: positions that fit become 32-bit integers, which a GPU adds and divides faster.

Before: let i: i64 = b * 1024 + l; out[i] = x[i]
After:  let i: i32 = b * 1024 + l; out[i] = x[i]
Only what is known to stay below 2^31, with every sum on the way, is changed; numbers that are data
keep their 64 bits.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from autofuse.kernel.ir.fragment import Collective
from autofuse.kernel.ir.indices import Range, value_range
from autofuse.kernel.ir.types import (
    Join,
    Kernel,
    Let,
    LoadVector,
    Local,
    Loop,
    Stmt,
    Store,
    StoreVector,
    TileProduct,
    map_exprs,
)
from autofuse.kernel.ir.walk import Patches
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import COMPARISONS, Call, Expr, Lit, Load, Sym

I32, I64, U32 = DType.I32, DType.I64, DType.U32
LARGEST = 2**31 - 1
# A loop variable may step past its extent by as much as threads or blocks are apart.
LARGEST_EXTENT = 2**30


def narrow_indices(kernel: Kernel) -> Kernel:
    """Rewrite loop variables, index values and the expressions made of them."""
    return replace(kernel, body=_Scope({}, set()).block(kernel.body))


@dataclass
class _Scope:
    ranges: dict[str, Range]
    narrow: set[str] = field(default_factory=set)

    def block(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        inner = _Scope(dict(self.ranges), set(self.narrow))
        return tuple(inner.stmt(stmt) for stmt in body)

    def stmt(self, stmt: Stmt) -> Stmt:
        match stmt:
            case Let(sym, value) if sym.dtype is I64:
                return self.let(sym, value)
            case Store(buffer, index, value):
                return Store(buffer, self.position(index), self.fix(value))
            case LoadVector(index=index):
                return replace(stmt, index=self.position(index))
            case StoreVector(buffer, index, values):
                return StoreVector(buffer, self.position(index), tuple(map(self.fix, values)))
            case TileProduct(walk=Patches() as patches):
                return map_exprs(stmt, self.knowing((patches.row, patches.term)).position)
            case TileProduct() | Local() | Join() | Collective():
                return map_exprs(stmt, self.position)
            case Loop():
                return self.loop(stmt)
        return map_exprs(stmt, self.fix)

    def knowing(self, syms: tuple[Sym, ...]) -> _Scope:
        """The scope of some variables of 32 bits."""
        own = {sym.name: (0, max((sym.extent or LARGEST) - 1, 0)) for sym in syms}
        return _Scope({**self.ranges, **own}, self.narrow | own.keys())

    def let(self, sym: Sym, value: Expr) -> Stmt:
        small = self.small(value)
        known = value_range(value, self.ranges)
        if sym.extent is not None:
            known = (0, max(sym.extent - 1, 0))
        if known is not None:
            self.ranges[sym.name] = known
        if small is None:
            return Let(sym, self.fix(value))
        self.narrow.add(sym.name)
        return Let(Sym(sym.name, I32, sym.extent), small)

    def counted(self, counter: Sym | None) -> Sym | None:
        """A counter, narrow in this scope where it is known how far it counts."""
        if counter is None or counter.extent is None:
            return counter
        self.ranges[counter.name] = (0, counter.extent - 1)
        self.narrow.add(counter.name)
        return Sym(counter.name, I32, counter.extent)

    def loop(self, loop: Loop) -> Stmt:
        most = value_range(loop.extent, self.ranges) if loop.extent.dtype is I64 else None
        limit = loop.var.extent if loop.var.extent is not None else most[1] if most else None
        extent = self.small(loop.extent) if loop.extent.dtype is I64 else None
        var, inner = loop.var, _Scope(dict(self.ranges), set(self.narrow))
        if limit is not None and extent is not None and limit <= LARGEST_EXTENT:
            inner.ranges[var.name] = (0, max(limit - 1, 0))
            inner.narrow.add(var.name)
            var = Sym(var.name, I32, var.extent)
        else:
            extent = self.fix(loop.extent)
            if limit is not None:
                inner.ranges[var.name] = (0, max(limit - 1, 0))
        counter = inner.counted(loop.counter)
        body = inner.block(loop.body)
        return replace(loop, var=var, extent=extent, body=body, counter=counter)

    def small(self, expr: Expr) -> Expr | None:
        """An I64 expression as an I32 one, None where it may not fit."""
        known = value_range(expr, self.ranges)
        if known is None or known[0] < -LARGEST or known[1] > LARGEST:
            return None
        match expr:
            case Lit(value=value):
                return Lit(int(value), I32)
            case Sym(name=name, extent=extent):
                return Sym(name, I32, extent) if name in self.narrow else None
            case Call(fn="cast", args=(source,)):
                inner = self.fix(source)
                return inner if source.dtype is I32 else Call("cast", (inner,), I32)
            case Call(fn="select", args=(test, a, b)):
                first, second = self.small(a), self.small(b)
                if first is None or second is None:
                    return None
                return Call("select", (self.fix(test), first, second), I32)
            case Call(fn=fn, args=(a, b)):
                first, second = self.small(a), self.small(b)
                return None if first is None or second is None else _joined(fn, first, second)
        return None

    def fix(self, expr: Expr) -> Expr:
        """Any expression, its index parts made narrow."""
        if expr.dtype is I64 and not isinstance(expr, Lit | Load):
            small = self.small(expr)
            if small is not None:
                return Call("cast", (small,), I64)
        match expr:
            case Load(buffer, index, dtype):
                return Load(buffer, self.position(index), dtype)
            case Call(fn="cast", args=(source,), dtype=dtype) if source.dtype is I64:
                small = self.small(source)
                if small is None:
                    return Call("cast", (self.fix(source),), dtype)
                return small if dtype is I32 else Call("cast", (small,), dtype)
            case Call(fn=fn, args=(a, b)) if fn in COMPARISONS and a.dtype is I64:
                first, second = self.small(a), self.small(b)
                if first is not None and second is not None:
                    return Call(fn, (first, second), expr.dtype)
        if isinstance(expr, Call):
            return Call(expr.fn, tuple(self.fix(a) for a in expr.args), expr.dtype)
        return expr

    def position(self, index: Expr) -> Expr:
        small = self.small(index) if index.dtype is I64 else None
        return self.fix(index) if small is None else small


def _joined(fn: str, a: Expr, b: Expr) -> Expr:
    # Division is for dividends that are not negative (their range is known): unsigned is shorter.
    if fn in ("div", "rem") and isinstance(b, Lit):
        wide = Call(fn, (Call("cast", (a,), U32), Lit(int(b.value), U32)), U32)
        return Call("cast", (wide,), I32)
    return Call(fn, (a, b), I32)
