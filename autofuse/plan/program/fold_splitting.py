"""Columns that are folded as they come (`online.py`), in several parts at the same time.

One kernel folds each part of the columns by itself, the parts as one batch axis more; a second one
joins them, always in the same order, and does what follows. A total of a part is brought up to date
with the extrema of all parts by the factor that one kernel has between two blocks (`separable.py`).
It gives work to more multiprocessors where rows are few: a token that is decoded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autofuse.graph.surgery.embed import copies
from autofuse.graph.types import Graph, Value
from autofuse.graph.writer import GraphWriter
from autofuse.ops.spec import Family, Motion
from autofuse.plan.fusion.clusters import live, needed
from autofuse.plan.fusion.legality import Refusal, check_group
from autofuse.plan.fusion.products import PRODUCT
from autofuse.plan.schedules.online import Online, OnlineFold, online_of
from autofuse.plan.schedules.separable import EXTREMA, identity, neutral
from autofuse.plan.schedules.tiles import tiles_of

JOINED = (*EXTREMA, "add")


@dataclass(frozen=True, slots=True)
class FoldParts:
    """What the first kernel writes: a graph under construction, and the parts of each fold."""

    writer: GraphWriter
    made: Mapping[int, Value]


class _NoPartsError(Exception):
    """Folds that cannot be cut."""


def online_group(graph: Graph) -> Online | None:
    """How everything in a graph is folded, where that is one form of one product and its folds."""
    nodes = live(graph)
    verdict = check_group(graph, nodes, tuple(dict.fromkeys(graph.outputs)))
    if isinstance(verdict, Refusal) or len(verdict) != 1:
        return None
    (form,) = verdict
    tiles = tiles_of(graph, form)
    online = None if tiles is None else online_of(graph, form, tiles)
    return online if online is not None and len(online.sources) == 1 else None


def fold_parts(graph: Graph, online: Online, parts: int) -> FoldParts | None:
    """The folds of each part; None where columns have no equal parts, or something is computed in
    a way that is not followed here."""
    try:
        return _Parts(graph, online, parts).run()
    except _NoPartsError:
        return None


def joined_parts(
    graph: Graph, online: Online, second: GraphWriter, parts: Mapping[int, Value]
) -> list[Value] | None:
    """The outputs of a graph, given the parts of its folds."""
    try:
        return _Joining(graph, online, second, parts).run()
    except _NoPartsError:
        return None


class _Blocks:
    """Values that have one element for every row and column, the column as axis `axis`; `given`
    are nodes that the writer has."""

    def __init__(self, graph: Graph, online: Online, w: GraphWriter) -> None:
        self.graph, self.online, self.w = graph, online, w
        self.shape = graph.type_of(Value(online.sources[0].node)).shape
        (self.axis,) = online.sources[0].columns
        self.scaled = {Value(s.node): s.scaled for f in online.folds for s in f.due}
        self.given: dict[int, Value] = {}

    def copy(self, value: Value) -> Value:
        return copies(self.w, self.graph, (value,), self.given)[0]

    def row_operand(self, value: Value) -> Value | None:
        """What a value repeats along columns and nothing else; None where it is another one."""
        node = self.graph[value.node]
        if node.spec.motion is not Motion.REPEAT or node.spec.axes is None:
            return None
        (mapping,) = node.spec.axes(self.graph.call(value.node))
        rows = tuple(a for a in range(len(self.shape)) if a != self.axis)
        same = mapping[self.axis] is None and len(mapping) == len(self.shape)
        own = tuple(range(self.graph.type_of(node.inputs[0]).rank))
        return node.inputs[0] if same and tuple(mapping[a] for a in rows) == own else None

    def is_product(self, fold: OnlineFold) -> bool:
        return self.graph[fold.node].spec.family is Family.CONTRACTION


class _Parts(_Blocks):
    """Writes the first graph."""

    def __init__(self, graph: Graph, online: Online, parts: int) -> None:
        super().__init__(graph, online, GraphWriter())
        self.parts, self.made = parts, dict[Value, Value]()
        self.count, rest = divmod(self.shape[self.axis], parts)
        if rest or self.count < 2:
            raise _NoPartsError

    def run(self) -> FoldParts:
        found: dict[int, Value] = {}
        for fold in self.online.folds:
            call, spec = self.graph.call(fold.node), self.graph[fold.node].spec
            if self.is_product(fold):
                made = self.product(fold.node, self.online_left(fold), self.block(fold.operand))
            elif spec.fold is None or spec.fold.operator not in JOINED or call.get("axes") is None:
                raise _NoPartsError
            else:
                block = self.block(fold.operand)
                made = self.w.op(self.graph[fold.node].op, block, axes=(self.axis + 1,))
                self.made[Value(fold.node)] = made
            found[fold.node] = self.w.cast(made, self.w.dtype(made).compute)
        return FoldParts(self.w, found)

    def online_left(self, fold: OnlineFold) -> int:
        """Which operand of a later product has the columns as its terms."""
        inputs = self.graph[fold.node].inputs
        blocks = [k for k, v in enumerate(inputs) if v in self.online.block]
        if len(blocks) != 1:
            raise _NoPartsError
        return blocks[0]

    def block(self, value: Value) -> Value:
        """A value of every row and column, the parts as its first axis."""
        value = self.scaled.get(value, value)
        if value not in self.made:
            self.made[value] = self.written(value)
        return self.made[value]

    def written(self, value: Value) -> Value:
        node = self.graph[value.node]
        if value.node == self.online.sources[0].node:
            p = self.online.sources[0]
            return self.product(value.node, p.left, self.whole(node.inputs[p.left]))
        if value in self.online.block:
            return self.w.op(node.op, *map(self.block, node.inputs), **dict(node.attrs))
        row = self.row_operand(value)
        if row is not None:
            shape = self.cut_shape()
            dims = tuple(a for a in range(len(shape)) if a != self.axis + 1)
            return self.w.broadcast(self.row(row), shape, dims)
        return self.cut(self.plain(value), self.axis)

    def row(self, value: Value) -> Value:
        """One number a row of every part."""
        if value in self.made:
            return self.made[value]
        node = self.graph[value.node]
        if self.depends(value):
            if node.spec.family is not Family.ELEMENTWISE:
                raise _NoPartsError
            made = self.w.op(node.op, *map(self.row, node.inputs), **dict(node.attrs))
        else:
            made = self.whole(value)
        self.made[value] = made
        return made

    def depends(self, value: Value) -> bool:
        """Whether a value is made of folds."""
        above = needed(self.graph, (value.node,), range(len(self.graph.nodes)))
        return not {f.node for f in self.online.folds}.isdisjoint(above)

    def plain(self, value: Value) -> Value:
        if self.depends(value) or self.graph.type_of(value).shape != self.shape:
            raise _NoPartsError
        return self.copy(value)

    def whole(self, value: Value) -> Value:
        """A value that no product or fold is part of, for every part."""
        if self.depends(value):
            raise _NoPartsError
        found = self.copy(value)
        shape = self.w.shape(found)
        return self.w.broadcast(found, (self.parts, *shape), range(1, len(shape) + 1))

    def cut_shape(self) -> tuple[int, ...]:
        shape = list(self.shape)
        shape[self.axis] = self.count
        return (self.parts, *shape)

    def cut(self, value: Value, axis: int) -> Value:
        """One axis in equal parts, which come first."""
        shape = self.w.shape(value)
        made = self.w.reshape(value, (*shape[:axis], self.parts, self.count, *shape[axis + 1 :]))
        return self.w.transpose(made, (axis, *(a for a in range(len(shape) + 1) if a != axis)))

    def product(self, n: int, left: int, block: Value) -> Value:
        """A product of every part; `block` is its left operand, in parts."""
        call, node = self.graph.call(n), self.graph[n]
        if node.op != PRODUCT:
            raise _NoPartsError
        right = node.inputs[1 - left]
        if self.depends(right):
            raise _NoPartsError
        axis = self.column_axis(n, left)
        operands = [block, block]
        operands[1 - left] = self.cut(self.copy(right), axis)
        roles: dict[str, tuple[int, ...]] = {}
        for side in ("lhs", "rhs"):
            batch, summed = (call[f"{side}_{role}"] for role in ("batch", "contract"))
            roles[f"{side}_batch"] = (0, *(a + 1 for a in batch))
            roles[f"{side}_contract"] = tuple(a + 1 for a in summed)
        return self.w.op(PRODUCT, *operands, **roles)

    def column_axis(self, n: int, left: int) -> int:
        """The axis of a product's right operand along which columns lie."""
        call, side = self.graph.call(n), ("lhs", "rhs")[1 - left]
        batch, summed = call[f"{side}_batch"], call[f"{side}_contract"]
        if n != self.online.sources[0].node:
            return int(summed[0])
        free = [a for a in range(call.ins[1 - left].rank) if a not in (*batch, *summed)]
        # Axes of the result: the batch, what is free of the first operand, and of the second one.
        return free[
            self.axis - call.out.rank + (len(free) if left == 0 else call.out.rank - len(batch))
        ]


class _Joining(_Blocks):
    """Writes the second graph: `parts` are the inputs of it that the first one has made."""

    def __init__(
        self, graph: Graph, online: Online, w: GraphWriter, parts: Mapping[int, Value]
    ) -> None:
        super().__init__(graph, online, w)
        self.parts = parts

    def run(self) -> list[Value]:
        for fold in self.online.folds:
            if not self.is_product(fold):
                kind = self.graph[fold.node].types[0].dtype
                self.given[fold.node] = self.w.cast(self.total(fold, None), kind)
        for fold in self.online.folds:
            if self.is_product(fold):
                made = self.rescaled(fold, self.total(fold, self.row_axes(fold)))
                self.given[fold.node] = self.w.cast(made, self.graph[fold.node].types[0].dtype)
        return copies(self.w, self.graph, self.graph.outputs, self.given)

    def total(self, fold: OnlineFold, dims: tuple[int, ...] | None) -> Value:
        """One fold of all parts; rows are the axes `dims` of it (None: all)."""
        w, own = self.w, self.parts[fold.node]
        if not fold.anchors:
            op = "reduce_sum" if self.is_product(fold) else self.graph[fold.node].op
            return w.reduce(op, own, 0)
        shape = w.shape(own)

        def spread(value: Value, lead: int) -> Value:
            axes = range(len(shape) - 1) if dims is None else dims
            own_dims = (*range(lead), *(a + 1 for a in axes))
            return w.broadcast(value, shape if lead else shape[1:], own_dims if lead else axes)

        empty = [
            w.map("eq", self.parts[a], w.scalar(identity(self.graph, a).value, self.parts[a]))
            for a in fold.anchors
        ]
        none = empty[0]
        for each in empty[1:]:
            none = w.map("or", none, each)
        factor = self.factor(fold)
        # A part in which nothing is visible adds nothing; where all are such, the first one says
        # what that makes.
        scaled = w.mul(own, w.cast(spread(factor, 1), w.dtype(own)))
        sums = w.reduce("reduce_sum", w.select(spread(none, 1), 0.0, scaled), 0)
        first = w.reshape(w.part(own, 0, 0, 1), shape[1:])
        return w.select(spread(w.reduce("reduce_all", none, 0), 0), first, sums)

    def factor(self, fold: OnlineFold) -> Value:
        """What brings the total of each part up to date: of a term as large as its extrema."""
        known, extrema = dict[Value, Value](), dict[Value, Value]()
        for v in fold.frontier:
            one = neutral(self.graph, v)
            known[v] = self.w.full(one.value, self.row_shape(), self.graph.type_of(v).dtype)
        for a in fold.anchors:
            known[self.graph[a].inputs[0]] = self.parts[a]
            whole = self.w.reduce(self.graph[a].op, self.parts[a], 0)
            extrema[Value(a)] = self.w.spread(whole, self.w.shape(self.parts[a]))
        new = self.term(fold.operand, {**known, **extrema})
        if fold.unit:
            return new
        old = {Value(a): self.parts[a] for a in fold.anchors}
        return self.w.div(new, self.term(fold.operand, {**known, **old}))

    def row_shape(self) -> tuple[int, ...]:
        any_part = next(iter(self.parts.values()))
        rows = tuple(n for a, n in enumerate(self.shape) if a != self.axis)
        return (self.w.shape(any_part)[0], *rows)

    def term(self, value: Value, known: dict[Value, Value]) -> Value:
        """A value of the block where elements are `known`, one for each part and row."""
        value = self.scaled.get(value, value)
        if value not in known:
            known[value] = self.made_term(value, known)
        return known[value]

    def made_term(self, value: Value, known: dict[Value, Value]) -> Value:
        node, row = self.graph[value.node], self.row_operand(value)
        if row is not None:
            if row in known or self.graph[row.node].spec.family is Family.ELEMENTWISE:
                return self.term(row, known)
            return self.w.spread(self.copy(row), self.row_shape())
        if node.spec.family is Family.ELEMENTWISE and len(node.types) == 1:
            found = (self.term(v, known) for v in node.inputs)
            return self.w.op(node.op, *found, **dict(node.attrs))
        # What does not differ from column to column, as its first one.
        made = self.copy(value)
        if self.w.shape(made) != self.shape:
            return self.w.spread(made, self.row_shape())
        first = self.w.part(made, self.axis, 0, 1)
        return self.w.spread(self.w.reshape(first, self.row_shape()[1:]), self.row_shape())

    def row_axes(self, fold: OnlineFold) -> tuple[int, ...]:
        """The axes of a later product that rows are, in the order of rows."""
        call, inputs = self.graph.call(fold.node), self.graph[fold.node].inputs
        left = next(k for k, v in enumerate(inputs) if v in self.online.block)
        side, other = ("lhs", "rhs") if left == 0 else ("rhs", "lhs")
        batch, summed = call[f"{side}_batch"], call[f"{side}_contract"]
        free = sorted({*range(call.ins[left].rank)} - {*batch, *summed})
        summed_there = (*call[f"{other}_batch"], *call[f"{other}_contract"])
        beside = call.ins[1 - left].rank - len(summed_there)
        first = len(batch) + (beside if left else 0)
        places = {a: k for k, a in enumerate(batch)} | {a: first + k for k, a in enumerate(free)}
        return tuple(places[a] for a in range(len(self.shape)) if a != self.axis)

    def rescaled(self, fold: OnlineFold, made: Value) -> Value:
        """A later product with the scalings of its rows."""
        dims = self.row_axes(fold)
        for s in fold.due:
            row = self.row_operand(s.factor)
            if row is None:
                raise _NoPartsError
            factor = self.w.cast(self.copy(row), self.w.dtype(made))
            operands = [self.w.broadcast(factor, self.w.shape(made), dims)] * 2
            operands[s.operand] = made
            node = self.graph[s.node]
            made = self.w.op(node.op, *operands, **dict(node.attrs))
        return made
