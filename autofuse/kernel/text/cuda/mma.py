"""The CUDA text of a tile on tensor cores: all warps of a block compute it together.

Copies of a run of terms are asked for as many stages ahead as there are, less one, into the place
that all have read before the last barrier; a thread waits for its own, then for all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from autofuse.kernel.cuda.mma import HIGH, STEP_BYTES, Factor, MmaTile
from autofuse.kernel.cuda.shape import Team
from autofuse.kernel.ir.instructions import INSTRUCTIONS
from autofuse.kernel.ir.types import TileProduct
from autofuse.kernel.text.cuda.copies import CopyText
from autofuse.kernel.text.cuda.sums import SumsText
from autofuse.kernel.text.cuda.tile import Spell
from autofuse.kernel.text.dialects import CUDA
from autofuse.ops.dtypes import DType


@dataclass(frozen=True)
class MmaText:
    """Prints one statement. Buffers `outside` are in global memory, where positions need 64 bits if
    `wide`."""

    stmt: TileProduct
    tile: MmaTile
    text: Spell
    team: Team
    outside: frozenset[str]
    wide: bool

    def lines(self) -> Iterator[str]:
        """The lines of a block that computes the tile."""
        stmt, tile, team = self.stmt, self.tile, self.team
        warps, element = tile.warps, CUDA.types[stmt.dtype]
        busy = f"warp < {warps.down * warps.across}"
        yield "{"
        yield f"  const int32_t lane = {team.place} % 32, warp = {team.place} / 32;"
        yield f"  const int32_t top = warp / {warps.across} * {warps.rows};"
        yield f"  const int32_t side = warp % {warps.across} * {warps.columns};"
        yield f"  const int32_t terms = {self.text(stmt.extent)};"
        if stmt.there is not None:
            yield f"  const int32_t {HIGH} = {self.text(stmt.there)};"
        for name, panel in (("ta", stmt.left), ("tb", stmt.right), ("tc", stmt.target)):
            yield f"  const auto {name} = {panel.buffer} + ({self.text(panel.start)});"
        yield f"  const auto stage = reinterpret_cast<{element} *>({stmt.stage} + 0);"
        zeros = " = {}" if stmt.fresh else ""
        yield f"  {CUDA.types[self.sum]} sums[{warps.rows // 16}][{warps.columns // 8}][4]{zeros};"
        yield from (f"  {line}" for line in self.copies.table(tile, team))
        yield f"  {team.sync}"
        if not stmt.fresh:
            yield from self.sums(self.own.read)
        yield from self.runs(busy)
        # What all have read may be where the sums go, or what comes next.
        yield f"  {team.sync}"
        yield f"  if ({busy}) {{"
        yield from (f"  {line}" for line in self.sums(self.own.store))
        yield "  }"
        yield f"  {team.sync}"
        yield "}"

    # --- sums -------------------------------------------------------------------------------------

    @property
    def sum(self) -> DType:
        """The type of sums."""
        return INSTRUCTIONS[self.stmt.mma].sums

    def element(self, k: int) -> str:
        """Sum k of a pair. Where bytes of columns are turned by pairs, even and odd columns are of
        two instructions."""
        turned = self.tile.right.by_pairs
        return f"sums[i][j / 2 * 2 + {k}][2 * h + j % 2]" if turned else f"sums[i][j][2 * h + {k}]"

    def sums(self, visit: Callable[[], Iterator[str]]) -> Iterator[str]:
        """A loop over the pairs of sums of a lane: element (m, n) of the tile and its neighbour."""
        warps, tile = self.tile.warps, self.tile
        row = "lane / 4 * 2 + h" if tile.left.by_pairs else "h * 8 + lane / 4"
        column = "j * 8 + lane % 4 * 2"
        if tile.right.by_pairs:
            column = "j / 2 * 16 + lane % 4 * 4 + j % 2 * 2"
        for var, extent in (("i", warps.rows // 16), ("j", warps.columns // 8), ("h", 2)):
            yield "  #pragma unroll"
            yield f"  for (int32_t {var} = 0; {var} < {extent}; {var}++) {{"
        yield f"    const int32_t m = top + i * 16 + {row};"
        yield f"    const int32_t n = side + {column};"
        yield from (f"    {line}" for line in visit())
        yield "  }}}"

    @property
    def own(self) -> SumsText:
        left, right = self.tile.left.padded, self.tile.right.padded
        return SumsText(self.stmt, left, right, self.sum, (self.element(0), self.element(1)))

    @property
    def copies(self) -> CopyText:
        team, ahead = self.team, self.tile.stages > 1
        return CopyText(self.stmt, self.text, team.size, team.place, self.outside, self.wide, ahead)

    # --- runs of terms ----------------------------------------------------------------------------

    def runs(self, busy: str) -> Iterator[str]:
        """All runs of terms: fetched ahead, waited for, multiplied."""
        stages, run = self.tile.stages, self.tile.run
        ahead = stages - 1
        yield f"  const int32_t runs = (terms + {run - 1}) / {run};"
        if ahead:
            yield "  #pragma unroll"
            yield f"  for (int32_t r = 0; r < {ahead}; r++) {{"
            yield from self.fetch("r", "r < runs", "r")
            yield "  }"
        yield "  for (int32_t r = 0; r < runs; r++) {"
        if ahead:
            yield f"    af_await_copies({ahead - 1});"
            yield f"    {self.team.sync}"
            yield from self.fetch(
                f"r + {ahead}", f"r + {ahead} < runs", f"(r + {ahead}) % {stages}"
            )
        else:
            yield f"    if (r) {self.team.sync}"
            yield from self.fetch("r", "", "0")
            yield "    af_await_copies(0);"
            yield f"    {self.team.sync}"
        here = f" + r % {stages} * {self.tile.each}" if ahead else " + 0"
        yield f"    const auto sa = stage{here}, sb = sa + {self.tile.left.size};"
        yield f"    if ({busy}) {{"
        yield from (f"      {line}" for line in self.steps())
        yield "    }"
        yield "  }"

    def fetch(self, run: str, there: str, slot: str) -> Iterator[str]:
        """Ask for a run of both operands, if there is one."""
        tile, pad = self.tile, "    "
        yield f"{pad}{{" if not there else f"{pad}if ({there}) {{"
        yield f"{pad}  const int32_t begin = ({run}) * {tile.run};"
        for name, operand, start in (("ta", tile.left, 0), ("tb", tile.right, tile.left.size)):
            yield f"{pad}  {{"
            yield f"{pad}    const auto to = stage + (({slot}) * {tile.each} + {start});"
            yield from (f"{pad}    {line}" for line in self.copies.lines(name, operand))
            yield f"{pad}  }}"
        yield f"{pad}}}"
        yield f"{pad}af_end_copies();"

    # --- products ---------------------------------------------------------------------------------

    def steps(self) -> Iterator[str]:
        """All products of a run, from shared memory."""
        high, wide = self.tile.warps.rows // 16, self.tile.warps.columns // 16
        count = self.tile.run * self.stmt.dtype.itemsize // STEP_BYTES
        parts = INSTRUCTIONS[self.stmt.mma].parts
        yield "#pragma unroll"
        yield f"for (int32_t s = 0; s < {count}; s++) {{"
        for name, extent in (("a", high), ("b", wide)):
            yield f"  uint32_t {name}[{parts}][{extent}][4];"
        yield from self.load("a", "sa", self.tile.left, high, "top")
        yield from self.load("b", "sb", self.tile.right, wide, "side")
        yield "  #pragma unroll"
        yield f"  for (int32_t i = 0; i < {high}; i++) {{"
        yield "    #pragma unroll"
        yield f"    for (int32_t j = 0; j < {2 * wide}; j++) {{"
        # The smallest products first; of the two small parts none is worth one.
        for p, q in ((1, 0), (0, 1), (0, 0)) if parts == 2 else ((0, 0),):
            right = f"b[{q}][j / 2][j % 2 * 2], b[{q}][j / 2][j % 2 * 2 + 1]"
            yield f"      af_multiply_{self.kind}(sums[i][j], a[{p}][i], {right});"
        yield "    }"
        yield "  }"
        yield "}"

    @property
    def kind(self) -> str:
        """What the text calls the product of such factors."""
        if self.stmt.dtype is DType.I8:
            return "_".join("u8" if zero else "i8" for zero in self.stmt.from_zero)
        return "tf32" if self.stmt.dtype is DType.F32 else str(self.stmt.dtype)

    def load(self, name: str, base: str, o: Factor, extent: int, first: str) -> Iterator[str]:
        """The words of a warp's rows (or columns), 16 at a time; of columns two instructions have
        8 each, so the second and the third word are the other way round."""
        left = name == "a"
        yield "  #pragma unroll"
        yield f"  for (int32_t i = 0; i < {extent}; i++) {{"
        words = f"{name}[0][i]"
        if o.by_words:
            for k in range(4):
                row, term = (k % 2, k // 2) if left else (k // 2, k % 2)
                yield f"    {{ const int32_t line = s * 8 + lane % 4 + {4 * term};"
                yield f"      const int32_t row = {first} + i * 16 + lane / 4 + {8 * row};"
                at = f"{o.place('line', 'row / 4')} + row % 4"
                yield f"      {words}[{k}] = af_shared_word({base} + ({at})); }}"
        else:
            yield from (f"    {line}" for line in self.matrices(words, base, o, first, left))
        if o.by_pairs:
            yield f"    af_turn_pairs_{'rows' if left else 'columns'}({words});"
        if self.stmt.dtype is DType.F32:
            yield "    #pragma unroll"
            each = f"{words}[k] = af_tf32(__uint_as_float({words}[k]))"
            if INSTRUCTIONS[self.stmt.mma].parts == 2:
                each = f"af_two_tf32({words}[k], {name}[1][i][k])"
            yield f"    for (int32_t k = 0; k < 4; k++) {each};"
        yield "  }"

    def matrices(self, words: str, base: str, o: Factor, first: str, left: bool) -> Iterator[str]:
        """The words of 16 rows (or columns) by four matrices. Where a lane's part of them begins is
        its `own` place, computed once, with bits and a distance that all lanes know: no place is
        computed, or kept in a register, for each load."""
        low, high = ("lane / 8 % 2", "lane / 16") if left else ("lane / 16", "lane / 8 % 2")
        line, bit, lines, piece = f"{low} * 8", high, f"({first} + i * 16)", "s * 2"
        if o.turned:
            line, bit, lines, piece = f"{high} * 8", low, "s * 16", f"({first} + i * 16) / 8"
        line = f"lane % 8 + {line}"
        if o.by_pairs:
            line = "lane / 16 * 16 + lane % 8 / 2 * 4 + lane / 8 % 2 * 2 + lane % 2"
            bit, lines, piece = "0", "s * 32", f"({first} + i * 16) / 16"
        yield f"const int32_t line = {line}, piece = {piece};"
        yield f"const int32_t own = {o.place('line', bit)};"
        at = f"{lines} * {o.pitch} + (own ^ (piece & {o.exchanged - 1}) * {o.lanes})"
        at += f" + (piece & ~{o.exchanged - 1}) * {o.lanes}"
        yield f"af_matrices{'_turned' * o.turned}({words}, {base} + ({at}));"
