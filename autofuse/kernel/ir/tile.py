"""The statements of the kernel IR (`ir/types.py`) that all lanes of a grid iteration execute
together on matrices: register tiles, parts of sums that meet, and transposes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from autofuse.kernel.ir.roles import Defines, FieldRole, HeldName, Mentions, Noted, Updates
from autofuse.kernel.ir.walk import Patches, Walk
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Expr, show


@dataclass(frozen=True, slots=True)
class PanelPlace:
    """The matrix that a panel is a part of."""

    # The element of the buffer that it begins with.
    origin: Noted
    # The line of each of its axes that the panel begins at.
    at: tuple[Noted, Noted]
    # Lines along each axis.
    sizes: tuple[int, int]

    def moved(self, first: Expr, second: Expr) -> PanelPlace:
        """That of a panel so many lines further on."""
        return replace(self, at=(ix.iadd(self.at[0], first), ix.iadd(self.at[1], second)))

    def turned(self) -> PanelPlace:
        """That of a panel whose axes are exchanged."""
        return replace(self, at=self.at[::-1], sizes=self.sizes[::-1])


@dataclass(frozen=True, slots=True)
class Panel:
    """A matrix inside a buffer: element (i, j) is buffer[start + i * outer + j * inner]."""

    buffer: HeldName
    start: Expr
    # Elements from one row (or column) to the next, and from one of its elements to the next.
    outer: int
    inner: int = 1
    # In C the element that lies so far on from one that is read is asked for; 0: none is.
    ahead: int = 0
    # Of what AMX multiplies 32 elements of a row may be neighbours, and the next 32 lie so far from
    # them; 0: they follow.
    apart: int = 0
    # The matrix that it is a part of, where warpgroups multiply it.
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

    def __str__(self) -> str:
        return f"{self.buffer}[{show(self.start)}; {self.outer}, {self.inner}]"


UpdatedPanel = Annotated[Panel, FieldRole.UPDATED]
ReadPanel = Annotated[Panel, FieldRole.READ]
WrittenPanel = Annotated[Panel, FieldRole.WRITTEN]


@dataclass(frozen=True, slots=True)
class BoxCopies:
    """The boxes that a run of terms of an operand is copied in."""

    # The Param of the tensor map that says how.
    name: Mentions
    # Coordinates that the first box begins at, innermost first.
    at: tuple[Expr, ...]
    # Which coordinate counts terms, and which rows.
    term: int
    row: int
    # Boxes of a run.
    count: int
    # How much further each lies, along coordinate `row` and in elements of its stage.
    rows: int
    apart: int
    # Bytes of a box.
    nbytes: int


@dataclass(frozen=True, slots=True)
class TileProduct:
    """target[r, c] (+)= sum over k < extent of left[r, k] * right[k, c], for r < rows and c <
    columns: one register tile, which all lanes compute together."""

    rows: int
    columns: int
    # How many terms there are; with a `Walk`, in each of its taps.
    extent: Expr
    # Columns are neighbours (`inner` is 1), and all `columns` may be read and written.
    target: UpdatedPanel
    left: ReadPanel
    # Columns are neighbours, as in `target`; in C terms may be neighbours in both operands instead
    # (`text/c/dot.py`).
    right: ReadPanel
    # F32, F64 or I32, and what all three panels hold. In C also BF16: then `target` is F32, terms
    # of `left` are neighbours, and a row of `right` holds pairs of terms, those of a column
    # together. Tensor cores multiply F16, BF16, F32 or I8 in any order; of I8 `target` is I32.
    dtype: DType
    # Sums start from zero.
    fresh: bool
    # The Local through which a GPU fetches operands ("": none).
    stage: Updates = ""
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

    def __str__(self) -> str:
        sign = "=" if self.fresh else "+="
        high = f"{self.rows}" if self.there is None else f"{show(self.there)} of {self.rows}"
        size = f"{high}x{self.columns}x{show(self.extent)}" + f"x{self.lanes}" * bool(self.lanes)
        through, by = self.stage and f" through {self.stage}", self.mma and f" by {self.mma}"
        left = f"{self.left} {self.walk.text(show)}" if self.walk else f"{self.left}"
        return f"tile {size} {self.dtype}{by}: {self.target} {sign} {left} * {self.right}{through}"


@dataclass(frozen=True, slots=True)
class Join:
    """The sums target[r, c], r < rows and c < columns, are a part of those of a tile, if `cut`. The
    last grid iteration with a part of a tile to come here gets all of them added up in order. All
    lanes do it together."""

    target: UpdatedPanel
    rows: int
    columns: int
    # Elements that a part has in `work`.
    room: int
    # Tiles, and parts of each.
    slots: int
    parts: int
    # Whether there are other parts.
    cut: Expr
    # The number of the tile, and of the part.
    slot: Expr
    part: Expr
    # True in the grid iteration that has all of the sums: the last one, or where nothing is cut.
    last: Defines
    # Params that `scratch_params` adds: for the parts, and to count them (U32).
    work: str
    tickets: str
    # Of the sums.
    dtype: DType = DType.F32

    def __str__(self) -> str:
        parts = f"part {show(self.part)} of {self.parts} in slot {show(self.slot)}"
        return f"join {self.target} {parts} if {show(self.cut)}"


@dataclass(frozen=True, slots=True)
class Transpose:
    """target[j, i] = source[i, j] for i < rows and j < extent, both of one `dtype` and apart, rows
    of neighbours in both: single elements, or runs of `inner`, of which `outer` is a multiple."""

    target: WrittenPanel
    source: ReadPanel
    rows: Expr
    extent: Expr
    dtype: DType
    # Written past the cache.
    stream: bool = False

    def __str__(self) -> str:
        shape = f"{show(self.rows)}x{show(self.extent)} {self.dtype}{' streamed' * self.stream}"
        return f"transpose {shape}: {self.target} = {self.source}"
