"""nest_lanes: lanes over several short rows become lanes of one row after another.

Before: lane l < 1024 {out[l] = x[l / 16 * 20 + l % 16]}
After:  serial s < 64 {lane c < 16 {out[s * 16 + c] = x[s * 20 + c]}}
A vector that would span rows gathers its elements; one of a short row loads them. Of rows of a few
elements, such as the colours of points, lanes are the rows: GCC writes their elements interleaved.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from autofuse.kernel.ir.indices import is_multiple
from autofuse.kernel.ir.spelling import Spelling, indices_of
from autofuse.kernel.ir.types import Kernel, Loop, LoopKind, Stmt, has_loop, walk
from autofuse.kernel.passes.lane_loops import lane_loops_rewritten
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Call, Expr, Lit, Sym

# Rows shorter than this have too few lanes for a vector.
LEAST_LANES = 8
# Statements that are written out for each element of a row of a few.
MOST_STATEMENTS = 16


def nest_lanes(kernel: Kernel) -> Kernel:
    """Rewrite lane loops of whole rows whose loads depend on quotients of the lane's number."""
    return lane_loops_rewritten(kernel, _nested)


def _nested(lane: Loop, known: Spelling) -> tuple[Stmt, ...]:
    """The lanes row by row, where there are rows."""
    if lane.folds or has_loop(lane.body):
        return (lane,)
    found = {n for n in _divisors(lane, known) if is_multiple(lane.extent, n)}
    width = min(found, default=0)
    few = width < LEAST_LANES
    if width in (0, 1, lane.var.extent) or (few and len(lane.body) > MOST_STATEMENTS):
        return (lane,)
    runs = (n for n in found if few and n % width == 0 and n >= LEAST_LANES * width)
    run = min(runs, default=0)
    if run in (0, lane.var.extent):
        return _rows(lane, known, width)
    # Elements of a few are rows inside of longer ones.
    (outer,) = _rows(lane, known, run)
    assert isinstance(outer, Loop) and isinstance(outer.body[0], Loop)
    return (replace(outer, body=_nested(outer.body[0], known.inner())),)


def _rows(lane: Loop, known: Spelling, width: int) -> tuple[Stmt, ...]:
    """The lanes in rows of so many."""
    row = Sym(f"{lane.var.name}_r", DType.I64, (lane.var.extent or 0) // width)
    own = Sym(f"{lane.var.name}_c", DType.I64, width)
    inner = known.inner()
    inner.values[lane.var.name] = ix.iadd(ix.imul(row, width), own)
    body, count = inner.rewritten(lane.body), ix.idiv(lane.extent, width)
    if width < LEAST_LANES:
        across = Loop(LoopKind.SERIAL, own, ix.lit(width), body)
        return (replace(lane, var=row, extent=count, body=(across,)),)
    inside = replace(lane, var=own, extent=ix.lit(width), body=body)
    return (Loop(LoopKind.SERIAL, row, count, (inside,)),)


def _divisors(lane: Loop, known: Spelling) -> Iterator[int]:
    """By what positions are divided to load, as far as lanes start at multiples of it."""
    inner = known.inner()
    for stmt in lane.body:
        for index in map(inner.settled, indices_of(stmt)):
            for e in walk(index):
                match e:
                    case Call(fn="rem" | "div", args=(a, Lit(value=int(n))), dtype=DType.I64):
                        if _starts_rows(a, lane.var, n):
                            yield n
        inner.note(stmt)


def _starts_rows(dividend: Expr, var: Sym, width: int) -> bool:
    """Lane 0 is the first of a row."""
    found = ix.coefficients(dividend, (var.name,))
    return found is not None and found[0] == (1,) and is_multiple(found[1], width)
