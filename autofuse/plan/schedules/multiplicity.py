"""How often one item of a kernel computes each value: at how many different indices it is needed.

Lowering computes an element wherever it is asked for. A value that is read at three shifted places
by one that is itself read at three is computed at up to nine, so a chain of k fused stencils of n
points repeats itself up to n^k times. The count runs the op bodies themselves on made-up indices:
nothing about an op is said twice, and what cancels when a kernel is lowered cancels here.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

from autofuse.graph.types import Graph, Value
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.pull import Index
from autofuse.ops.reduction import reduced_axes
from autofuse.ops.scalar import Expr, Lit, Sym
from autofuse.ops.spec import Family
from autofuse.plan.schedules.axis_facts import RUNS
from autofuse.plan.schedules.forms import (
    REGISTERS,
    STATE_LIMIT,
    Form,
    Tags,
    carries_inside,
    is_stack,
    join,
    local_shape,
    unrolled,
)

# Computations of values that one item may repeat. Measured: gcc takes about a millisecond for each,
# and far below it repeating already costs more than a trip through memory.
MOST_REPEATED = 1024
# Steps a graph remembers before it forgets all: some hundred bytes each.
_REMEMBERED = 1 << 17
_FOLDED = (Family.REDUCTION, *RUNS)
_SHIFTING = (Family.MOVEMENT, Family.WINDOW)
# Per read an operand's position and the number of the index it is read at.
_Reads = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Multiplicity:
    """`counts`: different indices at which one item needs each value, lower bounds where counting
    stopped; `repeated`: computations beyond one for each element that is an item's own share."""

    counts: Mapping[Value, int]
    repeated: int

    @property
    def worst(self) -> Value:
        """The value needed at most indices, the first of several."""
        return min(self.counts, key=lambda v: (-self.counts[v], v))


@lru_cache(maxsize=1024)
def index_counts(graph: Graph, form: Form, limit: int = MOST_REPEATED) -> Multiplicity:
    """Counts for one kernel segment, its inputs included; counting stops beyond `limit` repeated
    computations. Launch settings that unroll loops or keep rows are not taken into account.

    Remembered: legality, expectations and launches ask about the same segments."""
    share = form.items if form.kind == "item" else 0
    counter = _Counter(graph, share, limit, dict(form.carries))
    counter.items = tuple(Sym(f"p{k}", DType.I64, n) for k, n in enumerate(form.parallel))
    counter.add_passes(form)
    counter.run(form.nodes)
    for value in sorted(counter.wanted.keys() - counter.counts.keys()):
        counter.note(value)
    return Multiplicity(counter.counts, counter.repeated)


def may_repeat(graph: Graph, nodes: tuple[int, ...], limit: int = MOST_REPEATED) -> bool:
    """Whether a count could exceed `limit`, at one look: every op that moves an index at most
    doubles the indices at which what is before it is needed."""
    moving = moving_nodes(graph)
    if moving.isdisjoint(nodes):
        return False
    moved = sum(n in moving for n in nodes)
    loops = any(graph[n].spec.family is Family.CONTROL for n in nodes)
    return loops or len(nodes) << moved > limit


@lru_cache(maxsize=64)
def moving_nodes(graph: Graph) -> frozenset[int]:
    """Nodes that read an operand at another index than their own, and loops that hold such nodes.
    Broadcasts and transpositions only permute what there is, which soon ends."""
    found: set[int] = set()
    for i, node in enumerate(graph.nodes):
        if node.spec.family is Family.CONTROL:
            if moving_nodes(graph.call(i)["body"]):
                found.add(i)
        elif node.spec.family in _SHIFTING and node.spec.axes is not None:
            maps = zip(node.inputs, node.spec.axes(graph.call(i)), strict=True)
            if any(set(range(graph.type_of(v).rank)) - set(axes) for v, axes in maps):
                found.add(i)
    return frozenset(found)


class _Counter:
    """Indices wanted of the values of one graph, followed from readers to what they read. `items`
    is the index of the item, `share` the number of items among which a value's elements are
    divided (0: lanes walk along them)."""

    def __init__(
        self, graph: Graph, share: int, limit: int, carries: Mapping[tuple[int, int], Tags]
    ) -> None:
        self.graph, self.share, self.limit, self.carries = graph, share, limit, carries
        self.table = _table(graph)
        self.table.forget()
        self.items: Index = ()
        self.wanted: dict[Value, set[int]] = {}
        self.counts: dict[Value, int] = {}
        self.repeated = 0
        # Nodes that a pass of their own computes, with the indices it computes them at.
        self.kept: dict[int, set[int]] = {}
        self.stacks: list[tuple[Value, Tags]] = []

    def want(self, value: Value, index: Index) -> None:
        self.wanted.setdefault(value, set()).add(self.table.number(index))

    def note(self, value: Value) -> None:
        """Count a value whose readers are all known."""
        count = len(self.wanted.get(value, ()))
        own = self.graph.type_of(value).size // self.share if self.share else 1
        self.counts[value] = count
        self.repeated += max(0, count - (own if 0 < own <= STATE_LIMIT else 1))

    def add_passes(self, form: Form) -> None:
        """What is asked for first: outputs, and of a block per row what is kept of the row, each in
        a pass of its own that shares nothing with the others."""
        tags = dict(form.tags)
        for n in form.nodes:
            if _is_folded(form, self.graph[n].spec.family) and Value(n) in tags:
                self.kept[n] = {self.table.number(self._walked(Value(n), tags[Value(n)], n))}
        for value in form.outputs:
            local = local_shape(self.graph, value, tags[value])
            if is_stack(self.graph, value):
                self.stacks.append((value, tags[value]))
            elif form.kind == "item" and math.prod(local) <= STATE_LIMIT:
                for at in unrolled(local):
                    self.want(value, join(tags[value], self.items, at))
            else:
                self.want(value, self._walked(value, tags[value], value.node))

    def _walked(self, value: Value, tags: Tags, number: int) -> Index:
        local = local_shape(self.graph, value, tags)
        lanes = tuple(Sym(f"l{number}.{a}", DType.I64, n) for a, n in enumerate(local))
        return join(tags, self.items, lanes)

    def run(self, nodes: Iterable[int]) -> None:
        """Follow every demand through `nodes`, until too much is repeated."""
        for node in sorted(nodes, reverse=True):
            n = self.graph[node]
            for k in range(len(n.types)):
                self.note(Value(node, k))
            if self.repeated > self.limit:
                return
            if n.spec.family is Family.CONTROL:
                self._loop(node)
                continue
            outs = (self.wanted.get(Value(node, k), set()) for k in range(len(n.types)))
            wanted = self.kept[node] if node in self.kept else set().union(*outs)
            if n.spec.family is Family.ELEMENTWISE:
                for value in n.inputs:
                    self.wanted.setdefault(value, set()).update(wanted)
                continue
            self._read(node, wanted)

    def _read(self, node: int, wanted: Iterable[int]) -> None:
        """What a node reads that is asked for at each of these places."""
        inputs = self.graph[node].inputs
        for at in wanted:
            for operand, read in self.table.reads(node, at):
                self.wanted.setdefault(inputs[operand], set()).add(read)

    def _loop(self, node: int) -> None:
        """One iteration of a counted loop, and what it reads from outside."""
        call, inputs = self.graph.call(node), self.graph[node].inputs
        body: Graph = call["body"]
        stacked = dict(self.stacks)
        nested = carries_inside(self.graph, node, self.carries, stacked, len(self.items))
        inner = _Counter(body, self.share, self.limit - self.repeated, nested)
        inner.items = self.items
        for k in range(call["carries"]):
            tags = self.carries[node, k]
            for at in unrolled(local_shape(self.graph, inputs[k], tags)):
                index = join(tags, self.items, at)
                inner.want(body.outputs[k], index)
                self.want(inputs[k], index)
        for value, tags in self.stacks:
            if value.node == node:
                local = local_shape(self.graph, value, tags)[1:]
                for at in islice(unrolled(local), self.limit + 1):
                    index = join(tags, self.items, (ix.lit(0), *at))
                    inner.want(body.outputs[value.index], index[1:])
        inner.run(n for n in range(len(body.nodes)) if body[n].op != "input")
        self.repeated += inner.repeated
        for k in range(call["carries"], len(inputs)):
            for number in inner.wanted.get(Value(body.inputs[1 + k]), ()):
                self.want(inputs[k], inner.table.indices[number])


def _is_folded(form: Form, family: Family) -> bool:
    return family is Family.CONTRACTION or (form.kind == "row" and family in _FOLDED)


@lru_cache(maxsize=16)
def _table(graph: Graph) -> _Table:
    return _Table(graph)


class _Table:
    """Indices by number, and which indices of its operands a node reads at each of its own. Nodes
    of one op, attributes and types read alike; one whose index depends on data reads for itself."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.clear()

    def clear(self) -> None:
        self.indices: list[Index] = []
        self._numbers: dict[Index, int] = {}
        self._reads: dict[tuple[int, int], _Reads] = {}
        self._kinds: dict[Hashable, int] = {}
        self._kind: dict[int, int] = {}
        self._names: dict[Expr, Sym] = {}

    def forget(self) -> None:
        """Start anew where too much is remembered; numbers given before mean nothing then."""
        if len(self._reads) > _REMEMBERED:
            self.clear()

    def number(self, index: Index) -> int:
        known = self._numbers.get(index)
        if known is None:
            short = tuple(ix.named(i, self.name) for i in index)
            known = self._numbers.setdefault(short, len(self.indices))
            self._numbers[index] = known
            if known == len(self.indices):
                self.indices.append(short)
        return known

    def name(self, value: Expr, extent: int | None = None) -> Sym:
        """One variable for equal values."""
        return self._names.setdefault(value, Sym(f"v{len(self._names)}", value.dtype, extent))

    def reads(self, node: int, at: int) -> _Reads:
        """What `node` reads to compute the element at index number `at`."""
        n, kind = self.graph[node], self._kind.get(node)
        if kind is None:
            alike = (n.op, n.attrs, tuple(self.graph.type_of(v) for v in n.inputs))
            kind = self._kind_of(node if n.spec.body is None else alike)
            self._kind[node] = kind
        known = self._reads.get((kind, at))
        if known is None:
            probe = _Probe(self, node)
            probe.visit(self.indices[at])
            if probe.named:
                kind = self._kind[node] = self._kind_of(node)
            known = self._reads[kind, at] = tuple(dict.fromkeys(probe.found))
        return known

    def _kind_of(self, key: Hashable) -> int:
        return self._kinds.setdefault(key, len(self._kinds))


class _Probe:
    """Stands in for the puller of a kernel: notes what is read and gives variables for it."""

    def __init__(self, table: _Table, node: int) -> None:
        self.table, self.node = table, node
        self.found: list[tuple[int, int]] = []
        self.named = False

    def __call__(self, operand: int, index: Index) -> Expr:
        at = self.table.number(index)
        self.found.append((operand, at))
        value = self.table.graph[self.node].inputs[operand]
        own = self.table.graph.type_of(value).dtype.compute
        return Sym(f"x{value.node}.{value.index}.{at}", own)

    def let(self, value: Expr) -> Expr:
        self.named = True
        return value if isinstance(value, Sym | Lit) else self.table.name(value)

    def visit(self, index: Index) -> None:
        """Read what the node's element at `index` is computed from, as lowering does."""
        n, call = self.table.graph[self.node], self.table.graph.call(self.node)
        if n.spec.body is not None:
            n.spec.body(call, index, self)
        elif n.spec.family is Family.REDUCTION:
            axes = reduced_axes(call)
            for at in self._steps(tuple(call.ins[0].shape[a] for a in axes)):
                full = list(index)
                for axis, i in zip(axes, at, strict=True):
                    full.insert(axis, i)
                self(0, tuple(full))
        elif n.spec.family in RUNS:
            axis = call["axis"]
            extent = call.ins[0].shape[axis]
            for (step,) in self._steps((extent,)):
                self(0, (*index[:axis], step, *index[axis + 1 :]))
        elif n.spec.family is Family.SCATTER:
            batch = call["batch"]
            self(0, index)
            for operand in (1, 2):
                rest = call.ins[operand].shape[batch:]
                steps = (Sym(f"k{self.node}.{a}", DType.I64, n) for a, n in enumerate(rest))
                self(operand, (*index[:batch], *steps))
        else:
            assert n.spec.over is not None
            for at in self._steps(n.spec.over.extents(call)):
                n.spec.over.term(call, index, at, self)

    def _steps(self, extents: tuple[int, ...]) -> Iterator[Index]:
        """Every step of a short fold, else the one that its loop repeats."""
        if math.prod(extents) <= REGISTERS:
            return unrolled(extents)
        return iter((tuple(Sym(f"k{self.node}.{a}", DType.I64, n) for a, n in enumerate(extents)),))
