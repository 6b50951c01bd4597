"""share_divisors: lanes that are divided by one number are multiplied by its reciprocal.

Before: lane l {out[l] = x[l] / s}
After:  let f = 2^64 if |s| < 2^-64, 2^-64 if |s| > 2^64, else 1; let q = 1 / (s * f);
        lane l {out[l] = x[l] * q * f}
A division keeps its unit busy for as long as twenty multiplications. Asked for by the launch
setting `math`, unless it is strict: the result errs by at most 2 units in the last place. The
factor is there for divisors whose reciprocal is no normal number; zeros, infinities and NaNs give
what a division gives.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from autofuse.kernel.ir.indices import mentions
from autofuse.kernel.ir.spelling import Spelling
from autofuse.kernel.ir.types import (
    Kernel,
    Let,
    Loop,
    Stmt,
    expressions,
    map_exprs,
    names_written,
    walk,
)
from autofuse.kernel.passes.lane_loops import lane_loops_rewritten
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Call, Expr, Lit, Sym, call
from autofuse.plan.parameters import C_MATH
from autofuse.plan.types import LaunchConfig

# Lanes that a division more, before them, is worth.
LEAST_LANES = 16
# Binary exponents from which on a reciprocal might not be a normal number.
_FAR = {DType.F32: 64, DType.F64: 512}


def share_divisors(kernel: Kernel) -> Kernel:
    """Rewrite lane loops with divisors that their lanes share, unless `math` is strict."""
    if C_MATH.of(LaunchConfig(kernel.facts)) == "strict":
        return kernel
    return lane_loops_rewritten(kernel, _shared)


def _shared(lane: Loop, known: Spelling) -> Sequence[Stmt]:
    if lane.var.extent is None or lane.var.extent < LEAST_LANES:
        return [lane]
    own = frozenset(names_written(lane) | {lane.var.name})
    done: list[Stmt] = []
    instead: dict[Expr, tuple[Sym, Sym]] = {}
    for divisor in dict.fromkeys(_divisors(lane)):
        if isinstance(divisor, Lit) or mentions(divisor, own) or divisor.dtype not in _FAR:
            continue
        names = f"{lane.var.name}_f{len(instead)}", f"{lane.var.name}_q{len(instead)}"
        factor, reciprocal = (Sym(name, divisor.dtype) for name in names)
        one = Lit(1.0, divisor.dtype)
        done.append(Let(factor, _factor(divisor)))
        done.append(Let(reciprocal, call("div", one, call("mul", divisor, factor))))
        instead[divisor] = factor, reciprocal
    if not instead:
        return [lane]
    body = tuple(map_exprs(stmt, lambda e: _multiplied(e, instead)) for stmt in lane.body)
    return [*done, replace(lane, body=body)]


def _divisors(lane: Loop) -> Iterator[Expr]:
    for stmt in lane.body:
        for whole in expressions(stmt):
            yield from (e.args[1] for e in walk(whole) if isinstance(e, Call) and e.fn == "div")


def _factor(divisor: Expr) -> Expr:
    """What brings a divisor into the range in which reciprocals are normal numbers."""
    size, dtype = call("abs", divisor), divisor.dtype
    up, down = (Lit(2.0**e, dtype) for e in (_FAR[dtype], -_FAR[dtype]))
    large = call("select", call("gt", size, up), down, Lit(1.0, dtype))
    return call("select", call("lt", size, down), up, large)


def _multiplied(expr: Expr, instead: dict[Expr, tuple[Sym, Sym]]) -> Expr:
    if not isinstance(expr, Call):
        return expr
    args = tuple(_multiplied(a, instead) for a in expr.args)
    if expr.fn != "div" or expr.args[1] not in instead:
        return Call(expr.fn, args, expr.dtype)
    factor, reciprocal = instead[expr.args[1]]
    return call("mul", call("mul", args[0], reciprocal), factor)
