"""Where the threads of a CUDA team meet between grid iterations that use the same shared memory."""

from __future__ import annotations

from functools import lru_cache

from autofuse.kernel.ir.indices import stored_where_data_say
from autofuse.kernel.ir.types import (
    Kernel,
    Local,
    Loop,
    LoopKind,
    Stmt,
    Store,
    StoreVector,
    names_read,
    statements,
)
from autofuse.kernel.ir.types import names_written as written


def fills(loop: Loop, kernel: Kernel) -> bool:
    """Lanes of this loop write shared memory, or where other lanes may write, too."""
    private = {s.name for s in statements(kernel.body) if isinstance(s, Local) and s.private}
    own = private | {p.name for p in kernel.params} - _scattered(kernel)
    stores = (s for s in statements(loop.body) if isinstance(s, Store | StoreVector))
    return any(s.buffer not in own for s in stores)


@lru_cache(maxsize=256)
def _scattered(kernel: Kernel) -> frozenset[str]:
    return stored_where_data_say(tuple(statements(kernel.body)))


def has_local(loop: Loop) -> bool:
    """The loop, or one in it, declares shared memory."""
    return any(isinstance(s, Local) and not s.private for s in statements(loop.body))


def meets(stmt: Stmt, kernel: Kernel, team: str) -> bool:
    """After a lane loop every thread of the team waits for the others: in a block to fold, or for
    what all have written. (Shuffles order no memory, so folds of a warp do not count.)"""
    if not isinstance(stmt, Loop) or stmt.kind is not LoopKind.LANE:
        return False
    return fills(stmt, kernel) or (team == "block" and bool(stmt.folds))


def must_meet(body: tuple[Stmt, ...], kernel: Kernel, team: str) -> bool:
    """One iteration over `body` might write shared memory that slower threads of the team still
    read in the one before: for some row, they meet neither after its last use nor before it is
    filled. A fetched row is filled as soon as an iteration begins."""
    rows = [s for s in body if isinstance(s, Local) and not s.private]
    steps = [s for s in body if not isinstance(s, Local)]
    if rows and any(isinstance(s, Loop) and s.kind is LoopKind.PART for s in steps):
        return True
    meeting = [k for k, s in enumerate(steps) if meets(s, kernel, team)]
    for row in rows:
        used = [k for k, s in enumerate(steps) if row.name in names_read(s) | written(s)]
        filled = -1 if row.source is not None else min(used, default=-1)
        if used and not any(k >= used[-1] or k < filled for k in meeting):
            return True
    return False
