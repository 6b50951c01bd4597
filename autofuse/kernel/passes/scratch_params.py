"""scratch_params: buffers through which blocks that share a row meet.

Before: kernel k(in x, out out) {grid r < 8 {.. part q < 4 {..} add->s ..}}
After:  kernel k(in x, out out, work ticket0: u32[2], work part0: f32[8]) {..}
"""

from __future__ import annotations

from dataclasses import replace

from autofuse.kernel.cuda.settings import WARP, settings
from autofuse.kernel.ir.types import Join, Kernel, Loop, LoopKind, Param, Stmt, statements
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Lit


def scratch_params(kernel: Kernel) -> Kernel:
    """Add a counter per row for every part loop that folds, then a buffer per fold; and counters
    and sums of what is joined."""
    if settings(kernel).reduce == "cluster":  # whose blocks meet in shared memory
        return kernel
    params: list[Param] = []
    for stmt in kernel.body:
        if isinstance(stmt, Loop) and isinstance(stmt.extent, Lit):
            _collect(stmt.body, int(stmt.extent.value), 1, params)
    for join in (s for s in statements(kernel.body) if isinstance(s, Join)):
        if join.work not in {p.name for p in params}:
            params.append(Param(join.tickets, DType.U32, join.slots, "work"))
            size = join.slots * join.parts * join.room
            params.append(Param(join.work, join.dtype, size, "work"))
    return replace(kernel, params=(*kernel.params, *params))


def _collect(body: tuple[Stmt, ...], blocks: int, columns: int, params: list[Param]) -> None:
    for stmt in body:
        if not isinstance(stmt, Loop):
            continue
        _collect(stmt.body, blocks, WARP if stmt.kind is LoopKind.COLUMN else columns, params)
        if stmt.kind is LoopKind.PART and stmt.folds and isinstance(stmt.extent, Lit):
            n = len(params)
            params.append(Param(f"work{n}", DType.U32, blocks // int(stmt.extent.value), "work"))
            for fold in stmt.folds:
                # A total of flags travels as bytes.
                dtype = DType.U8 if fold.target.dtype is DType.BOOL else fold.target.dtype
                params.append(Param(f"work{len(params)}", dtype, blocks * columns, "work"))
