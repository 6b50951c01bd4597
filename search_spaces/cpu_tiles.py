"""What is offered to a kernel of the tile schedule on a CPU: of all settings whose tiles fit the
registers and whose blocks fit the caches, those that `tile_cost` expects most of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import product

from autofuse.plan.parameters import (
    ACROSS,
    COLUMN_BLOCK,
    DOT,
    MICRO,
    PACK,
    PACK_LEFT,
    ROW_BLOCK,
    TERM_BLOCK,
)
from autofuse.plan.types import Setting
from search_spaces.tile_cost import Machine, TileChoice, tile_cost
from search_spaces.tile_facts import COLUMNS, TERMS, TileFacts

# Vector registers by their width in bits: AVX-512 has 32, AVX2 and NEON fewer or narrower ones.
REGISTERS = {512: 32, 256: 16, 128: 32}
# Bytes of rows that a block keeps, and the most rows of a block.
KEPT_BYTES, MOST_ROWS = 1 << 20, 512
# Terms of a panel that is copied whole.
LONGEST_PANEL = 4096
# Rows of a product up to which its left operand is too small to be packed.
FEW_ROWS = 16
# Terms at once where rows of the right operand are read from end to end, which pays for so few rows
# of the left one.
STREAMED, STREAMED_ROWS = (8, 16, 32), 32
# Rows of a product from which its right operand is not summed along terms: it is used often enough.
DOT_ROWS = 24
# Blocks of rows and columns are tried in so many equal parts.
PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 32, 64)
# Blocks of fewer rows pack their panels too often.
LEAST_ROWS = 32
# Options of a parameter: at least and at most so many, and how much worse than the best one they
# may look beyond the least.
FEWEST, MOST, WORSE = 2, 4, 1.4
ORDER = (DOT, ACROSS, MICRO, ROW_BLOCK, COLUMN_BLOCK, TERM_BLOCK, PACK, PACK_LEFT)
_ROWS = ORDER.index(ROW_BLOCK)
# Settings of ORDER, and what they are expected to cost.
Priced = tuple[tuple[Setting, ...], float]


def tile_options(
    name: str, facts: TileFacts, made: Mapping[str, Setting], machine: Machine
) -> tuple[Setting, ...]:
    """The options of one parameter of the tile schedule given those before it, the likely best
    first; none where it does not matter."""
    at = [row.name for row in ORDER].index(name)
    before = tuple(made.get(row.name, row.default) for row in ORDER[:at])
    # Blocks of rows may be those of another schedule, which are not priced here.
    return _likely(facts, machine, before) or _likely(facts, machine, before, _ROWS)


@lru_cache(maxsize=1 << 14)
def _likely(
    facts: TileFacts, machine: Machine, before: tuple[Setting, ...], whatever: int | None = None
) -> tuple[Setting, ...]:
    """The options of the parameter after those in `before`, the cheapest first; that at `whatever`
    may have been set to anything."""
    at = len(before)
    kept = [slice(0, at)] if whatever is None else [slice(0, whatever), slice(whatever + 1, at)]
    wanted = [before[part] for part in kept]
    best: dict[Setting, float] = {}
    for settings, cost in _priced(facts, machine):
        if settings[at] not in best and [settings[part] for part in kept] == wanted:
            best[settings[at]] = cost
    least = min(best.values(), default=0.0)
    near = sum(cost <= WORSE * least for cost in best.values())
    return tuple(best)[: min(max(near, FEWEST), MOST)]


@lru_cache(maxsize=1024)
def _priced(facts: TileFacts, machine: Machine) -> tuple[Priced, ...]:
    """All settings that are possible, the cheapest first."""
    found = []
    for settings in _possible(facts, machine):
        dot, across, micro, height, width, terms, pack, left = settings
        rows, columns = tile_shape(str(micro), facts.itemsize)
        choice = TileChoice(
            bool(dot),
            bool(across),
            rows,
            columns,
            int(height),
            int(width),
            int(terms),
            bool(pack),
            bool(left),
        )
        found.append((settings, tile_cost(facts, machine, choice)))
    return tuple(sorted(found, key=lambda f: f[1]))


def tile_shape(micro: str, itemsize: int) -> tuple[int, int]:
    """Rows and columns of a register tile in elements."""
    rows, columns = map(int, micro.split("x"))
    return rows, max(1, columns * 4 // itemsize)


def _possible(f: TileFacts, m: Machine) -> Iterator[tuple[Setting, ...]]:
    for dot in (False, True) if may_dot(f) else (False,):
        for micro in MICRO.choices:
            rows, columns = tile_shape(micro, f.itemsize)
            if not _fits(rows, columns, m.bits // (8 * f.itemsize), m.bits, dot):
                continue
            for height in _row_blocks(f, rows, m):
                for width in _column_blocks(f, columns):
                    for terms in _term_blocks(f, height, width or f.columns, dot, m):
                        for pack in _packs(f, dot, terms):
                            lefts = _packs_left(f, dot, height * (terms or f.terms), m)
                            for left, across in product(lefts, _acrosses(f, pack)):
                                yield dot, across, micro, height, width, terms, pack, left


def may_dot(f: TileFacts) -> bool:
    """Both operands lie along their terms, or the left one is small enough to be copied so; what
    the right one is computed from may lie so instead."""
    right = f.right_near == TERMS if f.right is None else f.right[1] == 1 and f.right[0] != 1
    return (
        f.rows < DOT_ROWS and not f.local and not f.packed and right and f.left is not None
        and (f.left[1] == 1 or f.rows * f.terms * f.itemsize <= KEPT_BYTES)
    )  # fmt: skip


def _fits(rows: int, columns: int, lanes: int, bits: int, dot: bool) -> bool:
    """Sums, one row of the right operand and one factor fit the registers."""
    few = columns < 2 * 8 and columns % 16 != 0
    if dot:
        return few and rows * columns + columns + 1 <= REGISTERS[bits]
    vectors = columns // lanes
    loaded = vectors if rows > 1 else 1  # one row's sums take them from memory
    return columns % lanes == 0 and vectors > 0 and rows * vectors + loaded + 1 <= REGISTERS[bits]


def _row_blocks(f: TileFacts, rows: int, m: Machine) -> tuple[int, ...]:
    """Equal blocks of rows: as many as the cache holds, and no thread goes without work. Of few
    terms all rows may be one block, which threads share by columns: a result is then written from
    end to end of its rows by one of them (1189 x 80 x 6096: 1.25 times as fast)."""
    most = max(8, min(MOST_ROWS, KEPT_BYTES // max(f.row_bytes, 1)))
    if f.local:
        parts = m.threads if f.by_tiles else 2 * m.threads
        most = max(8, min(most, -(-f.rows * f.batch // parts)))
    whole = -(-f.rows // rows) * rows
    if f.rows <= most and not f.row_bytes:
        most = max(most, whole)
    found = _parts(f.rows, rows, most, min(LEAST_ROWS, most, whole))
    stays = not f.local and f.rows * f.terms * f.itemsize <= m.l2 // 2
    return tuple(dict.fromkeys((*found, whole))) if stays and found else found


def _column_blocks(f: TileFacts, columns: int) -> tuple[int, ...]:
    """Equal blocks of columns; 0 is all."""
    if f.local:
        return (0,)
    whole = -(-f.columns // columns) * columns
    wide = _parts(f.columns, columns, whole, min(64, whole))
    return tuple(0 if w >= f.columns else w for w in wide)


def _parts(extent: int, step: int, most: int, least: int) -> tuple[int, ...]:
    """Sizes between both ends of equal parts of an extent, in whole steps where these fit."""
    found = []
    for count in sorted({*PARTS, -(-extent // most)}):
        part = -(-extent // count)
        size = -(-part // step) * step
        if least <= size <= most:
            found.append(size)
    return tuple(dict.fromkeys(found)) or ((step,) if step <= most else ())


def _term_blocks(f: TileFacts, height: int, width: int, dot: bool, m: Machine) -> tuple[int, ...]:
    """All terms where a panel of them is not too long, and runs of them where sums that wait for
    the next ones stay in the cache."""
    if dot or f.by_tiles:
        return (0,)
    whole = (0,) if f.terms <= LONGEST_PANEL else ()
    kept = height * width * f.itemsize <= m.l2 // 2 or f.local
    cut = tuple(t for t in (*_streamed(f), 256, 512) if t < f.terms) if kept else ()
    return (*whole, *cut) or ((0,) if f.terms <= 512 else (512,))


def _streamed(f: TileFacts) -> tuple[int, ...]:
    return STREAMED if f.rows <= STREAMED_ROWS and not f.local and not f.packed else ()


def _acrosses(f: TileFacts, pack: bool) -> Iterable[bool]:
    """Whether a tile of rows may meet all panels first: they are packed, and used often."""
    return (False, True) if pack and not f.local and f.rows > STREAMED_ROWS else (False,)


def _packs(f: TileFacts, dot: bool, terms: int) -> Iterable[bool]:
    """Whether there is a choice: what lies otherwise than it is read is copied anyway, and what is
    computed but for a few terms at once that lie by columns."""
    if dot or f.packed:
        return (False,)
    if f.right is None and f.right_near == COLUMNS and terms in STREAMED and f.terms % terms == 0:
        return (False, True)
    return (False, True) if f.right is not None and f.right[0] == 1 else (True,)


def _packs_left(f: TileFacts, dot: bool, elements: int, m: Machine) -> Iterable[bool]:
    """Whether there is a choice: not for few rows, which no later tile reads again, nor where rows
    stay in scratch, nor where the `elements` of a block leave the second level of cache."""
    fits = elements * f.itemsize <= 3 * m.l2 // 4
    return (False,) if dot or f.local or f.rows <= FEW_ROWS or not fits else (False, True)
