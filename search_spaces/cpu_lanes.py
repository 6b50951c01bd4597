"""What is offered to products with vectors along a batch (`kernel/tiles/lanes.py`)."""

from __future__ import annotations

from autofuse.plan.parameters import MICRO, ROW_BLOCK
from autofuse.plan.types import Setting
from search_spaces.cpu_tiles import REGISTERS
from search_spaces.tile_facts import TileFacts

# Register tiles that are worth trying.
MOST = 4


def lane_options(name: str, facts: TileFacts, bits: int) -> tuple[Setting, ...]:
    """The options of one parameter, the likely best first; none where it does not matter."""
    if name == MICRO.name:
        return _micros(facts, bits)
    if name == ROW_BLOCK.name:
        return tuple(b for b in (128, 32) if b <= 2 * facts.rows) or (32,)
    return ()


def _micros(facts: TileFacts, bits: int) -> tuple[Setting, ...]:
    """Tiles that fit the registers, by loads of vectors for each multiply-add that is of use."""
    found: list[tuple[float, str]] = []
    for micro in MICRO.choices:
        rows, width = map(int, micro.split("x"))
        columns = width * 32 // bits
        if columns and rows * columns + columns + 1 <= REGISTERS[bits]:
            used = _used(facts.rows, rows) * _used(facts.columns, columns)
            found.append(((rows + columns) / (rows * columns * used), micro))
    return tuple(micro for _, micro in sorted(found)[:MOST])


def _used(extent: int, step: int) -> float:
    """The share of tiles that is of use."""
    return extent / (-(-extent // step) * step)
