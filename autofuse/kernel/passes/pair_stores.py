"""pair_stores: two neighbours that a thread has in its registers are stored by one access.

Before: unrolled k < 2 {let v = sums[4*j + k]; out[8*j + k] = v * 2}
After:  unrolled k < 1 {let v_0, v_1 = ..; out[8*j ..] = v_0 * 2, v_1 * 2}
So are results of fragments, of which a lane has neighbours two by two. Sums are in registers, which
have no addresses: they stay single.
"""

from __future__ import annotations

from dataclasses import replace

from autofuse.kernel.ir.types import (
    Kernel,
    Local,
    Loop,
    LoopKind,
    Stmt,
    Store,
    StoreVector,
    statements,
)
from autofuse.kernel.passes.widen_lanes import Copies, Refused
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Sym

PAIR = 2


def pair_stores(kernel: Kernel) -> Kernel:
    """Rewrite every unrolled loop over two neighbours that ends in memory."""
    own = frozenset(s.name for s in statements(kernel.body) if isinstance(s, Local))
    return replace(kernel, body=_block(kernel.body, own)) if own else kernel


def _block(body: tuple[Stmt, ...], own: frozenset[str]) -> tuple[Stmt, ...]:
    return tuple(_stmt(s, own) if isinstance(s, Loop) else s for s in body)


def _stores(loop: Loop, own: frozenset[str]) -> bool:
    """Whether it stores in memory that is not the kernel's own."""
    return any(isinstance(s, Store) and s.buffer not in own for s in loop.body)


def _stmt(loop: Loop, own: frozenset[str]) -> Loop:
    inside = replace(loop, body=_block(loop.body, own))
    two = loop.kind is LoopKind.UNROLLED and loop.extent == ix.lit(PAIR) and not loop.folds
    if not two or not _stores(loop, own):
        return inside
    one = Sym(loop.var.name, DType.I64, 1)
    try:
        made = Copies(loop, one, PAIR, single=own).run()
    except Refused:
        return inside
    if not any(isinstance(s, StoreVector) for s in made):
        return inside
    return replace(loop, var=one, extent=ix.lit(1), body=made)
