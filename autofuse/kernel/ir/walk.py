"""The part of a register tile that says how a left operand is walked, or copied to its stage by
index (see `tile.TileProduct`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autofuse.kernel.ir.roles import OwnSym, Reads
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Expr, Lit

ALWAYS = Lit(True, DType.BOOL)


@dataclass(frozen=True, slots=True)
class Walk:
    """Where the rows of a left operand lie that is no matrix, at each position of some loops."""

    # Variables of these loops and how far they run, outermost first.
    taps: tuple[tuple[OwnSym, Expr], ...]
    # Of each row: the element from which on its next terms lie.
    starts: tuple[Expr, ...]
    # Of each row: whether they lie there; otherwise they are zeros.
    there: tuple[Expr, ...]
    # Element (r, k, c) of a product with lanes is so many elements further for each column c.
    across: int
    # A buffer of zeros; "" where rows are always there.
    zeros: Reads = ""
    # Where it does not hold every row has zeros: nothing is added.
    needed: Expr = ALWAYS

    def text(self, show: Callable[[Expr], str]) -> str:
        """The rows at each tap, expressions spelled by `show`."""
        taps = ", ".join(f"{sym.name} < {show(extent)}" for sym, extent in self.taps)
        pairs = zip(self.starts, self.there, strict=True)
        rows = ", ".join(f"{show(start)} if {show(there)}" for start, there in pairs)
        needed = "" if self.needed == ALWAYS else f" if {show(self.needed)}"
        return f"at ({taps}){needed} [{rows}; {self.across}]"


@dataclass(frozen=True, slots=True)
class Patches:
    """Where the terms of a left operand lie that is no matrix, for copies of a few terms of a row:
    those of number `term` of row `row` lie from element `start` + `step` + `term` % `run` on, or
    are zeros. The tile begins at row `first_row` and term `first_term`."""

    # Number of a row, and of a term, in the whole operand; the expressions below are made of them.
    row: OwnSym
    term: OwnSym
    first_row: Expr
    first_term: Expr
    # Where the terms of a tap lie in a row, in two parts: that of `step` is the same for all rows.
    start: Expr
    step: Expr
    # Whether the terms of a tap lie there; otherwise copies write zeros themselves.
    there: Expr
    # Terms of a tap: they are neighbours.
    run: int
    # With so many taps, at most 32, `start` is the same for all of them and has 32 bits, so that it
    # and `there` can be found once for each row; 0 where that is not so.
    taps: int

    def text(self, show: Callable[[Expr], str]) -> str:
        """Where a term of a row is, expressions spelled by `show`."""
        names = f"{self.row.name} from {show(self.first_row)}"
        names += f", {self.term.name} from {show(self.first_term)}"
        where = f"{show(self.start)} + {show(self.step)} if {show(self.there)}"
        return f"at ({names}) [{where}; runs of {self.run}]"
