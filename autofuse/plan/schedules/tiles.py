"""The tile schedule: which products of a group are computed as tiles, and along which axes.

A grid iteration owns a block of rows, and where every value is needed column by column a block of
columns too. Rows are parallel axes that index one operand of every product (its left one); columns
index the other. What is local to a row, such as the columns of a product whose rows are reduced
afterwards, is kept for the whole block of rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

from autofuse.graph.types import Graph, Value
from autofuse.ops.dtypes import BYTES, TILED, DType
from autofuse.ops.spec import Family
from autofuse.plan.schedules.forms import ROW_SCRATCH, Form, Tags, local_shape

# Channels of an image that a vector of one of them is picked out of by a few moves (measured on a
# Xeon with AVX-512: 2.5 to 3.5 times as fast as a tile up to four of them, slower from eight on).
FEW_CHANNELS = 4


@dataclass(frozen=True, slots=True)
class Contraction:
    """One contraction: its node, which operand has the rows (0 or 1), the output axes that are its
    rows and its columns, how many columns and terms it has, and the loops over its terms. Of
    several `groups` each has so many columns, and rows of its own; the columns of a `diagonal` one
    index both operands. `stored` are the types of both factors where they are read: of whole
    numbers that casts of the kernel made wide, bytes."""

    node: int
    left: int
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    width: int
    terms: int
    loops: tuple[int, ...]
    groups: int = 1
    diagonal: bool = False
    stored: tuple[DType, ...] = ()

    @property
    def right(self) -> int:
        """The operand that has the columns."""
        return 1 - self.left


@dataclass(frozen=True, slots=True)
class Tiles:
    """The parallel axes of a tile form by role, each ascending, and its products in node order.

    `columns` is empty where columns are local to a row."""

    batch: tuple[int, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    products: tuple[Contraction, ...]

    @property
    def groups(self) -> int:
        """Groups of columns that each have rows of their own."""
        return self.products[0].groups


def tiles_of(graph: Graph, form: Form, *, diagonal: bool = False) -> Tiles | None:
    """The tiles of a form, or None where its products are none of the tile schedule: empty, of
    other types, with rows of different axes, or with rows to copy that are too long for scratch.

    `diagonal`: those of products whose columns index both operands, which only C can have."""
    nodes = [n for n in form.nodes if graph[n].spec.family is Family.CONTRACTION]
    families = {graph[n].spec.family for n in form.nodes}
    tags = dict(form.tags)
    if not nodes or Family.CONTROL in families or any(Value(n) not in tags for n in nodes):
        return None
    last = max((a for a, extent in enumerate(form.parallel) if extent > 1), default=-1)
    tiled = _diagonal if diagonal else _product
    found = [tiled(graph, n, tags[Value(n)], last) for n in nodes]
    inside = frozenset(form.nodes)
    products = tuple(
        replace(p, stored=_stored(graph, inside, p.node)) for p in found if p is not None
    )
    if len(products) < len(nodes):
        return None
    columns = {_tags_of(tags[Value(p.node)], p.columns) for p in products}
    rows = set(range(len(form.parallel)))
    for p in products:
        rows &= set(_tags_of(tags[Value(p.node)], p.rows))
    shared = columns.pop()
    if columns or not form.parallel or len({p.groups for p in products}) > 1:
        return None
    if shared and any(math.prod(local_shape(graph, v, tags[v])) > 1 for v in form.outputs):
        return None  # an item of a tile is one element
    kept = frozenset() if shared else inside
    copied = [p for p in products if graph[p.node].inputs[p.left].node not in kept]
    if any(p.terms > ROW_SCRATCH and is_packed(graph, form, p) for p in copied):
        return None
    batch = set(range(len(form.parallel))) - rows - set(shared)
    return Tiles(tuple(sorted(batch)), tuple(sorted(rows)), tuple(sorted(shared)), products)


def _tags_of(tags: Tags, axes: Sequence[int]) -> tuple[int, ...]:
    """The parallel axes among some axes of a value."""
    return tuple(t for a in axes if isinstance(t := tags[a], int))


def _by_tag(tags: Tags, axes: Sequence[int]) -> tuple[int, ...]:
    """Parallel axes of a value in the order of the form, in which columns are numbered for all
    products and for what follows them."""
    pairs = ((tags[a], a) for a in axes)
    return tuple(a for _, a in sorted((t, a) for t, a in pairs if isinstance(t, int)))


def _product(graph: Graph, node: int, tags: Tags, last: int) -> Contraction | None:
    """How one contraction is tiled: columns are the side that is local to an item, or the side of
    the axis along which results lie in memory."""
    call, spec = graph.call(node), graph[node].spec
    assert spec.factors is not None and spec.over is not None
    roles, loops = spec.factors.roles(call), spec.over.extents(call)
    terms = math.prod(loops)
    if roles is None or call.out.dtype not in TILED or not call.out.size or not terms:
        return None
    if any(isinstance(t, frozenset) and t for t in tags):
        return None
    # An axis of one element is none: it may be local where its side is parallel.
    lhs, rhs = (tuple(a for a in side if call.out.shape[a] > 1) for side in (roles.lhs, roles.rhs))
    local = [not all(isinstance(tags[a], int) for a in side) for side in (lhs, rhs)]
    if all(local) or any(
        call.out.shape[a] > 1 and not isinstance(tags[a], int) for a in roles.batch
    ):
        return None
    if is_filter(graph, node):
        return None
    # One channel made of patches. As columns of its own, most lanes of which are empty, it reads an
    # image where it lies; positions as columns would have every patch copied, to be used once.
    lone = len(loops) > 1 and bool(lhs and roles.rhs) and not rhs and not any(local)
    rhs = roles.rhs[:1] if lone else rhs
    on_left = last in {tags[a] for a in lhs} and not lone
    left = local.index(False) if any(local) else int(on_left)
    rows, columns = (lhs, rhs) if left == 0 else (rhs, lhs)
    if not any(local):
        columns = _by_tag(tags, columns)
    if any(local) and any(isinstance(tags[a], int) for a in columns):
        return None
    width = math.prod(call.out.shape[a] for a in columns)
    if width == 1 and not lone:
        return None
    if roles.groups > 1 and (left == 1 or any(local)):
        return None
    if not rows and roles.batch and len(loops) > 1:
        return None  # patches copied to columns, which one row reads once
    return Contraction(node, left, rows, columns, width // roles.groups, terms, loops, roles.groups)


def is_filter(graph: Graph, node: int) -> bool:
    """Whether a contraction makes one channel of patches of few. Each position is an item then:
    lanes along a line read its neighbours, however long the sums are."""
    call, spec = graph.call(node), graph[node].spec
    if spec.factors is None or spec.over is None:
        return False
    roles, loops = spec.factors.roles(call), spec.over.extents(call)
    one = roles is not None and bool(roles.rhs) and all(call.out.shape[a] == 1 for a in roles.rhs)
    return one and len(loops) > 1 and loops[0] <= FEW_CHANNELS


def _diagonal(graph: Graph, node: int, tags: Tags, last: int) -> Contraction | None:
    """A contraction whose columns, neighbours in memory, index both operands, and whose rows only
    one: a depthwise convolution, channels last."""
    call, spec = graph.call(node), graph[node].spec
    assert spec.factors is not None and spec.over is not None
    roles, loops = spec.factors.roles(call), spec.over.extents(call)
    terms = math.prod(loops)
    if roles is None or roles.rhs or call.out.dtype not in TILED or not call.out.size or not terms:
        return None
    if any(call.out.shape[a] > 1 and not isinstance(t, int) for a, t in enumerate(tags)):
        return None
    columns = tuple(a for a in roles.batch if tags[a] == last)
    if not columns:
        return None
    width = call.out.shape[columns[0]]
    return Contraction(node, 0, roles.lhs, columns, width, terms, loops, diagonal=True)


def _stored(graph: Graph, inside: Set[int], node: int) -> tuple[DType, ...]:
    """The types of both factors of a product where they are read, moved and made wide or not."""
    found = []
    for value in graph[node].inputs[:2]:
        own = graph.type_of(value).dtype
        while value.node in inside and graph[value.node].spec.view is not None:
            value = graph[value.node].inputs[0]
        wide = value.node in inside and widens(graph, value.node)
        found.append(graph.type_of(graph[value.node].inputs[0]).dtype if wide else own)
    return tuple(found)


def widens(graph: Graph, node: int) -> bool:
    """Whether a node makes an i32 of each byte."""
    call, n = graph.call(node), graph[node]
    exact = n.spec.family is Family.ELEMENTWISE and len(n.inputs) == 1 and n.spec.exact(call)
    return exact and call.out.dtype is DType.I32 and call.ins[0].dtype in BYTES


def row_scratch(graph: Graph, form: Form, tiles: Tiles) -> int:
    """Elements that a block keeps for each of its rows: every left operand that is not read as it
    lies, and where columns are local every product's row, but for what ends in tiles."""
    kept = tiles.products[:-1] if ends_in_tiles(graph, form, tiles) else tiles.products
    widths = 0 if tiles.columns else sum(p.width for p in kept)
    return widths + sum(p.terms for p in tiles.products if is_packed(graph, form, p))


def ends_in_tiles(graph: Graph, form: Form, tiles: Tiles) -> bool:
    """Whether columns are local to rows, but not for what follows the last product: all outputs are
    elementwise work on it, so that no whole row of it need be kept."""
    if tiles.columns:
        return False
    last, tags = tiles.products[-1].node, dict(form.tags)
    own, after = tags[Value(last)], {last}
    for n in sorted(form.nodes):
        if n in after or all(v.node not in after for v in graph[n].inputs):
            continue
        if graph[n].spec.family is not Family.ELEMENTWISE or tags.get(Value(n)) != own:
            return False
        after.add(n)
    return all(v.node in after for v in form.outputs)


def is_packed(graph: Graph, form: Form, p: Contraction) -> bool:
    """Whether rows of the left operand may be copied: they are computed here, of another type than
    they are computed in, or patches of an image."""
    left = graph[p.node].inputs[p.left]
    dtype = graph.type_of(left).dtype
    return left.node in form.nodes or dtype is not dtype.compute or len(p.loops) > 1


def line_of(form: Form, tiles: Tiles) -> int:
    """How many rows are neighbours along one axis, as in a line of an image."""
    return next((n for a in reversed(tiles.rows) if (n := form.parallel[a]) > 1), 1)


def even_parts(extent: int, most: int) -> tuple[tuple[int, int], ...]:
    """(size, how many) of as few parts of at most `most` as make up an extent, the larger first."""
    parts = -(-extent // most)
    size, larger = divmod(extent, parts)
    found = ((size + 1, larger), (size, parts - larger))
    return tuple((n, count) for n, count in found if n and count)
