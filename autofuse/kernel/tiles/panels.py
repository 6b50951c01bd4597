"""Where the operands of a product lie: as a matrix in memory, or in panels that a kernel fills."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from autofuse.graph.types import Graph, Value
from autofuse.kernel.elements.values import Frame
from autofuse.kernel.ir.emit import Emitter
from autofuse.kernel.ir.types import Panel
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.pull import Index, Pull
from autofuse.ops.scalar import Call, Expr, Lit, Load, Sym, cast, walk
from autofuse.ops.spec import Family
from autofuse.ops.types import OpCall
from autofuse.plan.program.packing import LANES
from autofuse.plan.schedules.tiles import Contraction, widens


class _NotPlainError(Exception):
    """An element that is computed, not just found in memory."""


def factor(
    graph: Graph, p: Contraction, operand: int, index: Index, term: Index, pull: Pull
) -> Expr:
    """What one operand contributes to the output element at `index` at one term, given in the order
    of `term_loops`."""
    return _factor(graph, p, operand, index, _in_order(graph, p, term), pull)


def _factor(
    graph: Graph, p: Contraction, operand: int, index: Index, at: Index, pull: Pull
) -> Expr:
    factors = graph[p.node].spec.factors
    assert factors is not None
    return factors.factor(graph.call(p.node), operand, index, at, pull)


def term_loops(graph: Graph, p: Contraction) -> tuple[int, ...]:
    """The extents of the loops over terms, in the order in which they lie in the left operand."""
    return tuple(p.loops[k] for k in _order(graph, p))


def walk_terms(
    e: Emitter, graph: Graph, p: Contraction, visit: Callable[[Index, Expr], None]
) -> None:
    """All terms of a product, lanes along the last loop, or along all where that is short: `visit`
    is given the position in the loops and the number of the term."""
    loops = term_loops(graph, p)
    outer, inner = (loops[:-1], loops[-1]) if loops[-1:] >= (LANES,) else ((), p.terms)
    opened = [(e.open("k", extent), extent) for extent in outer]
    lane = e.open("l", inner)
    at = (*(sym for sym, _ in opened), lane) if outer else ix.delinearize(lane, loops)
    visit(at, ix.linearize(at, loops))
    e.close("lane", lane, ix.lit(inner))
    for sym, extent in reversed(opened):
        e.close("serial", sym, ix.lit(extent))


def _in_order(graph: Graph, p: Contraction, term: Index) -> Index:
    found = dict(zip(_order(graph, p), term, strict=True))
    return tuple(found[k] for k in range(len(p.loops)))


def _order(graph: Graph, p: Contraction) -> tuple[int, ...]:
    """The loops over terms sorted by the axis of the left operand that they run along."""
    return _order_along(graph, p.node, p.left, p.loops)


@lru_cache(maxsize=4096)
def _order_along(graph: Graph, node: int, left: int, loops: tuple[int, ...]) -> tuple[int, ...]:
    """Remembered: every reader of every kernel that has the product asks for it."""
    marks = tuple(symbol(f"k{k}", extent) for k, extent in enumerate(loops))
    seen, call = _Recorder(), graph.call(node)
    factors = graph[node].spec.factors
    assert factors is not None
    factors.factor(call, left, (ix.lit(0),) * call.out.rank, marks, seen)
    along = {e: a for a, i in enumerate(seen.index) for e in walk(i) if e in marks}
    return tuple(sorted(range(len(marks)), key=lambda k: along.get(marks[k], 0)))


def left_index(graph: Graph, p: Contraction, index: Index, term: Index) -> Index:
    """The element of the left operand that is asked for."""
    seen = _Recorder()
    factor(graph, p, p.left, index, term, seen)
    return seen.index


class _Recorder:
    """A puller that notes what is asked for."""

    def __init__(self) -> None:
        self.index: Index = ()

    def __call__(self, operand: int, index: Index) -> Expr:
        self.index = index
        return Lit(0.0, DType.F32)

    def let(self, value: Expr) -> Expr:
        return value


def matrix_of(
    frame: Frame, p: Contraction, operand: int, index: Index, along: Sym, term: Sym,
    instead: Value | None = None, stored: bool = False,
) -> Panel | None:  # fmt: skip
    """An operand (or a value `instead` of it) as a matrix over two variables: one of `index`
    (outer), and the number of the term (inner). None where it is not just memory of the type that
    it is computed in (of its own type, where it is asked for as `stored`), or not laid out evenly.
    """
    element = element_in_memory(frame, p, operand, index, term, instead, stored)
    if element is None:
        return None
    found = ix.coefficients(element.index, (along.name, term.name))
    if found is None:
        return None
    (first, second), start = found
    return Panel(element.buffer, start, first, second)


def element_in_memory(
    frame: Frame, p: Contraction, operand: int, index: Index, term: Sym,
    instead: Value | None = None, stored: bool = False,
) -> Load | None:  # fmt: skip
    """Where what an operand (or a value `instead` of it) contributes at a term lies. None where it
    is not just memory of the type that it is computed in (its own type: `stored`)."""
    steps = ix.delinearize(term, term_loops(frame.graph, p))
    element = element_of_memory(frame, p, operand, index, steps, instead)
    own = p.stored[operand]
    match element:
        case Call(fn="cast", args=(Load() as load,)) if stored:
            element = load
    own = own if stored else frame.graph.type_of(Value(p.node)).dtype.compute
    return element if isinstance(element, Load) and element.dtype is own else None


def element_of_memory(
    frame: Frame, p: Contraction, operand: int, index: Index, term: Index,
    instead: Value | None = None,
) -> Expr | None:  # fmt: skip
    """The factor of an operand (or a value `instead` of it) at one term, given in the order of
    `term_loops`, where it is made of memory alone; None where it is computed."""
    try:
        return factor(frame.graph, p, operand, index, term, _Finder(frame, p.node, instead))
    except _NotPlainError:
        return None


@dataclass(frozen=True, slots=True)
class _Finder:
    """What a body sees that only moves elements: memory instead of values."""

    frame: Frame
    node: int
    instead: Value | None = None

    def __call__(self, operand: int, index: Index) -> Expr:
        value = self.instead or self.frame.graph[self.node].inputs[operand]
        source, node = self.frame.sources.get(value), self.frame.graph[value.node]
        if source is not None:
            return source(index)
        if node.spec.family is Family.MOVEMENT and node.spec.body is not None:
            call = self.frame.graph.call(value.node)
            (found,) = node.spec.body(call, index, _Finder(self.frame, value.node))
            return found
        if widens(self.frame.graph, value.node):
            return cast(_Finder(self.frame, value.node)(0, index), DType.I32)
        raise _NotPlainError

    def let(self, value: Expr) -> Expr:
        return value


def column_number(call: OpCall, product: Contraction, index: Index) -> Expr:
    """The number of the column that an output index is in."""
    extents = tuple(call.out.shape[a] for a in product.columns)
    return ix.linearize(tuple(index[a] for a in product.columns), extents)


def symbol(name: str, extent: int) -> Sym:
    """A made-up variable to look at indices with."""
    return Sym(name, DType.I64, max(extent, 1))
