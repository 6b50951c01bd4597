"""Values that stencils read again and again, kept in a tile of scratch together with their halo.

A tile is some rows of the output's first axis; of an array with one axis ROW elements are a row.
What is read at shifted places is computed once for the tile's rows and for as many before and
behind as those who read it need (overlapped tiling: Krishnamoorthy and others, PLDI 2007; Halide's
compute_at). Rows are numbered around, so a periodic array is like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from autofuse.graph.types import Graph, Value
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.positions import clamps, cuts, resolved
from autofuse.ops.pull import Index
from autofuse.ops.scalar import COMPARISONS, Call, Expr, Lit, Sym
from autofuse.ops.spec import Family
from autofuse.ops.views import Shape
from autofuse.plan.schedules.forms import Form
from autofuse.plan.schedules.multiplicity import (
    MOST_REPEATED,
    index_counts,
    may_repeat,
    moving_nodes,
)

I64 = DType.I64
# Rows of a halo, elements that lanes walk along in a row, and places that are followed.
MOST_HALO, LEAST_LANES, MOST_PLACES = 64, 32, 1024
# Elements of an array with one axis that count as a row.
ROW = 128
# Rows of a tile where a kernel must have some and is told nothing, and elements of its scratch.
USUAL_ROWS, MOST_SCRATCH = 32, 1 << 20
# First and last row.
RowSpan = tuple[int, int]
_Places = dict[Value, dict[Index, RowSpan]]


@dataclass(frozen=True, slots=True)
class HaloRows:
    """A value of which a tile holds its rows, `before` more and `behind` more; `last` is the last
    value that is computed from them."""

    value: Value
    before: int
    behind: int
    last: Value


@lru_cache(maxsize=1024)
def kept_values(graph: Graph, form: Form) -> tuple[HaloRows, ...]:
    """What a kernel of tiles keeps in scratch, producers first; nothing where values are read
    straight, or at places that are not near the item's own."""
    shapes = {graph.type_of(v).shape for v in form.outputs}
    whole = len(shapes) == 1 and form.parallel in shapes and form.kind == "item"
    specs = [graph[n].spec for n in form.nodes]
    plain = all(spec.family in _PLAIN and not spec.overwrites for spec in specs)
    if not whole or not plain or form.items < _least(form):
        return ()
    wanted = _shifted(graph, form)
    halos: dict[Value, RowSpan] = dict.fromkeys(form.outputs, (0, 0))
    last: dict[Value, Value] = dict.fromkeys(form.outputs, max(form.outputs))
    for reader in sorted({*form.outputs, *wanted}, reverse=True):
        if reader not in halos:
            continue  # nobody reads it after all
        reached = _reached(graph, form, reader, wanted - {reader})
        if reached is None:
            return ()
        for value, (low, high) in reached.items():
            before, behind = halos.get(value, (0, 0))
            own = halos[reader]
            last.setdefault(value, reader)
            halos[value] = max(before, own[0] - low), max(behind, own[1] + high)
    kept = tuple(HaloRows(v, *halos[v], last[v]) for v in sorted(wanted & halos.keys()))
    near = all(k.before + k.behind <= MOST_HALO for k in kept)
    return kept if near and _scratch(graph, form, kept) <= MOST_SCRATCH else ()


def repeats_too_much(graph: Graph, form: Form) -> bool:
    """Whether single items would compute values over and over."""
    if not may_repeat(graph, form.nodes):
        return False
    return index_counts(graph, form).repeated > MOST_REPEATED


def tile_rows(graph: Graph, form: Form, asked: int) -> int:
    """Rows of the tiles of a kernel that is `asked` to have so many; 0 where every item is computed
    by itself."""
    if asked:
        return asked if kept_values(graph, form) else 0
    return USUAL_ROWS if repeats_too_much(graph, form) else 0


def tile_extent(form: Form, rows: int) -> int:
    """Positions of the first axis that a tile of so many rows has."""
    return min(rows * (1 if len(form.parallel) > 1 else ROW), form.parallel[0])


def _scratch(graph: Graph, form: Form, kept: tuple[HaloRows, ...]) -> int:
    """Elements that a tile of usual size keeps."""
    rows, usual = graph.type_of(form.outputs[0]).shape[0], tile_extent(form, USUAL_ROWS)
    return sum(
        min(usual + k.before + k.behind, rows) * graph.type_of(k.value).size // rows for k in kept
    )


_PLAIN = (Family.ELEMENTWISE, Family.MOVEMENT, Family.SOURCE)


def _least(form: Form) -> int:
    return LEAST_LANES * form.parallel[0] if len(form.parallel) > 1 else ROW


def _shifted(graph: Graph, form: Form) -> set[Value]:
    """Values with work behind them that some node reads at another index than its own."""
    moving = set(form.nodes).intersection(moving_nodes(graph))
    kept: set[Value] = set()
    working: set[int] = set()
    for n in sorted(form.nodes):
        node = graph[n]
        fresh = {v.node for v in node.inputs if v not in kept}
        if node.spec.family is Family.ELEMENTWISE or fresh & working:
            working.add(n)
        rows = _rows_like(node.types[0].shape, form.parallel)
        shifted = not moving.isdisjoint(graph.users[n])
        if n in working and rows and shifted and len(node.types) == 1:
            kept.add(Value(n))
    return kept


def _rows_like(shape: Shape, parallel: Shape) -> bool:
    """Whether an array has rows as the output has; elements of a line are not rows of a table."""
    return shape[:1] == parallel[:1] and (len(parallel) > 1 or len(shape) == 1)


def _reached(
    graph: Graph, form: Form, reader: Value, kept: set[Value]
) -> dict[Value, RowSpan] | None:
    """How far from its own row computing a row of `reader` reaches in each kept value; None where
    that is not known."""
    extent = form.parallel[0]
    row = Sym("row", I64, extent)
    rest = graph.type_of(reader).shape[1:]
    index = (row, *(Sym(f"l{a}", I64, n) for a, n in enumerate(rest)))
    places: _Places = {reader: {index: (0, extent - 1)}}
    count = 0
    for n in sorted((n for n in form.nodes if n <= reader.node), reverse=True):
        value = Value(n)
        if value in kept or value not in places:
            continue
        count += len(places[value])
        if count > MOST_PLACES:
            return None
        for at, rows in places[value].items():
            for operand, place, within in _reads(graph, n, at, rows, row):
                known = places.setdefault(graph[n].inputs[operand], {})
                first, last = known.get(place, within)
                known[place] = min(first, within[0]), max(last, within[1])
    found: dict[Value, RowSpan] = {}
    for value in kept & places.keys():
        spans = [_distance(at[0], rows, row) for at, rows in places[value].items()]
        known_spans = [s for s in spans if s is not None]
        if len(known_spans) < len(spans):
            return None
        found[value] = min(s[0] for s in known_spans), max(s[1] for s in known_spans)
    return found


def _reads(
    graph: Graph, n: int, at: Index, rows: RowSpan, row: Sym
) -> Iterator[tuple[int, Index, RowSpan]]:
    """Which operands a node reads where, and for which rows what it reads matters."""
    node, call = graph[n], graph.call(n)
    if node.spec.family is Family.ELEMENTWISE:
        yield from ((operand, at, rows) for operand in range(len(node.inputs)))
        return
    assert node.spec.body is not None
    probe = _Probe(graph, n)
    for result in node.spec.body(call, at, probe):
        for name, within in _occurrences(result, rows, row):
            if name in probe.found:
                yield (*probe.found[name], within)


class _Probe:
    """Notes what a body reads, under the names that it gives."""

    def __init__(self, graph: Graph, node: int) -> None:
        self.graph, self.node = graph, node
        self.found: dict[str, tuple[int, Index]] = {}

    def __call__(self, operand: int, index: Index) -> Expr:
        name = f"x{len(self.found)}"
        self.found[name] = operand, index
        own = self.graph.type_of(self.graph[self.node].inputs[operand])
        return Sym(name, own.dtype.compute)

    def let(self, value: Expr) -> Expr:
        return value


def _occurrences(expr: Expr, rows: RowSpan, row: Sym) -> Iterator[tuple[str, RowSpan]]:
    """Symbols of an expression, and the rows for which its selects choose them."""
    match expr:
        case Sym(name=name):
            yield name, rows
        case Call(fn="select", args=(condition, a, b)):
            for part, holds in ((a, True), (b, False)):
                left = _narrowed(condition, holds, rows, row)
                if left[0] <= left[1]:
                    yield from _occurrences(part, left, row)
            yield from _occurrences(condition, rows, row)
        case Call(args=args):
            for arg in args:
                yield from _occurrences(arg, rows, row)


def _may_be(condition: Expr, holds: bool) -> bool:
    return not isinstance(condition, Lit) or bool(condition.value) is holds


def _narrowed(condition: Expr, holds: bool, rows: RowSpan, row: Sym) -> RowSpan:
    """Of some rows those, or more, for which a condition is as told."""
    if not isinstance(condition, Call):
        return rows
    if condition.fn == "and" and holds:
        for part in condition.args:
            rows = _narrowed(part, True, rows, row)
        return rows
    if condition.fn not in COMPARISONS:
        return rows
    edges = _edges(condition, rows, row)
    ends = [_at(condition, row, edge) for edge in edges[:-1]]
    # Between edges the comparison is one and the same.
    fits = [k for k, end in enumerate(ends) if _may_be(end, holds)]
    return (edges[fits[0]], edges[fits[-1] + 1] - 1) if fits else (0, -1)


def _edges(expr: Expr, rows: RowSpan, row: Sym) -> list[int]:
    """Rows between which no comparison or clamp of `expr` changes."""
    found = {int(p.value) for p in (*cuts(expr, row), *_clamps(expr, row)) if isinstance(p, Lit)}
    return [rows[0], *sorted(p for p in found if rows[0] < p <= rows[1]), rows[1] + 1]


def _clamps(expr: Expr, row: Sym) -> Iterable[Expr]:
    return (place for pair in clamps(expr, row) for place in pair)


def _at(expr: Expr, row: Sym, place: int | Expr) -> Expr:
    value = ix.lit(place) if isinstance(place, int) else place
    return resolved(expr, {row.name: value})


def _distance(index: Expr, rows: RowSpan, row: Sym) -> RowSpan | None:
    """How far a position is from the row, on an axis taken as a ring; None where that is not
    known, or there are no rows."""
    if not row.extent:
        return None
    edges = _edges(index, rows, row)
    low, high = row.extent, -row.extent
    for first, end in pairwise(edges):
        inner = Sym("inner", I64, end - first)
        known = ix.bounds(ix.isub(_at(index, row, ix.iadd(inner, ix.lit(first))),
                                  ix.iadd(inner, ix.lit(first))))  # fmt: skip
        if known is None:
            return None
        turns = round((known[0] + known[1]) / 2 / row.extent) * row.extent
        low, high = min(low, known[0] - turns), max(high, known[1] - turns)
    return (low, high) if high - low <= 2 * MOST_HALO else None
