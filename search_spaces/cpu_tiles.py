"""What is offered to a kernel of the tile schedule on a CPU: register tiles that its registers can
hold, and blocks that leave every core work and stay in its cache."""

from __future__ import annotations

from autofuse.plan.parameters import COLUMN_BLOCK, MICRO, PACK, ROW_BLOCK, TERM_BLOCK
from autofuse.plan.types import Setting
from search_spaces.tile_facts import TileFacts

# Vector registers by their width in bits: AVX-512 has 32, AVX2 and NEON fewer or narrower ones.
REGISTERS = {512: 32, 256: 16, 128: 32}
# Rows from which copying a right operand into panels pays.
PACKED_ROWS = 24
# Bytes of rows that a block keeps, and the most rows of a block.
KEPT_BYTES, MOST_ROWS = 1 << 20, 512
# Terms of a panel that is copied whole.
LONGEST_PANEL = 4096


def tile_options(name: str, facts: TileFacts, threads: int, bits: int) -> tuple[Setting, ...]:
    """The options of one parameter of the tile schedule, the likely best first."""
    if name == MICRO.name:
        return _micros(facts, bits)
    if name == ROW_BLOCK.name:
        return _row_blocks(facts, threads)
    if name == COLUMN_BLOCK.name:
        return () if facts.local else (64, *(c for c in (256, 0) if c < facts.columns))
    if name == TERM_BLOCK.name:
        whole = (0,) if facts.terms <= LONGEST_PANEL else ()
        return (*whole, *(t for t in (512, 256) if t < facts.terms)) or (0,)
    assert name == PACK.name
    return (True, False) if facts.rows >= PACKED_ROWS else (False, True)


def _micros(facts: TileFacts, bits: int) -> tuple[Setting, ...]:
    """Tiles whose accumulators, one row of the right operand and one number fit the registers; of
    those that waste no rows or columns the one that loads least for what it computes first."""
    lanes = bits // 32
    fits: list[tuple[float, str]] = []
    for name in MICRO.choices:
        rows, columns = map(int, name.split("x"))
        vectors = columns // lanes
        if not vectors or rows * vectors + vectors + 1 > REGISTERS[bits]:
            continue
        done = _filled(facts.rows, rows) * _filled(facts.columns, columns)
        # Loads for each multiply-add, and chains too short to hide its latency (8 of them).
        loads = (vectors + rows) / (rows * vectors)
        short = max(1.0, 8 / (rows * vectors))
        fits.append((max(1.0, 2.5 * loads, short) / done, name))
    return tuple(name for _, name in sorted(fits, key=lambda f: f[0])[:4])


def _filled(extent: int, step: int) -> float:
    """The share of full tiles that is used."""
    return extent / (-(-extent // step) * step) if extent >= step else extent / step


def _row_blocks(facts: TileFacts, threads: int) -> tuple[Setting, ...]:
    """Blocks of rows: as many as the cache holds, and no thread goes without work."""
    most = max(8, min(MOST_ROWS, KEPT_BYTES // max(facts.row_bytes, 1)))
    if facts.local:
        share = -(-facts.rows * facts.batch // (2 * threads))
        most = max(8, min(most, share))
    fitting = sorted((b for b in ROW_BLOCK.choices if b <= max(most, 8)), reverse=True)
    first = [b for b in fitting if b < 2 * facts.rows] or fitting[-1:]
    return tuple(first[:3])
