"""Elements on demand: what one element of a value is, at an index, inside a kernel.

A pull ends at memory (group inputs), at something materialised (a row in scratch, a register) or
at a source; everything between is computed where it is needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from autofuse.graph.types import Graph, Value
from autofuse.kernel.ir.emit import Emitter, LoweringError, widen
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.pull import Index
from autofuse.ops.reduction import reduced_axes
from autofuse.ops.scalar import Expr, Lit, Load, Sym
from autofuse.ops.spec import Family, Fold
from autofuse.ops.terms import FoldOver
from autofuse.ops.types import OpCall
from autofuse.ops.updates import window_start

ElementSource = Callable[[Index], Expr]
# Folds over at most this many elements are unrolled.
UNROLLED = 16


# Elements that may wait for one another before the innermost is computed by itself, and folds that
# may be open inside each other: both keep within Python's limit of 1000 calls.
DEEPEST, MOST_FOLDS = 24, 5


class _TooDeepError(Exception):
    """The element of a frame that has to be computed before those that wait for it."""

    def __init__(self, frame: Frame, value: Value, index: Index) -> None:
        self.wanted = (frame, value, index)


@dataclass(frozen=True)
class Landing:
    """Where a window is written: the update that it is written by, and what that reads."""

    call: OpCall
    operands: tuple[Value, ...]


class Frame:
    """One graph being computed: the group itself, or a loop body inside its loop. Of the values in
    `landing` only a window is stored."""

    def __init__(
        self, graph: Graph, emitter: Emitter, sources: dict[Value, ElementSource],
        landing: Mapping[Value, Landing] | None = None,
    ) -> None:  # fmt: skip
        self.graph = graph
        self.e = emitter
        self.sources = sources
        self.landing = landing or {}

    def fresh(self) -> Frame:
        """One of the same sources, to be given more."""
        return Frame(self.graph, self.e, dict(self.sources))

    def place(self, value: Value, index: Index) -> Expr:
        """Where the element of an output at `index` is stored."""
        shape, landing = self.graph.type_of(value).shape, self.landing.get(value)
        if landing is not None:
            first = window_start(landing.call, _Beside(self, landing.operands))
            index = tuple(ix.iadd(start, i) for start, i in zip(first, index, strict=True))
            shape = landing.call.out.shape
        return ix.linearize(index, shape)

    def pull(self, value: Value, index: Index) -> Expr:
        """The element of `value` at `index`, in its compute type."""
        # The frame itself, not its id: a frame that is gone must not be taken for a later one.
        key = (self, value, index)
        known = self.e.recall(key)
        if known is not None:
            return known
        if self.e.waiting == 0:
            return self._pull_first(value, index)
        if self.e.waiting > DEEPEST:
            raise _TooDeepError(self, value, index)
        self.e.waiting += 1
        source = self.sources.get(value)
        found = source(index) if source is not None else None
        if found is None:
            results = self._compute(value.node, index)
            for i, result in enumerate(results):
                named = self.e.let(result)
                self.e.remember((self, Value(value.node, i), index), named)
                if i == value.index:
                    found = named
        assert found is not None
        found = self.e.let(found)
        self.e.remember(key, found)
        self.e.waiting -= 1
        return found

    def _pull_first(self, value: Value, index: Index) -> Expr:
        """An element nobody waits for: what is too deep below it is pulled before it."""
        left: list[tuple[Frame, Value, Index]] = [(self, value, index)]
        while left:
            self.e.waiting = 1
            frame, wanted, at = left[-1]
            try:
                found = frame.pull(wanted, at)
                left.pop()
            except _TooDeepError as deeper:
                left.append(deeper.wanted)
        self.e.waiting = 0
        return found

    def _pull_inside(self, value: Value, index: Index) -> Expr:
        """An element inside a loop that a fold has opened, where those waiting outside cannot be
        sent away for."""
        waiting, self.e.waiting = self.e.waiting, 0
        self.e.folds += 1
        if self.e.folds > MOST_FOLDS:
            raise LoweringError(f"the kernel would nest more than {MOST_FOLDS} folds")
        found = self._pull_first(value, index)
        self.e.folds -= 1
        self.e.waiting = waiting
        return found

    def _compute(self, node: int, index: Index) -> tuple[Expr, ...]:
        n, call = self.graph[node], self.graph.call(node)
        if n.spec.body is not None:
            return n.spec.body(call, index, Puller(self, node, self.pull))
        if n.spec.family is Family.REDUCTION:
            return (self._fold(node, call, index),)
        if n.spec.family is Family.SCAN:
            return (self._prefix(node, call, index),)
        if n.spec.over is not None:
            return (self._fold_over(node, call, index, n.spec.over),)
        raise LoweringError(f"%{node} {n.op} cannot be computed element by element")

    def _fold(self, node: int, call: OpCall, index: Index) -> Expr:
        axes = reduced_axes(call)
        shape = call.ins[0].shape
        operand = self.graph[node].inputs[0]

        def element(at: Index) -> tuple[Expr, Expr]:
            full = list(index)
            for axis, i in zip(axes, at, strict=True):
                full.insert(axis, i)
            return self._pull_inside(operand, tuple(full)), at[-1]

        return self.accumulate(node, call, tuple(shape[a] for a in axes), element)

    def _fold_over(self, node: int, call: OpCall, index: Index, over: FoldOver) -> Expr:
        pull = Puller(self, node, self._pull_inside)

        def element(at: Index) -> tuple[Expr, Expr]:
            return over.term(call, index, at, pull), ix.lit(0)

        return self.accumulate(node, call, over.extents(call), element)

    def _prefix(self, node: int, call: OpCall, index: Index) -> Expr:
        axis: int = call["axis"]
        operand = self.graph[node].inputs[0]
        fold = self.graph[node].spec.fold
        assert fold is not None
        if isinstance(index[axis], Lit) and call.ins[0].shape[axis] <= UNROLLED:
            return self._next_prefix(node, call, index)
        accs = tuple(self.e.variable(init) for init in fold.init(call))
        at = self.e.open("k", call.ins[0].shape[axis])
        element = self._pull_inside(operand, (*index[:axis], at, *index[axis + 1 :]))
        self._step(call, fold.combine(accs, fold.lift(call, element, at)), accs)
        self.e.close("serial", at, ix.iadd(index[axis], ix.lit(1)))
        return fold.finish(call, tuple(self.e.bind(a) for a in accs))

    def _next_prefix(self, node: int, call: OpCall, index: Index) -> Expr:
        """One step on from the prefix before, which is pulled and therefore known or kept."""
        axis: int = call["axis"]
        fold, at = self.graph[node].spec.fold, index[axis]
        assert fold is not None and isinstance(at, Lit)
        element = self.pull(self.graph[node].inputs[0], index)
        before = fold.init(call)
        if at.value > 0:
            earlier = (*index[:axis], ix.lit(int(at.value) - 1), *index[axis + 1 :])
            before = (self.pull(Value(node), earlier),)
        return fold.finish(call, fold.combine(before, fold.lift(call, element, at)))

    def _unrolled(self, fold: Fold, call: OpCall, elements: Iterable[tuple[Expr, Expr]]) -> Expr:
        accs = fold.init(call)
        for element in elements:
            accs = tuple(self.e.let(a) for a in fold.combine(accs, fold.lift(call, *element)))
        return fold.finish(call, accs)

    def accumulate(
        self,
        node: int,
        call: OpCall,
        extents: tuple[int, ...],
        element: Callable[[Index], tuple[Expr, Expr]],
    ) -> Expr:
        """Fold elements over `extents` one after another, unrolled when there are few."""
        fold = self.graph[node].spec.fold
        assert fold is not None
        total = math.prod(extents)
        if total <= UNROLLED:
            places = [ix.delinearize(ix.lit(k), extents) if extents else () for k in range(total)]
            return self._unrolled(fold, call, map(element, places))
        registers = tuple(self.e.variable(init) for init in fold.init(call))
        loops = [(self.e.open("k", extent), extent) for extent in extents]
        lifted = fold.lift(call, *element(tuple(sym for sym, _ in loops)))
        self._step(call, fold.combine(registers, lifted), registers)
        for sym, extent in reversed(loops):
            self.e.close("serial", sym, ix.lit(extent))
        return fold.finish(call, tuple(self.e.bind(r) for r in registers))

    def _step(self, call: OpCall, new: tuple[Expr, ...], registers: tuple[Sym, ...]) -> None:
        # Bound before any assignment: accumulators may depend on each other.
        if len(registers) > 1:
            new = tuple(self.e.bind(value) for value in new)
        for register, value in zip(registers, new, strict=True):
            self.e.assign(register, value)


# A row of a block, in the block and in the whole: a frame of what is known of it.
RowFrame = Callable[[Sym, Expr], Frame]


class Puller:
    """What a body sees: operands of one node, whose elements `pull` computes."""

    def __init__(self, frame: Frame, node: int, pull: Callable[[Value, Index], Expr]) -> None:
        self.frame = frame
        self.node = node
        self.pull = pull

    def __call__(self, operand: int, index: Index) -> Expr:
        node = self.frame.graph[self.node]
        if node.spec.family is not Family.ELEMENTWISE:
            index = tuple(ix.named(i, self.frame.e.name_index) for i in index)
        return self.pull(node.inputs[operand], index)

    def let(self, value: Expr) -> Expr:
        return self.frame.e.let(value)


class _Beside:
    """What is asked where a window begins: operands of an update, of which a frame has no node."""

    def __init__(self, frame: Frame, operands: tuple[Value, ...]) -> None:
        self.frame, self.operands = frame, operands

    def __call__(self, operand: int, index: Index) -> Expr:
        return self.frame.pull(self.operands[operand], index)

    def let(self, value: Expr) -> Expr:
        return self.frame.e.let(value)


def everywhere(value: Expr) -> ElementSource:
    """The same number wherever it is asked for."""
    return lambda _: value


def through(frame: Frame, value: Value) -> ElementSource:
    """The element of another value of the same shape."""
    return lambda index: frame.pull(value, index)


def memory(name: str, shape: tuple[int, ...], dtype: DType) -> ElementSource:
    """Elements of a global buffer."""

    def load(index: Index) -> Expr:
        return widen(Load(name, ix.linearize(index, shape), dtype))

    return load
