"""What the launch of a CUDA kernel needs: blocks, shared memory, scratch. Pure functions.

All take the kernel that `lower` made, with its launch settings as facts, and look at it after its
passes, as `render_cuda` does."""

from __future__ import annotations

from autofuse.kernel.cuda.settings import settings
from autofuse.kernel.cuda.shape import (
    begins_early,
    cluster,
    extent_of,
    grids,
    is_dynamic,
    local_bytes,
    waits,
)
from autofuse.kernel.ir.types import Kernel, Param
from autofuse.kernel.render import shaped_cuda


def block_threads(kernel: Kernel) -> int:
    """Threads of a block: the kernel runs with exactly these. Raises LaunchSettingError."""
    return settings(kernel).threads


def blocks_wanted(kernel: Kernel) -> int:
    """Blocks, when each runs one grid iteration: exactly these with grid="one" and for a
    cooperative kernel, else any number serves."""
    return max(1, sum(extent_of(g) for g in grids(shaped_cuda(kernel))))


def shared_bytes(kernel: Kernel) -> int:
    """Bytes of dynamic shared memory to ask for at the launch; 0 where static memory serves.
    Before it the kernel's limit must be raised."""
    own = shaped_cuda(kernel)
    return local_bytes(own) if is_dynamic(own) else 0


def scratch_params(kernel: Kernel) -> tuple[Param, ...]:
    """Buffers that the kernel takes after its outputs (role "work"), which blocks share. They must
    be zero before the first launch; every launch that ends leaves its counters usable again."""
    return tuple(p for p in shaped_cuda(kernel).params if p.role == "work")


def is_cooperative(kernel: Kernel) -> bool:
    """Blocks wait for each other, so all must be on the device at once."""
    return waits(shaped_cuda(kernel))


def starts_early(kernel: Kernel) -> bool:
    """The kernel's blocks wait by themselves for the kernel before it."""
    return begins_early(shaped_cuda(kernel))


def cluster_blocks(kernel: Kernel) -> int:
    """Neighbouring blocks that the device must start together, 0 where that does not matter."""
    return cluster(shaped_cuda(kernel))
