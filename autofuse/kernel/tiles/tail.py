"""Stream-k: blocks that do not fill a wave are cut along their terms, so that no multiprocessor is
idle while the last of them are computed (Osama, Merrill, Cecka, Garland, Owens, "Stream-K", PPoPP
2023, here for the tiles of the last wave alone)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from autofuse.kernel.ir.emit import Emitter
from autofuse.kernel.ir.types import Join, Panel
from autofuse.kernel.tiles.parts import TileSettings
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Call, Expr, Sym
from autofuse.plan.schedules.tiles import Tiles

# Terms of a part are a multiple of this many, so that whole runs are copied.
WHOLE = 64
ZERO, NO = ix.lit(0), Call("lt", (ix.lit(0), ix.lit(0)), DType.BOOL)


@dataclass(frozen=True, slots=True)
class Tail:
    """The first `whole` of `count` blocks are computed as they are, others in `parts` parts of
    `each` of `total` terms. Of one grid iteration: which block it is, whether it is `cut`, how many
    are before it that are, its part, and its terms from the `first` on."""

    count: int
    whole: int
    parts: int
    each: int
    total: int
    block: Expr = ZERO
    cut: Expr = NO
    slot: Expr = ZERO
    part: Expr = ZERO
    first: Expr = ZERO
    terms: Expr = ZERO

    @property
    def iterations(self) -> int:
        return self.whole + (self.count - self.whole) * self.parts

    def at(self, number: Sym, e: Emitter) -> Tail:
        """That of the grid iteration `number`."""
        beyond = ix.isub(number, ix.lit(self.whole))
        beyond = e.let_index(Call("max", (beyond, ZERO), DType.I64), "t", None)
        before = Call("min", (number, ix.lit(self.whole)), DType.I64)
        slot = e.let_index(ix.idiv(beyond, self.parts), "t", self.count - self.whole)
        part = e.let_index(ix.imod(beyond, self.parts), "t", self.parts)
        block = e.let_index(ix.iadd(before, slot), "t", self.count)
        cut = e.let(Call("ge", (number, ix.lit(self.whole)), DType.BOOL), "t")
        first = ix.imul(part, self.each)
        left = Call("min", (ix.isub(ix.lit(self.total), first), ix.lit(self.each)), DType.I64)
        # No name, so that who copies whole runs sees what it is a multiple of.
        terms = Call("select", (cut, left, ix.lit(self.total)), DType.I64)
        return replace(
            self, block=block, cut=cut, slot=slot, part=part, first=first, terms=terms
        )  # fmt: skip

    def part_of(self, left: Panel, right: Panel) -> tuple[Panel, Panel, Expr]:
        """Operands from the first term of a part on, and how many terms it has."""
        return left.moved(ZERO, self.first), right.moved(self.first, ZERO), self.terms

    def join(
        self, e: Emitter, target: Panel, rows: int, columns: int, room: int, dtype: DType
    ) -> Expr:
        """Add the parts of sums of a type up, of at most `room`; whether this is where that was
        done."""
        last = Sym(e.fresh("last"), DType.BOOL)
        e.put(
            Join(
                target, rows, columns, room, self.count - self.whole, self.parts, self.cut,
                self.slot, self.part, last, "joined", "tickets", dtype,
            )
        )  # fmt: skip
        return last


@contextmanager
def blocks(e: Emitter, count: int, tail: Tail | None) -> Iterator[tuple[Expr, Tail | None]]:
    """The grid over so many blocks: which of them a grid iteration works on, and its part."""
    extent = count if tail is None else tail.iterations
    number = e.open("b", extent)
    own = None if tail is None else tail.at(number, e)
    yield number if own is None else own.block, own
    e.close("grid", number, ix.lit(extent))


def part_terms(terms: int, parts: int) -> int:
    """The terms of each part but the last one, which may have fewer."""
    return -(-terms // (parts * WHOLE)) * WHOLE


def _is_one_tile(tiles: Tiles, settings: TileSettings, height: int, width: int) -> bool:
    """Whether a block is one tile of one product."""
    if len(tiles.products) > 1 or not tiles.columns:
        return False
    return height <= settings.rows and width <= settings.columns


def tail_of(
    tiles: Tiles, settings: TileSettings, count: int, height: int, width: int
) -> Tail | None:
    """How the last of `count` blocks are cut; None where they are not: all waves are full, a block
    is more than one tile of one product, or has too few terms."""
    rest = count % settings.wave if settings.wave else 0
    if not rest or settings.tail == 1 or settings.term_block or settings.across:
        return None
    if not _is_one_tile(tiles, settings, height, width):
        return None
    terms = tiles.products[0].terms
    each = part_terms(terms, settings.tail)
    if each * (settings.tail - 1) >= terms:
        return None
    return Tail(count, count - rest, settings.tail, each, terms)
