"""What is offered to a product that AMX multiplies: tiles of sums that fill its registers, and
blocks whose copies fit the caches (measured on Granite Rapids)."""

from __future__ import annotations

from collections.abc import Mapping

from autofuse.ops.dtypes import DType
from autofuse.plan.parameters import (
    COLUMN_BLOCK,
    MICRO,
    PACK,
    PACK_LEFT,
    ROW_BLOCK,
    TERM_BLOCK,
)
from autofuse.plan.types import Setting
from search_spaces.tile_cost import Machine
from search_spaces.tile_facts import TileFacts

# Rows of a tile, those of a block at most, and bytes that a block keeps of one operand, or of sums.
SIDE, MOST_ROWS, KEPT_BYTES = 16, 512, 1 << 20
# Terms at once where not all are, and those of a panel that is copied whole.
TERMS, LONGEST_PANEL = (256, 512), 4096
# Columns of a block at least: the left operand is copied for each of them.
LEAST_COLUMNS = 256


def amx_options(
    name: str, facts: TileFacts, made: Mapping[str, Setting], machine: Machine
) -> tuple[Setting, ...]:
    """The options of one parameter of the tile schedule given those before it, the likely best
    first; none where it does not matter."""
    if name == MICRO.name:
        return ("16x64", "16x32") if facts.rows <= SIDE else ("32x32", "16x64")
    if name == PACK.name:
        return (True,)
    if name in (ROW_BLOCK.name, COLUMN_BLOCK.name, TERM_BLOCK.name, PACK_LEFT.name):
        return _block_options(name, facts, made, machine)
    return ()


def _block_options(
    name: str, facts: TileFacts, made: Mapping[str, Setting], machine: Machine
) -> tuple[Setting, ...]:
    """Of how much is packed and computed at a time, each given those before it."""
    rows, columns = map(int, str(made[MICRO.name]).split("x"))
    if name == ROW_BLOCK.name:
        return _row_blocks(facts, rows)
    height = min(int(made[ROW_BLOCK.name]), -(-facts.rows // rows) * rows)
    if name == COLUMN_BLOCK.name:
        return _column_blocks(facts, columns, height, machine.threads)
    width = int(made.get(COLUMN_BLOCK.name, COLUMN_BLOCK.default)) or facts.columns
    if name == TERM_BLOCK.name:
        return _term_blocks(facts, height, width)
    terms = int(made.get(TERM_BLOCK.name, TERM_BLOCK.default)) or facts.terms
    return (True, False) if _left_bytes(height, terms) <= KEPT_BYTES else (False,)


def _left_bytes(rows: int, terms: int) -> int:
    return rows * terms * DType.BF16.itemsize


def _row_blocks(f: TileFacts, step: int) -> tuple[Setting, ...]:
    """Equal blocks whose copy stays in the cache, and ones half as high."""
    terms = f.terms if f.terms <= LONGEST_PANEL else TERMS[-1]
    most = KEPT_BYTES // _left_bytes(1, terms)
    most = max(step, min(MOST_ROWS, most) // step * step)
    parts = -(-f.rows // most)
    sizes = (-(-f.rows // (n * step)) * step for n in (parts, 2 * parts))
    return tuple(dict.fromkeys(sizes))


def _column_blocks(f: TileFacts, step: int, height: int, threads: int) -> tuple[Setting, ...]:
    """As few blocks as all threads need, and more of them, which are shared out more evenly."""
    blocks = f.batch * -(-f.rows // height)
    found = list[Setting]()
    for each in (1, 4):
        parts = -(-each * threads // blocks) if threads > 1 else 1
        if f.terms > LONGEST_PANEL:  # sums of the whole block wait for the next terms
            parts = max(parts, -(-height * f.columns * f.itemsize // KEPT_BYTES))
        size = -(-f.columns // (parts * step)) * step
        if not found or size >= min(LEAST_COLUMNS, f.columns // threads):
            found.append(0 if size >= f.columns else size)
    return tuple(dict.fromkeys(found)) or (0,)


def _term_blocks(f: TileFacts, height: int, width: int) -> tuple[Setting, ...]:
    """All terms at once where a panel of them is not too long, and runs of them where sums that
    wait for the next ones stay in the cache."""
    whole = (0,) if f.terms <= LONGEST_PANEL else ()
    near = height * width * f.itemsize <= KEPT_BYTES
    return (*whole, *(t for t in TERMS if t < f.terms and (near or not whole))) or (0,)
