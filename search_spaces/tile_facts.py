"""What of a kernel of the tile schedule its launch space depends on, on every device."""

from __future__ import annotations

import math
from dataclasses import dataclass

from autofuse.graph.types import Graph
from autofuse.plan.legality import Refusal, check_group
from autofuse.plan.online import online_of
from autofuse.plan.parameters import COLUMN_BLOCK, MICRO, PACK, ROW_BLOCK, TERM_BLOCK
from autofuse.plan.tiles import row_scratch, tiles_of
from autofuse.plan.types import FusionGroup

# The parameters that only this schedule has.
TILE_PARAMETERS = {row.name for row in (MICRO, ROW_BLOCK, COLUMN_BLOCK, TERM_BLOCK, PACK)}


@dataclass(frozen=True, slots=True)
class TileFacts:
    """A tile kernel: matrices, rows and columns of each, the most terms, whether columns are local
    to a row, how many terms products have whose columns may be folded as they come
    (`plan/online.py`, 0: there are none), and bytes that a block keeps for each row otherwise."""

    batch: int
    rows: int
    columns: int
    terms: int
    local: bool
    one_pass: int
    row_bytes: int
    itemsize: int


def tile_facts(graph: Graph, group: FusionGroup, *, diagonal: bool = False) -> TileFacts | None:
    """The facts of the largest tile segment of a group (of `diagonal` products); None where it has
    none."""
    verdict = check_group(graph, group.nodes, group.outputs)
    found: list[TileFacts] = []
    for form in () if isinstance(verdict, Refusal) else verdict:
        tiles = tiles_of(graph, form, diagonal=diagonal)
        if tiles is None:
            continue
        online = online_of(graph, form, tiles)

        def extent(axes: tuple[int, ...], of: tuple[int, ...] = form.parallel) -> int:
            return math.prod(of[a] for a in axes)

        item = max(graph[p.node].types[0].dtype.compute.itemsize for p in tiles.products)
        found.append(
            TileFacts(
                extent(tiles.batch) * tiles.groups, extent(tiles.rows),
                max(p.width for p in tiles.products), max(p.terms for p in tiles.products),
                not tiles.columns,
                max((p.terms for p in online.sources), default=0) if online else 0,
                row_scratch(graph, form, tiles) * item, item,
            )
        )  # fmt: skip
    return max(found, key=lambda f: f.batch * f.rows * f.columns, default=None)
