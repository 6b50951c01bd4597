"""Which products need not keep whole rows: what follows them is folded as their columns come.

A fold over columns may depend on earlier folds over the same columns: a sum of exp(x - m) on the
maximum m. It is one pass nevertheless where its terms F(x, m) are a product G(x) * H(m): a total
of earlier columns is brought up to date by the factor H(m') / H(m). (RedFuser's condition; online
softmax is an instance.) Whether they are is tried with the references of the ops on numbers:
F(x, m) F(z, n) = F(x, n) F(z, m). The factor is F(z, m') / F(z, m) for any z; taking m for what m
is the maximum of keeps both in range. Extrema start from infinity, where differences are no
numbers: a term of their identity must be zero, so that nothing has to be brought up to date.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache

import numpy as np

from autofuse.graph.types import Graph, Value
from autofuse.ops.dtypes import DType
from autofuse.ops.reduction import reduced_axes
from autofuse.ops.scalar import Lit
from autofuse.ops.spec import Family, Motion
from autofuse.ops.types import OpCall, TensorType
from autofuse.plan.forms import Form, Tags
from autofuse.plan.masks import literal_of
from autofuse.plan.scalings import Scaling, core_of, is_per_row, scalings
from autofuse.plan.tiles import Contraction, Tiles

EXTREMA = ("max", "min")
# Numbers that separability is tried with, and how far two products of four roundings may differ.
TRIED, ROUNDINGS = 64, 8


@dataclass(frozen=True, slots=True)
class OnlineFold:
    """A reduction over columns, or a product of which they are the terms (`due`: scalings of its
    left operand that are left for later). `operand` is what is folded at a row and a column;
    `anchors` are the extrema that it depends on and `frontier` what else it is made of, column by
    column, all without them."""

    node: int
    operand: Value
    due: tuple[Scaling, ...]
    anchors: tuple[int, ...]
    frontier: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Online:
    """Products whose columns come in blocks, what is folded of them in node order, and the values
    that there is one of for every row and column."""

    sources: tuple[Contraction, ...]
    folds: tuple[OnlineFold, ...]
    block: frozenset[Value]


def identity(graph: Graph, n: int) -> Lit:
    """What an extremum of nothing is."""
    fold = graph[n].spec.fold
    assert fold is not None
    (start,) = fold.init(graph.call(n))
    assert isinstance(start, Lit)
    return start


def neutral(graph: Graph, value: Value) -> Lit:
    """What stands for an element of a value where a factor is computed."""
    dtype = graph.type_of(value).dtype.compute
    one = True if dtype is DType.BOOL else 1.0 if dtype.is_float else 1
    return Lit(one, dtype)


class _Kind(Enum):
    PLAIN = "plain"  # depends on no product or reduction
    BLOCK = "block"  # one element for every row and column of the products
    ROW = "row"  # one for every row, known when columns are over
    LATE = "late"  # made of products over these columns


@lru_cache(maxsize=1024)
def online_of(graph: Graph, form: Form, tiles: Tiles) -> Online | None:
    """How the products of a form may take their columns in blocks; None where they cannot."""
    if tiles.columns:
        return None
    return _Analysis(graph, form, {p.node: p for p in tiles.products}, dict(form.tags)).run()


@dataclass
class _Analysis:
    graph: Graph
    form: Form
    products: Mapping[int, Contraction]
    tags: Mapping[Value, Tags]
    kinds: dict[Value, _Kind] = field(default_factory=dict)
    sources: list[Contraction] = field(default_factory=list)
    folds: list[OnlineFold] = field(default_factory=list)
    # Values of a row and a column that depend on folds.
    dependent: set[Value] = field(default_factory=set)

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
        due = scalings(self.graph, self.form, left, tags)
        core = core_of(left, due)
        if self.kinds.get(core) is not _Kind.BLOCK:
            core, due = left, ()
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
        kinds = [self.kinds.get(v) for v in node.inputs]
        if _Kind.ROW in kinds or self.dependent & set(node.inputs):
            self.dependent.add(Value(n))
        return _Kind.BLOCK

    def _folded(self, n: int, operand: Value, due: tuple[Scaling, ...]) -> bool:
        """Whether a fold can go on from block to block; notes it if so."""
        anchors, frontier = self._made_of(operand)
        fold = OnlineFold(n, operand, due, tuple(sorted(anchors)), tuple(sorted(frontier)))
        if anchors:
            own = self.graph[n].spec.fold
            sums = own is None or own.operator == "add"
            extrema = all(self._is_extremum(a, fold) for a in anchors)
            if not sums or not extrema or not _Trial(self.graph, self, fold).passes():
                return False
        self.folds.append(fold)
        return True

    def _is_extremum(self, n: int, fold: OnlineFold) -> bool:
        own = self.graph[n].spec.fold
        known = own is not None and own.operator in EXTREMA
        return known and self.graph[n].inputs[0] in fold.frontier

    def _made_of(self, operand: Value) -> tuple[set[int], set[Value]]:
        """The folds that a value depends on, and what else it is made of column by column."""
        anchors, frontier, stack = set[int](), set[Value](), [operand]
        if operand not in self.dependent:
            return anchors, frontier
        while stack:
            value = stack.pop()
            if self.is_fold(value):
                anchors.add(value.node)
            elif value in self.dependent or self.kinds.get(value) is _Kind.ROW:
                stack += self.graph[value.node].inputs
            elif self.varies(value):
                frontier.add(value)
        return anchors, frontier

    def is_fold(self, value: Value) -> bool:
        reduced = self.graph[value.node].spec.family is Family.REDUCTION
        return reduced and self.kinds.get(value) is _Kind.ROW

    def varies(self, value: Value) -> bool:
        """Whether elements of a value may differ from column to column."""
        tags = self.tags[Value(self.sources[0].node)]
        same_shape = self.graph.type_of(value).rank == len(tags)
        return same_shape and not is_per_row(self.graph, value, tags)


@dataclass
class _Trial:
    """One fold's terms on numbers: is F(x, y) = G(x) * H(y)?"""

    graph: Graph
    known: _Analysis
    fold: OnlineFold

    def passes(self) -> bool:
        rng = np.random.default_rng(12)
        x, z = ({v: self._drawn(v, rng) for v in self.fold.frontier} for _ in range(2))
        m, n = ({Value(a): self._drawn(Value(a), rng) for a in self.fold.anchors} for _ in range(2))
        fixed: dict[Value, np.ndarray] = {}
        with np.errstate(all="ignore"):
            found = [
                self._made(self.fold.operand, {**a, **b}, fixed, rng)
                for a, b in ((x, m), (z, n), (x, n), (z, m))
            ]
            left, right = found[0] * found[1], found[2] * found[3]
            apart = np.abs(left - right) <= ROUNDINGS * self._eps() * np.abs(left)
            return bool(np.all(apart)) and self._starts(z, m, fixed, rng)

    def _starts(
        self, x: Mapping[Value, np.ndarray], m: Mapping[Value, np.ndarray],
        fixed: dict[Value, np.ndarray], rng: np.random.Generator,
    ) -> bool:  # fmt: skip
        """Whether terms of the identity of an extremum are zero, and those that factors are
        computed from are not."""
        for a in self.fold.anchors:
            folded, empty = self.graph[a].inputs[0], float(identity(self.graph, a).value)
            for start in (m, {v: np.zeros(TRIED) for v in m}):
                nothing = {**x, **start, folded: np.full(TRIED, empty)}
                if np.any(self._made(self.fold.operand, nothing, fixed, rng) != 0):
                    return False
        plain = {v: np.full(TRIED, neutral(self.graph, v).value) for v in self.fold.frontier}
        plain |= {self.graph[a].inputs[0]: m[Value(a)] for a in self.fold.anchors}
        divisor = self._made(self.fold.operand, {**plain, **m}, fixed, rng)
        return bool(np.all(np.isfinite(divisor) & (divisor != 0)))

    def _drawn(self, value: Value, rng: np.random.Generator) -> np.ndarray:
        dtype = self.graph.type_of(value).dtype
        if dtype is DType.BOOL:
            return rng.random(TRIED) < 0.5
        drawn = rng.uniform(-2, 2, TRIED)
        return drawn if dtype.is_float else np.rint(drawn * 2).astype(dtype.numpy)

    def _eps(self) -> float:
        """The coarsest rounding that ops on the way may do, as a reference follows the types."""
        types = (self.graph.type_of(v).dtype for v in self.known.dependent)
        return max(t.eps for t in types if t.is_float)

    def _made(
        self, value: Value, given: Mapping[Value, np.ndarray], fixed: dict[Value, np.ndarray],
        rng: np.random.Generator,
    ) -> np.ndarray:  # fmt: skip
        """What a value is, given what it is made of. What does not vary is `fixed`: what a constant
        says, or drawn once."""
        if value in given:
            return given[value]
        inner = value in self.known.dependent or self.known.kinds.get(value) is _Kind.ROW
        if not inner:
            constant = literal_of(self.graph, value)
            if constant is not None:
                return np.full(TRIED, constant).astype(self.graph.type_of(value).dtype.reference)
            return fixed.setdefault(value, self._drawn(value, rng))
        node = self.graph[value.node]
        operands = tuple(self._made(v, given, fixed, rng) for v in node.inputs)
        if node.spec.motion in (Motion.REPEAT, Motion.PERMUTE, Motion.RESHAPE):
            return operands[0]
        if node.spec.family is not Family.ELEMENTWISE:
            return np.full(TRIED, math.nan)
        types = tuple(TensorType((TRIED,), self.graph.type_of(v).dtype) for v in node.inputs)
        call = OpCall(node.attrs, types, (TensorType((TRIED,), node.types[0].dtype),))
        (made,) = node.spec.reference(operands, call)
        return made
