"""Kernels put together by hand: a loop over the elements of a row."""

from __future__ import annotations

from autofuse.kernel.ir.types import (
    Assign,
    Fold,
    Kernel,
    Let,
    Loop,
    LoopKind,
    Param,
    Stmt,
    Store,
    Var,
)
from autofuse.kernel.passes import (
    verify,
)
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Expr, Lit, Load, Sym, call
from autofuse.plan.types import Setting
from tests.support.kernel_texts import text

F32, F16, I64 = DType.F32, DType.F16, DType.I64
PARAMS = (Param("x", F32, 10**6, "in"), Param("out", F32, 10**6, "out"))
s, m, v, w = Sym("s", F32), Sym("m", F32), Sym("v", F32), Sym("w", F32)


def var(name: str, extent: int) -> Sym:
    return Sym(name, I64, extent)


def loop(kind: str, sym: Sym, *body: Stmt, folds: tuple[Fold, ...] = ()) -> Loop:
    """A loop as long as its variable says."""
    assert sym.extent is not None
    return Loop(LoopKind(kind), sym, ix.lit(sym.extent), body, folds)


def kernel(*body: Stmt, **facts: Setting) -> Kernel:
    return Kernel("k", PARAMS, body, tuple(facts.items()))


def x(index: Expr) -> Load:
    return Load("x", index, F32)


def at(row: Expr, width: int, lane: Expr) -> Expr:
    return ix.iadd(ix.imul(row, width), lane)


def body_of(k: Kernel) -> str:
    return text("\n".join(str(verify(k)).splitlines()[1:]))


def summed(lane: Sym, index: Expr) -> Loop:
    """s += x[index] over lanes."""
    return loop("lane", lane, Assign(s, call("add", s, x(index))), folds=(Fold(s, "add"),))


ZERO = Var(s, Lit(0.0, F32))
r, c, d = var("r", 10), var("c", 64), var("d", 64)
ITEMS = loop("grid", r, loop("lane", c, Let(v, x(at(r, 64, c))), Store("out", at(r, 64, c), v)))
