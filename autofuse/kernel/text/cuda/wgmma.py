"""The CUDA text of a tile that warpgroups multiply.

The last warpgroup of the block fetches runs of terms, as far ahead as there are stages, and tells
the others by an mbarrier when one is `full`; they tell it by another one when its place is `empty`.
All go on counting stages from tile to tile. What is asked of tensor cores goes on while they wait
for the next run: only then is the place of the one before given back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from autofuse.kernel.cuda.mma import HIGH
from autofuse.kernel.cuda.settings import Settings
from autofuse.kernel.cuda.shape import Team, has_fragment_turns, takes_turns
from autofuse.kernel.cuda.wgmma import (
    BOXING,
    FETCHING,
    GATHERING,
    GROUP,
    STEP_BYTES,
    WARPS,
    GroupFactor,
    GroupTile,
    RegisterDeal,
    registers,
)
from autofuse.kernel.ir.instructions import INSTRUCTIONS
from autofuse.kernel.ir.types import Kernel, TileProduct
from autofuse.kernel.text.cuda.boxes import NAMES, BoxText, boxes_alone, prefetched
from autofuse.kernel.text.cuda.copies import CopyText
from autofuse.kernel.text.cuda.ring import (
    AWAIT_EMPTY,
    AWAIT_FULL,
    StageRing,
    ring_prologue,
    turn_prologue,
)
from autofuse.kernel.text.cuda.sums import SumsText
from autofuse.kernel.text.cuda.tile import Spell
from autofuse.kernel.text.dialects import CUDA
from autofuse.ops.dtypes import DType


def group_prologue(own: Settings, kernel: Kernel) -> Iterator[str]:
    """What a kernel with such tiles begins with: its mbarriers, and the place of the next run,
    which all groups that multiply wait for, or the one whose turn it is."""
    yield from prefetched(kernel.params)
    arriving = 1 if boxes_alone(kernel) else GROUP
    waiting = 1 if takes_turns(kernel) else own.threads // GROUP - 1
    yield from ring_prologue(max(2, own.stages), arriving, waiting * WARPS)
    if has_fragment_turns(kernel):
        yield from turn_prologue()


def fetching_registers(stmt: TileProduct, tile: GroupTile, outside: frozenset[str]) -> int:
    """Registers that threads take which fetch the operands of a tile, not all in boxes."""
    pairs = zip((tile.left, tile.right), stmt.boxes, strict=True)
    return FETCHING if all(box or o.copied(outside) for o, box in pairs) else GATHERING


@dataclass(frozen=True)
class GroupText:
    """Prints one statement. Buffers `outside` are in global memory, where positions need 64 bits if
    `wide`; `blocks` of these are wanted on a multiprocessor; `alone`: one thread copies all that
    the kernel multiplies."""

    stmt: TileProduct
    tile: GroupTile
    text: Spell
    team: Team
    outside: frozenset[str]
    wide: bool
    blocks: int
    alone: bool = False

    def lines(self) -> Iterator[str]:
        """The lines of a block that computes the tile."""
        tile = self.tile
        yield "{"
        yield f"  const int32_t group = {self.team.place} / {GROUP};"
        yield f"  const int32_t lane = {self.team.place} % {GROUP};"
        yield from (f"  {line}" for line in self.places())
        yield from (f"  {line}" for line in self.boxes.coordinates())
        yield from (f"  {line}" for line in self.copies.table(tile, self.team))
        if any(self.stmt.boxes):
            # What has been stored and read in the place of stages is copied over.
            yield "  af_show_stores();"
        yield f"  {self.team.sync}"
        yield f"  if (group == {tile.groups}) {{"
        fetching = self.fetching_alone() if self.alone else self.fetching()
        yield from (f"    {line}" for line in fetching)
        yield "  } else {"
        yield from (f"    {line}" for line in self.multiplying())
        yield "  }"
        yield f"  {self.team.sync}"
        yield "}"

    def places(self, reads: bool = True) -> Iterator[str]:
        """Where operands (if they are read), sums and stages are, and how many runs there are."""
        stmt, run = self.stmt, self.tile.run
        yield f"const int32_t terms = {self.text(stmt.extent)};"
        if stmt.there is not None and stmt.boxes[0] is None and reads:
            yield f"const int32_t {HIGH} = {self.text(stmt.there)};"
        panels = zip(
            (*NAMES, "tc"), (stmt.left, stmt.right, stmt.target), (*stmt.boxes, None), strict=True
        )
        for name, panel, box in tuple(panels)[0 if reads else 2 :]:
            if box is None:
                yield f"const auto {name} = {panel.buffer} + ({self.text(panel.start)});"
        yield f"const auto room = reinterpret_cast<{CUDA.types[stmt.dtype]} *>({stmt.stage} + 0);"
        yield f"const auto stage = room + af_to_block(room) / {stmt.dtype.itemsize};"
        yield f"const int32_t runs = (terms + {run - 1}) / {run};"

    @property
    def copies(self) -> CopyText:
        return CopyText(self.stmt, self.text, GROUP, "lane", self.outside, self.wide, True)

    @property
    def boxes(self) -> BoxText:
        return BoxText(self.stmt, self.text, self.tile.left.size)

    @property
    def own(self) -> RegisterDeal:
        kept = BOXING if self.alone else fetching_registers(self.stmt, self.tile, self.outside)
        return registers(self.team.size, self.blocks, kept)

    @property
    def ring(self) -> StageRing:
        return StageRing(self.tile.stages, self.tile.under_way)

    # --- the group that fetches -------------------------------------------------------------------

    def fetching_alone(self) -> Iterator[str]:
        """The first thread asks for boxes, which arrive by themselves."""
        if self.own.change:
            yield f"af_give_registers({self.own.fetching});"
        yield from self.boxed_runs()
        yield "__syncwarp();"
        yield f"af_meet({self.team.size});"
        if self.own.change:
            yield f"af_take_registers({self.own.first});"

    def boxed_runs(self) -> Iterator[str]:
        """All runs of a tile, whose boxes the first thread asks for."""
        yield "for (int32_t r = 0; r < runs; r++) {"
        yield f"  const int32_t begin = r * {self.tile.run};"
        yield "  if (lane == 0) {"
        yield f"    {AWAIT_EMPTY}"
        yield f"    af_expect_bytes(af_full + af_slot, {self.boxes.nbytes});"
        stage = f"stage + af_slot * {self.tile.each}"
        yield from (f"    {line}" for line in self.boxes.lines(stage, "af_full + af_slot"))
        yield "  }"
        yield f"  {self.ring.advance}"
        yield "}"

    def fetching(self) -> Iterator[str]:
        tile, under_way = self.tile, self.tile.under_way
        if self.own.change:
            yield f"af_give_registers({self.own.fetching});"
        yield "int32_t sent = af_slot;"
        yield "const auto send = [&]() {"
        yield f"  {self.ring.announce}"
        yield "};"
        yield "for (int32_t r = 0; r < runs; r++) {"
        yield f"  const int32_t begin = r * {tile.run};"
        yield f"  {AWAIT_EMPTY}"
        yield from (f"  {line}" for line in self.copied_run())
        yield f"  if (r >= {under_way}) {{"
        yield f"    af_await_copies({under_way});"
        yield "    af_show_stores();"
        yield "    send();"
        yield "  }"
        yield f"  {self.ring.advance}"
        yield "}"
        if under_way:
            yield "af_await_copies(0);"
            yield "af_show_stores();"
            yield f"for (int32_t r = af_min_i32(runs, {under_way}); r > 0; r--) send();"
        # Nobody reads a stage any more: sums may lie there.
        yield f"af_meet({self.team.size});"
        if self.own.change:
            yield f"af_take_registers({self.own.first});"

    def copied_run(self) -> Iterator[str]:
        """Copies of the run from term `begin` on."""
        tile, boxes = self.tile, self.stmt.boxes
        if any(boxes):
            ready, stage = "af_full + af_slot", f"stage + af_slot * {tile.each}"
            yield "if (lane == 0) {"
            yield f"  af_expect_more({ready}, {self.boxes.nbytes});"
            yield from (f"  {line}" for line in self.boxes.lines(stage, ready))
            yield "}"
        operands = zip(NAMES, (tile.left, tile.right), (0, tile.left.size), boxes, strict=True)
        for name, operand, start, box in operands:
            if box is not None:
                continue
            yield "{"
            yield f"  const auto to = stage + (af_slot * {tile.each} + {start});"
            yield from (f"  {line}" for line in self.copies.lines(name, operand))
            yield "}"
        yield "af_end_copies();"

    # --- the groups that multiply -----------------------------------------------------------------

    def multiplying(self) -> Iterator[str]:
        if self.own.change:
            yield f"af_take_registers({self.own.multiplying});"
        yield from self.begun_sums()
        yield from self.multiplied_runs()
        yield from self.last_products()
        yield f"af_meet({self.team.size});"
        yield from self.sums(self.pair.store)
        if self.own.change:
            yield f"af_give_registers({self.own.first});"

    def begun_sums(self) -> Iterator[str]:
        """The sums of a thread, and its first row."""
        tile, zeros = self.tile, " = {}" if self.stmt.fresh else ""
        first = f"{self.group} * {tile.blocks * 64} + " if self.group else ""
        yield f"const int32_t top = {first}lane / 32 * 16 + lane / 4 % 8;"
        yield f"{CUDA.types[self.sum]} sums[{tile.blocks}][{tile.columns // 2}]{zeros};"
        if not self.stmt.fresh:
            yield from self.sums(self.pair.read)
        # If the compiler defined sums where it likes, after products were asked for, it would order
        # these one after another (C7515, C7520).
        yield from self.kept_sums()

    def multiplied_runs(self) -> Iterator[str]:
        """Products of all runs, of which the last may be under way."""
        tile = self.tile
        if tile.behind:
            yield "int32_t done = af_slot;"
        yield "for (int32_t r = 0; r < runs; r++) {"
        yield f"  {AWAIT_FULL}"
        yield from (f"  {line}" for line in self.products())
        if tile.behind:
            yield f"  af_group_await({tile.behind});"
            yield "  if (r && lane % 32 == 0) af_arrive(af_empty + done);"
            yield "  done = af_slot;"
        else:
            yield "  af_group_await(0);"
            yield "  if (lane % 32 == 0) af_arrive(af_empty + af_slot);"
        yield f"  {self.ring.advance}"
        yield "}"

    def last_products(self) -> Iterator[str]:
        """Sums are what they are going to be."""
        if self.tile.behind:
            yield "af_group_await(0);"
            yield "if (runs && lane % 32 == 0) af_arrive(af_empty + done);"
        yield from self.kept_sums()

    def kept_sums(self) -> Iterator[str]:
        """Sums are in registers, and what is done with them stays before or after this."""
        yield "#pragma unroll"
        yield f"for (int32_t i = 0; i < {self.tile.blocks}; i++) af_keep_sums(sums[i]);"

    @property
    def group(self) -> str:
        """Which part of the rows a group has; "" where it has all of them."""
        return "group"

    def products(self) -> Iterator[str]:
        """All products of a run."""
        tile, busy, pad = self.tile, self.tile.busy < self.tile.groups, ""
        steps = tile.run * self.stmt.dtype.itemsize // STEP_BYTES
        if busy:
            yield f"if (group < {tile.busy}) {{"
            pad = "  "
        yield f"{pad}const uint32_t sa = af_shared_place(stage + af_slot * {tile.each});"
        yield f"{pad}const uint32_t sb = sa + {tile.left.size * self.stmt.dtype.itemsize};"
        yield f"{pad}af_group_fence();"
        yield f"{pad}#pragma unroll"
        yield f"{pad}for (int32_t s = 0; s < {steps}; s++) {{"
        yield f"{pad}  #pragma unroll"
        yield f"{pad}  for (int32_t i = 0; i < {tile.blocks}; i++) {{"
        row = f"({self.group} * {tile.blocks} + i) * 64" if self.group else "i * 64"
        left, right = describe("sa", tile.left, row), describe("sb", tile.right, "0")
        yield f"{pad}    af_multiply_group({self.kind}, sums[i], {left}, {right});"
        yield f"{pad}  }}"
        yield f"{pad}}}"
        yield f"{pad}af_group_commit();"
        if busy:
            yield "}"

    # --- sums -------------------------------------------------------------------------------------

    def sums(self, visit: Callable[[], Iterator[str]]) -> Iterator[str]:
        """A loop over the pairs of sums of a thread: element (m, n) of the tile and its
        neighbour."""
        tile = self.tile
        for var, extent in (("i", tile.blocks), ("j", tile.columns // 8), ("h", 2)):
            yield "#pragma unroll"
            yield f"for (int32_t {var} = 0; {var} < {extent}; {var}++) {{"
        yield "  const int32_t m = top + i * 64 + h * 8, n = j * 8 + lane % 4 * 2;"
        yield from (f"  {line}" for line in visit())
        yield "}}}"

    @property
    def pair(self) -> SumsText:
        tile = self.tile
        high = tile.groups * tile.blocks * 64
        pair = "sums[i][j * 4 + 2 * h]", "sums[i][j * 4 + 2 * h + 1]"
        return SumsText(self.stmt, high, tile.columns, self.sum, pair)

    @property
    def sum(self) -> DType:
        """The type of sums."""
        return INSTRUCTIONS[self.stmt.mma].sums

    @property
    def kind(self) -> str:
        """What the text calls the product of such factors: of bytes their signs, of others whether
        they are turned."""
        tile, columns = self.tile, self.tile.columns
        if self.stmt.dtype is DType.I8:
            left, right = ("u8" if zero else "i8" for zero in self.stmt.from_zero)
            return f"bytes, {columns}, {left}, {right}"
        return f"{self.stmt.dtype}, {columns}, {int(tile.left.turned)}, {int(tile.right.turned)}"


def describe(base: str, o: GroupFactor, row: str) -> str:
    """A descriptor of 64 rows, or of all columns, at step `s` of a run."""
    return f"af_descriptor({base} + {o.start(row, 's')}, {o.aside}, 1024)"
