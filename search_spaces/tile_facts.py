"""What of a kernel of the tile schedule its launch space depends on, on every device."""

from __future__ import annotations

import math
from dataclasses import dataclass

from autofuse.graph.types import Graph
from autofuse.ops.dtypes import DType
from autofuse.plan.legality import Refusal, check_group
from autofuse.plan.parameters import (
    BATCH_LANES,
    COLUMN_BLOCK,
    MICRO,
    PACK,
    PAIRS,
    ROW_BLOCK,
    TERM_BLOCK,
)
from autofuse.plan.tiles import Tiles, row_scratch, tiles_of
from autofuse.plan.types import FusionGroup

# The parameters that only this schedule has.
TILE_PARAMETERS = {
    row.name for row in (MICRO, ROW_BLOCK, COLUMN_BLOCK, TERM_BLOCK, PACK, BATCH_LANES, PAIRS)
}


@dataclass(frozen=True, slots=True)
class TileFacts:
    """A tile kernel: matrices, rows and columns of each, the most terms, whether columns are local
    to a row, bytes that a block keeps for each row, those of an element, whether the results of a
    batch are neighbours, and whether all factors of products with parallel columns are bf16."""

    batch: int
    rows: int
    columns: int
    terms: int
    local: bool
    row_bytes: int
    itemsize: int
    batch_last: bool = False
    bf16: bool = False


def _factors(graph: Graph, tiles: Tiles) -> set[DType]:
    nodes = (graph[p.node] for p in tiles.products)
    return {graph.type_of(v).dtype for node in nodes for v in node.inputs[:2]}


def tile_facts(graph: Graph, group: FusionGroup) -> TileFacts | None:
    """The facts of the largest tile segment of a group; None where it has none."""
    verdict = check_group(graph, group.nodes, group.outputs)
    found: list[TileFacts] = []
    for form in () if isinstance(verdict, Refusal) else verdict:
        tiles = tiles_of(graph, form)
        if tiles is None:
            continue

        def extent(axes: tuple[int, ...], of: tuple[int, ...] = form.parallel) -> int:
            return math.prod(of[a] for a in axes)

        item = max(graph[p.node].types[0].dtype.compute.itemsize for p in tiles.products)
        found.append(
            TileFacts(
                extent(tiles.batch), extent(tiles.rows), max(p.width for p in tiles.products),
                max(p.terms for p in tiles.products), not tiles.columns,
                row_scratch(graph, form, tiles) * item, item,
                bool(tiles.columns) and tiles.batch[-1:] == (len(form.parallel) - 1,),
                bool(tiles.columns) and _factors(graph, tiles) == {DType.BF16},
            )
        )  # fmt: skip
    return max(found, key=lambda f: f.batch * f.rows * f.columns, default=None)
