"""What a product under some settings of the tile schedule costs on a CPU, estimated: good for the
order in which settings are tried, not for a bound.

The unit is the time of one multiply-add of two vectors. The terms are those of the analytic models
of BLIS (Low et al., ACM TOMS 43, 2016): registers, which cache a panel is read from again, what is
copied, and how even the blocks are for the threads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from search_spaces.tile_facts import TileFacts

# Chains of sums shorter than this wait for their own results; what a load costs beside them.
CHAINS, LOAD = 8, 0.15
# Bytes that the second-level cache gives in one unit, and the ways of the first-level one.
L2_BYTES, WAYS, LINE = 12, 8, 64
# Units for a vector: read from memory in long runs or in short ones; copied as it lies, transposed,
# or computed first; and for a block, a tile, and the sum of a vector's lanes.
RUNS, SHORT_RUNS = 6.0, 16.0
COPIED, TRANSPOSED, COMPUTED = 2.0, 5.0, 16.0
# And computed in a register; what it costs more to store it, although it could be (measured on Zen
# 3, of bytes: compilers widen them in steps).
ALONG, STORED = 3.0, 10.0
BLOCK, TILE_START, LANE_SUM = 200.0, 12.0, 2.0
# How much slower than a copied panel rows of one that lies in memory come from the second level.
STRIDED = 1.6
# The share of its last block that a thread is late by: others wait for it.
LATE = 0.15
# The last level of cache is shared, with others too: the share that is counted on.
SHARED = 16
# Bytes of a row from which reading it is a long run, and of a page: more rows of pages than a core
# fetches ahead are waited for.
LONG_RUN, PAGE = 2048, 4096
# Pages whose places a core remembers, and units in which it looks for another one.
PAGES, WALKED = 1024, 40.0
# Terms up to which a panel's rows are so few that each is read as one long run.
FEW_TERMS = 32
# Units for a term whose row of a panel is read as it lies and no longer in the first-level cache
# when the next tile comes: such rows are not asked for ahead (measured on Zen 3: 2.6 to 4.6).
FAR_ROW = 4.0
# Units for a vector of sums that waits for the next terms in the second-level cache, or beyond it.
WAITING, FAR_WAITING = 1.0, 40.0
# Units for a run of an array beside a product where each is on a page of its own (measured on Zen
# 3, of one to six arrays).
BESIDE = 40.0


@dataclass(frozen=True, slots=True)
class Machine:
    """A CPU as far as products depend on it: bits of its vectors, threads at work, bytes of its
    first, second and last level of cache."""

    bits: int
    threads: int
    l1: int
    l2: int
    last: int


@dataclass(frozen=True, slots=True)
class TileChoice:
    """Settings of a tile kernel, columns and blocks in elements (0 terms: all of them), and which
    operands are packed."""

    dot: bool
    across: bool
    rows: int
    columns: int
    row_block: int
    column_block: int
    term_block: int
    pack: bool
    pack_left: bool = False


def tile_cost(f: TileFacts, m: Machine, c: TileChoice) -> float:
    """The time of the thread that ends last."""
    height, width = min(c.row_block, f.rows), min(c.column_block or f.columns, f.columns)
    blocks = f.batch * -(-f.rows // height) * -(-f.columns // width)
    turns = -(-blocks // m.threads) if blocks < 8 * m.threads else blocks / m.threads
    late = LATE if m.threads > 1 else 0.0
    return (turns + late) * (BLOCK + _block(f, m, c, height, width))


def _block(f: TileFacts, m: Machine, c: TileChoice, height: int, width: int) -> float:
    """One block: its tiles, the right operand, the left one where it is copied, and the result."""
    lanes = max(1, m.bits // (8 * f.itemsize))
    terms = c.term_block or f.terms
    panels = pieces(width, c.columns)
    tiles = sum(
        high_count * wide_count * _tile(f, m, c, height, high, wide, lanes, terms)
        for high, high_count in pieces(height, c.rows)
        for wide, wide_count in panels
    )
    right = width * f.terms / lanes * _right(f, m, c, height, width, terms)
    left = height * f.terms / lanes * _left(f, c)
    cleared = 1.0 if c.term_block else 0.0
    written = height * width / lanes * (2.0 + cleared) + _beside(f, c, height, width)
    return tiles + right + left + written


def _beside(f: TileFacts, c: TileChoice, height: int, width: int) -> float:
    """What is read and written beside a product, a run for each row of a tile or of the block."""
    if f.columns * f.itemsize < PAGE:
        return 0.0
    return BESIDE * f.beside * height * (1 if c.across else -(-width // c.columns))


def pieces(extent: int, step: int) -> list[tuple[int, int]]:
    """(size, how many) of the steps that an extent is cut into."""
    full, rest = divmod(extent, step)
    return [(size, count) for size, count in ((step, full), (rest, 1)) if size and count]


def _strides_far(f: TileFacts, c: TileChoice, terms: int) -> bool:
    """Whether rows of the right operand are read where they lie, far apart."""
    in_place = f.right is not None and f.right[0] == 1 and not c.pack and not f.packed
    return in_place and _is_far(f, c, terms)


def _tile(
    f: TileFacts, m: Machine, c: TileChoice, height: int, rows: int, columns: int, lanes: int,
    terms: int,
) -> float:  # fmt: skip
    """One register tile over all terms."""
    columns_read = columns * _spread(f, c, columns)
    near = not c.across and terms * columns_read * f.itemsize <= m.l1 // 2
    # The first tile that reads a panel finds it where `_right` brought it.
    again = 1 - c.rows / max(height, c.rows)
    fetched = 0.0 if near else again * columns_read * f.itemsize / L2_BYTES
    if c.dot:
        sums, computed = rows * columns, 0.0 if f.right is not None else ALONG * columns
        fetched = fetched if f.right is not None else 0.0
        each = max(sums + computed, CHAINS, fetched * lanes) + LOAD * (rows + columns)
        return f.terms / lanes * each + sums * LANE_SUM + TILE_START
    vectors = -(-columns // lanes)
    made: float = ALONG * vectors if f.right is None and not c.pack and not f.packed else 0.0
    each = max(rows * vectors + made, CHAINS, 0.0 if made else fetched, _crowded(f, c, rows))
    each += LOAD * (rows + vectors)
    each += _apart(f, m, c, rows, terms)
    if _strides_far(f, c, terms):
        each += again * FAR_ROW
    if c.across:
        each += _far_panels(f, m, c, rows, terms)
    far = c.term_block and height * (c.column_block or f.columns) * f.itemsize > m.l2
    waiting = FAR_WAITING if far else WAITING
    return f.terms * each + -(-f.terms // terms) * (rows * vectors * waiting + TILE_START)


def _is_far(f: TileFacts, c: TileChoice, terms: int) -> bool:
    """Whether the rows of a panel that lie apart leave the first-level cache between two tiles."""
    assert f.right is not None
    lines = max(1, c.columns * f.itemsize // LINE)
    return terms > max(FEW_TERMS, _held(f.right[1] * f.itemsize, WAYS * 64) // lines)


def _far_panels(f: TileFacts, m: Machine, c: TileChoice, rows: int, terms: int) -> float:
    """What a tile of rows that is too long for the first-level cache costs a term, and panels
    together that are too large for the second-level one."""
    width = min(c.column_block or f.columns, f.columns)
    long, large = rows * terms * f.itemsize > m.l1, width * terms * f.itemsize > m.l2 // 2
    return LOAD * rows / 2 * (long + large)


def _left(f: TileFacts, c: TileChoice) -> float:
    """What each vector of the left operand costs to be copied."""
    if f.left is None or (c.dot and f.left[1] != 1):
        return COMPUTED
    if not c.pack_left:
        return 0.0
    return RUNS / 4 + (TRANSPOSED if f.left[1] == 1 else COPIED)


def _apart(f: TileFacts, m: Machine, c: TileChoice, rows: int, terms: int) -> float:
    """What each term of a tile costs whose left operand lies term by term: of every line a tile
    reads its rows alone, and pages of too many terms are looked up again."""
    if f.left is None or f.left[1] == 1 or c.pack_left:
        return 0.0
    step = f.left[1] * f.itemsize
    far = terms * LINE > m.l1 // 2
    lines = LINE / L2_BYTES * (1.0 if far else min(1.0, rows * f.itemsize / LINE))
    pages = terms * min(1.0, step / PAGE)
    return lines / 2 + (WALKED if pages > PAGES else 0.0)


def _spread(f: TileFacts, c: TileChoice, columns: int) -> float:
    """How much more of the cache a panel takes that is read as it lies: rows of it begin and end
    inside of lines, and far apart, so that they are fetched less well."""
    if c.dot or c.pack or f.packed or f.right is None or f.right[0] != 1:
        return 1.0
    whole = f.right[1] * f.itemsize % LINE == 0
    return STRIDED if whole else STRIDED + LINE / (columns * f.itemsize)


def _crowded(f: TileFacts, c: TileChoice, rows: int) -> float:
    """Rows of the left operand that push each other out of the first-level cache."""
    if (
        f.left is None
        or f.left[1] != 1
        or c.pack_left
        or rows <= _held(f.left[0] * f.itemsize, WAYS * 64)
    ):
        return 0.0
    return 1.25 * rows * c.columns * f.itemsize / LINE


def _streamed(f: TileFacts, width: int, terms: int, runs: float, short: float) -> float:
    """What each vector costs of few rows that are read from end to end, as far as a block goes."""
    long = width * f.itemsize >= min(LONG_RUN, f.columns * f.itemsize)
    many = terms / (24 if f.columns * f.itemsize >= PAGE // 2 else 256)
    return (runs if long else short) * (1 + many)


def _held(step: int, lines: int) -> int:
    """Lines `step` bytes apart that a cache of so many lines, in sets of WAYS, holds at once."""
    sets = lines // WAYS
    apart = math.gcd(step // LINE, sets) if step % LINE == 0 else 1
    return WAYS * sets // max(1, apart)


def _right(f: TileFacts, m: Machine, c: TileChoice, height: int, width: int, terms: int) -> float:
    """What each vector of the right operand costs besides its sums."""
    total = f.batch * f.columns * f.terms * f.itemsize
    far = total > max(m.l2, m.last // SHARED)
    runs = RUNS if far else RUNS / 4
    short = SHORT_RUNS if far else 2 * runs if total > m.l2 // 2 else runs
    if c.dot or f.packed:
        return runs
    if f.right is None and c.pack:
        return COMPUTED + (STORED if f.right_near else 0.0)
    if f.right is None:
        return _streamed(f, width, terms, runs, short)
    if f.right[1] == 1 and f.right[0] != 1:
        return TRANSPOSED + runs
    if f.right[0] != 1 or c.pack:
        # Rows of a whole block of columns are longer than those of a panel.
        run = (runs + short) / 2 if c.across else short
        return (COPIED if f.right[0] == 1 else COMPUTED) + run
    if terms <= FEW_TERMS:
        return _streamed(f, width, terms, runs, short)
    # Rows of a panel that is read as it lies may push each other out before the next rows of the
    # left operand come.
    tiles = -(-height // c.rows)
    if terms > _held(f.right[1] * f.itemsize, m.l2 // LINE) // max(
        1, c.columns * f.itemsize // LINE
    ):
        return short + (tiles - 1) * RUNS
    return short
