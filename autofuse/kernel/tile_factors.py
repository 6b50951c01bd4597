"""As what the factors of a product are multiplied: as they are computed in, or as they are stored,
in pairs of terms (C: by vectors or by AMX) or by tensor cores (CUDA)."""

from __future__ import annotations

from autofuse.graph.types import Graph, Value
from autofuse.kernel.instructions import FACTORS
from autofuse.kernel.tile_parts import TileSettings
from autofuse.ops.dtypes import DType
from autofuse.plan.pairs import pair_unit, stored_dtype
from autofuse.plan.parameters import AMX_MMA
from autofuse.plan.tiles import Contraction, Tiles


def paired_terms(graph: Graph, tiles: Tiles, settings: TileSettings, p: Contraction) -> int:
    """The multiple of terms that panels of factors in pairs have (see `pair_unit`)."""
    return pair_unit(graph, tiles, p, settings.pairs, settings.mma)


def instruction(graph: Graph, settings: TileSettings, p: Contraction) -> str:
    """The instruction class of tensor cores that multiplies, "" where the one that is asked for has
    no such factors."""
    fits = stored_dtype(graph, p) in FACTORS.get(settings.mma, ())
    sums = graph.type_of(Value(p.node)).dtype.compute is DType.F32
    return settings.mma if fits and sums else ""


def instruction_of(graph: Graph, tiles: Tiles, settings: TileSettings, p: Contraction) -> str:
    """The instruction class that multiplies, of any processor; "" where vectors do."""
    amx = settings.mma == AMX_MMA and paired_terms(graph, tiles, settings, p)
    return AMX_MMA if amx else instruction(graph, settings, p)


def factor_dtype(graph: Graph, tiles: Tiles, settings: TileSettings, p: Contraction) -> DType:
    """What factors are multiplied as."""
    stored = stored_dtype(graph, p)
    if stored and (paired_terms(graph, tiles, settings, p) or instruction(graph, settings, p)):
        return stored
    return graph.type_of(Value(p.node)).dtype.compute
