"""The CUDA text of what threads do together while sums stay in registers (`ir/fragment.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from autofuse.kernel.cuda.fragments import HIGH, PAIR, WIDE, factor_of, size
from autofuse.kernel.cuda.mma import STEP_BYTES, Factor, MmaTile, WarpGrid
from autofuse.kernel.cuda.settings import Settings
from autofuse.kernel.cuda.shape import Team
from autofuse.kernel.cuda.wgmma import GROUP
from autofuse.kernel.ir.fragment import (
    Arrival,
    Collective,
    EndProduct,
    Exchange,
    Fetch,
    FragmentProduct,
    Pack,
    Vote,
    WarpRole,
)
from autofuse.kernel.ir.fragment import StagedPanel as Staged
from autofuse.kernel.ir.instructions import INSTRUCTIONS, by_group
from autofuse.kernel.ir.types import TileProduct
from autofuse.kernel.text.cuda.fragment_groups import FragmentGroups, base_of
from autofuse.kernel.text.cuda.mma import MmaText
from autofuse.kernel.text.cuda.tile import Spell
from autofuse.kernel.text.dialects import CUDA
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Lit
from autofuse.plan.parameters import HALF_MMA

# Panels are always asked for ahead.
AHEAD = 2


@dataclass(frozen=True)
class FragmentText:
    """Prints the statements of one kernel. Buffers `outside` are in global memory, where positions
    need 64 bits if `wide`."""

    text: Spell
    team: Team
    outside: frozenset[str]
    wide: bool
    own: Settings

    def lines(self, stmt: Collective) -> Iterator[str]:
        match stmt:
            case Fetch(fed=True):
                yield from self.groups.feed(self.fetch(stmt))
            case Fetch():
                yield from self.fetch(stmt)
            case Arrival(later, shown):
                yield f"af_await_copies({later});"
                if shown:
                    yield "af_show_stores();"
                yield self.team.sync
            case WarpRole():
                yield from self.groups.role(stmt)
            case EndProduct(product):
                yield from self.groups.end(product)
            case FragmentProduct() if by_group(stmt.mma):
                yield from self.groups.product(stmt)
            case FragmentProduct():
                yield from self.product(stmt)
            case Pack(words, place, fragment, at, dtype):
                first = self.text(at)
                pair = f"{fragment}[{first}], {fragment}[{first} + 1]"
                yield f"{words}[{self.text(place)}] = af_pair_{dtype}({pair});"
            case Exchange(sym, value, flip):
                kind = CUDA.types[sym.dtype]
                yield f"const {kind} {sym.name} = __shfl_xor_sync(~0u, {self.text(value)}, {flip});"
            case Vote(sym, value):
                yield f"const bool {sym.name} = __any_sync(~0u, {self.text(value)});"

    @property
    def groups(self) -> FragmentGroups:
        return FragmentGroups(self.text, self.own)

    def operand(self, staged: Staged, count: int | str, mma: str) -> MmaText:
        """What prints the copies and the loads of a panel."""
        factor, panel = factor_of(staged, count), staged.panel
        stmt = TileProduct(
            0, 0, staged.terms, panel, panel, panel, staged.dtype, fresh=True, mma=mma
        )
        tile = MmaTile(factor, factor, AHEAD, False, WarpGrid(1, 1, HIGH, PAIR))
        return MmaText(stmt, tile, self.text, self.team, self.outside, self.wide)

    def fetch(self, stmt: Fetch) -> Iterator[str]:
        staged, count = stmt.staged, stmt.staged.count
        known = isinstance(count, Lit)
        own = self.operand(
            staged, int(count.value) if isinstance(count, Lit) else "count", HALF_MMA
        )
        copies = own.copies
        if stmt.fed:
            copies = replace(copies, size=GROUP, place="lane")
        if not isinstance(stmt.there, Lit):
            yield f"if ({self.text(stmt.there)})"
        yield "{" if not isinstance(stmt.there, Lit) or stmt.there.value else "if (false) {"
        if not known:
            yield f"  const int32_t count = {self.text(count)};"
        yield f"  [[maybe_unused]] const int32_t terms = {self.text(staged.terms)}, begin = 0;"
        yield f"  const auto from = {staged.panel.buffer} + ({self.text(staged.panel.start)});"
        yield f"  const auto to = {base_of(staged)} + ({self.text(staged.place)});"
        yield from (f"  {line}" for line in copies.lines("from", own.tile.left))
        yield "}"
        yield "af_end_copies();"

    def product(self, stmt: FragmentProduct) -> Iterator[str]:
        high, wide = stmt.rows // HIGH, stmt.columns // PAIR
        parts = INSTRUCTIONS[stmt.mma].parts
        right = self.operand(stmt.right, 0, stmt.mma)
        steps = stmt.right.run * stmt.right.dtype.itemsize // STEP_BYTES
        yield "{"
        yield f"  const int32_t lane = {self.team.place} % 32;"
        if stmt.fresh:
            yield "  #pragma unroll"
            count = size(stmt.rows, stmt.columns)
            yield f"  for (int32_t e = 0; e < {count}; e++) {stmt.sums}[e] = 0;"
        yield f"  const auto sb = {stmt.right.stage} + ({self.text(stmt.right.place)});"
        if not isinstance(stmt.left, str):
            yield f"  const auto sa = {stmt.left.stage} + ({self.text(stmt.left.place)});"
            yield f"  const int32_t top = {self.text(stmt.first)};"
        # A compiler that sees all steps loads for several at once, into registers that sums need.
        yield f"  #pragma unroll{' 1' * stmt.tight}"
        yield f"  for (int32_t s = 0; s < {steps}; s++) {{"
        yield f"    uint32_t a[{parts}][{high}][4];"
        yield from (f"    {line}" for line in self.left(stmt, high))
        yield "    #pragma unroll"
        yield f"    for (int32_t w = 0; w < {wide}; w++) {{"
        yield f"      uint32_t b[{parts}][1][4];"
        loads = right.load("b", "sb", right.tile.right, 1, "w * 16")
        if stmt.right.paired:
            loads = self.pairs(right.tile.right, stmt.mma)
        yield from (f"    {line}" for line in loads)
        yield "      #pragma unroll"
        yield f"      for (int32_t i = 0; i < {high}; i++) {{"
        for j in range(2):
            at = f"((i * {wide} + w) * 2 + {j}) * 4"
            sums = f"(float (&)[4]){stmt.sums}[{at}]"
            kind = "tf32" if stmt.right.dtype is DType.F32 else stmt.right.dtype
            # The smallest products first; of the two small parts none is worth one.
            for p, q in ((1, 0), (0, 1), (0, 0)) if parts == 2 else ((0, 0),):
                factors = f"a[{p}][i], b[{q}][0][{2 * j}], b[{q}][0][{2 * j + 1}]"
                yield f"        af_multiply_{kind}({sums}, {factors});"
        yield "      }"
        yield "    }"
        yield "  }"
        yield "}"

    def left(self, stmt: FragmentProduct, high: int) -> Iterator[str]:
        """The words of a warp's rows, from shared memory or from its registers."""
        if not isinstance(stmt.left, str):
            own = self.operand(stmt.left, 0, stmt.mma)
            yield from own.load("a", "sa", own.tile.left, high, "top")
            return
        matrices = stmt.right.run // WIDE
        yield "#pragma unroll"
        yield f"for (int32_t i = 0; i < {high}; i++) {{"
        for word in range(4):
            if stmt.right.paired:
                place = f"(i * {matrices} + s) * 4 + {word % 2 * 2 + word // 2}"
                yield f"  a[0][i][{word}] = __float_as_uint({stmt.left}[{place}]);"
                yield f"  {_rounded(stmt.mma, 'a', 'i', word)}"
                continue
            if stmt.packed:
                place = f"(i * {matrices} + s * 2 + {word // 2}) * 2 + {word % 2}"
                yield f"  a[0][i][{word}] = {stmt.left}[{place}];"
                continue
            at = f"(i * {matrices} + s * 2 + {word // 2}) * 4 + {word % 2 * 2}"
            pair = f"{stmt.left}[{at}], {stmt.left}[{at} + 1]"
            yield f"  a[0][i][{word}] = af_pair_{stmt.right.dtype}({pair});"
        yield "}"

    def pairs(self, o: Factor, mma: str) -> Iterator[str]:
        """The words of 16 columns of a paired factor: two terms of a lane are neighbours."""
        for word in range(4):
            yield f"{{ const int32_t line = s * 8 + lane % 4 * 2 + {word % 2};"
            yield f"  const int32_t row = w * 16 + lane / 4 + {word // 2 * 8};"
            at = f"line * {o.pitch} + (row / 4 ^ {o.swizzle('line')}) * 4 + row % 4"
            yield f"  b[0][0][{word}] = af_shared_word(sb + ({at})); }}"
            yield _rounded(mma, "b", "0", word)


def _rounded(mma: str, name: str, i: str, word: int) -> str:
    """A word of f32 as what tensor cores multiply: rounded, or in two parts."""
    place = f"{name}[0][{i}][{word}]"
    if INSTRUCTIONS[mma].parts == 2:
        return f"af_two_tf32({place}, {name}[1][{i}][{word}]);"
    return f"{place} = af_tf32(__uint_as_float({place}));"
