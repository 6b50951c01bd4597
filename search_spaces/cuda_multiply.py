"""What multiplies the tiles of a kernel on a GPU, as far as its launch space depends on it: one row
for plain cores and one for each instruction class of tensor cores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from autofuse.kernel.cuda.mma import BANKS_BYTES, warp_grid
from autofuse.kernel.cuda.wgmma import GROUP, ROWS, WIDTHS, registers
from autofuse.plan.parameters import (
    BYTE_GROUP_MMA,
    BYTE_MMA,
    GROUP_MMA,
    HALF_MMA,
    NO_MMA,
    STRICT_MMA,
    TF32_MMA,
    Setting,
)

# Blocks of one multiprocessor that hide each other's waiting.
TOGETHER = 2
# Rows and columns of an instruction of a warp, two of which share a load.
LEAST = 16
# Bytes a clock between a multiprocessor and the second-level cache, as is usually reckoned.
L2_BYTES = 32
# Registers of a thread beside its sums, where a warpgroup multiplies.
BESIDE = 64


@dataclass(frozen=True, slots=True)
class Multiplying:
    """Threads of a block and stages, the likely best first (none: what other kernels have); how
    many `sums` a block has registers for, given its threads and the blocks that are wanted at once;
    of which numbers its rows and columns are multiples, given its threads, and the most columns;
    how much longer than multiplying it takes to bring the operands of so many rows and columns to
    so many threads, of a device that does so many multiply-adds of 16 bits in a clock; in
    the time of how many terms a sum is left in memory or read there; the blocks of a multiprocessor
    where none are asked for; and how many columns one warp takes before there are two side by
    side."""

    threads: tuple[Setting, ...]
    stages: tuple[Setting, ...]
    sums: Callable[[int, int], int]
    least: Callable[[int], tuple[int, int]]
    widest: int
    loads: Callable[[int, int, int, int], float]
    meeting: int
    together: int = TOGETHER
    narrow: int = 0


def _warp_loads(products: int) -> Callable[[int, int, int, int], float]:
    """Of warps that multiply so often by what they have loaded. A term of a multiply-add of theirs
    is read once for each row and column of a warp, and copied once for those of the tile. Factors
    of half the size are multiplied in half the time, so all count as those of 16 bits. Of tiles
    that are not held up by that, those that are further from it come first."""

    def loads(rows: int, columns: int, threads: int, halves: int) -> float:
        own = warp_grid(rows, columns, max(1, threads // 32))
        elements = 1 / own.rows + 1 / own.columns + 1 / rows + 1 / columns
        turns = 2 * elements * halves / BANKS_BYTES / products
        return max(1.0, turns) + turns / 4

    return loads


def _warps(sums: int, rate: int, products: int = 1) -> Multiplying:
    """Warps with so many sums a thread, of which a multiprocessor adds `rate` terms a clock."""
    return Multiplying(
        (128, 256, 64), (3, 4, 2, 0), lambda threads, _: sums * threads, lambda _: (LEAST, LEAST),
        1 << 30,
        _warp_loads(products), rate * 4 // L2_BYTES, narrow=sums // 2,
    )  # fmt: skip


def _group_sums(threads: int, blocks: int) -> int:
    each = registers(threads, blocks).multiplying - BESIDE
    return max(0, each) * (threads - GROUP)


def _group_loads(rows: int, columns: int, threads: int, halves: int) -> float:
    """Shared memory brings 128 bytes a clock, in which 4 x 16 x 32 products of 16 bits are made
    (H100 whitepaper). For 16 terms a product of 64 rows reads those and all columns, 32 bytes each;
    and copies write each row and column once. Of the columns an eighth is hidden: on an H100 tiles
    of 256x128 took no longer than those of 128x256."""
    return max(1.0, 0.375 + 64 / columns + 32 / rows)


def _groups(rate: int) -> Multiplying:
    """Warpgroups, of which a multiprocessor adds `rate` terms a clock. Bytes are twice as many in a
    clock and half as long, so they load like 16 bits."""
    return Multiplying(
        (384, 256), (4, 3, 2), _group_sums,
        lambda threads: (ROWS * (threads // GROUP - 1), 32), WIDTHS[-1], _group_loads,
        rate * 4 // L2_BYTES, 1,
    )  # fmt: skip


MULTIPLYING: Mapping[Setting, Multiplying] = {
    NO_MMA: Multiplying(
        (), (), lambda threads, _: 64 * threads, lambda _: (1, 1), 1 << 30,
        lambda rows, columns, _, __: 1 + 8 / rows + 8 / columns, 128 * 4 // L2_BYTES,
    ),
    HALF_MMA: _warps(128, 1024),
    BYTE_MMA: _warps(128, 2048),
    TF32_MMA: _warps(128, 512),
    # Factors in two parts.
    STRICT_MMA: _warps(64, 170, 3),
    GROUP_MMA: _groups(2048),
    BYTE_GROUP_MMA: _groups(4096),
}  # fmt: skip
