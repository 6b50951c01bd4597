"""What is offered to a kernel on a CPU that reads the patches of a convolution where they lie.

Nothing is kept for a row, so blocks may be high; every row of a register tile has an address of its
own, so tiles are flat."""

from __future__ import annotations

from autofuse.plan.parameters import COLUMN_BLOCK, MICRO, PACK, ROW_BLOCK, TERM_BLOCK
from autofuse.plan.types import Setting
from search_spaces.cpu_tiles import REGISTERS
from search_spaces.tile_facts import TileFacts

# Addresses that the registers of a processor hold beside a loop's own.
MOST_ROWS = 8
# Columns of the narrowest tile whose vectors run along columns.
LEAST_COLUMNS = 16
# Terms from which a panel is better summed in several blocks, which stay in a cache, and a block.
LONG_SUM, CUT = 1024, 512


def walk_options(name: str, facts: TileFacts, threads: int, bits: int) -> tuple[Setting, ...]:
    """The options of one parameter of the tile schedule, the likely best first; none of those that
    patches have no use for."""
    if name == MICRO.name:
        return _micros(facts, bits)
    if name == ROW_BLOCK.name:
        return _row_blocks(facts, threads)
    if name == COLUMN_BLOCK.name:
        return (64, 0) if facts.columns > 64 else (0,)
    if name == TERM_BLOCK.name:
        return (CUT, 0) if facts.terms > LONG_SUM else (0,)
    return (False, True) if name == PACK.name else ()


def _micros(facts: TileFacts, bits: int) -> tuple[Setting, ...]:
    """Flat tiles that fit the registers: those first that waste least and load least."""
    lanes = bits * 4 // 32 // facts.itemsize
    found: list[tuple[float, str]] = []
    for name in MICRO.choices:
        rows, wide = map(int, name.split("x"))
        vectors, across = max(1, wide * 4 // facts.itemsize // lanes), -(-facts.columns // lanes)
        fits = (rows + 1) * vectors + 1 <= REGISTERS[bits]
        if rows > MOST_ROWS or wide < LEAST_COLUMNS or not fits:
            continue
        panels = -(-across // vectors)
        used = facts.rows * facts.columns
        done = -(-facts.rows // rows) * rows * across * lanes
        # Loads for each multiply-add, of weights from a farther cache and of the image; and chains
        # too short to hide its latency (8 of them).
        loads = 1 / rows + 0.7 * panels / across
        short = max(1.0, 8 / (rows * min(vectors, across)))
        found.append((max(1 + loads, short) * done / used, name))
    return tuple(name for _, name in sorted(found)[:3])


def _row_blocks(facts: TileFacts, threads: int) -> tuple[Setting, ...]:
    """As high as leaves every thread two blocks, because weights are read once for each of them;
    then lower ones."""
    across = facts.batch * -(-facts.columns // 64)
    blocks = 1 if threads == 1 else -(-2 * threads // across)
    highest = -(-facts.rows // blocks) + MOST_ROWS  # a block has whole tiles
    choices = sorted(ROW_BLOCK.choices)
    first = next((b for b in choices if b >= highest), choices[-1])
    return tuple(b for b in reversed(choices) if b <= first)[:3]
