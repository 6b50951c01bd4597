"""block_folds: extrema and plain sums over lanes keep several vectors of accumulators.

Before: lane c {m = max(m, x(c))} max->m
After:  lane l {m_l[l] = m}; serial c {lane l {m_l[l] = max(m_l[l], x(c*W+l))}}; rest;
        lane l < W/2 {m_l[l] = max(m_l[l], m_l[l+W/2])}; the same for W/4 .. 1; m = max(m, m_l[0])
A NaN-propagating maximum is no reduction a C compiler recognises, but elementwise it vectorises. Of
a sum a compiler makes one vector, whose additions wait for each other: a sum of 1024 took 76 ns
where it takes 43 so (Granite Rapids, 512 bits). Halves are joined, since one lane after another
would be a chain of W steps, which took as long as all else that softmax does with its maximum.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from autofuse.kernel.ir.types import (
    Assign,
    Fold,
    Kernel,
    Local,
    Loop,
    LoopKind,
    Stmt,
    Store,
    expressions,
    has_loop,
    substitute,
    substitute_stmt,
)
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import LIBM, Call, Expr, Lit, Load, Sym, walk

# Bytes of the accumulators of one fold: four registers of 512 bits, eight of 256.
WIDE_BYTES = 256
# Lanes of a loop that is too short for that.
NARROW = 16
# Of sums: rounds that all accumulators must have for them to repay joining, and sums in one loop,
# of which two have the registers of a processor with sixteen.
ROUNDS, SUMS = 4, 2
I64 = DType.I64
BUSY = LIBM | {"div", "sqrt", "rem"}


def block_folds(kernel: Kernel) -> Kernel:
    """Rewrite lane loops that fold floats with max or min, or sum what is cheap to compute."""
    return replace(kernel, body=_block(kernel.body))


def _block(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    done: list[Stmt] = []
    for stmt in body:
        if isinstance(stmt, Loop) and stmt.kind is LoopKind.LANE and _wanted(stmt):
            done.extend(_rewrite(stmt))
        elif isinstance(stmt, Loop):
            done.append(replace(stmt, body=_block(stmt.body)))
        else:
            done.append(stmt)
    return tuple(done)


def _wanted(loop: Loop) -> bool:
    floats = [f for f in loop.folds if f.target.dtype.is_float]
    if not floats or has_loop(loop.body):
        return False
    most = _most(loop)
    if most is None:
        return False
    if any(f.operator in ("max", "min") for f in floats):
        return most >= NARROW
    long = most >= ROUNDS * _width(loop, most)
    return long and len(loop.folds) <= SUMS and not _busy(loop)


def _busy(loop: Loop) -> bool:
    """Something is computed that takes longer than an addition waits for the one before."""
    found = (e for s in loop.body for expr in expressions(s) for e in walk(expr))
    return any(isinstance(e, Call) and e.fn in BUSY and e.dtype.is_float for e in found)


def _most(loop: Loop) -> int | None:
    return int(loop.extent.value) if isinstance(loop.extent, Lit) else loop.var.extent


def _width(loop: Loop, most: int) -> int:
    """Accumulators of each fold: a power of two."""
    wide = WIDE_BYTES // max(f.target.dtype.itemsize for f in loop.folds)
    return wide if most >= wide else NARROW


def _rewrite(loop: Loop) -> list[Stmt]:
    most = _most(loop)
    assert most is not None
    width = _width(loop, most)
    whole, rest = ix.idiv(loop.extent, width), ix.imod(loop.extent, width)
    arrays = {f.target.name: f"{f.target.name}_{loop.var.name}" for f in loop.folds}
    lane = Sym(f"{loop.var.name}_w", I64, width)
    step = Sym(f"{loop.var.name}_c", I64, most // width)
    done: list[Stmt] = [Local(arrays[f.target.name], f.target.dtype, width) for f in loop.folds]
    starts = [Store(arrays[f.target.name], lane, _start(f)) for f in loop.folds]
    done.append(Loop(LoopKind.LANE, lane, Lit(width, I64), tuple(starts)))
    base = Call("mul", (step, Lit(width, I64)), I64)
    main = Loop(LoopKind.LANE, lane, Lit(width, I64), _body(loop, arrays, lane, base))
    done.append(Loop(LoopKind.SERIAL, step, whole, (main,)))
    if rest != ix.lit(0):
        tail = _body(loop, arrays, lane, ix.imul(whole, width))
        done.append(Loop(LoopKind.LANE, lane, rest, tail))
    done.extend(_halved(loop, arrays, width))
    done += [Assign(f.target, _join(f, f.target, arrays, ix.lit(0))) for f in loop.folds]
    return done


def _halved(loop: Loop, arrays: dict[str, str], width: int) -> Iterator[Stmt]:
    """Accumulators joined by halves, until the first ones have the totals."""
    while width > 1:
        width //= 2
        lane = Sym(f"{loop.var.name}_w", I64, width)
        other = Call("add", (lane, Lit(width, I64)), I64)
        yield Loop(LoopKind.LANE, lane, Lit(width, I64), tuple(
            Store(arrays[f.target.name], lane,
                  _join(f, Load(arrays[f.target.name], lane, f.target.dtype), arrays, other))
            for f in loop.folds
        ))  # fmt: skip


def _join(fold: Fold, value: Expr, arrays: dict[str, str], at: Expr) -> Expr:
    dtype = fold.target.dtype
    return Call(fold.operator, (value, Load(arrays[fold.target.name], at, dtype)), dtype)


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
