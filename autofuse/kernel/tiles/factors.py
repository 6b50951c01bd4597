"""As what the factors of a product are multiplied: as they are computed in, or as they are stored,
in pairs of terms (C: by vectors or by AMX) or by tensor cores (CUDA)."""

from __future__ import annotations

from autofuse.graph.types import Graph, Value
from autofuse.kernel.ir.instructions import INSTRUCTIONS, by_group
from autofuse.kernel.ir.types import Panel
from autofuse.kernel.tiles.parts import TileSettings
from autofuse.ops.dtypes import DType
from autofuse.plan.parameters import AMX_MMA
from autofuse.plan.schedules.pairs import pair_unit, stored_dtype
from autofuse.plan.schedules.tiles import Contraction, Tiles


def from_zero(p: Contraction) -> tuple[bool, bool]:
    """Whether the left and the right factor of a product of bytes count from zero."""
    left, right = (p.stored[k] is DType.U8 for k in (p.left, p.right))
    return left, right


def paired_terms(tiles: Tiles, settings: TileSettings, p: Contraction) -> int:
    """The multiple of terms that panels of factors in pairs have (see `pair_unit`)."""
    return pair_unit(tiles, p, settings.pairs, settings.mma)


def instruction(graph: Graph, settings: TileSettings, p: Contraction) -> str:
    """The instruction class of tensor cores that multiplies, "" where the one that is asked for has
    no such factors."""
    row = INSTRUCTIONS.get(settings.mma)
    if row is None or stored_dtype(p) not in row.factors:
        return ""
    return row.name if graph.type_of(Value(p.node)).dtype.compute is row.sums else ""


def in_boxes(
    graph: Graph, settings: TileSettings, p: Contraction, panel: Panel, lines: int
) -> Panel:
    """An operand of so many rows (or columns), with what its boxes are found by where those may be
    copied: it is asked for, and warpgroups multiply."""
    asked = settings.maps and by_group(instruction(graph, settings, p))
    return panel.as_whole(lines, p.terms) if asked else panel


def instruction_of(graph: Graph, tiles: Tiles, settings: TileSettings, p: Contraction) -> str:
    """The instruction class that multiplies, of any processor; "" where vectors do."""
    amx = settings.mma == AMX_MMA and paired_terms(tiles, settings, p)
    return AMX_MMA if amx else instruction(graph, settings, p)


def factor_dtype(graph: Graph, tiles: Tiles, settings: TileSettings, p: Contraction) -> DType:
    """What factors are multiplied as."""
    stored = stored_dtype(p)
    if stored and (paired_terms(tiles, settings, p) or instruction(graph, settings, p)):
        return stored
    return graph.type_of(Value(p.node)).dtype.compute
