"""The copier of operands: a `TileOperand` is what is copied, a `Panel` how it lies in scratch.

Lines of an operand are the rows of a left one and the columns of a right one. Lanes run along
lines, so that a term of all of them is one vector (the packed blocks of BLIS; Van Zee, van de
Geijn, ACM TOMS 41, 2015), or along terms where an instruction wants these to be neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from autofuse.kernel.elements.values import Frame, Puller
from autofuse.kernel.ir.emit import narrow
from autofuse.kernel.ir.types import Panel, Transpose
from autofuse.kernel.tiles.block import TileBlock
from autofuse.kernel.tiles.panels import factor, term_loops
from autofuse.kernel.tiles.parts import ALL_TERMS, TermBlock, covering
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.pull import Index
from autofuse.ops.scalar import Call, Expr, Lit
from autofuse.plan.schedules.pairs import TILE_TERMS
from autofuse.plan.schedules.tiles import Contraction


@dataclass(frozen=True, slots=True)
class TileOperand:
    """An operand of a product of a block, as it is copied."""

    b: TileBlock
    p: Contraction
    # Which operand of the product's node it is.
    side: int
    # What it is copied as.
    dtype: DType
    # The present block of terms (None: there are no blocks).
    block: TermBlock | None = None

    @property
    def most(self) -> int:
        """The most terms that are copied at once."""
        return self.present.cut or self.p.terms

    @property
    def terms(self) -> Expr:
        """Terms of the present block."""
        return self.b.count_terms(self.p, self.present)

    @property
    def present(self) -> TermBlock:
        return self.block or ALL_TERMS

    def term(self, own: Expr) -> Expr:
        """The number of a term that has the number `own` in the present block."""
        return ix.iadd(self.present.first, own)

    def named(self, own: Expr) -> Expr:
        """The same, as a name where terms come in blocks."""
        term = self.term(own)
        return term if self.block is None else self.b.e.let_index(term, "t", self.p.terms)

    def index(self, line: Expr) -> Index:
        """The output index of a line, which is given its name here."""
        b, p = self.b, self.p
        if self.side == p.left:
            return b.out_index(p, b.e.let_index(line, "m", b.rows), ix.lit(0))
        return b.out_index(p, ix.lit(0), b.e.let_index(line, "n", p.width))

    def element(self, index: Index, term: Expr, frame: Frame | None = None) -> Expr:
        """What a term of a line is, as it is computed."""
        frame, graph = frame or self.b.base.fresh(), self.b.graph
        at = ix.delinearize(term, term_loops(graph, self.p))
        pull = Puller(frame, self.p.node, frame.pull)
        return factor(graph, self.p, self.side, index, at, pull)

    def store(self, buffer: str, place: Expr, element: Expr) -> None:
        """Keep an element in scratch."""
        self.b.e.store(buffer, place, narrow(element, self.dtype))


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines of an operand, side by side in a panel of scratch."""

    # The number of the first in the whole, and how many there may be.
    first: Expr
    count: int
    # The panel, over terms and lines.
    panel: Panel
    # How many of them are there (None: all).
    there: Expr | None = None
    # Whether the panel's rows end with zeros where they have more elements than there are lines.
    filled: bool = True


def stage(o: TileOperand, runs: Iterable[Lines]) -> None:
    """Copy the present terms of some lines, one term after another, lanes along lines."""
    b, e, frame = o.b, o.b.e, o.b.base.fresh()
    own = e.open("k", o.most)
    term = o.named(own)
    for lines in runs:
        panel = lines.panel
        start = ix.iadd(panel.start, ix.imul(own, panel.outer))
        lane = e.open("l", lines.count)
        index = o.index(ix.iadd(lines.first, lane))
        o.store(panel.buffer, ix.iadd(start, lane), o.element(index, term, frame))
        e.close("lane", lane, lines.there or ix.lit(lines.count))
        rest = panel.outer - lines.count
        if rest > 0 and lines.filled:
            b.zeros(o.dtype, panel.buffer, ix.iadd(start, ix.lit(lines.count)), rest)
    e.close("serial", own, o.terms)


def stage_along(o: TileOperand, runs: Iterable[Lines]) -> None:
    """Copy all terms of some lines, one line after another, lanes along terms."""
    e = o.b.e
    for lines in runs:
        line, lane = e.open("c", lines.count), e.open("l", o.p.terms)
        index = o.index(ix.iadd(lines.first, line))
        place = ix.iadd(lines.panel.start, ix.iadd(ix.imul(line, lines.panel.inner), lane))
        o.store(lines.panel.buffer, place, o.element(index, lane))
        e.close("lane", lane, ix.lit(o.p.terms))
        e.close("serial", line, lines.there or ix.lit(lines.count))


def stage_pairs(o: TileOperand, lines: Lines, unit: int, lying: Panel | None) -> None:
    """Copy lines, two terms of a line side by side, with zeros behind the last term, up to
    a multiple of `unit`, and the last line. `lying` is how all lines lie in memory as they are
    stored (terms along `inner`), if they do."""
    b, e, panel = o.b, o.b.e, lines.panel
    in_pairs = lying is not None and lying.inner == 1 and lying.outer % 2 == 0
    if lying is not None and in_pairs and o.p.terms % 2 == 0:
        _turned_pairs(o, lines, lying)
    else:
        _chosen_pairs(o, lines)
    pairs = covering(o.terms, 2)
    whole = ix.imul(covering(o.terms, unit), unit // 2)
    rest = ix.isub(whole, pairs)
    if rest != ix.lit(0):
        step = e.open("k", unit // 2)
        start = ix.iadd(panel.start, ix.imul(ix.iadd(pairs, step), panel.outer))
        b.zeros(o.dtype, panel.buffer, start, panel.outer)
        e.close("serial", step, rest)


def _chosen_pairs(o: TileOperand, lines: Lines) -> None:
    """Pairs of terms that are read, or computed, one by one."""
    b, e, p, panel = o.b, o.b.e, o.p, lines.panel
    odd = p.terms % 2 == 1
    step = e.open("k", -(-o.most // 2))
    first = o.term(ix.imul(step, 2))
    second = ix.iadd(first, ix.lit(1))
    inside = ix.ilt(second, ix.lit(p.terms)) if odd else Lit(True, DType.BOOL)
    second = ix.iclamp(second, 0, p.terms - 1) if odd else second
    terms = [e.let_index(term, "t", p.terms) for term in (first, second)]
    start = ix.iadd(panel.start, ix.imul(step, panel.outer))
    # Both halves in one loop: compilers lay two runs out in turns, but scatter one by itself.
    lane = e.open("l", lines.count)
    index = o.index(ix.iadd(lines.first, lane))
    for half, term in enumerate(terms):
        element = o.element(index, term)
        chosen = ix.iselect(inside, element, Lit(0.0, element.dtype)) if half else element
        place = ix.iadd(ix.iadd(start, ix.lit(half)), ix.imul(lane, 2))
        o.store(panel.buffer, place, chosen)
    e.close("lane", lane, ix.lit(lines.count))
    rest = panel.outer - 2 * lines.count
    if rest > 0:
        b.zeros(o.dtype, panel.buffer, ix.iadd(start, ix.lit(2 * lines.count)), rest)
    e.close("serial", step, covering(o.terms, 2))


def _turned_pairs(o: TileOperand, lines: Lines, lying: Panel) -> None:
    """Pairs that lie in memory, line by line, go through registers term by term."""
    e, panel, extent = o.b.e, lines.panel, ix.idiv(o.terms, 2)
    source = replace(lying.moved(lines.first, o.term(ix.lit(0))), inner=2, whole=None)
    made = replace(panel, inner=2)
    e.put(Transpose(made, source, ix.lit(lines.count), extent, o.dtype))
    rest = panel.outer - 2 * lines.count
    if rest > 0:
        step = e.open("k", -(-o.most // 2))
        behind = ix.iadd(ix.imul(step, panel.outer), ix.lit(2 * lines.count))
        o.b.zeros(o.dtype, panel.buffer, ix.iadd(panel.start, behind), rest)
        e.close("serial", step, extent)


def stage_tiles(o: TileOperand, first: Expr, count: int, panel: Panel) -> None:
    """Copy `count` lines from the `first` on as AMX reads them: 32 terms of one line after another,
    then the next 32 terms, with zeros behind the last."""
    b, e = o.b, o.b.e
    line = e.open("r", count)
    index = o.index(ix.iadd(first, line))
    start = ix.iadd(panel.start, ix.imul(line, TILE_TERMS))
    full, rest = ix.idiv(o.terms, TILE_TERMS), ix.imod(o.terms, TILE_TERMS)

    def copy(tile: Expr, terms: Expr) -> None:
        place, lane = ix.iadd(start, ix.imul(tile, panel.apart)), e.open("l", TILE_TERMS)
        term = o.term(ix.iadd(ix.imul(tile, TILE_TERMS), lane))
        o.store(panel.buffer, ix.iadd(place, lane), o.element(index, term))
        e.close("lane", lane, terms)

    step = e.open("q", -(-o.most // TILE_TERMS))
    copy(step, ix.lit(TILE_TERMS))
    e.close("serial", step, full)
    if rest != ix.lit(0):
        with b.only(Call("gt", (rest, ix.lit(0)), DType.BOOL)):
            place = ix.iadd(start, ix.imul(full, panel.apart))
            b.zeros(o.dtype, panel.buffer, place, TILE_TERMS)
            copy(full, rest)
    e.close("serial", line, ix.lit(count))
