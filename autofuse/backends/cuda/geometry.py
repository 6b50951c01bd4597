"""How a kernel is launched: grid, block and shared memory, within what the device can hold."""

from __future__ import annotations

from dataclasses import dataclass

from autofuse.backends.cuda.devices import Target, blocks_resident
from autofuse.kernel.cuda.settings import settings
from autofuse.kernel.cuda.shape import is_one_turn, local_bytes
from autofuse.kernel.ir.types import Kernel
from autofuse.kernel.launching import (
    block_threads,
    blocks_wanted,
    cluster_blocks,
    is_cooperative,
    shared_bytes,
    starts_early,
)
from autofuse.kernel.render import shaped_cuda
from autofuse.ops.types import AutofuseError


class UnsupportedKernel(AutofuseError):  # noqa: N818 - the name is what the user is told
    """A kernel that the device cannot hold."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """Blocks and threads of one launch, and the bytes of dynamic shared memory of a block.

    `cooperative`: all blocks must be on the device at once, because they wait for each other.
    `early`: blocks may be launched before the kernel that theirs comes after is over."""

    grid: int
    block: int
    shared: int = 0
    cooperative: bool = False
    early: bool = False


def geometry(kernel: Kernel, target: Target) -> Geometry:
    """The launch of a kernel, whose facts are its launch settings, on `target`.

    Raises UnsupportedKernel, in one sentence, for what the target cannot hold, and LaunchError for
    settings that no kernel can have."""
    own, threads, shared = settings(kernel), block_threads(kernel), shared_bytes(kernel)
    if threads > target.threads_per_block:
        raise UnsupportedKernel(
            f"a block of {threads} threads is more than the {target.threads_per_block} of {target}"
        )
    if shared > target.shared_per_block:
        raise UnsupportedKernel(
            f"a block needs {shared} bytes of shared memory, more than the "
            f"{target.shared_per_block} of {target}"
        )
    together = cluster_blocks(kernel)
    if together > target.clusters:
        raise UnsupportedKernel(f"{target} has no clusters of {together} blocks")
    wanted, cooperative = blocks_wanted(kernel), is_cooperative(kernel)
    held = local_bytes(shaped_cuda(kernel))
    resident = target.sms * max(1, blocks_resident(target, threads, 1, held))
    if cooperative and wanted > resident:
        raise UnsupportedKernel(
            f"{wanted} blocks wait for each other, more than the {resident} that {target} holds"
        )
    early = starts_early(kernel) and target.early
    if is_one_turn(shaped_cuda(kernel)):
        if wanted > target.grid_limit:
            raise UnsupportedKernel(f"a grid of {wanted} blocks is over {target.grid_limit}")
        return Geometry(wanted, threads, shared, cooperative, early)
    most = target.sms * own.blocks if own.blocks else resident
    return Geometry(min(wanted, most, target.grid_limit), threads, shared, early=early)


def fits_at_once(shape: Geometry, target: Target, registers: int, static_shared: int) -> bool:
    """Whether all blocks are on the device together, knowing what the compiler made of them."""
    shared = shape.shared + static_shared
    return shape.grid <= target.sms * blocks_resident(target, shape.block, registers, shared)
