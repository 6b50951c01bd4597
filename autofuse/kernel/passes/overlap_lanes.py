"""overlap_lanes: the last lanes of a short row are a whole vector, which begins earlier.

Before: lane l < 38 {out[l] = exp(x[l])}
After:  lane a < 32 {out[a] = exp(x[a])}; lane b < 16 {out[b + 22] = exp(x[b + 22])}
What lanes of both compute is stored twice, the same. A compiler without masks of vectors does what
is left of a row one element after another, which takes as long as all of a short row.
"""

from __future__ import annotations

from dataclasses import replace

from autofuse.kernel.ir.spelling import Spelling
from autofuse.kernel.ir.types import Kernel, Let, Loop, Stmt, Store, expressions
from autofuse.kernel.passes.lane_loops import lane_loops_rewritten
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Lit, Load, Sym, walk

# Bytes of a vector; narrower ones take turns. From how many vectors on what is left of a row does
# not count, the fewest elements of a vector, and the most statements that are written twice.
BYTES, MOST_VECTORS, LEAST_LANES, MOST_STATEMENTS = 64, 16, 4, 200


def overlap_lanes(kernel: Kernel) -> Kernel:
    """Cut lane loops of a few vectors and a rest where nothing they store is loaded by them."""
    return lane_loops_rewritten(kernel, _overlapped)


def _overlapped(lane: Loop, known: Spelling) -> list[Stmt]:
    lanes = _lanes(lane)
    if lanes is None or not isinstance(lane.extent, Lit):
        return [lane]
    extent = int(lane.extent.value)
    while lanes > extent:
        lanes //= 2
    rest = extent % lanes if lanes >= LEAST_LANES else 0
    if rest < 2 or extent > MOST_VECTORS * lanes:
        return [lane]
    whole = replace(lane, extent=ix.lit(extent - rest), var=replace(lane.var, extent=extent - rest))
    last = Sym(f"{lane.var.name}_t", DType.I64, lanes)
    return [_at(whole, known, whole.var, 0), _at(lane, known, last, extent - lanes)]


def _at(lane: Loop, known: Spelling, var: Sym, first: int) -> Loop:
    """The loop over `var`, whose lanes begin at `first`."""
    inner = known.inner()
    inner.values[lane.var.name] = ix.iadd(var, ix.lit(first))
    extent = ix.lit(var.extent or 0)
    return replace(lane, var=var, extent=extent, body=inner.rewritten(lane.body))


def _lanes(lane: Loop) -> int | None:
    """Elements of a vector of the widest type in memory; None where lanes cannot be done twice."""
    if lane.folds or len(lane.body) > MOST_STATEMENTS:
        return None
    if not all(isinstance(stmt, Let | Store) for stmt in lane.body):
        return None
    stores = [stmt for stmt in lane.body if isinstance(stmt, Store)]
    loads = [
        e for stmt in lane.body for expr in expressions(stmt) for e in walk(expr)
        if isinstance(e, Load)
    ]  # fmt: skip
    if not stores or {store.buffer for store in stores} & {load.buffer for load in loads}:
        return None
    types = [store.value.dtype for store in stores] + [load.dtype for load in loads]
    return BYTES // max(dtype.itemsize for dtype in types)
