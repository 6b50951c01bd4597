"""What a CUDA kernel is like after its passes: segments, teams, shared memory. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass

from autofuse.kernel.cuda.settings import WARP, Settings, settings
from autofuse.kernel.ir.fragment import FragmentProduct
from autofuse.kernel.ir.instructions import by_group
from autofuse.kernel.ir.types import (
    Kernel,
    Local,
    Loop,
    LoopKind,
    Stmt,
    TileProduct,
    has_product,
    statements,
)
from autofuse.ops.scalar import Lit

# Static shared memory stops at 48 KiB, of which folds over a block need a little.
STATIC_SHARED = 40 << 10


def grids(kernel: Kernel) -> list[Loop]:
    """The segments of a kernel."""
    return [s for s in kernel.body if isinstance(s, Loop) and s.kind is LoopKind.GRID]


def extent_of(loop: Loop) -> int:
    """The literal extent of a loop."""
    assert isinstance(loop.extent, Lit)
    return int(loop.extent.value)


def waits(kernel: Kernel) -> bool:
    """Some blocks wait for others."""
    return settings(kernel).reduce == "barrier" and bool(_parts(kernel))


def cluster(kernel: Kernel) -> int:
    """Blocks that share each row through their shared memory, 0 for none."""
    return _parts(kernel) if settings(kernel).reduce == "cluster" else 0


def is_one_turn(kernel: Kernel) -> bool:
    """A block runs one grid iteration: it is asked for, or blocks depend on each other."""
    if takes_turns(kernel):
        return False
    return settings(kernel).grid == "one" or waits(kernel) or cluster(kernel) > 0


def takes_turns(kernel: Kernel) -> bool:
    """Warpgroups have grid iterations of their own, one after another."""
    return any(isinstance(s, TileProduct) and s.alone for s in statements(kernel.body))


def _parts(kernel: Kernel) -> int:
    """Blocks that share a row, 0 for none; all loops over them agree."""
    loops = (s for s in statements(kernel.body) if isinstance(s, Loop) and s.kind is LoopKind.PART)
    return next((extent_of(s) for s in loops), 0)


def begins_early(kernel: Kernel) -> bool:
    """As it is asked for, but not where blocks wait for each other: they need all the room that
    those of other kernels may still have."""
    return settings(kernel).early and not waits(kernel)


def has_groups(kernel: Kernel) -> bool:
    """Some product is computed by warpgroups."""
    found = (s for s in statements(kernel.body) if isinstance(s, TileProduct | FragmentProduct))
    return any(by_group(s.mma) for s in found)


def has_fragment_turns(kernel: Kernel) -> bool:
    """Warpgroups with fragments take turns at asking for products."""
    return any(isinstance(s, FragmentProduct) and s.before for s in statements(kernel.body))


def is_dynamic(kernel: Kernel) -> bool:
    """Rows and tiles are in dynamic shared memory: together they are more than static memory, or
    several roles declare them."""
    own = settings(kernel)
    if takes_turns(kernel):
        return True
    return _bytes(kernel.body, own, block_team(own), True) > STATIC_SHARED


def local_bytes(kernel: Kernel) -> int:
    """Bytes of dynamic shared memory that the rows and tiles of a kernel take. What loops of one
    segment with tile products declare takes the same place, because they end with barriers."""
    own = settings(kernel)
    segments = [(s.body if isinstance(s, Loop) else (s,), not has_product(s)) for s in kernel.body]
    return sum(_bytes(body, own, block_team(own), apart) for body, apart in segments)


def _bytes(body: tuple[Stmt, ...], own: Settings, team: Team, apart: bool) -> int:
    """Bytes of a body, whose loops have places `apart` or the same one."""
    total, inner = 0, [0]
    for stmt in body:
        if isinstance(stmt, Local) and not stmt.private:
            total += bytes_of(stmt, team)
        elif isinstance(stmt, Loop):
            # Places of one warp must not be those of another one at another statement.
            alone = apart or stmt.kind is LoopKind.WARP
            inner.append(_bytes(stmt.body, own, inner_team(stmt.kind, own, team), alone))
    return total + (sum(inner) if apart else max(inner))


@dataclass(frozen=True, slots=True)
class Team:
    """Threads that run lanes together: how many, this thread's place among them, and which of the
    `count` teams of a block it is in."""

    kind: str
    size: int
    place: str
    number: str = "0"
    count: int = 1

    @property
    def sync(self) -> str:
        if self.kind == "group":
            return f"af_meet_group(1 + threadIdx.x / {self.size});"
        return "__syncwarp();" if self.kind == "warp" else "__syncthreads();"


def block_team(own: Settings) -> Team:
    """All threads of a block."""
    return Team("block", own.threads, "threadIdx.x")


def inner_team(kind: LoopKind, own: Settings, outer: Team) -> Team:
    """The team inside a loop of this kind."""
    if kind is LoopKind.WARP:
        return Team("warp", WARP, f"threadIdx.x % {WARP}", f"threadIdx.x / {WARP}", own.warps)
    if kind is LoopKind.COLUMN:
        return Team("column", own.warps, f"threadIdx.x / {WARP}")
    return outer


def bytes_of(stmt: Local, team: Team) -> int:
    """Shared memory that the block keeps for one row or tile, in all of its stages."""
    stages = 1 if stmt.source is None else stmt.source.stages
    return -(-stmt.size * stmt.dtype.itemsize // 16) * 16 * team.count * stages
