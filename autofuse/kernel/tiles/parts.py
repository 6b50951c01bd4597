"""What the loops of a tile kernel are given and hand on: settings, runs, scratch and panels."""

from __future__ import annotations

from dataclasses import dataclass

from autofuse.kernel.ir.types import Panel
from autofuse.ops import index as ix
from autofuse.ops.scalar import Expr
from autofuse.plan.parameters import (
    ACROSS,
    COLUMN_BLOCK,
    DOT,
    LINES,
    MAPS,
    MICRO,
    MMA,
    PACK,
    PACK_LEFT,
    PAIRS,
    ROW_BLOCK,
    STAGE,
    TAIL,
    TERM_BLOCK,
    VECTOR_BITS,
    WALK,
    WAVE,
)
from autofuse.plan.program.packing import LANES
from autofuse.plan.types import LaunchConfig

# Terms, or panels, that a right operand which is not packed is asked for before it is needed, and
# up to how many terms at once its rows are read one panel after another. Without, a product of
# 6 x 2352 x 768 takes 1.4 times as long from memory (measured on Zen 5).
TERMS_AHEAD, PANELS_AHEAD, FEW_TERMS = 16, 2, 32
# Elements that are asked for ahead where vectors run along terms, and up to how many terms of a
# column those of the next panel are asked for instead (Zen 5, from memory: 1.15 and 1.35 times).
ALONG_AHEAD, SHORT = 128, 512


@dataclass(frozen=True, slots=True)
class TileSettings:
    """What is chosen of a tile kernel."""

    # The register tile; its columns have 4 bytes each.
    rows: int
    columns: int
    # The block of rows, columns and terms (0: all).
    row_block: int
    column_block: int
    term_block: int
    # Right operands are packed where they need not be, and left ones at all.
    pack: bool
    pack_left: bool
    # Rows of what is not a product are staged.
    stage: bool
    # Vectors run along terms where both operands lie along them.
    dot: bool
    # Terms of bf16 are multiplied in pairs.
    pairs: bool
    # Patches are read where they lie.
    walk: bool
    # Register tiles end where a line of rows does.
    lines: bool
    # A tile of rows meets all panels of its block before the next one does.
    across: bool
    # The bits of a vector.
    vector_bits: int
    # The instruction class that multiplies ("": vectors do).
    mma: str
    # In how many parts the tiles are summed that do not fill a wave of `wave` blocks.
    tail: int
    wave: int
    # Tensor maps copy operands.
    maps: bool
    # Rows of the block are columns of tiles.
    turned: bool = False

    @property
    def slab(self) -> int:
        """Rows that lie side by side where the left operand is packed: whole register tiles."""
        return -(-LANES // self.rows) * self.rows

    @staticmethod
    def of(launch: LaunchConfig) -> TileSettings:
        rows, columns = str(launch.get(MICRO.name, MICRO.default)).split("x")
        return TileSettings(
            int(rows), int(columns), ROW_BLOCK.of(launch), COLUMN_BLOCK.of(launch),
            TERM_BLOCK.of(launch), PACK.of(launch), PACK_LEFT.of(launch), STAGE.of(launch),
            DOT.of(launch), PAIRS.of(launch), WALK.of(launch), WALK.of(launch) and LINES.of(launch),
            ACROSS.of(launch) and not DOT.of(launch), VECTOR_BITS.of(launch),
            MMA.of(launch), TAIL.of(launch), WAVE.of(launch), MAPS.of(launch),
        )  # fmt: skip


def covering(count: Expr, each: int) -> Expr:
    """How many pieces of `each` it takes for so many."""
    return ix.idiv(ix.iadd(count, ix.lit(each - 1)), each)


@dataclass(frozen=True, slots=True)
class TileRun:
    """A run of rows or columns of a block: the first of them in the block, how many, and how many
    of these `there` are (None: all)."""

    first: Expr
    count: int
    there: Expr | None = None


@dataclass(frozen=True, slots=True)
class TermBlock:
    """A block of terms: the most terms of one (0: all are in it), and which it is."""

    cut: int
    number: Expr

    @property
    def first(self) -> Expr:
        """The number of its first term."""
        return ix.imul(self.number, self.cut)


ALL_TERMS = TermBlock(0, ix.lit(0))


@dataclass(frozen=True, slots=True)
class Scratch:
    """Rows of a product in scratch: `stride` elements from one to the next."""

    buffer: str
    stride: int


@dataclass(frozen=True, slots=True)
class RightPanel:
    """A panel of a right operand, and the columns that a tile of it has."""

    panel: Panel
    width: int


def asked_ahead(lying: Panel, columns: int, cut: int, width: int) -> int:
    """How many elements before it is needed a panel of `columns` is asked for that is read as it
    lies: no processor fetches short runs of many rows by itself. Rows of a block `width` wide are
    read from end to end where `cut` (0: all) are few terms."""
    if lying.inner != 1:
        return lying.inner * columns if lying.inner <= SHORT else ALONG_AHEAD
    if lying.outer <= columns:
        return 0
    along = 0 < cut <= FEW_TERMS and width > 2 * PANELS_AHEAD * columns
    return PANELS_AHEAD * columns if along else TERMS_AHEAD * lying.outer
