"""The part of a register tile that says how a left operand is walked (see `ir.TileProduct`)."""

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
