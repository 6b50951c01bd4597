"""The least work a kernel can do: bytes it cannot avoid moving, operations it cannot avoid.

Every count is a lower bound: a slice or a gather counts only what it must read, of readers of one
value the one that needs most counts, and work that a loop or a broadcast only repeats counts once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from autofuse.graph.types import Graph, Value
from autofuse.ops.spec import Family
from autofuse.plan.groups import is_inline, is_source

SPECIAL = frozenset((
    "exp", "expm1", "log", "log1p", "sin", "cos", "tan", "tanh", "sinh", "cosh", "asin", "acos",
    "atan", "logistic", "erf", "pow", "atan2",
))  # fmt: skip
# Values as one number: node * WIDTH + output index.
WIDTH = 256


@dataclass(frozen=True, slots=True)
class Work:
    """The least a kernel moves (bytes) and computes (operations by class)."""

    nbytes: float = 0.0
    cheap: float = 0.0
    special: float = 0.0
    contraction: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(
            self.nbytes + other.nbytes,
            self.cheap + other.cheap,
            self.special + other.special,
            self.contraction + other.contraction,
        )

    def computing(self, times: float) -> Work:
        """The arithmetic alone, `times` over."""
        return Work(0.0, self.cheap * times, self.special * times, self.contraction * times)


@dataclass(frozen=True, slots=True)
class _Facts:
    """What counting asks of a node. `operands`: (value, its elements, its bytes per element or 0
    for a literal). `kind` "special", "contraction", "cheap", or "" where nothing is computed."""

    op: str
    family: Family
    outs: tuple[int, ...]
    whole: int
    shape: tuple[int, ...]
    operands: tuple[tuple[int, int, int], ...]
    flops: float
    kind: str
    dims: tuple[int, ...]


@lru_cache(maxsize=64)
def _table(graph: Graph) -> list[_Facts | None]:
    return [None] * len(graph.nodes)


def _facts(graph: Graph, table: list[_Facts | None], node: int) -> _Facts:
    found = table[node]
    if found is not None:
        return found
    n, call = graph[node], graph.call(node)
    family, attrs = n.spec.family, dict(n.attrs)
    kind = "special" if n.op in SPECIAL else "cheap"
    if family is Family.CONTRACTION:
        kind = "contraction"
    if family in (Family.SOURCE, Family.MOVEMENT, Family.CONTROL):
        kind = ""
    operands = []
    for v in n.inputs:
        own = graph.type_of(v)
        width = 0 if is_inline(graph, v.node) else own.dtype.itemsize
        operands.append((v.node * WIDTH + v.index, own.size, width))
    dims = attrs["dims"] if n.op == "broadcast" else ()
    found = table[node] = _Facts(
        n.op,
        family,
        tuple(node * WIDTH + k for k in range(len(n.types))),
        n.types[0].size,
        n.types[0].shape,
        tuple(operands),
        n.spec.flops(call) if kind else 0.0,
        kind,
        (attrs["axis"],) if n.op == "iota" else dims,
    )
    return found


def group_work(graph: Graph, nodes: Sequence[int], outputs: Sequence[Value]) -> Work:
    """The least that one kernel computing `outputs` from `nodes` moves and computes."""
    least: dict[int, int] = {}
    moved = 0
    for v in outputs:
        own = graph.type_of(v)
        least[v.node * WIDTH + v.index] = own.size
        moved += own.nbytes
    ordered = sorted(nodes)
    _needed(graph, ordered, least)
    inside, table = set(ordered), _table(graph)
    read = {
        (value, width)
        for node in ordered
        for value, _, width in _facts(graph, table, node).operands
        if width and value // WIDTH not in inside
    }
    moved += sum(least.get(value, 0) * width for value, width in read)
    return _arithmetic(graph, ordered, least) + Work(nbytes=float(moved))


def _needed(graph: Graph, ordered: Sequence[int], least: dict[int, int]) -> None:
    """At least how many different elements of each value are needed: of several readers the one
    that needs most counts, because their elements may be the same."""
    table = _table(graph)
    for node in reversed(ordered):
        facts = table[node] or _facts(graph, table, node)
        made = _made(facts, least)
        if not made:
            continue
        for position, (value, size, _) in enumerate(facts.operands):
            if facts.family is Family.ELEMENTWISE:
                count = made
            else:
                count = min(size, _operand_needed(graph, facts, node, position, made))
            if count > least.get(value, 0):
                least[value] = count


def _made(facts: _Facts, least: Mapping[int, int]) -> int:
    if len(facts.outs) == 1:
        return least.get(facts.outs[0], 0)
    return max((least.get(v, 0) for v in facts.outs), default=0)


def _operand_needed(graph: Graph, facts: _Facts, node: int, position: int, made: int) -> int:
    """Different elements of one operand that `made` elements of a node's output need at least."""
    size, whole = facts.operands[position][1], facts.whole
    share = min(1.0, made / max(1, whole))
    if facts.family is Family.CONTROL:
        return loop_needed(graph, node)[position]
    if facts.family is Family.SCAN:
        return made
    if facts.family is not Family.MOVEMENT:
        return math.ceil(size * share)
    if facts.op == "concat":
        return max(0, made - (whole - size))
    if facts.op == "pad":
        inner = facts.operands[0][1]
        return max(0, made - (whole - size)) if position == 0 else min(1, whole - inner)
    if facts.op == "gather" and position == 0:
        return 1
    return made if size >= whole else math.ceil(size * share)


@lru_cache(maxsize=256)
def loop_needed(graph: Graph, node: int) -> tuple[int, ...]:
    """Elements of each operand that a loop needs at least, all of its results being wanted."""
    body: Graph = graph.call(node)["body"]
    least = _wanted(body)
    _needed(body, range(len(body.nodes)), least)
    return tuple(least.get(i * WIDTH, 0) for i in body.inputs[1:])


def _wanted(graph: Graph) -> dict[int, int]:
    return {v.node * WIDTH + v.index: graph.type_of(v).size for v in graph.outputs}


def _arithmetic(graph: Graph, ordered: Iterable[int], least: Mapping[int, int]) -> Work:
    totals = {"cheap": 0.0, "special": 0.0, "contraction": 0.0}
    varies: dict[int, frozenset[int]] = {}
    loops = Work()
    table = _table(graph)
    for node in ordered:
        facts = table[node] or _facts(graph, table, node)
        along = _varies(facts, node, varies)
        made = _made(facts, least)
        if facts.family is Family.CONTROL and made:
            loops += _loop_work(graph, node)
        if not (facts.kind and made):
            continue
        if facts.family is Family.ELEMENTWISE and along is not None:
            # A value that a broadcast repeats may be computed once.
            made = min(made, math.prod(facts.shape[a] for a in along))
        totals[facts.kind] += facts.flops * made / max(1, facts.whole)
    return loops + Work(0.0, totals["cheap"], totals["special"], totals["contraction"])


def _varies(facts: _Facts, node: int, known: dict[int, frozenset[int]]) -> frozenset[int] | None:
    """Axes of a node's output along which its value may differ, None for all; `known` holds what
    was found (and is not all) of earlier nodes."""
    found: frozenset[int] | None = None
    if facts.op == "iota":
        found = frozenset(facts.dims)
    elif facts.op == "broadcast":
        source = known.get(facts.operands[0][0] // WIDTH)
        found = frozenset(facts.dims if source is None else (facts.dims[a] for a in source))
    elif facts.family is Family.ELEMENTWISE:
        axes: frozenset[int] = frozenset()
        for value, _, width in facts.operands:
            own = known.get(value // WIDTH)
            if own is None and width:
                return None
            axes |= own or frozenset()
        found = axes
    if found is not None:
        known[node] = found
    return found


@lru_cache(maxsize=256)
def _loop_work(graph: Graph, node: int) -> Work:
    """Arithmetic of all trips; what no trip changes may be computed once."""
    call = graph.call(node)
    body: Graph = call["body"]
    changing = set(body.inputs[: 1 + int(call["carries"])])
    for n, inner in enumerate(body.nodes):
        if any(v.node in changing for v in inner.inputs):
            changing.add(n)
    live = [n for n in range(len(body.nodes)) if not is_source(body, n)]
    least = _wanted(body)
    _needed(body, live, least)
    each = _arithmetic(body, [n for n in live if n in changing], least)
    once = _arithmetic(body, [n for n in live if n not in changing], least)
    return each.computing(float(call["trip"])) + once.computing(1.0)
