"""Register tiles for tensor cores whose left operand is copied to its stages by index, in pieces:
the patches of an image, which are in no scratch of their own (an implicit product)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from autofuse.kernel.cuda.mma import PIECE
from autofuse.kernel.ir.indices import is_multiple
from autofuse.kernel.ir.types import Panel, TileProduct
from autofuse.kernel.ir.walk import Patches
from autofuse.kernel.tiles.block import TileBlock
from autofuse.kernel.tiles.panels import symbol
from autofuse.kernel.tiles.parts import RightPanel, TermBlock, TileRun
from autofuse.kernel.tiles.walk import block_way
from autofuse.kernel.tiles.walks import Way, steps
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.pull import Index
from autofuse.ops.scalar import Expr, Sym
from autofuse.plan.schedules.tiles import Contraction

# Bits of a word, and elements that have numbers of as many with a sign.
WORD, MOST = 32, 1 << 31


@dataclass(frozen=True, slots=True)
class PatchedProduct:
    """Multiplies tiles of one product of a block by `patches`, of which the first row and term are
    those of a tile."""

    b: TileBlock
    p: Contraction
    way: Way
    patches: Patches

    @staticmethod
    def of(b: TileBlock, p: Contraction) -> PatchedProduct | None:
        """None where the operand is no image in memory of which whole pieces of 16 bytes are there
        or are not, neighbours and aligned."""
        way = block_way(b, p, stored=True) if b.instruction(p) and not p.diagonal else None
        lanes = PIECE // b.factor_dtype(p).itemsize
        if way is None or way.inner != 1 or way.run % lanes:
            return None
        row, term = (Sym(b.e.fresh(n), DType.I64, x) for n, x in (("m", b.rows), ("k", p.terms)))
        taps = ix.delinearize(ix.idiv(term, way.run), way.taps)
        index = b.out_index(p, row, ix.lit(0))
        found = steps(b.base, p, way, taps, [index])
        if not is_multiple(found.starts[0], lanes):
            return None
        start, count = found.starts[0], 0
        step: Expr = ix.lit(0)
        parted = _parted(b, p, way, taps, index)
        if parted is not None and b.graph.type_of(b.graph[p.node].inputs[p.left]).size < MOST:
            (start, step), count = parted, way.count
        there = ix.iand(found.needed, found.there[0])
        zero = ix.lit(0)
        return PatchedProduct(
            b, p, way, Patches(row, term, zero, zero, start, step, there, way.run, count)
        )  # fmt: skip

    def multiply(
        self, tile: TileRun, count: int, target: Panel, right: RightPanel, column: Expr,
        block: TermBlock,
    ) -> None:  # fmt: skip
        """One tile, at a block of terms; all columns have the same left operand."""
        b, p = self.b, self.p
        left, panel = Panel(self.way.buffer, ix.lit(0), 0), right.panel
        terms, first = b.count_terms(p, block), block.first
        if b.tail is not None:
            _, panel, terms = b.tail.part_of(left, panel)
            first = b.tail.first
        row = ix.iadd(b.first_row, tile.first)
        patches = replace(self.patches, first_row=row, first_term=first)
        made = TileProduct(
            tile.count, right.width, terms, target, left, panel, b.factor_dtype(p), not block.cut,
        )  # fmt: skip
        b.e.put(replace(made, walk=patches, mma=b.instruction(p), there=tile.there))


def _parted(
    b: TileBlock, p: Contraction, way: Way, taps: Index, index: Index
) -> tuple[Expr, Expr] | None:
    """What of the start of a row's terms does not depend on the tap, and the rest, which depends on
    nothing else; None where it is no such sum, or taps are too many for the bits of a word."""
    if way.count > WORD:
        return None
    marks = tuple(symbol(f"tap{k}", extent) for k, extent in enumerate(way.taps))
    (start,) = steps(b.base, p, way, marks, [index]).starts
    found = ix.coefficients(start, tuple(m.name for m in marks))
    if found is None:
        return None
    step: Expr = ix.lit(0)
    for tap, factor in zip(taps, found[0], strict=True):
        step = ix.iadd(step, ix.imul(tap, factor))
    return found[1], step


def patched(b: TileBlock) -> Iterator[tuple[int, PatchedProduct]]:
    """Those of the products of a block that are multiplied so, by node."""
    for p in b.tiles.products:
        product = PatchedProduct.of(b, p)
        if product is not None:
            yield p.node, product
