"""What the threads of a block do together on tensor cores while sums stay in their registers.

A *fragment* is a matrix of 16 rows and 8 columns, or several of them, of which every lane of a warp
has a part (`kernel/cuda/fragments.py` says which). It is a private Local: four numbers of a lane
for each matrix, those of neighbouring columns one after another. The sums of one product, as they
lie, are the left operand of the next one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

from autofuse.kernel.ir.tile import Panel
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Expr, Sym, show

Change = Callable[[Expr], Expr]


class Collective(ABC):
    """A statement that all lanes of a warp, or all threads of a block, run at once."""

    __slots__ = ()

    def expressions(self) -> tuple[Expr, ...]:
        """The expressions that are evaluated."""
        return ()

    def mapped(self, change: Change) -> Collective:
        """The statement with `change` applied to these."""
        return self

    def reads(self) -> set[str]:
        """The buffers that are read, beside those in expressions."""
        return set()

    def writes(self) -> set[str]:
        """The buffers that are written, and the symbols that are defined."""
        return set()

    @abstractmethod
    def __str__(self) -> str: ...


@dataclass(frozen=True, slots=True)
class StagedPanel:
    """A factor of a product in shared memory, from element `place` of the Local `stage` on:
    `padded` rows (or columns) of `run` terms, exchanged so that no two pieces that are loaded at
    once are in the same banks (`mma.Factor`). It is a `panel` of memory (`outer`: from one row
    or column to the next), of which there are `count` rows or columns and `terms` terms; the rest
    is zero. `paired`: of 32 bits, to be multiplied by a fragment (`fragments.PairedFactor`).
    `grouped`: as warpgroups want it (`wgmma.GroupFactor`), from the first block of lines in
    the Local on; of a `ring` of so many elements a stage, in the stage that comes next."""

    stage: str
    place: Expr
    panel: Panel
    count: Expr
    padded: int
    terms: Expr
    run: int
    dtype: DType
    paired: bool = False
    grouped: bool = False
    ring: int = 0

    def expressions(self) -> tuple[Expr, ...]:
        return (self.place, self.panel.start, self.count, self.terms)

    def mapped(self, change: Change) -> StagedPanel:
        panel = replace(self.panel, start=change(self.panel.start))
        place, count, terms = map(change, (self.place, self.count, self.terms))
        return replace(self, place=place, panel=panel, count=count, terms=terms)

    def __str__(self) -> str:
        size = f"{show(self.count)}/{self.padded} x {show(self.terms)}/{self.run}"
        return f"{self.stage}[{show(self.place)} ..] = {size} {self.dtype} of {self.panel}"


@dataclass(frozen=True, slots=True)
class Fetch(Collective):
    """The threads of a block ask for a panel, if it is `there`: it may be read when all have waited
    for it. Each Fetch is counted, also of what is not there. `fed`: a warpgroup asks, when the
    place in the ring is empty, and tells who multiplies when it is full."""

    staged: StagedPanel
    there: Expr
    fed: bool = False

    def expressions(self) -> tuple[Expr, ...]:
        return (*self.staged.expressions(), self.there)

    def mapped(self, change: Change) -> Fetch:
        return Fetch(self.staged.mapped(change), change(self.there), self.fed)

    def reads(self) -> set[str]:
        return {self.staged.panel.buffer}

    def writes(self) -> set[str]:
        return {self.staged.stage}

    def __str__(self) -> str:
        return f"fetch {self.staged} if {show(self.there)}"


@dataclass(frozen=True, slots=True)
class Arrival(Collective):
    """All threads of a block wait for what was asked for, but for the `later` last ones, and for
    each other; it is `shown` to products of warpgroups."""

    later: int
    shown: bool = False

    def __str__(self) -> str:
        return f"await all but {self.later}"


@dataclass(frozen=True, slots=True)
class FragmentProduct(Collective):
    """sums[r, c] (+)= sum over terms of left[r, k] * right[k, c], for the `rows` rows of a warp and
    `columns` columns. `left` is in shared memory, from row `first` on, or the name of a fragment
    with a row's terms as columns, which are rounded to the type of `right`. `mma` is the
    instruction class; `tight`: the registers of a thread are nearly full."""

    sums: str
    rows: int
    columns: int
    first: Expr
    left: StagedPanel | str
    right: StagedPanel
    mma: str
    fresh: bool
    tight: bool = False
    packed: bool = False

    @property
    def panels(self) -> tuple[StagedPanel, ...]:
        return (self.right,) if isinstance(self.left, str) else (self.left, self.right)

    def expressions(self) -> tuple[Expr, ...]:
        return (self.first, *(e for p in self.panels for e in p.expressions()))

    def mapped(self, change: Change) -> FragmentProduct:
        left = self.left if isinstance(self.left, str) else self.left.mapped(change)
        return replace(self, first=change(self.first), left=left, right=self.right.mapped(change))

    def reads(self) -> set[str]:
        own = {self.left} if isinstance(self.left, str) else set[str]()
        return {self.sums, *own, *(p.stage for p in self.panels)}

    def writes(self) -> set[str]:
        return {self.sums}

    def __str__(self) -> str:
        sign = "=" if self.fresh else "+="
        left = self.left if isinstance(self.left, str) else f"{self.left.stage}[{show(self.first)}]"
        size = f"{self.rows}x{self.columns}x{self.right.run} {self.right.dtype} by {self.mma}"
        return (
            f"warp {size}: {self.sums} {sign} {left} * {self.right.stage}[{show(self.right.place)}]"
        )


@dataclass(frozen=True, slots=True)
class Pack(Collective):
    """Word `place` of `words` is numbers `at` and `at` + 1 of a fragment, which are neighbours in a
    row, rounded to a `dtype` of 16 bits: half the registers, as soon as they are known."""

    words: str
    place: Expr
    fragment: str
    at: Expr
    dtype: DType

    def expressions(self) -> tuple[Expr, ...]:
        return (self.place, self.at)

    def mapped(self, change: Change) -> Pack:
        return replace(self, place=change(self.place), at=change(self.at))

    def reads(self) -> set[str]:
        return {self.fragment}

    def writes(self) -> set[str]:
        return {self.words}

    def __str__(self) -> str:
        at = show(self.at)
        return f"{self.words}[{show(self.place)}] = {self.dtype} {self.fragment}[{at}, {at} + 1]"


@dataclass(frozen=True, slots=True)
class Exchange(Collective):
    """`sym` is `value` as the lane has it whose number differs in the bits of `flip`."""

    sym: Sym
    value: Expr
    flip: int

    def expressions(self) -> tuple[Expr, ...]:
        return (self.value,)

    def mapped(self, change: Change) -> Exchange:
        return replace(self, value=change(self.value))

    def writes(self) -> set[str]:
        return {self.sym.name}

    def __str__(self) -> str:
        return f"let {self.sym.name}: {self.sym.dtype} = {show(self.value)} of lane ^ {self.flip}"


@dataclass(frozen=True, slots=True)
class Vote(Collective):
    """`sym` says whether `value` holds in any lane of a warp."""

    sym: Sym
    value: Expr

    def expressions(self) -> tuple[Expr, ...]:
        return (self.value,)

    def mapped(self, change: Change) -> Vote:
        return Vote(self.sym, change(self.value))

    def writes(self) -> set[str]:
        return {self.sym.name}

    def __str__(self) -> str:
        return f"let {self.sym.name} = any lane has {show(self.value)}"


@dataclass(frozen=True, slots=True)
class WarpRole(Collective):
    """A warpgroup `fetches` panels of a ring, or multiplies them, from here on, or no more."""

    fetches: bool
    begins: bool

    def __str__(self) -> str:
        return (
            f"{'begin' if self.begins else 'end'} {'fetching' if self.fetches else 'multiplying'}"
        )
