"""How a kernel is launched: grid, block and shared memory, from the kernel and its settings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from autofuse.backends.cuda.devices import WARP, Target
from autofuse.kernel.ir import Kernel, Local, Loop, statements
from autofuse.ops.scalar import Call, Expr, Lit
from autofuse.ops.types import AutofuseError
from autofuse.plan.types import LaunchConfig

THREADS = 256
# Shared memory that a kernel may declare with a fixed size.
STATIC_SHARED = 48 << 10


class UnsupportedKernel(AutofuseError):  # noqa: N818 - the name is what the user is told
    """A kernel that this backend cannot build, or that the device cannot hold."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """Blocks and threads of one launch, and the bytes of dynamic shared memory of a block.

    `cooperative`: all blocks must be on the device at once, because they wait for each other."""

    grid: int
    block: int
    shared: int = 0
    cooperative: bool = False


def threads_of(launch: LaunchConfig) -> int:
    """The block size of a configuration."""
    return int(launch.get("threads", THREADS))


def geometry(kernel: Kernel, launch: LaunchConfig, target: Target) -> Geometry:
    """The launch of `kernel` under `launch` on `target`.

    Raises UnsupportedKernel, in one sentence, for what the target cannot hold."""
    threads = threads_of(launch)
    if threads < WARP or threads % WARP or threads > target.threads_per_block:
        raise UnsupportedKernel(
            f"a block of {threads} threads is not a multiple of {WARP} up to "
            f"{target.threads_per_block}"
        )
    shared = shared_bytes(kernel)
    if shared > STATIC_SHARED:
        raise UnsupportedKernel(
            f"a row needs {shared} bytes of shared memory, more than the {STATIC_SHARED} that a "
            "kernel may declare"
        )
    items = grid_iterations(kernel)
    cooperative = launch.get("reduce", "") == "barrier"
    grid = items
    if cooperative or launch.get("grid", "one") == "stride":
        grid = min(items, resident_blocks(launch, target, threads))
    return Geometry(max(1, min(grid, target.grid_limit)), threads, 0, cooperative)


def resident_blocks(launch: LaunchConfig, target: Target, threads: int) -> int:
    """Blocks that fill the device once: those asked for per multiprocessor, or all that fit."""
    most = max(1, min(target.threads_per_sm // threads, target.blocks_per_sm))
    asked = int(launch.get("blocks", 0))
    return target.sms * (min(asked, most) if asked else most)


def grid_iterations(kernel: Kernel) -> int:
    """Iterations of the largest segment: a block does not need to do more than one of each."""
    return max((_most(loop.extent) for loop in _grids(kernel)), default=1)


def shared_bytes(kernel: Kernel) -> int:
    """Bytes of scratch that one block keeps, all segments together."""
    return sum(
        stmt.size * stmt.dtype.itemsize
        for stmt in statements(kernel.body)
        if isinstance(stmt, Local)
    )


def _grids(kernel: Kernel) -> Iterator[Loop]:
    for stmt in statements(kernel.body):
        if isinstance(stmt, Loop) and stmt.kind == "grid":
            yield stmt


def _most(extent: Expr) -> int:
    """An upper bound of an extent: a number, or the least of some."""
    match extent:
        case Lit(value=value):
            return int(value)
        case Call(fn="min", args=args):
            return min(_most(a) for a in args if isinstance(a, Lit))
    raise UnsupportedKernel("the extent of a grid loop is no number")
