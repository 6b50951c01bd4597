"""As what the factors of a product are multiplied: as they are computed in, or as they are stored,
in pairs of terms (C) or by tensor cores (CUDA)."""

from __future__ import annotations

from autofuse.graph.types import Graph, Value
from autofuse.kernel.instructions import FACTORS
from autofuse.kernel.tile_parts import TileSettings
from autofuse.ops.dtypes import DType
from autofuse.plan.tiles import Contraction, Tiles


def stored_dtype(graph: Graph, p: Contraction) -> DType | None:
    """The type that both factors of a product have in the graph, None where they differ."""
    found = {graph.type_of(v).dtype for v in graph[p.node].inputs[:2]}
    return found.pop() if len(found) == 1 else None


def is_paired(graph: Graph, tiles: Tiles, settings: TileSettings, p: Contraction) -> bool:
    """Whether factors stay bf16, and are multiplied in pairs of terms."""
    return settings.pairs and bool(tiles.columns) and stored_dtype(graph, p) is DType.BF16


def instruction(graph: Graph, settings: TileSettings, p: Contraction) -> str:
    """The instruction class that multiplies, "" where the one that is asked for has no such
    factors."""
    fits = stored_dtype(graph, p) in FACTORS.get(settings.mma, ())
    sums = graph.type_of(Value(p.node)).dtype.compute is DType.F32
    return settings.mma if fits and sums else ""


def factor_dtype(graph: Graph, tiles: Tiles, settings: TileSettings, p: Contraction) -> DType:
    """What factors are multiplied as."""
    stored = stored_dtype(graph, p)
    if stored and (is_paired(graph, tiles, settings, p) or instruction(graph, settings, p)):
        return stored
    return graph.type_of(Value(p.node)).dtype.compute
