"""How panels of a right operand are filled: term by term, or pair of terms by pair of terms for
products of bf16 (`TileProduct`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from autofuse.kernel.elements.values import Frame, Puller
from autofuse.kernel.ir.emit import narrow
from autofuse.kernel.ir.types import Panel, Transpose
from autofuse.kernel.tiles.panels import factor, term_loops
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.pull import Index
from autofuse.ops.scalar import Expr, Lit
from autofuse.plan.schedules.tiles import Contraction


@dataclass(frozen=True, slots=True)
class PanelPart:
    """What a panel holds: `count` columns from `column` on, filled up to `padded`, the output index
    of a column by its number in the panel, `terms` from the first on, the most there are in any
    panel, the multiple of terms that a panel of pairs is filled up to (`unit`), and how all columns
    lie in memory as they are stored (terms along `inner`) if they do."""

    count: int
    padded: int
    column: Expr
    index: Callable[[Expr], Index]
    first: Expr
    terms: Expr
    most: int
    unit: int = 0
    lying: Panel | None = None

    @property
    def has_pairs(self) -> bool:
        """Terms lie in pairs already: rows of them are only turned."""
        return self.lying is not None and self.lying.inner == 1 and self.lying.outer % 2 == 0

    @property
    def elements(self) -> int:
        """The most that a panel of pairs holds."""
        return -(-self.most // self.unit) * self.unit * self.padded


def fill_panel(
    base: Frame, p: Contraction, part: PanelPart, buffer: str, begin: Expr, dtype: DType
) -> None:
    """Copy terms of some columns of the right operand into a buffer of `dtype`, from `begin` on,
    each with zeros behind the last column; in pairs where the part has a `unit`."""
    if part.unit:
        pack_pairs(base, p, part, buffer, begin)
        return
    e, frame = base.e, Frame(base.graph, base.e, dict(base.sources))
    step = e.open("k", part.most)
    term = e.let_index(ix.iadd(part.first, step), "t", p.terms)
    at = ix.delinearize(term, term_loops(base.graph, p))
    lane = e.open("l", part.count)
    index = part.index(lane)
    element = factor(base.graph, p, p.right, index, at, Puller(frame, p.node, frame.pull))
    start = ix.iadd(begin, ix.imul(step, part.padded))
    e.store(buffer, ix.iadd(start, lane), narrow(element, dtype))
    e.close("lane", lane, ix.lit(part.count))
    if part.padded > part.count:
        fill_zeros(
            base, dtype, buffer, ix.iadd(start, ix.lit(part.count)), part.padded - part.count
        )
    e.close("serial", step, part.terms)


def pack_pairs(
    base: Frame, p: Contraction, part: PanelPart, buffer: str, begin: Expr = ix.lit(0)  # noqa: B008 - frozen
) -> Panel:  # fmt: skip
    """Two terms of a column side by side, in a buffer of bf16 from `begin` on; zeros behind the
    last term, up to a multiple of `unit`, and the last column."""
    made = Panel(buffer, begin, 2 * part.padded)
    if part.has_pairs and p.terms % 2 == 0:
        _turned_pairs(base, part, made)
    else:
        _chosen_pairs(base, p, part, made)
    pairs = ix.idiv(ix.iadd(part.terms, ix.lit(1)), 2)
    whole = ix.imul(ix.idiv(ix.iadd(part.terms, ix.lit(part.unit - 1)), part.unit), part.unit // 2)
    rest = ix.isub(whole, pairs)
    if rest != ix.lit(0):
        step = base.e.open("k", part.unit // 2)
        start = ix.iadd(begin, ix.imul(ix.iadd(pairs, step), made.outer))
        fill_zeros(base, DType.BF16, buffer, start, made.outer)
        base.e.close("serial", step, rest)
    return made


def fill_zeros(base: Frame, dtype: DType, buffer: str, start: Expr, count: int) -> None:
    """Zeros in so many elements of a buffer."""
    lane = base.e.open("l", count)
    base.e.store(buffer, ix.iadd(start, lane), Lit(0.0, dtype))
    base.e.close("lane", lane, ix.lit(count))


def _chosen_pairs(base: Frame, p: Contraction, part: PanelPart, target: Panel) -> None:
    """Pairs of terms that are read, or computed, one by one."""
    e, odd = base.e, p.terms % 2 == 1
    step = e.open("k", -(-part.most // 2))
    first = ix.iadd(part.first, ix.imul(step, 2))
    second = ix.iadd(first, ix.lit(1))
    inside = ix.ilt(second, ix.lit(p.terms)) if odd else Lit(True, DType.BOOL)
    second = ix.iclamp(second, 0, p.terms - 1) if odd else second
    terms = [e.let_index(term, "t", p.terms) for term in (first, second)]
    start = ix.iadd(target.start, ix.imul(step, target.outer))
    # Both halves in one loop: compilers lay two runs out in turns, but scatter one by itself.
    lane = e.open("l", part.count)
    index = part.index(lane)
    for half, term in enumerate(terms):
        frame = Frame(base.graph, e, dict(base.sources))
        at = ix.delinearize(term, term_loops(base.graph, p))
        element = factor(base.graph, p, p.right, index, at, Puller(frame, p.node, frame.pull))
        chosen = ix.iselect(inside, element, Lit(0.0, element.dtype)) if half else element
        place = ix.iadd(ix.iadd(start, ix.lit(half)), ix.imul(lane, 2))
        e.store(target.buffer, place, narrow(chosen, DType.BF16))
    e.close("lane", lane, ix.lit(part.count))
    if part.padded > part.count:
        behind = ix.iadd(start, ix.lit(2 * part.count))
        fill_zeros(base, DType.BF16, target.buffer, behind, 2 * (part.padded - part.count))
    e.close("serial", step, ix.idiv(ix.iadd(part.terms, ix.lit(1)), 2))


def _turned_pairs(base: Frame, part: PanelPart, target: Panel) -> None:
    """Pairs that lie in memory, column by column, go through registers term by term."""
    assert part.lying is not None
    own = ix.imul(part.column, part.lying.outer)
    start = ix.iadd(part.lying.start, ix.iadd(own, part.first))
    source = replace(part.lying, start=start, inner=2)
    e, extent, rest = base.e, ix.idiv(part.terms, 2), 2 * (part.padded - part.count)
    made = Transpose(replace(target, inner=2), source, ix.lit(part.count), extent, DType.BF16)
    e.put(made)
    if rest:
        step = e.open("k", -(-part.most // 2))
        behind = ix.iadd(ix.imul(step, target.outer), ix.lit(2 * part.count))
        fill_zeros(base, DType.BF16, target.buffer, ix.iadd(target.start, behind), rest)
        e.close("serial", step, extent)
