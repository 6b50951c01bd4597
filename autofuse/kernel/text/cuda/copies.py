"""The CUDA text that brings a run of terms of an operand to its stage in shared memory, for tensor
cores: 16 bytes at a time as they lie, ahead (`cp.async`), or element by element."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from autofuse.kernel.cuda.mma import Factor, StagedTile
from autofuse.kernel.cuda.shape import Team
from autofuse.kernel.ir.indices import is_multiple
from autofuse.kernel.ir.types import TileProduct
from autofuse.kernel.ir.walk import Patches
from autofuse.kernel.text.cuda.patches import PatchText
from autofuse.kernel.text.cuda.tile import Spell
from autofuse.kernel.text.dialects import CUDA

# Pieces of which a thread reads the elements at once.
GATHERED = 2


@dataclass(frozen=True)
class CopyText:
    """Copies for a statement by `size` threads, of which each knows its `place`. Buffers `outside`
    are in global memory, where positions need 64 bits if `wide`; `ahead`: copies are waited for."""

    stmt: TileProduct
    text: Spell
    size: int
    place: str
    outside: frozenset[str]
    wide: bool
    ahead: bool

    def lines(self, name: str, o: Factor) -> Iterator[str]:
        """The pieces of the run from term `begin` on of an operand that begins at `name`, to a
        stage that begins at `to`, dealt to the threads one by one."""
        patches = self.patches(name, o)
        if patches is not None:
            yield from patches.run()
        count, size = o.lines * o.pieces, self.size
        whole = self.ahead and o.copied(self.outside)
        apart = o.apart(size) if whole and patches is None else None
        if apart is not None:
            yield from self.first(name, o)
        # A count that the compiler knows: it does not know how many threads there are. Elements of
        # many pieces at once would have no registers.
        yield "#pragma unroll" if whole else f"#pragma unroll {GATHERED}"
        yield f"for (int32_t p = 0; p < {-(-count // size)}; p++) {{"
        if count % size:
            yield f"  if (p * {size} + {self.place} >= {count}) break;"
        found = self.any(name, o, whole) if apart is None else self.next(name, o, apart)
        yield from (f"  {line}" for line in found)
        yield "}"

    def first(self, name: str, o: Factor) -> Iterator[str]:
        """Where the first piece of a thread is, and where it goes."""
        yield f"const int32_t line = {self.place} / {o.pieces};"
        yield f"const int32_t piece = {self.place} % {o.pieces} * {o.lanes};"
        yield f"const auto get = {name} + ({self.position_of(o)});"
        yield f"const auto put = to + ({o.place('line', f'piece / {o.lanes}')});"

    def next(self, name: str, o: Factor, apart: int) -> Iterator[str]:
        """Copies a piece of a thread, which is as far from its first one as the text says: no place
        but those of the first is computed, or kept in a register."""
        lines = self.size // o.pieces
        there = self.there(o, True, f" - p * {lines}")
        far = lines * (o.along if o.turned else o.across)
        get, nbytes = f"get + ({self.position})p * {far}", "16"
        if there:
            yield f"const int32_t there = {there};"
            get, nbytes = f"there ? {get} : {name} + 0", f"there * {o.itemsize}"
        yield f"af_copy_ahead(put + p * {apart}, {get}, {nbytes});"

    def any(self, name: str, o: Factor, whole: bool) -> Iterator[str]:
        """Brings a piece of a thread, wherever it is."""
        patches, stored = self.patches(name, o), self.stmt.dtype
        yield f"const int32_t i = p * {self.size} + {self.place};"
        yield f"const int32_t line = i / {o.pieces}, piece = i % {o.pieces} * {o.lanes};"
        at, place = o.place("line", f"piece / {o.lanes}"), self.position_of(o)
        # The bits of a row of patches are none where there is no row.
        there = self.there(o, patches is None or not patches.patches.taps)
        if patches is not None:
            yield from patches.piece()
            place, inside = patches.place, patches.there
            there = f"{inside} ? {there or o.lanes} : 0" if inside else there
        if there:
            yield f"const int32_t there = {there};"
        if whole:
            place, nbytes = (
                (f"there ? {place} : 0", f"there * {o.itemsize}") if there else (place, "16")
            )
            yield f"af_copy_ahead(to + ({at}), {name} + ({place}), {nbytes});"
        else:
            near, kind = o.across if o.turned else o.along, f"af_{stored}x{o.lanes}"
            value = f"af_as_{stored}({name}[{place} + ({self.position})u * {near}])"
            if there:
                value = f"u < there ? {value} : ({CUDA.types[stored]})0"
            yield f"{kind} w;"
            yield "#pragma unroll"
            yield f"for (int32_t u = 0; u < {o.lanes}; u++) w.x[u] = {value};"
            yield f"*reinterpret_cast<{kind} *>(to + ({at})) = w;"

    def position_of(self, o: Factor) -> str:
        """Where in memory the piece of a line is, from the beginning of its operand."""
        row, term = ("piece", "begin + line") if o.turned else ("line", "begin + piece")
        return f"({self.position})({row}) * {o.across} + ({self.position})({term}) * {o.along}"

    def patches(self, name: str, o: Factor) -> PatchText | None:
        """How pieces of an operand are found that is no matrix."""
        walk = self.stmt.walk
        if name != "ta" or not isinstance(walk, Patches):
            return None
        return PatchText(walk, o, self.text, self.position)

    @property
    def position(self) -> str:
        """The type of places in memory."""
        return "int64_t" if self.wide else "int32_t"

    def table(self, tile: StagedTile, team: Team) -> Iterator[str]:
        """What is found out before the first run, by a team, where others may be reading."""
        patches = self.patches("ta", tile.left)
        if patches is not None and tile.patches:
            yield team.sync
            yield from patches.table(tile, team.place, team.size)

    def there(self, o: Factor, rows: bool, before: str = "") -> str:
        """How many elements of a piece there are, `rows` that are not there left out; "" where all
        of all pieces are. `before`: it is so many lines after the one that is named."""
        rows, terms = rows and o.count != o.padded, not is_multiple(self.stmt.extent, o.run)
        inner, outer = (rows, terms) if o.turned else (terms, rows)
        limit = f"{o.count} - piece" if o.turned else "terms - (begin + piece)"
        test = "begin + line < terms" if o.turned else f"line < {o.count}"
        found = f"af_max_i32(0, af_min_i32({o.lanes}, {limit}))" if inner else str(o.lanes)
        return f"{test}{before} ? {found} : 0" if outer else found if inner else ""
