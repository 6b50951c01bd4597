"""Register tiles for tensor cores whose left operand is copied to its stages by index, piece by piece:
the patches of an image, which are in no scratch of their own (an implicit product)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from autofuse.kernel.cuda_mma import PIECE
from autofuse.kernel.indices import is_multiple
from autofuse.kernel.ir import Panel, TileProduct
from autofuse.kernel.tile_block import TileBlock
from autofuse.kernel.tile_parts import RightPanel, TileRun
from autofuse.kernel.tile_walk import block_way
from autofuse.kernel.walk_ir import Patches
from autofuse.kernel.walks import TapSteps, Way, steps
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Expr, Sym
from autofuse.plan.tiles import Contraction


@dataclass(frozen=True, slots=True)
class PatchedProduct:
    """Multiplies tiles of one product of a block; the terms that begin at the tap of number `term`
    in the row of number `row` are `found`."""

    b: TileBlock
    p: Contraction
    way: Way
    row: Sym
    term: Sym
    found: TapSteps

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
        found = steps(b.base, p, way, taps, [b.out_index(p, row, ix.lit(0))])
        whole = is_multiple(found.starts[0], lanes)
        return PatchedProduct(b, p, way, row, term, found) if whole else None

    def multiply(
        self, tile: TileRun, count: int, target: Panel, right: RightPanel, column: Expr,
        cut: int, number: Expr,
    ) -> None:  # fmt: skip
        """One tile, at block `number` of `cut` terms; all columns have the same left operand."""
        b, p = self.b, self.p
        left, panel = Panel(self.way.buffer, ix.lit(0), 0), right.panel
        terms, first = b.block_terms(p, cut, number), ix.imul(number, cut)
        if b.tail is not None:
            _, panel, terms = b.tail.part_of(left, panel)
            first = b.tail.first
        there = ix.iand(self.found.needed, self.found.there[0])
        patches = Patches(
            self.row, self.term, ix.iadd(b.first_row, tile.first), first, self.found.starts[0],
            there, self.way.run,
        )  # fmt: skip
        made = TileProduct(
            tile.count, right.width, terms, target, left, panel, b.factor_dtype(p), not cut,
        )  # fmt: skip
        b.e.put(replace(made, walk=patches, mma=b.instruction(p)))


def patched(b: TileBlock) -> Iterator[tuple[int, PatchedProduct]]:
    """Those of the products of a block that are multiplied so, by node."""
    for p in b.tiles.products:
        product = PatchedProduct.of(b, p)
        if product is not None:
            yield p.node, product
