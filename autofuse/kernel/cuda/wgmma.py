"""How warpgroups multiply a tile: some multiply, the last one of a block fetches. Pure functions of
the statement.

A warpgroup that multiplies has some of the rows, 64 at a time, and all columns. Both operands are
in stages of shared memory, in the 128-byte layout of the hardware (`prelude/cuda_wgmma.h`): a block
of 8 lines of 128 bytes begins at a multiple of 1024. Rows that are copied whole (cp.async.bulk) are
not in that layout, and tensor maps, which are, want an operand that lies as the hardware likes it
and a driver that makes them; copies of 16 bytes serve every operand, so those are what is used.
"""

from __future__ import annotations

from dataclasses import dataclass

from autofuse.kernel.cuda.mma import Factor, StagedTile, lies_turned, row_table, rows_there
from autofuse.kernel.ir.types import TileProduct
from autofuse.plan.parameters import LaunchSettingError

GROUP, WARPS = 128, 4
# Threads of a group that multiplies and one that fetches.
ALONE = 2 * GROUP
# Rows of an instruction, and its columns.
ROWS, WIDTHS = 64, (32, 64, 96, 128, 192, 256)
LINE_BYTES, BLOCK_BYTES, LINES = 128, 1024, 8
# Terms of an instruction, in bytes of a row.
STEP_BYTES = 32
# Registers of a multiprocessor that has these instructions, those that a thread may have, and those
# that fetching takes, by whole pieces, by elements or in boxes (PTX ISA, setmaxnreg: multiples of 8
# from 24 to 256).
REGISTERS, MOST_REGISTERS, FETCHING, GATHERING, BOXING = 65536, 240, 88, 104, 40


@dataclass(frozen=True, slots=True)
class GroupFactor(Factor):
    """An operand in the hardware's layout: blocks of 8 lines, 64 rows side by side if turned, which
    bytes never are (PTX ISA, wgmma): those that lie so are read one by one. Runs longer than a line
    are several of one line, all rows of one before those of the next."""

    @property
    def turned(self) -> bool:
        return self.itemsize > 1 and lies_turned(self)

    @property
    def pitch(self) -> int:
        return LINE_BYTES // self.itemsize

    @property
    def size(self) -> int:
        return self.padded * self.run

    @property
    def long(self) -> bool:
        """Whether a run has more terms than a line."""
        return not self.turned and self.run > self.pitch

    def place(self, line: str, piece: str) -> str:
        if self.long:
            within = f"({piece} % 8 ^ ({line} & 7)) * {self.lanes}"
            return f"{piece} / 8 * {self.padded * self.pitch} + {line} * {self.pitch} + {within}"
        here = (
            f"{line} * {self.pitch} + ({piece}{' % 8' * self.turned} ^ ({line} & 7)) * {self.lanes}"
        )
        return f"{piece} / 8 * {self.aside // self.itemsize} + {here}" if self.turned else here

    @property
    def aside(self) -> int:
        """Bytes from 64 rows to the next 64, where they lie side by side."""
        return self.run * LINE_BYTES if self.turned else 16

    def start(self, row: str, step: str) -> str:
        """Bytes from the beginning of a stage to a row, a multiple of 64, at a step of terms."""
        if self.turned:
            return (
                f"({row}) / 64 * {self.aside} + {step} * {STEP_BYTES // self.itemsize * LINE_BYTES}"
            )
        if self.long:
            line = LINE_BYTES // STEP_BYTES
            within = f"({row}) * {LINE_BYTES} + {step} % {line} * {STEP_BYTES}"
            return f"{step} / {line} * {self.padded * LINE_BYTES} + {within}"
        return f"({row}) * {LINE_BYTES} + {step} * {STEP_BYTES}"


@dataclass(frozen=True, slots=True)
class GroupTile(StagedTile):
    """`groups` of warps multiply, `busy` of which have rows: `blocks` of 64 each, and `columns`."""

    left: GroupFactor
    right: GroupFactor
    groups: int
    busy: int
    blocks: int
    columns: int

    @property
    def before(self) -> int:
        """Stages begin at a block of lines, wherever their memory does."""
        return BLOCK_BYTES // self.left.itemsize

    @property
    def behind(self) -> int:
        """Runs whose products may still go on when those of the next one are asked for."""
        return 1 if self.stages > 2 else 0

    @property
    def under_way(self) -> int:
        """Runs that are asked for while one arrives: a place is free again once the products of
        `behind` more runs have been asked for."""
        return self.stages - 1 - self.behind


def group_tile(stmt: TileProduct, threads: int, stages: int) -> GroupTile:
    """What a block of so many threads makes of a statement of this class. Raises LaunchSettingError
    for a block of no or one warpgroup, or too many columns."""
    groups, rest = divmod(threads, GROUP)
    if rest or groups < 2:
        raise LaunchSettingError(
            f"a block of {threads} threads cannot multiply by {stmt.mma}: two or more groups of "
            f"{GROUP} do"
        )
    if stmt.columns > WIDTHS[-1]:
        raise LaunchSettingError(
            f"tiles of {stmt.columns} columns are more than the {WIDTHS[-1]} of {stmt.mma}"
        )
    count = -(-stmt.rows // ROWS)
    blocks = -(-count // (groups - 1))
    busy = -(-count // blocks)
    wide = next(w for w in WIDTHS if w >= stmt.columns)
    item, a, b = stmt.dtype.itemsize, stmt.left, stmt.right
    run = LINE_BYTES // item
    left = GroupFactor(a, a.outer, a.inner, rows_there(stmt), busy * blocks * ROWS, run, item)
    right = GroupFactor(b, b.inner, b.outer, stmt.columns, -(-wide // ROWS) * ROWS, run, item)
    return GroupTile(
        left, right, max(2, stages), row_table(stmt), groups - 1, busy, blocks, wide
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class RegisterDeal:
    """Of a thread when the kernel begins, when it fetches, and when it multiplies."""

    first: int
    fetching: int
    multiplying: int

    @property
    def change(self) -> bool:
        """Whether threads that multiply get more than they begin with."""
        return self.multiplying > self.first


def launched_registers(threads: int, blocks: int) -> int:
    """Of a thread, where `blocks` blocks of so many threads are there at once: what the compiler
    takes for a kernel in which they change hands, and so all that a launch allocates."""
    return min(MOST_REGISTERS, REGISTERS // max(1, blocks) // threads // 8 * 8)


def registers(threads: int, blocks: int, fetching: int = FETCHING) -> RegisterDeal:
    """What threads of `blocks` blocks that are there at once may have, `fetching` those that do:
    together no more than the launch allocated, since others wait for ever."""
    first, groups = launched_registers(threads, blocks), threads // GROUP
    left = (first * groups - fetching) // (groups - 1) // 8 * 8
    return RegisterDeal(first, fetching, min(MOST_REGISTERS, left))
