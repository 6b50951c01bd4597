"""How the warps of a block multiply a tile on tensor cores. Pure functions of the statement.

Each warp has a rectangle of the tile, sums in registers. Operands go through shared memory in
stages of a run of terms. A *line* of a stage is what lies together there: the terms of a row (or
column), or, *turned*, the rows of a term, so that copies follow memory. Its pieces of 16 bytes are
exchanged (swizzled) by the number of the line, such that what a warp loads at once is in different
banks: rows of 8x8 matrices (PTX ISA, ldmatrix), or single words, which elements of 32 bits take
where they are turned, because matrices can only be turned of 16 bits. Bytes are turned in pairs,
which the registers of a lane then exchange.
"""

from __future__ import annotations

from dataclasses import dataclass

from autofuse.kernel.ir.indices import is_multiple
from autofuse.kernel.ir.instructions import INSTRUCTIONS
from autofuse.kernel.ir.types import Panel, TileProduct
from autofuse.kernel.ir.walk import Patches
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Lit

# Bytes of a piece, of the terms that one step of a product takes, of those of a longer run, and of
# all banks of shared memory.
PIECE, STEP_BYTES, RUN_BYTES, BANKS_BYTES = 16, 32, 64, 128
# Lines after which pieces are exchanged as before, and so many where matrices are turned by pairs.
EXCHANGED, BY_PAIRS = 8, 16
# Rows and columns of the smallest rectangle of a warp: two instructions share a load of columns.
ROWS, COLUMNS = 16, 16
# Bytes that are kept of a row of patches.
ROW_BYTES = 8
# What the text calls the number of rows that there are.
HIGH = "high"
# Elements beyond whole vectors from a row of sums to the next, so that rows are in other banks.
SUMS_PAD = 8


@dataclass(frozen=True, slots=True)
class WarpGrid:
    """Warps `down` and `across` a tile, and the `rows` and `columns` of each."""

    down: int
    across: int
    rows: int
    columns: int


def warp_grid(rows: int, columns: int, warps: int) -> WarpGrid:
    """The rectangles of least work, and of those the ones that load least."""
    high, wide = -(-rows // ROWS), -(-columns // COLUMNS)
    found = []
    for down in range(1, min(warps, high) + 1):
        across = min(warps // down, wide)
        each = -(-high // down) * ROWS, -(-wide // across) * COLUMNS
        found.append((each[0] * each[1], sum(each), down, across, *each))
    return WarpGrid(*min(found)[2:])


@dataclass(frozen=True, slots=True)
class Factor:
    """An operand of a tile: `across` elements of memory from one of its `count` rows (or columns)
    to the next, `along` from one term to the next. In a stage there are `padded` rows, of `run`
    terms each, zeros where there is nothing. `count` may be a name of the text."""

    panel: Panel
    across: int
    along: int
    count: int | str
    padded: int
    run: int
    itemsize: int

    @property
    def turned(self) -> bool:
        """Whether lines are terms: neighbours in memory are rows."""
        return lies_turned(self)

    @property
    def lanes(self) -> int:
        """Elements of a piece."""
        return PIECE // self.itemsize

    @property
    def lines(self) -> int:
        return self.run if self.turned else self.padded

    @property
    def pieces(self) -> int:
        """Pieces of a line."""
        return (self.padded if self.turned else self.run) // self.lanes

    @property
    def pitch(self) -> int:
        """Elements of shared memory from one line to the next: a part or a multiple of all banks,
        as pieces of up to 8 lines are exchanged; of pairs two lines lie side by side at most."""
        nbytes = self.pieces * PIECE
        if self.by_pairs:
            nbytes = max(nbytes, RUN_BYTES)
        if nbytes > STEP_BYTES:
            nbytes = RUN_BYTES if nbytes <= RUN_BYTES else -(-nbytes // BANKS_BYTES) * BANKS_BYTES
        return nbytes // self.itemsize

    @property
    def size(self) -> int:
        """Elements of a stage."""
        return self.lines * self.pitch

    @property
    def by_words(self) -> bool:
        """Whether it is loaded by words, not by matrices."""
        return self.turned and self.itemsize == DType.F32.itemsize

    @property
    def by_pairs(self) -> bool:
        """Whether matrices are turned by pairs of bytes: lines 4t and 4t + 1 of 16 are loaded at
        once, then lines 4t + 2 and 4t + 3, so that a lane gets four terms that follow each other.
        """
        return self.turned and self.itemsize == 1

    @property
    def exchanged(self) -> int:
        """Neighbouring pieces of a line that are exchanged with each other."""
        return min(8, self.pitch * self.itemsize // PIECE)

    def swizzle(self, line: str) -> str:
        """What the number of a piece of a line is combined with (exclusive or)."""
        nbytes = self.pitch * self.itemsize
        shared = max(1, BANKS_BYTES // nbytes)  # lines that the banks hold side by side
        if self.by_pairs:
            number = f"({line} / 4 * 2 + {line} % 2)" if shared == 1 else f"{line} / 4"
        else:
            number = line if shared == 1 else f"{line} / {shared}"
        most = self.exchanged - 1
        return f"({number} * 2 & {most})" if self.by_words else f"({number} & {most})"

    def place(self, line: str, piece: str) -> str:
        """The element of a stage where the piece of some number of a line begins."""
        return f"{line} * {self.pitch} + ({piece} ^ {self.swizzle(line)}) * {self.lanes}"

    @property
    def period(self) -> int:
        """Lines after which pieces are exchanged as before."""
        return BY_PAIRS if self.by_pairs else EXCHANGED

    def apart(self, threads: int) -> int | None:
        """Elements of a stage between two pieces that are so many pieces apart; None where that
        depends on the first of them: they are at other places of a line, or their lines are not
        exchanged alike."""
        lines, rest = divmod(threads, self.pieces)
        return None if rest or lines % self.period else lines * self.pitch

    def copied(self, outside: frozenset[str]) -> bool:
        """Whether pieces are copied as they lie: neighbours in global memory, all aligned."""
        far, near = (self.along, self.across) if self.turned else (self.across, self.along)
        aligned = far % self.lanes == 0 and is_multiple(self.panel.start, self.lanes)
        return self.panel.buffer in outside and near == 1 and aligned


def lies_turned(o: Factor) -> bool:
    """Whether neighbours in memory are rows, not terms."""
    return o.along != 1 and (o.across == 1 or o.across < o.along)


@dataclass(frozen=True, slots=True)
class StagedTile:
    """Both operands of a tile on tensor cores, which go through `stages` of shared memory. Behind
    these are the rows of `patches`: of each a start, and a bit for each tap."""

    left: Factor
    right: Factor
    stages: int
    patches: bool

    @property
    def each(self) -> int:
        """Elements of one stage; the right operand starts behind the left one."""
        return self.left.size + self.right.size

    @property
    def room(self) -> int:
        """Elements of all stages, and of what comes before and behind them."""
        rows = self.left.padded * ROW_BYTES // self.left.itemsize if self.patches else 0
        return self.each * self.stages + rows + self.before

    @property
    def before(self) -> int:
        """The most elements that are left out before the first stage."""
        return 0

    @property
    def run(self) -> int:
        return self.left.run


@dataclass(frozen=True, slots=True)
class MmaTile(StagedTile):
    """A tile that warps multiply: who has what."""

    warps: WarpGrid


def mma_tile(stmt: TileProduct, threads: int, stages: int) -> MmaTile:
    """What a block of so many threads makes of a statement with an instruction class."""
    grid, item = warp_grid(stmt.rows, stmt.columns, threads // 32), stmt.dtype.itemsize
    short = isinstance(stmt.extent, Lit) and int(stmt.extent.value) * item <= STEP_BYTES
    run = (STEP_BYTES if short else INSTRUCTIONS[stmt.mma].run_bytes) // item
    a, b = stmt.left, stmt.right
    return MmaTile(
        Factor(a, a.outer, a.inner, rows_there(stmt), grid.down * grid.rows, run, item),
        Factor(b, b.inner, b.outer, stmt.columns, grid.across * grid.columns, run, item),
        max(1, stages),
        row_table(stmt),
        grid,
    )


def rows_there(stmt: TileProduct) -> int | str:
    """How many rows there are, by a name of the text where that is not known."""
    return stmt.rows if stmt.there is None else HIGH


def row_table(stmt: TileProduct) -> bool:
    """Whether what is known of each row of patches is found once, before the first run."""
    return isinstance(stmt.walk, Patches) and stmt.walk.taps > 0
