"""block_folds: extrema over lanes keep one accumulator per vector lane.

Before: lane c {m = max(m, x(c))} max->m
After:  lane l {m_l[l] = m}; serial c {lane l {m_l[l] = max(m_l[l], x(c*W+l))}}; rest; serial l {..}
A NaN-propagating maximum is no reduction a C compiler recognises, but elementwise it vectorises.
"""

from __future__ import annotations

from dataclasses import replace

from autofuse.kernel.ir import (
    Assign,
    Fold,
    Kernel,
    Local,
    Loop,
    Stmt,
    Store,
    statements,
    substitute,
    substitute_stmt,
)
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Call, Expr, Lit, Load, Sym

WIDE, NARROW = 64, 16
I64 = DType.I64


def block_folds(kernel: Kernel) -> Kernel:
    """Rewrite lane loops that fold floats with max or min."""
    return replace(kernel, body=_block(kernel.body))


def _block(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    done: list[Stmt] = []
    for stmt in body:
        if isinstance(stmt, Loop) and stmt.kind == "lane" and _wanted(stmt):
            done.extend(_rewrite(stmt))
        elif isinstance(stmt, Loop):
            done.append(replace(stmt, body=_block(stmt.body)))
        else:
            done.append(stmt)
    return tuple(done)


def _wanted(loop: Loop) -> bool:
    extrema = any(f.operator in ("max", "min") and f.target.dtype.is_float for f in loop.folds)
    most = int(loop.extent.value) if isinstance(loop.extent, Lit) else loop.var.extent
    long = most is not None and most >= NARROW
    return extrema and long and not any(isinstance(s, Loop) for s in statements(loop.body))


def _rewrite(loop: Loop) -> list[Stmt]:
    most = int(loop.extent.value) if isinstance(loop.extent, Lit) else loop.var.extent
    assert most is not None
    width = WIDE if most >= WIDE else NARROW
    whole, rest = ix.idiv(loop.extent, width), ix.imod(loop.extent, width)
    arrays = {f.target.name: f"{f.target.name}_{loop.var.name}" for f in loop.folds}
    lane = Sym(f"{loop.var.name}_w", I64, width)
    step = Sym(f"{loop.var.name}_c", I64, most // width)
    done: list[Stmt] = [Local(arrays[f.target.name], f.target.dtype, width) for f in loop.folds]
    starts = [Store(arrays[f.target.name], lane, _start(f)) for f in loop.folds]
    done.append(Loop("lane", lane, Lit(width, I64), tuple(starts)))
    base = Call("mul", (step, Lit(width, I64)), I64)
    main = Loop("lane", lane, Lit(width, I64), _body(loop, arrays, lane, base))
    done.append(Loop("serial", step, whole, (main,)))
    if rest != ix.lit(0):
        tail = _body(loop, arrays, lane, ix.imul(whole, width))
        done.append(Loop("lane", lane, rest, tail))
    joins = [Assign(f.target, _join(f, arrays[f.target.name], lane)) for f in loop.folds]
    done.append(Loop("serial", lane, Lit(width, I64), tuple(joins)))
    return done


def _join(fold: Fold, array: str, lane: Sym) -> Expr:
    dtype = fold.target.dtype
    return Call(fold.operator, (fold.target, Load(array, lane, dtype)), dtype)


def _start(fold: Fold) -> Expr:
    """Extrema may start from the running value; a sum must count it once, in the final join."""
    identity = {"add": 0, "mul": 1, "or": 0, "xor": 0}
    if fold.operator in identity:
        zero = identity[fold.operator]
        return Lit(float(zero) if fold.target.dtype.is_float else zero, fold.target.dtype)
    return fold.target


def _body(loop: Loop, arrays: dict[str, str], lane: Sym, base: Expr) -> tuple[Stmt, ...]:
    at = Call("add", (base, lane), I64)
    targets = {f.target.name: f.target for f in loop.folds}
    reads: dict[str, Expr] = {loop.var.name: at}
    reads |= {n: Load(arrays[n], lane, t.dtype) for n, t in targets.items()}
    done: list[Stmt] = []
    for stmt in loop.body:
        if isinstance(stmt, Assign) and stmt.sym.name in arrays:
            done.append(Store(arrays[stmt.sym.name], lane, substitute(stmt.value, reads)))
        else:
            done.append(substitute_stmt(stmt, reads))
    return tuple(done)
