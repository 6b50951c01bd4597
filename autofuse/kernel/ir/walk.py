"""The part of a register tile that says how a left operand is walked, or copied to its stage by
index (see `types.TileProduct`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Expr, Lit, Sym

ALWAYS = Lit(True, DType.BOOL)


@dataclass(frozen=True, slots=True)
class Walk:
    """Where the rows of a left operand lie that is no matrix: for each position of the loops `taps`
    (variables and how far they run, outermost first) row r has its next terms from element
    `starts[r]` on, or zeros where not `there[r]`; they are `zeros`, a buffer ("": always there).
    Element (r, k, c) is `across` elements further for each column c. Where `needed` does not hold
    every row has zeros: nothing is added."""

    taps: tuple[tuple[Sym, Expr], ...]
    starts: tuple[Expr, ...]
    there: tuple[Expr, ...]
    across: int
    zeros: str = ""
    needed: Expr = ALWAYS

    @property
    def variables(self) -> frozenset[str]:
        """Names that only its own expressions know."""
        return frozenset(sym.name for sym, _ in self.taps)

    @property
    def expressions(self) -> tuple[Expr, ...]:
        """All that is evaluated, within the loops over taps."""
        return (*(extent for _, extent in self.taps), *self.starts, *self.there, self.needed)

    def mapped(self, change: Callable[[Expr], Expr]) -> Walk:
        """The walk with `change` applied to every expression."""
        taps = tuple((sym, change(extent)) for sym, extent in self.taps)
        starts, there = (tuple(map(change, exprs)) for exprs in (self.starts, self.there))
        return replace(self, taps=taps, starts=starts, there=there, needed=change(self.needed))

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
    those of number `term` of row `row` lie from element `start` + `step` + `term` % `run` on,
    neighbours up to the next multiple of `run` (the next tap), or are zeros where not `there`. All
    three are the same for the terms of a tap, `step` for all rows too. The tile begins at row
    `first_row` and term `first_term`. With `taps`, at most 32, `start` is the same for all of so
    many and has 32 bits, so that both can be found once for each row."""

    row: Sym
    term: Sym
    first_row: Expr
    first_term: Expr
    start: Expr
    step: Expr
    there: Expr
    run: int
    taps: int

    @property
    def variables(self) -> frozenset[str]:
        """Names that only its own expressions know."""
        return frozenset((self.row.name, self.term.name))

    @property
    def zeros(self) -> str:
        """No buffer: copies write zeros themselves."""
        return ""

    @property
    def expressions(self) -> tuple[Expr, ...]:
        """All that is evaluated."""
        return (self.first_row, self.first_term, self.start, self.step, self.there)

    def mapped(self, change: Callable[[Expr], Expr]) -> Patches:
        """The patches with `change` applied to every expression."""
        first_row, first_term, start, step, there = map(change, self.expressions)
        return replace(
            self, first_row=first_row, first_term=first_term, start=start, step=step, there=there
        )  # fmt: skip

    def text(self, show: Callable[[Expr], str]) -> str:
        """Where a term of a row is, expressions spelled by `show`."""
        names = f"{self.row.name} from {show(self.first_row)}"
        names += f", {self.term.name} from {show(self.first_term)}"
        where = f"{show(self.start)} + {show(self.step)} if {show(self.there)}"
        return f"at ({names}) [{where}; runs of {self.run}]"
