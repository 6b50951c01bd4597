"""The CUDA text that finds the pieces of patches (`walk.Patches`) in memory, for copies.

What depends on the row alone (where its first tap is, and a bit for each tap that is there) is
found once and kept behind the stages, so that a run costs a look there and an addition for each
piece.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from autofuse.kernel.cuda.mma import Factor, StagedTile
from autofuse.kernel.ir.indices import is_multiple
from autofuse.kernel.ir.walk import ALWAYS, Patches
from autofuse.kernel.text.cuda.tile import Spell


@dataclass(frozen=True)
class PatchText:
    """The pieces of an operand; `position` is the type of places in memory."""

    patches: Patches
    operand: Factor
    text: Spell
    position: str

    @property
    def in_one_tap(self) -> bool:
        """Whether all terms that a stage has of a row are of one tap."""
        own = self.patches
        return own.run % self.operand.run == 0 and is_multiple(own.first_term, self.operand.run)

    def table(self, tile: StagedTile, place: str, size: int) -> Iterator[str]:
        """Finds what is known of each row, dealt to `size` threads; nothing where that is left to
        the copies."""
        own, count = self.patches, self.operand.padded
        behind = f"stage + {tile.each * tile.stages}"
        yield f"int32_t *const rows = reinterpret_cast<int32_t *>({behind});"
        yield f"for (int32_t line = {place}; line < {count}; line += {size}) {{"
        yield f"  {self.row()}"
        yield "  uint32_t there = 0;"
        yield "  #pragma unroll"
        yield f"  for (int32_t tap = 0; tap < {own.taps}; tap++) {{"
        yield f"    const int32_t {own.term.name} = tap * {own.run};"
        yield f"    there |= (uint32_t)({self.text(own.there)}) << tap;"
        yield "  }"
        beyond = "" if self.operand.count == count else f"line >= {self.operand.count} ? 0u : "
        start = f"(int32_t)({self.text(own.start)})"
        yield f"  af_store_vector(af_i32x2, rows, line * 2, {start}, (int32_t)({beyond}there));"
        yield "}"

    def row(self) -> str:
        """The variable of a row: the last one again where there is none."""
        o, own = self.operand, self.patches
        line = "line" if o.count == o.padded else f"af_min_i32(line, {o.count} - 1)"
        return f"const int32_t {own.row.name} = {line} + ({self.text(own.first_row)});"

    def term(self, number: str) -> Iterator[str]:
        """The variables of a tap: its term of the number, and how far that is from its row's
        start."""
        own = self.patches
        name, first = own.term.name, self.text(own.first_term)
        yield f"const int32_t {name} = {number} + ({first});"
        yield f"const {self.position} step = {self.text(own.step)} + {name} % {own.run};"

    def run(self) -> Iterator[str]:
        """What all pieces of a run have in common."""
        if self.in_one_tap:
            yield from self.term("begin")

    def piece(self) -> Iterator[str]:
        """What is only a piece's own."""
        if not self.in_one_tap:
            yield from self.term("begin + piece")
        yield (
            "const af_i32x2 row = af_load_vector(af_i32x2, rows, line * 2);"
            if (self.patches.taps)
            else self.row()
        )

    @property
    def place(self) -> str:
        """Where in memory a piece is."""
        start = "row.x[0]" if self.patches.taps else self.text(self.patches.start)
        return f"({self.position})({start}) + step{' + piece' * self.in_one_tap}"

    @property
    def there(self) -> str:
        """A condition: a piece is in the image; "" where all are."""
        own = self.patches
        if own.taps:
            return f"(uint32_t)row.x[1] >> {own.term.name} / {own.run} & 1u"
        return "" if own.there == ALWAYS else self.text(own.there)
