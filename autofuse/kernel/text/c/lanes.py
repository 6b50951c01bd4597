"""The C text of a register tile whose vectors run along a batch: an element of as many products."""

from __future__ import annotations

from collections.abc import Iterator

from autofuse.kernel.ir.types import Panel, TileProduct
from autofuse.kernel.text.c.tile import Text, operand_lines
from autofuse.kernel.text.dialects import C


def lanes_text(stmt: TileProduct, text: Text) -> Iterator[str]:
    """The lines of a block that computes one tile for `stmt.lanes` products at once."""
    element = C.types[stmt.dtype]
    vector = f"af_{element}x{stmt.lanes}"
    columns = range(stmt.columns)
    yield "{"
    yield from operand_lines(stmt, text, element, element)
    cells = [(r, c) for r in range(stmt.rows) for c in columns]
    for r, c in cells:
        start = "{0}" if stmt.fresh else _at(vector, "tc", stmt.target, r, c)
        yield f"  {vector} c{r}_{c} = {start};"
    yield f"  for (int64_t tk = 0; tk < {text(stmt.extent)}; tk++) {{"
    for c in columns:
        place = f"tb + tk * {stmt.right.outer} + {c * stmt.right.inner}"
        yield f"    const {vector} b{c} = *(const {vector}_u *)({place});"
    for r in range(stmt.rows):
        place = f"ta + tk * {stmt.left.inner} + {r * stmt.left.outer}"
        sums = " ".join(f"c{r}_{c} += a * b{c};" for c in columns)
        yield f"    {{ const {vector} a = *(const {vector}_u *)({place}); {sums} }}"
    yield "  }"
    for r, c in cells:
        yield f"  {_at(vector, 'tc', stmt.target, r, c)} = c{r}_{c};"
    yield "}"


def _at(vector: str, name: str, panel: Panel, row: int, column: int) -> str:
    return f"*({vector}_u *)({name} + {row * panel.outer + column * panel.inner})"
