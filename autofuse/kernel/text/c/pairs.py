"""The C text of a register tile of bf16: pairs of terms, which one instruction multiplies and adds.

A lane holds two terms of a column, and a number on the left two of a row. Where the processor has
no such instruction the prelude does the same in f32.
"""

from __future__ import annotations

from collections.abc import Iterator

from autofuse.kernel.ir.types import TileProduct
from autofuse.kernel.text.c.tile import Text, operand_lines
from autofuse.kernel.text.dialects import C
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Lit


def pair_operands(stmt: TileProduct, text: Text) -> Iterator[str]:
    """The opening lines of a block of one tile: where its operands (`ta`, `tb`) and its target
    (`tc`) start, and how many terms there are (`te`)."""
    yield "{"
    yield from operand_lines(stmt, text, C.types[DType.BF16], "float")
    yield f"  const int64_t te = {text(stmt.extent)};"


def pairs_text(stmt: TileProduct, text: Text, vector_bytes: int) -> Iterator[str]:
    """The lines of a block that computes one tile in vectors of at most `vector_bytes`. A last term
    without another is read alone: what lies behind it belongs to others."""
    extent = stmt.extent
    lanes = min(vector_bytes // 4, 16)
    firsts = range(0, stmt.columns, lanes)
    yield from pair_operands(stmt, text)
    for r in range(stmt.rows):
        for c in firsts:
            at = f"*(af_floatx{lanes}_u *)(tc + {r * stmt.target.outer + c})"
            yield f"  af_floatx{lanes} c{r}_{c} = {'{0}' if stmt.fresh else at};"
    yield "  for (int64_t tk = 0; tk < te / 2; tk++) {"
    yield from _step(stmt, "af_pair", lanes, firsts)
    yield "  }"
    if not isinstance(extent, Lit) or int(extent.value) % 2:
        yield "  if (te % 2) {"
        yield "    const int64_t tk = te / 2;"
        yield from _step(stmt, "*", lanes, firsts)
        yield "  }"
    for r in range(stmt.rows):
        for c in firsts:
            at = f"*(af_floatx{lanes}_u *)(tc + {r * stmt.target.outer + c})"
            yield f"  {at} = c{r}_{c};"
    yield "}"


def _step(stmt: TileProduct, read: str, lanes: int, firsts: range) -> Iterator[str]:
    """What is done with one pair of terms."""
    vector = f"af_int32_tx{lanes}"
    for c in firsts:
        place = f"tb + tk * {stmt.right.outer} + {2 * c}"
        yield f"    const {vector} b{c} = *(const {vector}_u *)({place});"
    for r in range(stmt.rows):
        left = f"{read}(ta + tk * 2 + {r * stmt.left.outer})"
        sums = " ".join(f"c{r}_{c} = af_pairs_x{lanes}(c{r}_{c}, a, b{c});" for c in firsts)
        yield f"    {{ const int32_t a = {left}; {sums} }}"
