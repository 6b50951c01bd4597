"""Tiles of rows of a block where tensor cores multiply: one text for all of them.

Whatever tile the last rows make, tensor cores multiply 16 or 64 rows at a time, so a text of its
own would save little time, and double the text: its compiler's time, and the registers that two
pipelines of copies want where both are there.
"""

from __future__ import annotations

from collections.abc import Iterator

from autofuse.kernel.tiles.block import TileBlock
from autofuse.kernel.tiles.parts import TileRun, covering
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Call


def row_tiles(b: TileBlock) -> Iterator[TileRun]:
    """The tiles of a block's rows; of the last one some may not be there."""
    step = b.s.rows
    one_text = all(map(b.instruction, b.tiles.products)) and not b.s.lines
    if not one_text or b.rows <= step or b.rows % step == 0:
        yield from b.row_tiles()
        return
    number = b.e.open("s", b.height // step)
    first = ix.imul(number, step)
    left = ix.isub(ix.isub(ix.lit(b.rows), b.first_row), first)
    there = Call("min", (ix.lit(step), left), DType.I64)
    yield TileRun(first, step, b.e.let_index(there, "r", step + 1))
    count = b.count_of(b.first_row, b.rows, b.height)
    b.e.close("serial", number, covering(count, step))
