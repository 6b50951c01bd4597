"""Columns of a product that no result needs, because a mask puts a constant in their place.

Beyond the mask a value is known: what the mask chooses there, and what elementwise ops make of it.
It is not needed if every reduction over columns has it as an identity, and every product multiplies
by it as zero. So causal attention needs no scores past the diagonal. (FlashAttention skips blocks
by the name of the mask; here any mask serves that is a comparison of positions, or a constant.)

What ops make of it is found by trying, with their own references, on numbers of up to 1e8 in size:
a mask of -1e9 stands for minus infinity as long as scores are smaller than that. Every row must
have a column that the mask lets through, unless the constant is -inf and the row NaN either way."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from autofuse.graph.types import Graph, Value
from autofuse.ops import index as ix
from autofuse.ops.conditions import latest
from autofuse.ops.dtypes import DType
from autofuse.ops.pull import Index
from autofuse.ops.reduction import reduced_axes
from autofuse.ops.scalar import COMPARISONS, Call, Expr, Lit, Sym
from autofuse.ops.spec import Family, Motion
from autofuse.ops.types import Literal, OpCall, TensorType
from autofuse.plan.schedules.forms import Form, Tags
from autofuse.plan.schedules.tiles import Contraction, Tiles

# Numbers that an op meets beyond the mask: positive and negative, small and large.
_MET = (-1e8, -2.5, 0.5, 3.0, 1e8)
ROW, COLUMN = "row", "column"


@dataclass(frozen=True, slots=True)
class Reach:
    """What of the `width` columns of a product is needed: in row r those up to r + `offset`."""

    offset: int
    width: int
    # All that need no more, the columns as their last axis.
    values: frozenset[Value]
    # Values that are others as they are in all of these columns, because the mask lets them
    # through.
    same: tuple[tuple[Value, Value], ...] = ()

    def columns(self, rows: Expr, least: int = 1) -> Expr:
        """How many columns some of the first `rows` rows need, at least so many."""
        return ix.iclamp(ix.iadd(rows, ix.lit(self.offset)), least, self.width)

    def beyond(self, rows: Expr, first: Expr) -> Expr:
        """How many of these come from column `first` on."""
        last = ix.iadd(rows, ix.lit(self.offset))
        return Call("max", (ix.isub(last, first), ix.lit(0)), DType.I64)


def reach_of(graph: Graph, form: Form, tiles: Tiles, product: Contraction) -> Reach | None:
    """The reach of a product whose columns are local, or None where all may be needed: rows and
    columns must be one axis each, the columns the last one."""
    tags = dict(form.tags)
    own = tags[Value(product.node)]
    if tiles.columns or len(tiles.rows) != 1 or len(product.columns) != 1:
        return None
    if product.columns[0] != len(own) - 1:
        return None
    lefts = {p.node: graph[p.node].inputs[p.left] for p in tiles.products if len(p.loops) == 1}
    return _Search(graph, form, tags, tiles.rows[0], lefts).run(product)


@dataclass
class _Search:
    """Values that depend on a product, with what each is beyond the mask, by what ops met on the
    way (None: nothing is known)."""

    graph: Graph
    form: Form
    tags: dict[Value, Tags]
    row: int
    lefts: dict[int, Value]
    known: dict[Value, tuple[float, ...] | None] = field(default_factory=dict)
    offset: int | None = None
    same: dict[Value, Value] = field(default_factory=dict)

    def run(self, product: Contraction) -> Reach | None:
        self.known[Value(product.node)] = None
        for n in self.form.nodes:
            if any(v in self.known for v in self.graph[n].inputs) and not self._follow(n):
                return None
        if self.offset is None or any(v in self.known for v in self.form.outputs):
            return None
        return Reach(self.offset, product.width, frozenset(self.known), tuple(self.same.items()))

    def _adds_zeros(self, n: int) -> bool:
        """Whether terms of a product beyond the mask are zero on the left."""
        ours = [v for v in self.graph[n].inputs if v in self.known]
        return ours == [self.lefts.get(n)] and set(self.known[ours[0]] or (1.0,)) == {0.0}

    def _follow(self, n: int) -> bool:
        """Whether a reader of a value that is cut short goes on with it, or needs no more of it."""
        node = self.graph[n]
        family = node.spec.family
        if family is Family.REDUCTION:
            return self._ends(n)
        if family is Family.CONTRACTION:
            return self._adds_zeros(n)
        if family is not Family.ELEMENTWISE or len(node.types) > 1:
            return False
        own = self.tags.get(Value(n))
        if own is None or isinstance(own[-1], int):
            return False
        self.known[Value(n)] = self._made(n)
        return True

    def _ends(self, n: int) -> bool:
        """Whether a reduction over columns leaves out what is beyond the mask anyway."""
        call, value = self.graph.call(n), self.graph[n].inputs[0]
        beyond = self.known[value]
        if reduced_axes(call) != (call.ins[0].rank - 1,) or beyond is None:
            return False
        if len(call.outs) > 1 or call.out.dtype is not call.ins[0].dtype:
            return False  # positions are no identity
        return all(
            self._reduced(n, (x,)) == self._reduced(n, (x, y)) for x in _MET for y in set(beyond)
        )

    def _reduced(self, n: int, elements: tuple[float, ...]) -> float:
        """What a reduction makes of these elements."""
        call = self.graph.call(n)
        name = "axis" if call.get("axes") is None else "axes"
        attrs = ((name, 0 if name == "axis" else (0,)),)
        own = OpCall(
            attrs, (TensorType((len(elements),), DType.F64),), (TensorType((), DType.F64),)
        )
        (made,) = self.graph[n].spec.reference((np.array(elements),), own)
        return float(made)

    def _operands(self, n: int, turn: int, masked: bool) -> list[np.ndarray]:
        operands = [self._met(v, turn, k) for k, v in enumerate(self.graph[n].inputs)]
        return [np.array(False), *operands[1:]] if masked else operands

    def _made(self, n: int) -> tuple[float, ...] | None:
        """What an elementwise op makes beyond the mask, for each of the numbers it may meet."""
        node, masked = self.graph[n], self._is_masked(n)
        if not masked and all(self.known.get(v) is None for v in node.inputs):
            return None
        dtypes = [self.graph.type_of(v).dtype for v in node.inputs]
        if DType.BOOL in dtypes[int(masked) :]:
            return None
        types = tuple(TensorType((), dtype) for dtype in dtypes)
        call = OpCall(node.attrs, types, (TensorType((), node.types[0].dtype),))
        found: list[float] = []
        for turn in range(len(_MET)):
            operands = self._operands(n, turn, masked)
            with np.errstate(all="ignore"):
                (made,) = node.spec.reference(tuple(operands), call)
            found.append(float(made))
        return None if any(map(math.isnan, found)) else tuple(found)

    def _met(self, value: Value, turn: int, position: int) -> np.ndarray:
        """What an op may find in the place of an operand. No two operands are the same number:
        nothing is known of their difference."""
        beyond, constant = self.known.get(value), literal_of(self.graph, value)
        if beyond is not None:
            return np.array(beyond[turn])
        met = _MET[(turn + 2 * position) % len(_MET)] * (1 + 0.37 * position)
        return np.array(met if constant is None else constant)

    def _is_masked(self, n: int) -> bool:
        """Whether the first operand is a mask that is false from some column on; the first one that
        is met says from which."""
        node = self.graph[n]
        mask = node.inputs[0]
        if self.graph.type_of(mask).dtype is not DType.BOOL or mask in self.known:
            return False
        found = self._last_column(mask, self.tags[Value(n)])
        if found is None or self.offset is not None:
            return False
        offset, lets_through, whole = found
        if not lets_through and literal_of(self.graph, node.inputs[-1]) != -math.inf:
            return False
        self.offset = offset
        if whole and len(node.inputs) == 3 and self._chooses(n):
            self.same[Value(n)] = node.inputs[1]
        return True

    def _chooses(self, n: int) -> bool:
        """Whether an op with a mask is its second operand wherever that is true."""
        node = self.graph[n]
        types = tuple(TensorType((), self.graph.type_of(v).dtype) for v in node.inputs)
        call = OpCall(node.attrs, types, (TensorType((), node.types[0].dtype),))
        return all(
            float(node.spec.reference((np.array(True), np.array(a), np.array(b)), call)[0]) == a
            for a, b in pairwise(_MET)
        )

    def _last_column(self, mask: Value, tags: Tags) -> tuple[int, bool, bool] | None:
        """The offset from a row's number to the last column where its mask may hold, whether it
        holds somewhere in every row, and whether it does in every column up to the last one."""
        row = next((a for a, tag in enumerate(tags) if tag == self.row), -1)
        array = _constant_mask(self.graph, mask, row)
        if array is not None:
            last = [(r, np.flatnonzero(line)) for r, line in enumerate(array)]
            ends = [int(held[-1]) - r for r, held in last if held.size]
            if not ends:
                return None
            offset = max(ends)
            whole = all(bool(line[: max(0, r + offset + 1)].all()) for r, line in enumerate(array))
            return offset, len(ends) == len(array), whole
        names = [ROW if a == row else COLUMN if a == len(tags) - 1 else f"other{a}"
                 for a in range(len(tags))]  # fmt: skip
        extents = self.graph.type_of(mask).shape
        place = tuple(Sym(m, DType.I64, n) for m, n in zip(names, extents, strict=True))
        try:
            condition = _from_positions(self.graph, mask, place)
        except _NotPositionsError:
            return None
        bound = latest(condition, COLUMN)
        found = None if bound is None else ix.coefficients(bound, (ROW,))
        if found is None or found[0] != (1,) or not isinstance(found[1], Lit):
            return None
        offset = int(found[1].value)
        plain = isinstance(condition, Call) and condition.fn in COMPARISONS
        whole = isinstance(condition, Call) and condition.fn in ("lt", "le", "gt", "ge")
        return offset, plain and offset >= 0, whole


def _constant_mask(graph: Graph, mask: Value, row: int) -> np.ndarray | None:
    """The matrix of rows and columns that a mask repeats, if it is a constant."""
    node = graph[mask.node]
    if node.spec.motion is not Motion.REPEAT or node.spec.axes is None:
        return None
    (mapping,) = node.spec.axes(graph.call(mask.node))
    literal = dict(graph[node.inputs[0].node].attrs).get("value")
    if not isinstance(literal, Literal) or (mapping[row], mapping[-1]) != (0, 1):
        return None
    return literal.array() if len(literal.type.shape) == 2 else None


def literal_of(graph: Graph, value: Value) -> float | None:
    """The number that a value repeats, if it is a constant."""
    node = graph[value.node]
    while node.op != "constant" and len(node.inputs) == 1 and node.spec.motion is not None:
        node = graph[node.inputs[0].node]
    literal = dict(node.attrs).get("value") if node.op == "constant" else None
    if not isinstance(literal, Literal) or literal.type.size != 1:
        return None
    return float(literal.array().reshape(()))


class _NotPositionsError(Exception):
    """An element that does not follow from positions alone."""


def _from_positions(graph: Graph, value: Value, index: Index) -> Expr:
    """An element that follows from its position: what iota, comparisons and moves make. Raises
    _NotPositionsError for any other."""
    node = graph[value.node]
    families = (Family.ELEMENTWISE, Family.MOVEMENT, Family.SOURCE)
    if node.spec.body is None or node.spec.family not in families:
        raise _NotPositionsError
    return node.spec.body(graph.call(value.node), index, _Positions(graph, value.node))[0]


@dataclass(frozen=True, slots=True)
class _Positions:
    """What a body sees where elements follow from positions."""

    graph: Graph
    node: int

    def __call__(self, operand: int, index: Index) -> Expr:
        return _from_positions(self.graph, self.graph[self.node].inputs[operand], index)

    def let(self, value: Expr) -> Expr:
        return value
