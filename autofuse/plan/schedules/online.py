"""Which products need not keep whole rows: what follows them is folded as their columns come, also
where a fold depends on another one (`separable.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache

from autofuse.graph.types import Graph, Value
from autofuse.ops.reduction import reduced_axes
from autofuse.ops.spec import Family
from autofuse.plan.parameters import COLUMN_BLOCK, FRAGMENTS
from autofuse.plan.schedules.forms import ROW_SCRATCH, Form, Tags
from autofuse.plan.schedules.scalings import Scaling, converts_to_f16, core_of, scalings, unrounded
from autofuse.plan.schedules.separable import Terms
from autofuse.plan.schedules.tiles import Contraction, Tiles, row_scratch
from autofuse.plan.types import LaunchConfig


@dataclass(frozen=True, slots=True)
class OnlineFold:
    """A reduction over columns, or a product of which they are the terms (`due`: scalings of its
    left operand that are left for later). `operand` is what is folded at a row and a column;
    `anchors` are the extrema that it depends on and `frontier` what else it is made of, column by
    column, all without them. `unit`: it is one where that is what the extrema are."""

    node: int
    operand: Value
    due: tuple[Scaling, ...]
    anchors: tuple[int, ...]
    frontier: tuple[Value, ...]
    unit: bool = False


@dataclass(frozen=True, slots=True)
class Online:
    """Products whose columns come in blocks, what is folded of them in node order, and the values
    that there is one of for every row and column."""

    sources: tuple[Contraction, ...]
    folds: tuple[OnlineFold, ...]
    block: frozenset[Value]


class _Kind(Enum):
    PLAIN = "plain"  # depends on no product or reduction
    BLOCK = "block"  # one element for every row and column of the products
    ROW = "row"  # one for every row, known when columns are over
    LATE = "late"  # made of products over these columns


@lru_cache(maxsize=1024)
def online_of(graph: Graph, form: Form, tiles: Tiles) -> Online | None:
    """How the products of a form may take their columns in blocks; None where they cannot."""
    floats = all(graph.type_of(Value(p.node)).dtype.is_float for p in tiles.products)
    if tiles.columns or not floats:
        return None
    return _Analysis(graph, form, {p.node: p for p in tiles.products}, dict(form.tags)).run()


def online_under(graph: Graph, form: Form, tiles: Tiles, launch: LaunchConfig) -> Online | None:
    """How columns come in blocks under a launch configuration; None where rows are whole."""
    if FRAGMENTS.of(launch):
        return online_of(graph, form, tiles)
    if not COLUMN_BLOCK.of(launch) and row_scratch(graph, form, tiles) <= ROW_SCRATCH:
        return None
    return online_of(graph, form, tiles)


@dataclass
class _Analysis:
    graph: Graph
    form: Form
    products: Mapping[int, Contraction]
    tags: Mapping[Value, Tags]
    kinds: dict[Value, _Kind] = field(default_factory=dict)
    sources: list[Contraction] = field(default_factory=list)
    folds: list[OnlineFold] = field(default_factory=list)

    def run(self) -> Online | None:
        for n in self.form.nodes:
            kind = self._kind(n)
            if kind is None:
                return None
            for i in range(len(self.graph[n].types)):
                self.kinds[Value(n, i)] = kind
        block = frozenset(v for v, kind in self.kinds.items() if kind is _Kind.BLOCK)
        if not self.folds or block & set(self.form.outputs):
            return None
        return Online(tuple(self.sources), tuple(self.folds), block)

    def _kind(self, n: int) -> _Kind | None:
        node = self.graph[n]
        found = [self.kinds.get(v, _Kind.PLAIN) for v in node.inputs]
        if node.spec.family is Family.CONTRACTION:
            return self._product(self.products[n], found)
        if node.spec.family is Family.REDUCTION:
            return self._reduction(n, found[0])
        if node.spec.family not in (Family.ELEMENTWISE, Family.MOVEMENT, Family.SOURCE):
            return None
        if _Kind.BLOCK in found:
            return self._elementwise(n) if _Kind.LATE not in found else None
        return next((k for k in (_Kind.LATE, _Kind.ROW) if k in found), _Kind.PLAIN)

    def _product(self, p: Contraction, found: list[_Kind]) -> _Kind | None:
        if found == [_Kind.PLAIN, _Kind.PLAIN]:
            first = self.sources[0] if self.sources else p
            alike = self.tags[Value(p.node)] == self.tags[Value(first.node)]
            if not alike or p.columns != first.columns or p.width != first.width:
                return None
            self.sources.append(p)
            return _Kind.BLOCK if len(p.columns) == 1 else None
        if (found[p.left], found[p.right]) != (_Kind.BLOCK, _Kind.PLAIN) or len(p.loops) != 1:
            return None
        left, tags = self.graph[p.node].inputs[p.left], self.tags[Value(self.sources[0].node)]
        due = scalings(self.graph, self.form, left, tags, small=True)
        core = core_of(left, due)
        if self.kinds.get(core) is not _Kind.BLOCK:
            core, due = left, ()
        if due and converts_to_f16(self.graph, core) and not self._terms(core, due).small():
            return None
        exact = unrounded(self.graph, core, due)
        core = exact if self.kinds.get(exact) is _Kind.BLOCK else core
        return _Kind.LATE if self._folded(p.node, core, due) else None

    def _reduction(self, n: int, kind: _Kind) -> _Kind | None:
        if kind is not _Kind.BLOCK:
            return kind if kind is _Kind.LATE else None
        operand, fold = self.graph[n].inputs[0], self.graph[n].spec.fold
        if reduced_axes(self.graph.call(n)) != self.sources[0].columns or fold is None:
            return None
        if len(self.graph[n].types) > 1:
            return None
        return _Kind.ROW if self._folded(n, operand, ()) else None

    def _elementwise(self, n: int) -> _Kind | None:
        node, own = self.graph[n], self.tags.get(Value(n))
        if node.spec.family is not Family.ELEMENTWISE or len(node.types) > 1:
            return None
        if own != self.tags[Value(self.sources[0].node)]:
            return None
        return _Kind.BLOCK

    def _terms(self, operand: Value, due: tuple[Scaling, ...]) -> Terms:
        rows, block = ([v for v, k in self.kinds.items() if k is kind] for kind in _SEEN)
        tags = self.tags[Value(self.sources[0].node)]
        return Terms(self.graph, operand, due, tags, block, rows)

    def _folded(self, n: int, operand: Value, due: tuple[Scaling, ...]) -> bool:
        """Whether a fold can go on from block to block; notes it if so."""
        terms = self._terms(operand, due)
        own = self.graph[n].spec.fold
        sums = own is None or own.operator == "add"
        if (terms.anchors and not sums) or not terms.separate():
            return False
        anchors, frontier = tuple(sorted(terms.anchors)), tuple(sorted(terms.frontier))
        self.folds.append(OnlineFold(n, operand, due, anchors, frontier, terms.unit))
        return True


# What terms may be made of.
_SEEN = (_Kind.ROW, _Kind.BLOCK)
