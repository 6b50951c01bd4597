"""The least work a kernel can do: bytes it cannot avoid moving, operations it cannot avoid.

Every count is a lower bound: a slice or a gather counts only what it must read, of readers of one
value the one that needs most counts, and work that a loop or a broadcast only repeats counts once.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate

from autofuse.cost.amounts import KINDS, Work
from autofuse.cost.iterations import always_needed
from autofuse.cost.ordered import ordered_elements
from autofuse.cost.scalar_calls import NO_CALLS, NodeCalls, calls_of, merged_divisions
from autofuse.graph.settled import settled
from autofuse.graph.types import Graph, Value
from autofuse.ops import needs
from autofuse.ops.control import is_counted
from autofuse.ops.spec import Family, Motion
from autofuse.ops.types import OpCall
from autofuse.patience import look
from autofuse.plan.fusion.groups import is_inline, is_source
from autofuse.plan.fusion.overwriting import stored


@dataclass(frozen=True, slots=True)
class _Operand:
    """A value that a node reads: its number, the node that makes it, its elements, and its bytes
    per element, 0 for a literal."""

    value: int
    node: int
    size: int
    width: int


@dataclass(frozen=True, slots=True)
class _Facts:
    """What counting asks of a node.

    `kind` is a class of `Work`, or "" where nothing is computed; `each`: as many
    elements of every operand are needed as are made, else `needed` keeps what is, by elements made;
    `along`: the output axes along which results differ, each with the operand axis it follows, or
    None where nothing is known to repeat; `cuts`: what repeats in the operands does so in pieces of
    the result (compilers split loops there, -fsplit-loops); `calls` are those of one element, and
    `merged` says that a compiler may make one division of this one and another.
    """

    call: OpCall
    family: Family
    outs: tuple[int, ...]
    whole: int
    shape: tuple[int, ...]
    operands: tuple[_Operand, ...]
    flops: float
    kind: str
    each: bool
    along: Mapping[int, int | None] | None
    cuts: bool
    calls: NodeCalls = NO_CALLS
    merged: bool = False
    needed: dict[int, tuple[int, ...]] = field(default_factory=dict)


class _Table:
    """The facts of a graph's nodes, each found once. Values are numbered through: output k of a
    node is `first[node] + k`."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.first = tuple(accumulate((len(n.types) for n in graph.nodes), initial=0))
        self.known: list[_Facts | None] = [None] * len(graph.nodes)
        self.calls = tuple(calls_of(graph, n) for n in range(len(graph.nodes)))
        self.merged = merged_divisions(graph, self.calls)

    def number(self, value: Value) -> int:
        return self.first[value.node] + value.index

    def facts(self, node: int) -> _Facts:
        found = self.known[node]
        if found is None:
            found = self.known[node] = self._found(node)
        return found

    def _found(self, node: int) -> _Facts:
        n, call = self.graph[node], self.graph.call(node)
        kind = kind_of_arithmetic(self.graph, node)
        return _Facts(
            call,
            n.spec.family,
            tuple(range(self.first[node], self.first[node + 1])),
            n.types[0].size,
            n.types[0].shape,
            tuple(self._operand(v) for v in n.inputs),
            n.spec.flops(call) if kind else 0.0,
            kind,
            n.spec.least_needed is needs.each,
            _along(self.graph, node),
            n.spec.motion is Motion.CUT,
            self.calls[node],
            node in self.merged,
        )

    def _operand(self, value: Value) -> _Operand:
        own = self.graph.type_of(value)
        width = 0 if is_inline(self.graph, value.node) else own.dtype.itemsize
        return _Operand(self.number(value), value.node, own.size, width)


_table = lru_cache(maxsize=64)(_Table)


def kind_of_arithmetic(graph: Graph, node: int) -> str:
    """The class of `Work` that a node's operations are counted in; "" where it has none."""
    spec = graph[node].spec
    if spec.family in (Family.SOURCE, Family.MOVEMENT, Family.CONTROL):
        return ""
    if spec.family is not Family.CONTRACTION:
        return "special" if spec.special else "cheap"
    widths = [_width(graph, v) for v in graph[node].inputs]
    if max(widths) == 1 and not graph[node].types[0].dtype.is_float:
        return "byte"
    return "narrow" if max(widths) < 4 else "wide" if max(widths) > 4 else "contraction"


def _width(graph: Graph, value: Value) -> int:
    """Bytes per element of an operand, or of what one elementwise op made it from, moved or not: a
    kernel may multiply what it was converted from."""
    own, node = graph.type_of(value).dtype.itemsize, graph[value.node]
    while node.spec.view is not None:
        node = graph[node.inputs[0].node]
    if node.spec.family is not Family.ELEMENTWISE or len(node.inputs) != 1:
        return own
    return min(own, graph.type_of(node.inputs[0]).dtype.itemsize)


def _along(graph: Graph, node: int) -> Mapping[int, int | None] | None:
    spec, call = graph[node].spec, graph.call(node)
    if spec.varies is None:
        return None
    maps = () if spec.axes is None else spec.axes(call)
    return {axis: maps[0][axis] if maps else None for axis in spec.varies(call)}


def group_work(graph: Graph, nodes: Sequence[int], outputs: Sequence[Value]) -> Work:
    """The least that one kernel computing `outputs` from `nodes` moves and computes."""
    look()
    table = _table(graph)
    least: dict[int, int] = {}
    moved, inside = 0, frozenset(nodes)
    for v in (stored(graph, inside, v) for v in outputs):
        own = graph.type_of(v)
        least[table.number(v)] = own.size
        moved += own.nbytes
    ordered = sorted(nodes)
    _needed(table, ordered, least)
    known, written = settled(graph), moved
    # What no call changes may have been computed before any call.
    each = [node for node in ordered if node not in known]
    moved += _read(table, ordered, least)
    if len(each) < len(ordered):
        moved = min(moved, written + _read(table, each, least))
    return _arithmetic(table, each, least) + Work(nbytes=float(moved))


def least_elements(
    graph: Graph, nodes: Sequence[int], outputs: Sequence[Value]
) -> dict[Value, int]:
    """At least how many different elements of each value are needed to make all of `outputs`, by
    `nodes`: of what these read, too."""
    table = _table(graph)
    least = {table.number(v): graph.type_of(v).size for v in outputs}
    _needed(table, sorted(nodes), least)
    pairs = ((Value(n, k), table.first[n] + k) for n, x in enumerate(graph.nodes)
             for k in range(len(x.types)))  # fmt: skip
    return {value: least[number] for value, number in pairs if number in least}


def _read(table: _Table, nodes: Sequence[int], least: Mapping[int, int]) -> int:
    """Bytes that these nodes read at least of what others make."""
    inside = set(nodes)
    read = {
        (operand.value, operand.width)
        for node in nodes
        for operand in table.facts(node).operands
        if operand.width and operand.node not in inside
    }
    return sum(least.get(value, 0) * width for value, width in read)


def _needed(table: _Table, ordered: Sequence[int], least: dict[int, int]) -> None:
    """At least how many different elements of each value are needed: of several readers the one
    that needs most counts, because their elements may be the same."""
    known = table.known
    for node in reversed(ordered):
        facts = known[node] or table.facts(node)
        made = _made(facts, least)
        if not made:
            continue
        if facts.family is Family.SORT:
            made = ordered_elements(
                table.graph, node, made, lambda n: least.get(table.first[n]) == table.facts(n).whole
            )
        counts = None if facts.each else _operands_needed(table.graph, facts, node, made)
        for position, operand in enumerate(facts.operands):
            count = made if counts is None else counts[position]
            if count > least.get(operand.value, 0):
                least[operand.value] = count


def _made(facts: _Facts, least: Mapping[int, int]) -> int:
    if len(facts.outs) == 1:
        return least.get(facts.outs[0], 0)
    return max((least.get(v, 0) for v in facts.outs), default=0)


def _operands_needed(graph: Graph, facts: _Facts, node: int, made: int) -> tuple[int, ...]:
    """Different elements of each operand that `made` elements of a node's output need at least."""
    found = facts.needed.get(made)
    if found is None:
        if facts.family is Family.CONTROL:
            counts = loop_needed(graph, node)
        else:
            counts = graph[node].spec.least_needed(facts.call, made)
        sizes = (operand.size for operand in facts.operands)
        found = facts.needed[made] = tuple(map(min, sizes, counts))
    return found


@lru_cache(maxsize=256)
def loop_needed(graph: Graph, node: int) -> tuple[int, ...]:
    """Elements of each operand that a loop needs at least, all of its results being wanted: of one
    that may end at once the flags alone."""
    if not is_counted(graph[node].op):
        flags, *others = graph[node].inputs
        return (graph.type_of(flags).size, *(0 for _ in others))
    body: Graph = graph.call(node)["body"]
    table = _table(body)
    least = _wanted(table)
    _needed(table, range(len(body.nodes)), least)
    return tuple(least.get(table.first[i], 0) for i in body.inputs[1:])


def _wanted(table: _Table) -> dict[int, int]:
    graph = table.graph
    return {table.number(v): graph.type_of(v).size for v in graph.outputs}


def _arithmetic(table: _Table, ordered: Iterable[int], least: Mapping[int, int]) -> Work:
    totals = dict.fromkeys(KINDS, 0.0)
    varies: dict[int, frozenset[int]] = {}
    loops = Work()
    called = _Called()
    known = table.known
    for node in ordered:
        facts = known[node] or table.facts(node)
        along = _varies(facts, node, varies)
        made = _made(facts, least)
        if facts.family is Family.CONTROL and made:
            loops += _loop_work(table.graph, node)
        if not (facts.kind and made):
            continue
        if facts.family is Family.ELEMENTWISE and along is not None:
            # A value that a broadcast repeats may be computed once.
            made = min(made, math.prod(facts.shape[a] for a in along))
        flops = facts.flops * made / max(1, facts.whole)
        totals[facts.kind] += flops
        if facts.calls is not NO_CALLS:
            called.add(facts, made, flops, varies)
    return loops + called.work() + Work(0.0, *(totals[kind] for kind in KINDS))


class _Called:
    """The scalar functions that a kernel computes, as far as none can be left out."""

    def __init__(self) -> None:
        self.flops = {"cheap": 0.0, "special": 0.0}
        self.counts: Counter[str] = Counter()
        # By divisor and name: its different elements.
        self.divisors: dict[tuple[int, str], int] = {}

    def add(
        self, facts: _Facts, made: int, flops: float, varies: Mapping[int, frozenset[int]]
    ) -> None:
        self.flops[facts.kind] += flops
        for name in facts.calls.names:
            if not (facts.merged and name.startswith("div.")):
                self.counts[name] += made
        for k, name in () if facts.merged else facts.calls.divisors:
            operand = facts.operands[k]
            along = varies.get(operand.node)
            different = (
                made if along is None else min(made, math.prod(facts.shape[a] for a in along))
            )
            key = operand.value, name
            self.divisors[key] = max(self.divisors.get(key, 0), different)

    def work(self) -> Work:
        counts = self.counts.copy()
        for (_, name), count in self.divisors.items():
            counts[name] += count
        return Work(
            called_cheap=self.flops["cheap"],
            called_special=self.flops["special"],
            calls=tuple(sorted(counts.items())),
        )


def _varies(facts: _Facts, node: int, known: dict[int, frozenset[int]]) -> frozenset[int] | None:
    """Axes of a node's output along which its value may differ, None for all; `known` holds what
    was found (and is not all) of earlier nodes."""
    found: frozenset[int] | None = None
    if facts.along is not None:
        source = known.get(facts.operands[0].node) if facts.operands else None
        found = frozenset(o for o, a in facts.along.items() if source is None or a in source)
    elif facts.family is Family.ELEMENTWISE or facts.cuts:
        axes: frozenset[int] = frozenset()
        for operand in facts.operands:
            own = known.get(operand.node)
            if own is None and operand.width and operand.size > 1:
                return None
            axes |= own or frozenset()
        found = axes
    if found is not None:
        known[node] = found
    return found


@lru_cache(maxsize=256)
def _loop_work(graph: Graph, node: int) -> Work:
    """Arithmetic of all iterations; what no iteration changes, or only the last one needs, may be
    computed once. None where there may be no iteration."""
    if not is_counted(graph[node].op):
        return Work()
    call = graph.call(node)
    body: Graph = call["body"]
    changing = set(body.inputs[: 1 + int(call["carries"])])
    for n, inner in enumerate(body.nodes):
        if any(v.node in changing for v in inner.inputs):
            changing.add(n)
    live = [n for n in range(len(body.nodes)) if not is_source(body, n)]
    always = always_needed(body, int(call["carries"]))
    table = _table(body)
    least = _wanted(table)
    _needed(table, live, least)
    each = _arithmetic(table, [n for n in live if n in changing and n in always], least)
    once = _arithmetic(table, [n for n in live if n not in changing or n not in always], least)
    return each.computing(float(call["trip"])) + once.computing(1.0)
