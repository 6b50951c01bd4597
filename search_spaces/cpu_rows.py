"""What is offered to a kernel on a CPU that may fold the columns of its products as they come: how
many rows and columns a block has, or whole rows, which stay a candidate where they are short."""

from __future__ import annotations

from autofuse.plan.parameters import COLUMN_BLOCK, DOT, MICRO, PACK, ROW_BLOCK, TERM_BLOCK
from autofuse.plan.types import Setting
from search_spaces.cpu_tiles import KEPT_BYTES, REGISTERS, tile_shape
from search_spaces.launch import Chosen
from search_spaces.tile_cost import CHAINS, LOAD, pieces
from search_spaces.tile_facts import TileFacts

# Columns of a block, and rows of one, the likely best first (measured: columns that stay in the
# nearest caches; 64 rows leave least past a mask, but 128 read columns of many terms less often).
COLUMNS, ROWS, MANY_ROWS, MANY_TERMS = (128, 64, 256), (64, 128, 256), (128, 256, 64), 256
# Rows below which a block of columns would be mostly empty lanes.
LEAST_ROWS = 16
# Register tiles that are offered to few rows, and how many columns those have.
MOST_MICROS, FEW_COLUMNS = 2, range(1, 16)
PARAMETERS = {DOT.name, MICRO.name, ROW_BLOCK.name, COLUMN_BLOCK.name, TERM_BLOCK.name, PACK.name}


def one_pass_options(
    name: str, facts: TileFacts, made: Chosen, bits: int
) -> tuple[Setting, ...] | None:
    """The options of one parameter on a processor with vectors of `bits`, the likely best first;
    None where they are those of whole rows."""
    if name == DOT.name:
        return (True, False) if _may_go_along(facts) else None
    if made.get(DOT.name):
        return _along_terms(name, facts, bits)
    if name == MICRO.name:
        return None
    if name == ROW_BLOCK.name:
        return None if facts.rows < LEAST_ROWS else _row_blocks(facts, made)
    if name == COLUMN_BLOCK.name:
        return _column_blocks(facts, int(made[ROW_BLOCK.name]))
    return _in_blocks(name, made)


def _may_go_along(facts: TileFacts) -> bool:
    """Whether the terms of a few rows are neighbours."""
    few, right = facts.rows < LEAST_ROWS, facts.right
    return few and right is not None and right[1] == 1 and right != (1, 1)


def _in_blocks(name: str, made: Chosen) -> tuple[Setting, ...] | None:
    """What remains of columns that are taken in blocks."""
    if made.get(COLUMN_BLOCK.name) == 0:
        return None
    return (0,) if name == TERM_BLOCK.name else (False, True)


def _along_terms(name: str, facts: TileFacts, bits: int) -> tuple[Setting, ...]:
    """Of few rows each element is summed along terms: keys are read once, from end to end."""
    if name == MICRO.name:
        return _few_rows(facts, bits)
    if name == ROW_BLOCK.name:
        return (facts.rows,)
    if name == COLUMN_BLOCK.name:
        return tuple(c for c in COLUMNS if c < 2 * facts.columns) or COLUMNS[:1]
    return (0,) if name == TERM_BLOCK.name else (False,)


def _few_rows(facts: TileFacts, bits: int) -> tuple[Setting, ...]:
    """Tiles of sums, those with the most that are at work first. What is multiplied by a single row
    needs no register of its own."""
    found: list[tuple[float, str]] = []
    for micro in MICRO.choices:
        rows, columns = tile_shape(micro, facts.itemsize)
        beside = 2 if rows == 1 else 1 + columns
        if columns in FEW_COLUMNS and rows * columns + beside <= REGISTERS[bits]:
            turns = -(-facts.rows // rows)
            found.append((-columns * facts.rows / turns, micro))
    return tuple(micro for _, micro in sorted(found)[:MOST_MICROS])


def _row_blocks(facts: TileFacts, made: Chosen) -> tuple[Setting, ...]:
    """Blocks that are whole register tiles, and no thread goes without work."""
    unit = int(str(made[MICRO.name]).split("x")[1])
    share = facts.rows * facts.batch // int(made["threads"])
    likely = MANY_ROWS if facts.one_pass >= MANY_TERMS else ROWS
    found = tuple(r for r in likely if unit <= r < 2 * facts.rows and r <= share)
    return found or (ROWS[0],)


def _column_blocks(facts: TileFacts, rows: int) -> tuple[Setting, ...]:
    short = rows * facts.row_bytes <= KEPT_BYTES
    blocks = tuple(c for c in COLUMNS if c < 2 * facts.columns) or COLUMNS[:1]
    if not short:
        return blocks
    return (*blocks, 0) if facts.rows >= LEAST_ROWS else (0, *blocks)


def even_first(micros: tuple[Setting, ...], facts: TileFacts, bits: int) -> tuple[Setting, ...]:
    """Register tiles as they come; where products go on from block to block first those whose
    columns divide the columns of these (what is narrower waits for its own sums: 4x24 takes 1.2
    times as long as 6x16 where there are 64 columns), and of these the one whose tiles are
    expected to take least for all products (measured on a Xeon with AVX-512: 14x32 takes 1.05
    times as long as 6x64)."""
    if not facts.folded:
        return micros

    def rank(micro: Setting) -> tuple[bool, float]:
        rows, wide = tile_shape(str(micro), facts.itemsize)
        return any(width % wide for width in facts.folded), _tiles_cost(facts, rows, wide, bits)

    return tuple(sorted(micros, key=rank))


def _tiles_cost(facts: TileFacts, rows: int, wide: int, bits: int) -> float:
    """What register tiles of one matrix take: of products whose columns come in blocks, which are
    the rows of tiles, and of those that have these columns as their terms."""
    lanes = max(1, bits // (8 * facts.itemsize))

    def tiles(high: int, broad: int) -> float:
        parts = ((r, -(-c // lanes), n * m) for r, n in pieces(high, rows)
                 for c, m in pieces(broad, wide))  # fmt: skip
        return sum(count * (max(r * v, CHAINS) + LOAD * (r + v)) for r, v, count in parts)

    turned = facts.one_pass * tiles(facts.columns, facts.rows)
    return turned + facts.columns * sum(tiles(facts.rows, width) for width in facts.folded)
