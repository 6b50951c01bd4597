"""The statements of the kernel IR (`ir/types.py`) that all lanes of a grid iteration execute
together on matrices: register tiles, parts of sums that meet, and transposes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from autofuse.kernel.ir.walk import Patches, Walk
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Expr, Sym, show


@dataclass(frozen=True, slots=True)
class PanelPlace:
    """The matrix that a panel is a part of: of `sizes` lines along both of its axes, from element
    `origin` of the buffer on; the panel begins at line `at` of each."""

    origin: Expr
    at: tuple[Expr, Expr]
    sizes: tuple[int, int]

    def moved(self, first: Expr, second: Expr) -> PanelPlace:
        """That of a panel so many lines further on."""
        return replace(self, at=(ix.iadd(self.at[0], first), ix.iadd(self.at[1], second)))

    def turned(self) -> PanelPlace:
        """That of a panel whose axes are exchanged."""
        return replace(self, at=self.at[::-1], sizes=self.sizes[::-1])

    def mapped(self, change: Callable[[Expr], Expr]) -> PanelPlace:
        """The matrix with `change` applied to every expression."""
        first, second = map(change, self.at)
        return replace(self, origin=change(self.origin), at=(first, second))


@dataclass(frozen=True, slots=True)
class Panel:
    """A matrix inside a buffer: element (i, j) is buffer[start + i * outer + j * inner]. In C the
    element that is `ahead` of one that is read is asked for (0: none is). Of what AMX multiplies 32
    elements of a row may be neighbours, and the next 32 lie `apart` from them (0: they follow).
    What warpgroups multiply may be a part of a `whole`."""

    buffer: str
    start: Expr
    outer: int
    inner: int = 1
    ahead: int = 0
    apart: int = 0
    whole: PanelPlace | None = None

    def as_whole(self, lines: int, terms: int) -> Panel:
        """The panel as the beginning of a matrix of so many rows (or columns) and terms."""
        zero = ix.lit(0)
        return replace(self, whole=PanelPlace(self.start, (zero, zero), (lines, terms)))

    def moved(self, first: Expr, second: Expr) -> Panel:
        """The panel that begins so many lines further on along both axes."""
        on = ix.iadd(ix.imul(first, self.outer), ix.imul(second, self.inner))
        whole = self.whole and self.whole.moved(first, second)
        return replace(self, start=ix.iadd(self.start, on), whole=whole)

    def turned(self) -> Panel:
        """The panel with its axes exchanged."""
        whole = self.whole and self.whole.turned()
        return replace(self, outer=self.inner, inner=self.outer, whole=whole)

    def mapped(self, change: Callable[[Expr], Expr]) -> Panel:
        """The panel with `change` applied to every expression."""
        whole = self.whole and self.whole.mapped(change)
        return replace(self, start=change(self.start), whole=whole)

    def __str__(self) -> str:
        return f"{self.buffer}[{show(self.start)}; {self.outer}, {self.inner}]"


@dataclass(frozen=True, slots=True)
class BoxCopies:
    """Boxes that the tensor map `name` (a Param) says how to copy: the first one begins at
    coordinates `at`, innermost first, of which number `term` counts terms. There are `count` for a
    run, each `rows` further along coordinate `row` and `apart` elements further in its stage."""

    name: str
    at: tuple[Expr, ...]
    term: int
    row: int
    count: int
    rows: int
    apart: int
    nbytes: int

    def mapped(self, change: Callable[[Expr], Expr]) -> BoxCopies:
        """The copies with `change` applied to every expression."""
        return replace(self, at=tuple(map(change, self.at)))


@dataclass(frozen=True, slots=True)
class TileProduct:
    """target[r, c] (+)= sum over k < extent of left[r, k] * right[k, c], for r < rows and c <
    columns: one register tile, which all lanes compute together."""

    rows: int
    columns: int
    # How many terms there are; with a `Walk`, in each of its taps.
    extent: Expr
    # Columns are neighbours (`inner` is 1), and all `columns` may be read and written.
    target: Panel
    left: Panel
    # Columns are neighbours, as in `target`; in C terms may be neighbours in both operands instead
    # (`text/c/dot.py`).
    right: Panel
    # F32, F64 or I32, and what all three panels hold. In C also BF16: then `target` is F32, terms
    # of `left` are neighbours, and a row of `right` holds pairs of terms, those of a column
    # together. Tensor cores multiply F16, BF16, F32 or I8 in any order; of I8 `target` is I32.
    dtype: DType
    # Sums start from zero.
    fresh: bool
    # The Local through which a GPU fetches operands ("": none).
    stage: str = ""
    # With lanes it is as many products, those of an element neighbours (`text/c/lanes.py`).
    lanes: int = 0
    # Where rows of `left` start instead of its `start` and `outer`: in C a `Walk`, whose taps have
    # `extent` rows of `right` each; tensor cores have `Patches`.
    walk: Walk | Patches | None = None
    # The instruction class of tensor cores, or AMX ("": vectors multiply).
    mma: str = ""
    # Whether the left and the right factor of I8 are U8.
    from_zero: tuple[bool, bool] = (False, False)
    # How many of the `rows` are there (None: all), at least one. Others have sums of zero, or of
    # whatever rows lie there where the left operand is copied in boxes. Tensor cores only.
    there: Expr | None = None
    # One warpgroup computes it while others have other grid iterations.
    alone: bool = False
    # How the left and the right operand of warpgroups are copied in boxes (None: they are not).
    boxes: tuple[BoxCopies | None, BoxCopies | None] = (None, None)

    @property
    def is_dot(self) -> bool:
        """Terms, not columns, are neighbours in the right operand."""
        return self.right.inner != 1


@dataclass(frozen=True, slots=True)
class Join:
    """The sums target[r, c], r < rows and c < columns, are part `part` of `parts` of tile `slot`
    of `slots`, if `cut`. The last grid iteration with a part of a tile to come here gets all of
    them added up in order, and `last` is true; in others it is false. Where nothing is cut it is
    true. All lanes do it together. Parts have `room` elements of `dtype` each in `work` and are
    counted in `tickets` (U32), both Params that `scratch_params` adds."""

    target: Panel
    rows: int
    columns: int
    room: int
    slots: int
    parts: int
    cut: Expr
    slot: Expr
    part: Expr
    last: Sym
    work: str
    tickets: str
    dtype: DType = DType.F32


@dataclass(frozen=True, slots=True)
class Transpose:
    """target[j, i] = source[i, j] for i < rows and j < extent, both of `dtype` and apart, rows of
    neighbours in both: single elements, or runs of `inner`, of which `outer` is a multiple. With
    `stream` they are written past the cache."""

    target: Panel
    source: Panel
    rows: Expr
    extent: Expr
    dtype: DType
    stream: bool = False
