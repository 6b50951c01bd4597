"""Row form: one grid iteration per row; lanes walk along what is local to it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import product

from autofuse.graph.types import Value
from autofuse.kernel.elements.merge_sort import Merging
from autofuse.kernel.elements.staging import staged_values
from autofuse.kernel.elements.thread_per_element import SHORT, split
from autofuse.kernel.elements.values import ElementSource, Frame
from autofuse.kernel.elements.windows_written import WindowWriter
from autofuse.kernel.ir.emit import narrow
from autofuse.kernel.ir.types import Fold
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.pull import Index
from autofuse.ops.reduction import reduced_axes
from autofuse.ops.scalar import Expr, Load, Sym, call
from autofuse.ops.spec import Family
from autofuse.plan.parameters import MERGE
from autofuse.plan.schedules.forms import Form, Tags, join, local_shape

# Of a reduction so few terms, or totals, are written out: lanes along them would mostly be idle.
FEW = 4


class BlockPerRow:
    """Emits one segment as a block per row. `targets` names the buffer of each output; of those in
    `rows` what is local to the row goes to scratch instead, from a start on; of those in `reach`
    only so many positions along the last axis are needed; `merge` is how runs are merged."""

    def __init__(
        self, form: Form, frame: Frame, targets: dict[Value, str],
        rows: Mapping[Value, tuple[str, Expr]] | None = None,
        reach: Mapping[Value, Expr] | None = None, merge: str = MERGE.default,
    ) -> None:  # fmt: skip
        self.graph, self.form, self.e = frame.graph, form, frame.e
        self.frame, self.targets = frame, targets
        self.tags = dict(form.tags)
        self.rows, self.reach, self.merge = rows or {}, reach or {}, merge
        self.items: Index = ()

    def emit(self, keep: bool) -> None:
        """The grid over rows; `keep` stages heavy values used by several passes in scratch."""
        row = self.e.open("r", self.form.items)
        items = tuple(
            self.e.let_index(i, "p", extent)
            for i, extent in zip(
                ix.delinearize(row, self.form.parallel), self.form.parallel, strict=True
            )
        )
        self.emit_row(items, keep)
        self.e.close("grid", row, ix.lit(self.form.items))

    def emit_row(self, items: Index, keep: bool) -> None:
        """The work of one row, inside a loop over rows that is open."""
        self.items = items
        staged = staged_values(self.graph, self.form) if keep else frozenset()
        # Of what is computed elsewhere a row may be wanted in another type or scaled.
        for value, place in self.rows.items():
            if value.node not in self.form.nodes:
                self._keep(value, *place)
        for n in self.form.nodes:
            family = self.graph[n].spec.family
            for i in range(len(self.graph[n].types)):
                value = Value(n, i)
                if value not in self.tags:
                    continue
                if family is Family.REDUCTION:
                    self._reduce(value)
                elif family is Family.SCAN:
                    self._scan(value)
                elif family is Family.SORT:
                    self._sort(value)
                elif family is Family.SCATTER:
                    self._scatter(value, keep)
                elif value in self.rows:
                    self._keep(value, *self.rows[value])
                    self.frame.sources[value] = self._array(value, *self.rows[value])
                elif value in staged:
                    self._stage(value)
        for value in self.form.outputs:
            if self.graph[value.node].spec.family is Family.SCATTER:
                continue
            if value in self.rows:
                self._keep_total(value)
            else:
                self._output(value)

    def _local(self, value: Value) -> tuple[int, ...]:
        return local_shape(self.graph, value, self.tags[value])

    def _index(self, value: Value, local: Index) -> Index:
        return join(self.tags[value], self.items, local)

    def _walk(
        self, extents: tuple[int, ...], visit: Callable[[Index], tuple[Fold, ...]],
        last: Expr | None = None,
    ) -> None:  # fmt: skip
        """Lanes along the last axis (or all, when it is short), other axes one after another;
        `last`: so many positions of the last axis are enough."""
        if not extents:
            visit(())
            return
        flat = extents[-1] < SHORT and last is None
        outer, inner = ((), math.prod(extents)) if flat else (extents[:-1], extents[-1])
        loops = [(self.e.open("k", extent), extent) for extent in outer]
        lane = self.e.open("l", inner)
        at = ix.delinearize(lane, extents) if flat else (*(sym for sym, _ in loops), lane)
        folds = visit(at)
        self.e.close("lane", lane, last or ix.lit(inner), folds)
        for sym, extent in reversed(loops):
            self.e.close("serial", sym, ix.lit(extent))

    def _each_total(self, value: Value, scratch: str) -> None:
        """Totals of local positions, one after another."""
        local = self._local(value)
        loops = [(self.e.open("k", extent), extent) for extent in local]
        at = tuple(sym for sym, _ in loops)
        self.e.store(scratch, ix.linearize(at, local), self._total(value, at))
        for sym, extent in reversed(loops):
            self.e.close("serial", sym, ix.lit(extent))

    def _reduce(self, value: Value) -> None:
        """Totals of the row in a register, or one per remaining local position in scratch."""
        node, call = self.graph[value.node], self.graph.call(value.node)
        assert node.spec.fold is not None
        local = self._local(value)
        if not local:
            result = self._total(value, ())
            self.frame.sources[value] = self._scalar(value, result)
            return
        terms = math.prod(call.ins[0].shape[a] for a in reduced_axes(call))
        if math.prod(local) <= FEW and terms >= SHORT and node.spec.fold.operator:
            self.frame.sources[value] = self._chosen(value, self._few_totals(value))
            return
        scratch = self.e.local(call.out.dtype.compute, math.prod(local))
        if terms <= FEW and local[-1] >= SHORT:
            self._few_terms(value, scratch)
        elif self._ends_reduced(value):
            self._each_total(value, scratch)
        else:
            self._keep(value, scratch, ix.lit(0))
        self.frame.sources[value] = self._array(value, scratch, ix.lit(0))

    def _few_terms(self, value: Value, scratch: str) -> None:
        """Lanes along many totals, each of terms that are written out."""
        local = self._local(value)

        def visit(at: Index) -> tuple[Fold, ...]:
            self.e.store(scratch, ix.linearize(at, local), self._written_out(value, at))
            return ()

        self._walk(local, visit)

    def _written_out(self, value: Value, local: Index) -> Expr:
        """The total at one local position, term after term."""
        call, fold = self.graph.call(value.node), self.graph[value.node].spec.fold
        assert fold is not None
        totals: tuple[Expr, ...] = fold.init(call)
        for at in product(*(range(call.ins[0].shape[a]) for a in reduced_axes(call))):
            place = tuple(map(ix.lit, at))
            lifted = fold.lift(call, self._term(value, local, place), place[-1])
            totals = tuple(self.e.bind(each) for each in fold.combine(totals, lifted))
        return fold.finish(call, totals)

    def _few_totals(self, value: Value) -> list[Expr]:
        """Totals in a register each, by lanes along their terms."""
        call, fold = self.graph.call(value.node), self.graph[value.node].spec.fold
        assert fold is not None and fold.operator is not None
        operator, local = fold.operator, self._local(value)
        places = [tuple(map(ix.lit, at)) for at in product(*map(range, local))]
        registers = [self.e.variable(fold.init(call)[0]) for _ in places]

        def visit(at: Index) -> tuple[Fold, ...]:
            for register, place in zip(registers, places, strict=True):
                lifted = fold.lift(call, self._term(value, place, at), at[-1])
                self.e.assign(register, fold.combine((register,), lifted)[0])
            return tuple(Fold(register, operator) for register in registers)

        self._walk(tuple(call.ins[0].shape[a] for a in reduced_axes(call)), visit)
        return [fold.finish(call, (self.e.bind(register),)) for register in registers]

    def _term(self, value: Value, local: Index, at: Index) -> Expr:
        """What a reduction folds at one local position, at one position of its own axes."""
        full = list(self._index(value, local))
        for axis, i in zip(reduced_axes(self.graph.call(value.node)), at, strict=True):
            full.insert(axis, i)
        return self.frame.pull(self.graph[value.node].inputs[0], tuple(full))

    def _ends_reduced(self, value: Value) -> bool:
        operand = self.graph[value.node].inputs[0]
        axes = reduced_axes(self.graph.call(value.node))
        return self.graph.type_of(operand).rank - 1 in axes

    def _total(self, value: Value, local: Index) -> Expr:
        """One reduction of this row, lanes combining their shares."""
        node, call = self.graph[value.node], self.graph.call(value.node)
        fold = node.spec.fold
        assert fold is not None
        if fold.operator is None:
            return self.frame.pull(value, self._index(value, local))
        register = self.e.variable(fold.init(call)[0])
        operator = fold.operator

        def visit(at: Index) -> tuple[Fold, ...]:
            new = fold.combine((register,), fold.lift(call, self._term(value, local, at), at[-1]))
            self.e.assign(register, new[0])
            return (Fold(register, operator),)

        extents = tuple(call.ins[0].shape[a] for a in reduced_axes(call))
        self._walk(extents, visit, self.reach.get(node.inputs[0]))
        return fold.finish(call, (self.e.bind(register),))

    def _scan(self, value: Value) -> None:
        """A running fold along one local axis, kept in scratch."""
        node, call = self.graph[value.node], self.graph.call(value.node)
        fold = node.spec.fold
        assert fold is not None
        tags = self.tags[value]
        axis = sum(not isinstance(t, int) for t in tags[: call["axis"]])
        local = self._local(value)
        scratch = self.e.local(call.out.dtype.compute, math.prod(local))
        order = [a for a in range(len(local)) if a != axis]
        at: dict[int, Sym] = {}
        for a in order:
            at[a] = self.e.open("k", local[a])
        register = self.e.variable(fold.init(call)[0])
        at[axis] = self.e.open("k", local[axis])
        where = tuple(at[a] for a in range(len(local)))
        element = self.frame.pull(node.inputs[0], self._index(value, where))
        new = self.e.bind(fold.combine((register,), fold.lift(call, element, where[axis]))[0])
        self.e.assign(register, new)
        self.e.store(scratch, ix.linearize(where, local), new)
        for a in [*order, axis][::-1]:
            self.e.close("serial", at[a], ix.lit(local[a]))
        self.frame.sources[value] = self._array(value, scratch, ix.lit(0))

    def _sort(self, value: Value) -> None:
        """The order along one local axis, kept in scratch."""
        node, call = self.graph[value.node], self.graph.call(value.node)
        axis = sum(not isinstance(t, int) for t in self.tags[value][: call["axis"]])
        local, operand = self._local(value), node.inputs[0]
        if not math.prod(local):
            return
        dtype = self.graph.type_of(operand).dtype.compute
        merging = Merging(self.e, local[axis], dtype, call["descending"], self.merge)
        others = [a for a in range(len(local)) if a != axis]
        scratch = self.e.local(DType.I32, math.prod(local))
        rest = {a: self.e.open("k", local[a]) for a in others}

        def where(at: Expr) -> Index:
            return tuple(at if a == axis else rest[a] for a in range(len(local)))

        def element(at: Expr) -> Expr:
            return self.frame.pull(operand, self._index(value, where(at)))

        merging.positions(element, scratch, lambda at: ix.linearize(where(at), local))
        for a in reversed(others):
            self.e.close("serial", rest[a], ix.lit(local[a]))
        self.frame.sources[value] = self._array(value, scratch, ix.lit(0))

    def _scatter(self, value: Value, ahead: bool) -> None:
        """The operand's part of this row straight to memory, then window after window there."""
        node, call = self.graph[value.node], self.graph.call(value.node)
        out, target = call.out, self.targets[value]
        operand = node.inputs[0]
        tags = self.tags[value][: call["batch"]]
        rest = [(self.e.open("k", n), n) for n, t in zip(out.shape, tags, strict=False)
                if not isinstance(t, int)]  # fmt: skip
        batch = join(tags, self.items, tuple(sym for sym, _ in rest))

        def copy(at: Index) -> tuple[Fold, ...]:
            index = (*batch, *at)
            element = narrow(self.frame.pull(operand, index), out.dtype)
            self.e.store(target, ix.linearize(index, out.shape), element)
            return ()

        self._walk(out.shape[len(batch) :], copy)
        writer = WindowWriter(self.graph, value, self.e, self.frame, target, batch, self._walk)
        writer.emit(ahead)
        for sym, extent in reversed(rest):
            self.e.close("serial", sym, ix.lit(extent))

    def _stage(self, value: Value) -> None:
        local = self._local(value)
        scratch = self.e.local(self.graph.type_of(value).dtype.compute, math.prod(local))
        self._keep(value, scratch, ix.lit(0))
        self.frame.sources[value] = self._array(value, scratch, ix.lit(0))

    def _keep_total(self, value: Value) -> None:
        """A number of this row that scratch does not have yet."""
        if self.graph[value.node].spec.family is Family.REDUCTION:
            self._keep(value, *self.rows[value])

    def _keep(self, value: Value, scratch: str, start: Expr) -> None:
        local = self._local(value)

        def visit(at: Index) -> tuple[Fold, ...]:
            element = self.frame.pull(value, self._index(value, at))
            self.e.store(scratch, ix.iadd(start, ix.linearize(at, local)), element)
            return ()

        self._walk(local, visit, self.reach.get(value))

    def _output(self, value: Value) -> None:
        out = self.graph.type_of(value)

        def visit(at: Index) -> tuple[Fold, ...]:
            index = self._index(value, at)
            element = narrow(self.frame.pull(value, index), out.dtype)
            self.e.store(self.targets[value], self.frame.place(value, index), element)
            return ()

        self._walk(self._local(value), visit)

    def _at_home(self, tags: Tags, index: Index) -> Index | None:
        """The local position of `index` when it belongs to this row, else None."""
        items, local = split(tags, index)
        return local if all(i == self.items[k] for k, i in items) else None

    def _scalar(self, value: Value, result: Expr) -> ElementSource:
        tags = self.tags[value]

        def read(index: Index) -> Expr:
            return result if self._at_home(tags, index) is not None else self._again(value, index)

        return read

    def _chosen(self, value: Value, totals: list[Expr]) -> ElementSource:
        """Registers, read at local positions that may be known only later."""
        local, tags = self._local(value), self.tags[value]

        def read(index: Index) -> Expr:
            at = self._at_home(tags, index)
            if at is None:
                return self._again(value, index)
            place, found = ix.linearize(at, local), totals[-1]
            for k in reversed(range(len(totals) - 1)):
                found = call("select", call("eq", place, ix.lit(k)), totals[k], found)
            return found

        return read

    def _array(self, value: Value, scratch: str, start: Expr) -> ElementSource:
        local = self._local(value)
        tags, dtype = self.tags[value], self.graph.type_of(value).dtype.compute

        def read(index: Index) -> Expr:
            at = self._at_home(tags, index)
            if at is None:
                return self._again(value, index)
            return Load(scratch, ix.iadd(start, ix.linearize(at, local)), dtype)

        return read

    def _again(self, value: Value, index: Index) -> Expr:
        """Another row's element: computed once more from what it depends on."""
        kept = self.frame.sources.pop(value)
        try:
            return self.frame.pull(value, index)
        finally:  # the pull may have to be put off
            self.frame.sources[value] = kept
