"""Who has what of a fragment, and how a block deals its rows to warps. Pure functions.

Lane l of a warp has, of each matrix of 16 x 8 sums, rows l / 4 and l / 4 + 8 and of each the
columns l % 4 * 2 and the next one (PTX ISA, mma.m16n8k16). Two matrices side by side, rounded to 16
bits, are what the lane has of a left operand of 16 x 16: no number changes its lane between two
products. Of 32 bits a lane is to have columns l % 4 and l % 4 + 4 of a left operand of 8 (m16n8k8):
there terms are taken in another order, the same for both operands.
"""

from __future__ import annotations

from dataclasses import dataclass

from autofuse.kernel.cuda.mma import BANKS_BYTES, STEP_BYTES, Factor
from autofuse.kernel.cuda.wgmma import GroupFactor
from autofuse.kernel.ir.fragment import StagedPanel
from autofuse.ops import index as ix
from autofuse.ops.scalar import Expr

# Rows and columns of a matrix; columns come in pairs of matrices, which share a load.
HIGH, WIDE, PAIR = 16, 8, 16
# Lanes that share a row: their numbers differ in the bits of these.
ROW_LANES, FLIPS = 4, (1, 2)
WARP = 32


def up(count: int, step: int) -> int:
    """`count` in whole steps."""
    return -(-count // step) * step


@dataclass(frozen=True, slots=True)
class Lane:
    """A thread's place: `number` in its warp, and the first of the warp's rows in the block."""

    number: Expr
    top: Expr

    def row(self, part: Expr, half: Expr) -> Expr:
        """The row of the block that a lane has in one `half` of the matrices of a `part`."""
        within = ix.iadd(ix.imul(half, WIDE), ix.idiv(self.number, ROW_LANES))
        return ix.iadd(self.top, ix.iadd(ix.imul(part, HIGH), within))

    def column(self, part: Expr, which: Expr) -> Expr:
        """The column of a lane in the matrices of a `part`: the first or the second (`which`)."""
        own = ix.imul(ix.imod(self.number, ROW_LANES), 2)
        return ix.iadd(ix.imul(part, WIDE), ix.iadd(own, which))


def element(columns: int, part: Expr, half: Expr, across: Expr, which: Expr) -> Expr:
    """The place of a sum among those of a lane, in a fragment of so many columns."""
    matrix = ix.iadd(ix.imul(part, columns // WIDE), across)
    return ix.iadd(ix.imul(matrix, 4), ix.iadd(ix.imul(half, 2), which))


def size(rows: int, columns: int) -> int:
    """Numbers of a lane in a fragment."""
    return rows * columns // WARP


def run_of(terms: int, itemsize: int) -> int:
    """Terms in whole steps of a product."""
    return up(terms, STEP_BYTES // itemsize)


@dataclass(frozen=True, slots=True)
class PairedFactor(Factor):
    """A turned factor of 32 bits whose terms are taken two by two, as the lanes of a fragment have
    them: what is loaded at once is in every other line."""

    @property
    def pitch(self) -> int:
        least = BANKS_BYTES // self.itemsize
        return up(self.padded, least)

    def swizzle(self, line: str) -> str:
        return f"({line} & 7)"


def factor_of(staged: StagedPanel, count: int | str) -> Factor:
    """How a panel lies in shared memory; `count` is spelled as its text has it."""
    panel, kind = staged.panel, PairedFactor if staged.paired else Factor
    kind = GroupFactor if staged.grouped else kind
    return kind(
        panel, panel.outer, panel.inner, count, staged.padded, staged.run, staged.dtype.itemsize
    )
