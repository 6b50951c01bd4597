"""Which products of the tile schedule multiply bf16 in pairs of terms, and how those are padded."""

from __future__ import annotations

from autofuse.ops.dtypes import BYTES, DType
from autofuse.plan.parameters import AMX_MMA
from autofuse.plan.schedules.tiles import Contraction, Tiles

# Terms that one instruction multiplies: a pair, or a row of 64 bytes of an AMX tile.
PAIR, TILE_TERMS = 2, 32


def stored_dtype(p: Contraction) -> DType | None:
    """The type that both factors of a product have where they are read, None where they differ;
    I8 for bytes of either kind."""
    found = {DType.I8 if dtype in BYTES else dtype for dtype in p.stored}
    return found.pop() if len(found) == 1 else None


def pair_unit(tiles: Tiles, p: Contraction, pairs: bool, mma: str) -> int:
    """The multiple of terms that panels of a product are filled up to with zeros where its factors
    stay bf16 and are multiplied in pairs, by vectors (`pairs`) or by tiles (`mma`); 0 elsewhere."""
    amx = mma == AMX_MMA
    fits = bool(tiles.columns) and stored_dtype(p) is DType.BF16
    return (TILE_TERMS if amx else PAIR) if fits and (pairs or amx) else 0
