"""As what the factors of a product are multiplied: as they are computed in, or as they are stored,
in pairs of terms (C) or by tensor cores (CUDA)."""

from __future__ import annotations

from autofuse.graph.types import Graph, Value
from autofuse.kernel.instructions import INSTRUCTIONS
from autofuse.kernel.tile_parts import TileSettings
from autofuse.ops.dtypes import BYTES, DType
from autofuse.plan.tiles import Contraction, Tiles


def stored_dtype(p: Contraction) -> DType | None:
    """The type that both factors of a product have where they are read, None where they differ;
    I8 for bytes of either kind."""
    found = {DType.I8 if dtype in BYTES else dtype for dtype in p.stored}
    return found.pop() if len(found) == 1 else None


def from_zero(p: Contraction) -> tuple[bool, bool]:
    """Whether the left and the right factor of a product of bytes count from zero."""
    left, right = (p.stored[k] is DType.U8 for k in (p.left, p.right))
    return left, right


def is_paired(tiles: Tiles, settings: TileSettings, p: Contraction) -> bool:
    """Whether factors stay bf16, and are multiplied in pairs of terms."""
    return settings.pairs and bool(tiles.columns) and stored_dtype(p) is DType.BF16


def instruction(graph: Graph, settings: TileSettings, p: Contraction) -> str:
    """The instruction class that multiplies, "" where the one that is asked for has no such
    factors."""
    row = INSTRUCTIONS.get(settings.mma)
    if row is None or stored_dtype(p) not in row.factors:
        return ""
    return row.name if graph.type_of(Value(p.node)).dtype.compute is row.sums else ""


def factor_dtype(graph: Graph, tiles: Tiles, settings: TileSettings, p: Contraction) -> DType:
    """What factors are multiplied as."""
    stored = stored_dtype(p)
    if stored and (is_paired(tiles, settings, p) or instruction(graph, settings, p)):
        return stored
    return graph.type_of(Value(p.node)).dtype.compute
