"""What the threads of a block do together on tensor cores while sums stay in their registers.

A *fragment* is a matrix of 16 rows and 8 columns, or several of them, of which every lane of a warp
has a part (`kernel/cuda/fragments.py` says which). It is a private Local: four numbers of a lane
for each matrix, those of neighbouring columns one after another. The sums of one product, as they
lie, are the left operand of the next one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from autofuse.kernel.ir.roles import Defines, FieldRole, HeldName, Reads, Updates, Writes
from autofuse.kernel.ir.tile import Panel
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Expr, show


class Collective:
    """A statement that all lanes of a warp, or all threads of a block, run at once."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class StagedPanel:
    """A factor of a product in shared memory, exchanged so that no two pieces that are loaded at
    once are in the same banks (`mma.Factor`)."""

    # The Local that it is in, and the element it begins at.
    stage: HeldName
    place: Expr
    # The same panel in memory (`outer`: from one row or column to the next).
    panel: Annotated[Panel, FieldRole.SOURCE]
    # Rows or columns that there are, of so many in the stage: the rest is zero.
    count: Expr
    padded: int
    # Terms that there are, of so many in the stage: the rest is zero.
    terms: Expr
    run: int
    dtype: DType
    # Of 32 bits, to be multiplied by a fragment (`fragments.PairedFactor`).
    paired: bool = False
    # As warpgroups want it (`wgmma.GroupFactor`), from the first block of lines in the Local on.
    grouped: bool = False
    # Elements of each stage of a ring, of which it is in the one that comes next; 0: in no ring.
    ring: int = 0

    def __str__(self) -> str:
        size = f"{show(self.count)}/{self.padded} x {show(self.terms)}/{self.run}"
        return f"{self.stage}[{show(self.place)} ..] = {size} {self.dtype} of {self.panel}"


@dataclass(frozen=True, slots=True)
class Fetch(Collective):
    """The threads of a block ask for a panel: it may be read when all have waited for it. Each
    Fetch is counted, also of what is not there."""

    staged: Annotated[StagedPanel, FieldRole.WRITTEN]
    # Whether there is anything to ask for.
    there: Expr
    # A warpgroup asks, when the place in the ring is empty, and tells who multiplies when it is
    # full.
    fed: bool = False

    def __str__(self) -> str:
        return f"fetch {self.staged} if {show(self.there)}"


@dataclass(frozen=True, slots=True)
class Arrival(Collective):
    """All threads of a block wait for what was asked for, and for each other."""

    # So many of the last fetches are not waited for.
    later: int
    # It is shown to products of warpgroups.
    shown: bool = False

    def __str__(self) -> str:
        return f"await all but {self.later}"


@dataclass(frozen=True, slots=True)
class UnderWay:
    """A product of warpgroups that goes on when its statement has ended: its sums, and the Local
    of the words that it reads as its left factor."""

    sums: HeldName
    words: HeldName

    def __str__(self) -> str:
        return f"{self.sums} (by {self.words})"


@dataclass(frozen=True, slots=True)
class FragmentProduct(Collective):
    """sums[r, c] (+)= sum over terms of left[r, k] * right[k, c], for the rows of a warp."""

    sums: Updates
    rows: int
    columns: int
    # The row of `left` in shared memory that the warp begins with.
    first: Expr
    # In shared memory, or the name of a fragment with a row's terms as columns, which are rounded
    # to the type of `right`.
    left: Annotated[StagedPanel | str, FieldRole.READ]
    right: Annotated[StagedPanel, FieldRole.READ]
    # The instruction class.
    mma: str
    # It starts from zero.
    fresh: bool
    # The registers of a thread are nearly full.
    tight: bool = False
    # The fragment `left` is words that Pack has made.
    packed: bool = False
    # Warpgroups take turns, and this product goes on when the statement has ended, its left factor
    # in this Local.
    words: Writes = ""
    # Warpgroups take turns: who has had a product that is under way has its turn until it has asked
    # for this one, and both have ended when this statement has.
    before: Annotated[UnderWay | None, FieldRole.UPDATED] = None

    def __str__(self) -> str:
        sign = "=" if self.fresh else "+="
        left = self.left if isinstance(self.left, str) else f"{self.left.stage}[{show(self.first)}]"
        size = f"{self.rows}x{self.columns}x{self.right.run} {self.right.dtype} by {self.mma}"
        return (
            f"warp {size}: {self.sums} {sign} {left} * {self.right.stage}[{show(self.right.place)}]"
        )


@dataclass(frozen=True, slots=True)
class EndProduct(Collective):
    """The product that is under way ends, and with it the turn of a warpgroup."""

    product: Annotated[UnderWay, FieldRole.UPDATED]

    def __str__(self) -> str:
        return f"await {self.product}"


@dataclass(frozen=True, slots=True)
class Pack(Collective):
    """Word `place` of `words` is numbers `at` and `at` + 1 of a fragment, which are neighbours in a
    row, rounded to a `dtype` of 16 bits: half the registers, as soon as they are known."""

    words: Writes
    place: Expr
    fragment: Reads
    at: Expr
    # Of each half of a word.
    dtype: DType

    def __str__(self) -> str:
        at = show(self.at)
        return f"{self.words}[{show(self.place)}] = {self.dtype} {self.fragment}[{at}, {at} + 1]"


@dataclass(frozen=True, slots=True)
class Exchange(Collective):
    """`sym` is `value` as another lane has it."""

    sym: Defines
    value: Expr
    # The bits in which the numbers of the two lanes differ.
    flip: int

    def __str__(self) -> str:
        return f"let {self.sym.name}: {self.sym.dtype} = {show(self.value)} of lane ^ {self.flip}"


@dataclass(frozen=True, slots=True)
class Vote(Collective):
    """`sym` says whether `value` holds in any lane of a warp."""

    sym: Defines
    value: Expr

    def __str__(self) -> str:
        return f"let {self.sym.name} = any lane has {show(self.value)}"


@dataclass(frozen=True, slots=True)
class WarpRole(Collective):
    """A warpgroup fetches panels of a ring, or multiplies them, from here on, or no more."""

    # It fetches; otherwise it multiplies.
    fetches: bool
    # From here on; otherwise no more.
    begins: bool

    def __str__(self) -> str:
        return (
            f"{'begin' if self.begins else 'end'} {'fetching' if self.fetches else 'multiplying'}"
        )
