"""Windows of a scatter, written one after another into what lies in memory already."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from autofuse.graph.types import Graph, Value
from autofuse.kernel.elements.values import Frame
from autofuse.kernel.ir.emit import Emitter, narrow, widen
from autofuse.kernel.ir.types import Fold
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.pull import Index
from autofuse.ops.scalar import Call, Expr, Lit, Load, cast
from autofuse.ops.scatter import first_places, window_shape, windows

# Elements whose places lanes find before they are written.
POINTS = 512
# Where an element is dropped.
NOWHERE = ix.lit(-1)
Visit = Callable[[Index], tuple[Fold, ...]]


@dataclass(frozen=True)
class WindowWriter:
    """Emits the windows that one batch element of a scatter gets; `walk` visits every position of
    extents by lanes."""

    graph: Graph
    value: Value
    e: Emitter
    frame: Frame
    target: str
    batch: Index
    walk: Callable[[tuple[int, ...], Visit], None]

    def emit(self, ahead: bool) -> None:
        """Window after window. `ahead`: of single elements lanes find a block of places and
        elements first, since only the writing has an order."""
        call = self.graph.call(self.value.node)
        if ahead and math.prod(window_shape(call)) == 1 and windows(call) > 1:
            self._points()
        else:
            self._windows()

    def _places(self, window: Expr) -> tuple[Index, Expr]:
        """Where a window begins, and whether it fits."""
        call = self.graph.call(self.value.node)
        indices = self.graph[self.value.node].inputs[1]
        axes = range(len(call["axes"]))
        at = (self.frame.pull(indices, (*self.batch, window, ix.lit(v))) for v in axes)
        return first_places(call, tuple(at))

    def _windows(self) -> None:
        call = self.graph.call(self.value.node)
        window = self.e.open("k", windows(call))
        places, fits = self._places(window)
        first = tuple(self.e.let(at) for at in places)
        guard = self.e.open("o", 1) if call["drop"] and not isinstance(fits, Lit) else None

        def write(at: Index) -> tuple[Fold, ...]:
            moved = (ix.iadd(start, step) for start, step in zip(first, at, strict=True))
            place = self.e.let(ix.linearize((*self.batch, *moved), call.out.shape))
            self._join(place, self._element(window, at))
            return ()

        self.walk(window_shape(call), write)
        if guard is not None:
            self.e.close("when", guard, fits)
        self.e.close("serial", window, ix.lit(windows(call)))

    def _points(self) -> None:
        """A block of elements at a time: places and elements in lanes, then the writing."""
        call = self.graph.call(self.value.node)
        out, count = call.out, windows(call)
        size = min(POINTS, count)
        block = self.e.open("c", -(-count // size))
        start = ix.imul(block, size)
        extent: Expr = ix.lit(size)
        if count % size:
            extent = Call("min", (extent, ix.isub(ix.lit(count), start)), DType.I64)
        kind = DType.I32 if out.size < 1 << 31 else DType.I64
        places, elements = self.e.local(kind, size), self.e.local(out.dtype.compute, size)
        lane = self.e.open("l", size)
        window = self.e.let_index(ix.iadd(start, lane), "w", count)
        first, fits = self._places(window)
        place = self.e.let(ix.linearize((*self.batch, *first), out.shape))
        drops = call["drop"] and not isinstance(fits, Lit)
        kept = ix.iselect(fits, place, NOWHERE) if drops else place
        self.e.store(places, lane, narrow(kept, kind))
        self.e.store(elements, lane, self._element(window, (ix.lit(0),) * len(first)))
        self.e.close("lane", lane, extent)
        point = self.e.open("k", size)
        at = self.e.let(cast(Load(places, point, kind), DType.I64))
        guard = self.e.open("o", 1) if drops else None
        one = self.e.open("l", 1)
        self._join(at, Load(elements, point, out.dtype.compute))
        self.e.close("lane", one, ix.lit(1))
        if guard is not None:
            self.e.close("when", guard, Call("ge", (at, ix.lit(0)), DType.BOOL))
        self.e.close("serial", point, extent)
        self.e.close("serial", block, ix.lit(-(-count // size)))

    def _element(self, window: Expr, at: Index) -> Expr:
        updates = self.graph[self.value.node].inputs[2]
        return self.frame.pull(updates, (*self.batch, window, *at))

    def _join(self, place: Expr, element: Expr) -> None:
        node = self.graph[self.value.node]
        dtype = node.types[0].dtype
        there = self.e.bind(widen(Load(self.target, place, dtype)))
        assert node.spec.joins is not None
        self.e.store(self.target, place, narrow(node.spec.joins(there, element), dtype))
