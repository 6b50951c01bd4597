"""What is offered to a kernel on a CPU that reads the patches of a convolution where they lie.

Nothing is kept for a row, so blocks may be high; every row of a register tile has an address of its
own, so tiles are flat."""

from __future__ import annotations

from collections.abc import Mapping

from autofuse.plan.parameters import (
    COLUMN_BLOCK,
    LINES,
    MICRO,
    PACK,
    PREPACK,
    ROW_BLOCK,
    TERM_BLOCK,
)
from autofuse.plan.schedules.tiles import even_parts
from autofuse.plan.types import Setting
from search_spaces.cpu_tiles import REGISTERS, tile_shape
from search_spaces.tile_cost import CHAINS, LOAD, Machine, pieces
from search_spaces.tile_facts import TileFacts

# Addresses that the registers of a processor hold beside a loop's own.
MOST_ROWS = 8
# Columns of the narrowest tile whose vectors run along columns.
LEAST_COLUMNS = 16
# Rows of the shortest line of which register tiles are made.
LEAST_LINE = 4
# Rows up to which sums of part of the terms are kept first: so few read a panel too seldom.
FEW_ROWS = 64
# Columns from which rows of weights lie so far apart that they push each other out of a cache.
MOST_COLUMNS = 64


def walk_options(
    name: str, facts: TileFacts, made: Mapping[str, Setting], machine: Machine
) -> tuple[Setting, ...]:
    """The options of one parameter of the tile schedule given those before it, the likely best
    first; none of those that patches have no use for."""
    if name == LINES.name:
        return (True, False) if facts.line >= LEAST_LINE else ()
    if name == MICRO.name:
        return _micros(facts, machine.bits, bool(made.get(LINES.name)))
    if name == ROW_BLOCK.name:
        return _row_blocks(facts, machine.threads)
    if name == COLUMN_BLOCK.name:
        return (64, 0) if facts.columns > MOST_COLUMNS else (0,)
    if name == TERM_BLOCK.name:
        return _cuts(facts, str(made[MICRO.name]), machine.l1)
    if name == PACK.name and not made.get(PREPACK.name):
        wide = facts.columns > MOST_COLUMNS
        return (wide, not wide)
    return ()


def _micros(facts: TileFacts, bits: int, lines: bool) -> tuple[Setting, ...]:
    """Flat tiles that fit the registers, those first whose loops take least."""
    lanes = bits // 8 // facts.itemsize
    # A single column leaves registers for the sums of more rows.
    highest = MOST_ROWS if facts.columns > 1 else REGISTERS[bits]
    found: list[tuple[float, str]] = []
    for name in MICRO.choices:
        rows, wide = tile_shape(name, facts.itemsize)
        vectors = max(1, wide // lanes)
        fits = (rows + 1) * vectors + 1 <= REGISTERS[bits]
        if rows > highest or wide * facts.itemsize < LEAST_COLUMNS * 4 or not fits:
            continue
        high = even_parts(facts.line, rows) if lines else pieces(facts.rows, rows)
        broad = pieces(-(-facts.columns // lanes), vectors)
        cost = sum(m * n * _term(r, v) for r, m in high for v, n in broad)
        found.append((cost, name))
    return tuple(name for _, name in sorted(found)[:3])


def _term(rows: int, vectors: int) -> float:
    """One term of a tile: its sums, or the chains that are too few to hide their latency; and what
    is loaded, weights from a farther cache."""
    return max(rows * vectors, CHAINS) + LOAD * (rows + 2 * vectors)


def _cuts(facts: TileFacts, micro: str, nearest: int) -> tuple[Setting, ...]:
    """All terms, or as many as fill most of the nearest cache, which few rows need first."""
    _, wide = tile_shape(micro, facts.itemsize)
    held = nearest * 3 // 4 // (wide * facts.itemsize)
    most = max((c for c in TERM_BLOCK.choices if c <= held), default=0)
    if facts.terms <= most:
        return (0,)
    return (most, 0) if facts.rows <= FEW_ROWS else (0, most)


def _row_blocks(facts: TileFacts, threads: int) -> tuple[Setting, ...]:
    """As high as leaves every thread two blocks, because weights are read once for each of them;
    then lower ones."""
    across = facts.batch * -(-facts.columns // 64)
    blocks = 1 if threads == 1 else -(-2 * threads // across)
    highest = -(-facts.rows // blocks) + MOST_ROWS  # a block has whole tiles
    choices = sorted(ROW_BLOCK.choices)
    first = next((b for b in choices if b >= highest), choices[-1])
    return tuple(b for b in reversed(choices) if b <= first)[:3]
