"""Whether a fold that depends on earlier ones may go on from block to block.

A sum of terms F(x, m), where m are extrema over the same columns, is one pass if F(x, m) is a
product G(x) * H(m): a total of earlier columns is brought up to date by the factor H(m') / H(m).
(RedFuser's condition; online softmax is an instance.) Whether it is one is tried with the
references of the ops on numbers: F(x, m) F(z, n) = F(x, n) F(z, m). The factor is F(z, m') /
F(z, m) for any z; taking m for what m is the maximum of keeps both in range. Extrema start from
infinity, where differences are no numbers: a term of their identity must be zero, so that nothing
has to be brought up to date.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from autofuse.graph.types import Graph, Value
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Lit
from autofuse.ops.spec import Family, Motion
from autofuse.ops.types import OpCall, TensorType
from autofuse.order import closure
from autofuse.plan.schedules.forms import Tags
from autofuse.plan.schedules.masks import literal_of
from autofuse.plan.schedules.scalings import Scaling, is_per_row

EXTREMA = ("max", "min")
# Numbers that separability is tried with, and roundings by which two products may differ.
TRIED, ROUNDINGS = 64, 8
# How far below a maximum terms are tried.
DISTANCES = (0.0, 0.25, 3.0, 100.0, 1e4)

Numbers = Mapping[Value, np.ndarray]


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


@dataclass
class Terms:
    """What a fold adds up: `operand`, in which the scalings of `due` are passed through. `block`
    has one element for every row and column, with these `tags`; `rows` are known row by row when
    columns are over, the folds among them. Found are the `anchors`, folds that terms depend on, and
    the `frontier`: what they are made of column by column, without any fold. `unit` says whether
    a term is one where what an extremum is of is that extremum, as exp(x - m) is."""

    graph: Graph
    operand: Value
    due: tuple[Scaling, ...]
    tags: Tags
    block: Iterable[Value]
    rows: Iterable[Value]
    anchors: frozenset[int] = frozenset()
    frontier: frozenset[Value] = frozenset()
    unit: bool = False
    _inner: set[Value] = field(default_factory=set)
    _fixed: dict[Value, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._inner = {*self._above(filter(self._is_fold, self.rows)), *self.rows}
        self.anchors = frozenset(v.node for v in self._leaves() if self._is_fold(v))
        if self.anchors:
            tops = {self.graph[a].inputs[0] for a in self.anchors}
            self._inner = (self._inner | self._above(tops)) - tops
            varying = (v for v in self._leaves() if self._varies(v))
            self.frontier = frozenset(v for v in varying if not self._is_fold(v))

    def _above(self, values: Iterable[Value]) -> set[Value]:
        """What is computed from some values, element by element."""
        found = set(values)
        for value in sorted((*self.block, *self.rows)):
            if found & set(self.graph[value.node].inputs):
                found.add(value)
        return found

    def _is_fold(self, value: Value) -> bool:
        return self.graph[value.node].spec.family is Family.REDUCTION

    def _varies(self, value: Value) -> bool:
        """Whether elements of a value may differ from column to column."""
        alike = self.graph.type_of(value).rank == len(self.tags)
        return alike and not is_per_row(self.graph, value, self.tags)

    def _parts(self, value: Value) -> tuple[Value, ...]:
        """What a value is computed from on the way from folds and what they fold; none where that
        ends."""
        scaled = [s.scaled for s in self.due if s.node == value.node]
        ends = value not in self._inner or self._is_fold(value)
        return tuple(scaled) or (() if ends else self.graph[value.node].inputs)

    def _leaves(self) -> set[Value]:
        return {v for v in closure([self.operand], self._parts) if not self._parts(v)}

    def separate(self) -> bool:
        """Whether totals of such terms can be brought up to date; they are as they are if terms
        depend on no fold."""
        if not self.anchors:
            return True
        if not all(self._is_extremum(a) for a in self.anchors):
            return False
        rng = np.random.default_rng(12)
        x, z = ({v: self._drawn(v, rng) for v in sorted(self.frontier)} for _ in range(2))
        m, n = ({Value(a): self._drawn(Value(a), rng) for a in self.anchors} for _ in range(2))
        with np.errstate(all="ignore"):
            found = [self._made({**a, **b}) for a, b in ((x, m), (z, n), (x, n), (z, m))]
            left, right = found[0] * found[1], found[2] * found[3]
            apart = np.abs(left - right) <= ROUNDINGS * self._eps() * np.abs(left)
            return bool(np.all(apart)) and self._starts(z, m)

    def _is_extremum(self, n: int) -> bool:
        fold = self.graph[n].spec.fold
        known = fold is not None and fold.operator in EXTREMA
        return known and self.graph[n].inputs[0] in self.frontier

    def _starts(self, x: Numbers, m: Numbers) -> bool:
        """Whether terms of the identity of an extremum are zero, and those that factors are
        computed from are not."""
        for a in self.anchors:
            empty = np.full(TRIED, float(identity(self.graph, a).value))
            for start in (m, {v: np.zeros(TRIED) for v in m}):
                if np.any(self._made({**x, **start, self.graph[a].inputs[0]: empty}) != 0):
                    return False
        plain = {v: np.full(TRIED, neutral(self.graph, v).value) for v in self.frontier}
        plain |= {self.graph[a].inputs[0]: m[Value(a)] for a in self.anchors}
        divisor = self._made({**plain, **m})
        self.unit = bool(np.all(divisor == 1))
        return bool(np.all(np.isfinite(divisor) & (divisor != 0)))

    def small(self) -> bool:
        """Whether terms are at most one in size, whatever is below the maxima that they depend on
        (above the minima), as those of a softmax are before they are divided by their sum."""
        rng = np.random.default_rng(13)
        if not self.anchors or not all(self._is_extremum(a) for a in self.anchors):
            return False
        for away in DISTANCES:
            given = {v: self._drawn(v, rng) for v in sorted(self.frontier)}
            for a in self.anchors:
                fold, extremum = self.graph[a].spec.fold, self._drawn(Value(a), rng)
                assert fold is not None
                sign = -1 if fold.operator == "max" else 1
                given |= {Value(a): extremum, self.graph[a].inputs[0]: extremum + sign * away}
            with np.errstate(all="ignore"):
                if not np.all(np.abs(self._made(given)) <= 1):
                    return False
        return True

    def _drawn(self, value: Value, rng: np.random.Generator, low: float = -2) -> np.ndarray:
        dtype = self.graph.type_of(value).dtype
        if dtype is DType.BOOL:
            return rng.random(TRIED) < 0.5
        drawn = rng.uniform(low, 2, TRIED)
        return drawn if dtype.is_float else np.rint(drawn * 2).astype(dtype.numpy)

    def _eps(self) -> float:
        """The coarsest rounding on the way, which the reference of a conversion does too."""
        types = (self.graph.type_of(v).dtype for v in (*self._inner, self.operand))
        return max(t.eps for t in types if t.is_float)

    def _made(self, given: Numbers) -> np.ndarray:
        """Terms made of these numbers; what does not vary is what a constant says, or drawn once:
        positive, as scales are."""
        known = dict(given)

        def made(value: Value) -> np.ndarray:
            if value not in known:
                known[value] = self._computed(value, made)
            return known[value]

        return made(self.operand)

    def _computed(self, value: Value, made: Callable[[Value], np.ndarray]) -> np.ndarray:
        parts, node = self._parts(value), self.graph[value.node]
        if not parts:
            return self._constant(value)
        moved = node.spec.motion in (Motion.REPEAT, Motion.PERMUTE, Motion.RESHAPE)
        if moved or parts != node.inputs:
            return made(parts[0])
        if node.spec.family is not Family.ELEMENTWISE:
            return np.full(TRIED, math.nan)
        types = tuple(TensorType((TRIED,), self.graph.type_of(v).dtype) for v in parts)
        call = OpCall(node.attrs, types, (TensorType((TRIED,), node.types[0].dtype),))
        return node.spec.reference(tuple(map(made, parts)), call)[0]

    def _constant(self, value: Value) -> np.ndarray:
        literal = literal_of(self.graph, value)
        if literal is not None:
            return np.full(TRIED, literal).astype(self.graph.type_of(value).dtype.reference)
        if value not in self._fixed:
            rng = np.random.default_rng(value.node)
            self._fixed[value] = self._drawn(value, rng, low=0.5)
        return self._fixed[value]
