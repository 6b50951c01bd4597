"""Panels of a right operand of bf16 for products of pairs of terms (`TileProduct`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from autofuse.kernel.emit import narrow
from autofuse.kernel.ir import Panel, Transpose
from autofuse.kernel.panels import factor, term_loops
from autofuse.kernel.values import Frame, Puller
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.pull import Index
from autofuse.ops.scalar import Expr, Lit
from autofuse.plan.tiles import Contraction


@dataclass(frozen=True, slots=True)
class PairPanel:
    """What a panel holds: `count` columns from `column` on, filled up to `padded`, the output index
    of a column by its number in the panel, `terms` from the first on, the most there are in any
    panel, and how all columns lie in memory (terms along `inner`) if they do."""

    count: int
    padded: int
    column: Expr
    index: Callable[[Expr], Index]
    first: Expr
    terms: Expr
    most: int
    lying: Panel | None = None

    @property
    def has_pairs(self) -> bool:
        """Terms lie in pairs already: rows of them are only turned."""
        return self.lying is not None and self.lying.inner == 1 and self.lying.outer % 2 == 0


def pack_pairs(base: Frame, p: Contraction, panel: PairPanel) -> Panel:
    """Two terms of a column side by side; zeros behind the last term and the last column."""
    e, size = base.e, -(-panel.most // 2)
    buffer = e.local(DType.BF16, size * 2 * panel.padded, "panel")
    if panel.has_pairs and p.terms % 2 == 0:
        return _turned_pairs(base, panel, buffer)
    step = e.open("k", size)
    for half in range(2):
        term = ix.iadd(panel.first, ix.iadd(ix.imul(step, 2), ix.lit(half)))
        alone = half == 1 and p.terms % 2 == 1
        inside = ix.ilt(term, ix.lit(p.terms)) if alone else Lit(True, DType.BOOL)
        term = ix.iclamp(term, 0, p.terms - 1) if alone else term
        term = e.let_index(term, "t", p.terms)
        start = ix.iadd(ix.imul(step, 2 * panel.padded), ix.lit(half))
        at = ix.delinearize(term, term_loops(base.graph, p))
        lane = e.open("l", panel.count)
        frame = Frame(base.graph, e, dict(base.sources))
        pull = Puller(frame, p.node, frame.pull)
        element = factor(base.graph, p, p.right, panel.index(lane), at, pull)
        chosen = ix.iselect(inside, element, Lit(0.0, element.dtype))
        e.store(buffer, ix.iadd(start, ix.imul(lane, 2)), narrow(chosen, DType.BF16))
        e.close("lane", lane, ix.lit(panel.count))
        if panel.padded > panel.count:
            lane = e.open("l", panel.padded - panel.count)
            place = ix.iadd(start, ix.imul(ix.iadd(lane, ix.lit(panel.count)), 2))
            e.store(buffer, place, Lit(0.0, DType.BF16))
            e.close("lane", lane, ix.lit(panel.padded - panel.count))
    e.close("serial", step, ix.idiv(ix.iadd(panel.terms, ix.lit(1)), 2))
    return Panel(buffer, ix.lit(0), 2 * panel.padded)


def _turned_pairs(base: Frame, panel: PairPanel, buffer: str) -> Panel:
    """Pairs that lie in memory, column by column, go through registers term by term."""
    assert panel.lying is not None
    own = ix.imul(panel.column, panel.lying.outer)
    start = ix.iadd(panel.lying.start, ix.iadd(own, panel.first))
    source = replace(panel.lying, start=start, inner=2)
    target = Panel(buffer, ix.lit(0), 2 * panel.padded, 2)
    e, extent, rest = base.e, ix.idiv(panel.terms, 2), 2 * (panel.padded - panel.count)
    e.put(Transpose(target, source, ix.lit(panel.count), extent, DType.BF16))
    if rest:
        step, lane = e.open("k", panel.most // 2), e.open("l", rest)
        place = ix.iadd(ix.imul(step, target.outer), ix.iadd(lane, ix.lit(2 * panel.count)))
        e.store(buffer, place, Lit(0.0, DType.BF16))
        e.close("lane", lane, ix.lit(rest))
        e.close("serial", step, extent)
    return replace(target, inner=1)
