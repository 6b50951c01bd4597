"""What of a kernel of the tile schedule its launch space depends on, on every device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from autofuse.graph.types import Graph, Value
from autofuse.kernel.elements.values import Frame, memory
from autofuse.kernel.ir.emit import Emitter
from autofuse.kernel.tiles.block import TileBlock
from autofuse.kernel.tiles.computed import places_read
from autofuse.kernel.tiles.lanes import TileLanes
from autofuse.kernel.tiles.operands import left_in_memory, right_in_memory
from autofuse.kernel.tiles.parts import TileSettings
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Expr, Lit
from autofuse.plan.fusion.groups import reads
from autofuse.plan.fusion.legality import Refusal, check_group
from autofuse.plan.parameters import (
    ACROSS,
    BATCH_LANES,
    BYTE_MMA,
    COLUMN_BLOCK,
    DOT,
    FRAGMENTS,
    LINES,
    MICRO,
    MMA,
    PACK,
    PACK_LEFT,
    PAIRS,
    PREPACK,
    ROW_BLOCK,
    SPLIT,
    TAIL,
    TERM_BLOCK,
)
from autofuse.plan.schedules.forms import Form
from autofuse.plan.schedules.online import Online, online_of
from autofuse.plan.schedules.pairs import stored_dtype
from autofuse.plan.schedules.tiles import (
    Contraction,
    Tiles,
    ends_in_tiles,
    line_of,
    row_scratch,
    tiles_of,
)
from autofuse.plan.types import FusionGroup, LaunchConfig

# The parameters that only this schedule has.
TILE_PARAMETERS = {
    row.name
    for row in (
        LINES,
        BATCH_LANES,
        PAIRS,
        PREPACK,
        DOT,
        ACROSS,
        MMA,
        FRAGMENTS,
        MICRO,
        ROW_BLOCK,
        COLUMN_BLOCK,
        TERM_BLOCK,
        PACK,
        PACK_LEFT,
        SPLIT,
        TAIL,
    )
}
# Terms, and columns, that are looked at to see how they lie.
PROBED = 16
TERMS, COLUMNS = "terms", "columns"
# Elements from one row or column of an operand to the next, and from one term to the next.
Steps = tuple[int, int]


@dataclass(frozen=True, slots=True)
class TileFacts:
    """What a launch space asks about a tile kernel."""

    # Matrices, and rows and columns of each.
    batch: int
    rows: int
    columns: int
    # The most terms of a product.
    terms: int
    # Whether columns are local to a row.
    local: bool
    # The most terms of products whose columns may be folded as they come
    # (`plan/schedules/online.py`); 0: there are none.
    one_pass: int
    # Bytes that a block keeps for each row where they are not.
    row_bytes: int
    # Bytes of a number.
    itemsize: int
    # How the operands of the widest product lie in memory (None: they are computed).
    left: Steps | None = None
    right: Steps | None = None
    # What is next to each other in what a right operand is computed from: TERMS, COLUMNS, "" for
    # neither, or where it is not computed.
    right_near: str = ""
    # Whether the results of a batch are neighbours.
    batch_last: bool = False
    # The type of all factors (None: there are several).
    factors: DType | None = None
    # How many rows are neighbours along one axis.
    line: int = 1
    # Columns of products whose terms are folded columns.
    folded: tuple[int, ...] = ()
    # The axes that a lone product sums over.
    loops: tuple[int, ...] = ()
    # Whether the right operand is in panels already.
    packed: bool = False
    # Whether no whole row of the last product is kept.
    by_tiles: bool = False
    # Arrays as large as a product that are written, or read beside its factors.
    beside: int = 1
    # The finest relative step of the results.
    eps: float = 0.0
    # Whether terms of both operands are neighbours in memory, as bytes.
    bytes_along: bool = False
    # Products whose columns are folded at once.
    sources: int = 1


def _sources(online: Online | None) -> Sequence[Any]:
    return online.sources if online else ()


def _loops(tiles: Tiles) -> tuple[int, ...]:
    return tiles.products[0].loops if len(tiles.products) == 1 else ()


def _folded(tiles: Tiles, online: Online | None) -> tuple[int, ...]:
    folds = {f.node for f in online.folds} if online is not None else set[int]()
    return tuple(p.width for p in tiles.products if p.node in folds)


def _beside(graph: Graph, group: FusionGroup, tiles: Tiles) -> int:
    least = min(graph[p.node].types[0].size for p in tiles.products)
    factors = {v for p in tiles.products for v in graph[p.node].inputs}
    around = (*group.outputs, *(v for v in reads(graph, group.nodes) if v not in factors))
    return sum(graph.type_of(v).size >= least for v in around)


def _factors(tiles: Tiles) -> DType | None:
    found = {stored_dtype(p) for p in tiles.products}
    return found.pop() if len(found) == 1 else None


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
                max((p.terms for p in _sources(online)), default=0),
                row_scratch(graph, form, tiles) * item, item,
                *_lying(graph, group, form, tiles),
                _factors(tiles),
                line_of(form, tiles),
                _folded(tiles, online),
                _loops(tiles),
                by_tiles=ends_in_tiles(graph, form, tiles),
                beside=_beside(graph, group, tiles),
                eps=min((graph.type_of(v).dtype.eps for v in group.outputs), default=0.0),
                bytes_along=_bytes_along(graph, group, form, tiles),
                sources=len(online.sources) if online else 1,
            )
        )  # fmt: skip
    return max(found, key=lambda f: f.batch * f.rows * f.columns, default=None)


def _bytes_along(graph: Graph, group: FusionGroup, form: Form, tiles: Tiles) -> bool:
    """Whether all factors are bytes in memory, those of a row or column next to each other."""
    if _factors(tiles) is not DType.I8:
        return False
    block = _block(graph, group, form, tiles, LaunchConfig.of(mma=BYTE_MMA))
    found = [lies(block, p) for p in tiles.products for lies in (left_in_memory, right_in_memory)]
    return all(panel is not None and panel.inner == 1 for panel in found)


def _block(
    graph: Graph, group: FusionGroup, form: Form, tiles: Tiles, launch: LaunchConfig
) -> TileBlock:  # fmt: skip
    """A block whose operands can be asked for, of which nothing is kept."""
    sources = {v: memory(str(v), graph.type_of(v).shape, graph.type_of(v).dtype)
               for v in reads(graph, group.nodes)}  # fmt: skip
    emitter = Emitter()
    frame = Frame(graph, emitter, sources)
    return TileBlock(form, tiles, frame, {}, TileSettings.of(launch))


def _lying(
    graph: Graph, group: FusionGroup, form: Form, tiles: Tiles
) -> tuple[Steps | None, Steps | None, str, bool]:
    """How both operands of the widest product lie, what is next to each other in what the right one
    is computed from, and whether a batch is last in all of them."""
    block = _block(graph, group, form, tiles, LaunchConfig())
    widest = max(tiles.products, key=lambda p: p.width * p.terms)
    found = left_in_memory(block, widest), right_in_memory(block, widest)
    left, right = (None if p is None else (p.outer, p.inner) for p in found)
    plain = tiles.groups == 1 and not widest.diagonal
    along = TileLanes(form, tiles, block.base, {}, block.s).fit(512) if plain else None
    near = _near(block, widest) if right is None else ""
    return left, right, near, along is not None


def _near(b: TileBlock, p: Contraction) -> str:
    """Whether terms or columns are next to each other in the largest array that the right operand
    of a product is computed from."""
    probed = min(PROBED, p.terms, p.width)
    along = {TERMS: [(0, k) for k in range(probed)], COLUMNS: [(k, 0) for k in range(probed)]}
    spans = {name: _span(_probed_places(b, p, points)) for name, points in along.items()}
    near, far = sorted(spans, key=lambda name: spans[name])
    return near if spans[near] < probed <= spans[far] < math.inf and probed > 1 else ""


def _span(places: Sequence[int]) -> float:
    return max(places) - min(places) if places else math.inf


def _probed_places(b: TileBlock, p: Contraction, points: Sequence[tuple[int, int]]) -> list[int]:
    """Where the largest array is read for columns and terms; none where data decide that."""
    read: dict[Value, list[Expr]] = {}
    for point in points:
        for value, place in places_read(b, p, *map(ix.lit, point)):
            read.setdefault(value, []).append(place)
    if not read:
        return []
    places = read[max(read, key=lambda v: b.graph.type_of(v).nbytes)]
    known = [int(place.value) for place in places if isinstance(place, Lit)]
    return known if len(known) == len(places) else []
