"""What follows the products of a tile: the outputs of a segment, element by element."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from autofuse.graph.types import Value
from autofuse.kernel.elements.values import Frame
from autofuse.kernel.ir.emit import narrow
from autofuse.kernel.tiles.block import TileBlock
from autofuse.kernel.tiles.parts import TileRun
from autofuse.ops import index as ix
from autofuse.ops.pull import Index
from autofuse.ops.scalar import Expr, Sym

# The index at which an output is stored.
IndexOf = Callable[[Value], Index]


@dataclass(frozen=True, slots=True)
class TileCell:
    """An element of a tile: its row and its column in the tile, and both in the whole."""

    row: Sym
    column: Sym
    at_row: Expr
    at_column: Expr


def epilogue(
    b: TileBlock, tile: TileRun, run: TileRun, first: Expr, width: int,
    known: Callable[[TileCell], tuple[Frame, IndexOf]],
) -> None:  # fmt: skip
    """The outputs of a tile, row by row, lanes over a run of its columns, which are counted from
    the `first` of `width` on. `known` gives a frame of what is known of a cell."""
    row, lane = b.e.open("r", tile.count), b.e.open("l", run.count)
    at_row = b.e.let_index(ix.iadd(b.first_row, ix.iadd(tile.first, row)), "m", b.rows)
    at_column = b.e.let_index(ix.iadd(first, ix.iadd(run.first, lane)), "n", width)
    store_outputs(b, b.form.outputs, *known(TileCell(row, lane, at_row, at_column)))
    b.e.close("lane", lane, ix.lit(run.count))
    b.e.close("serial", row, tile.there or ix.lit(tile.count))


def store_outputs(b: TileBlock, values: Iterable[Value], frame: Frame, at: IndexOf) -> None:
    """Store one element of some outputs."""
    for value in values:
        out, index = b.graph.type_of(value), at(value)
        element = narrow(frame.pull(value, index), out.dtype)
        b.e.store(b.targets[value], ix.linearize(index, out.shape), element)


def at_items(b: TileBlock, items: Index) -> IndexOf:
    """The element that an output has at an item: what is local to an item has one element."""
    return lambda value: tuple(items[t] if isinstance(t, int) else ix.lit(0) for t in b.tags[value])
