"""What TorchInductor's scheduler fuses: one node per buffer, with its loops and accesses."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from autofuse.baselines.inductor.index import Accesses, AffineIndex, Axis, Dep, Term, merged, whole
from autofuse.baselines.inductor.lowering import (
    EXTERN,
    NOP,
    REDUCTION,
    SCAN,
    Lowering,
)
from autofuse.graph.types import Graph, Value
from autofuse.ops.reduction import reduced_axes
from autofuse.order import closure
from autofuse.plan.fusion.groups import is_inline

Sizes = tuple[int, ...]
Tiling = tuple[int, int] | None


@dataclass(eq=False)
class Loops:
    """One buffer, or several in one kernel. `numel` and `rnumel` are the sizes of its parallel and
    its reduction loops, `ranges` those of each of its buffers without a reduction."""

    id: int
    buffers: list[int]
    kinds: set[str]
    numel: int
    rnumel: int
    ranges: list[Sizes]
    reads: frozenset[Dep]
    writes: frozenset[Dep]
    orders: tuple[int, int]

    @property
    def is_reduction(self) -> bool:
        return bool(self.kinds & {REDUCTION, SCAN})

    @property
    def fixed(self) -> bool:
        """Extern calls and no-ops stay as they are."""
        return bool(self.kinds & {EXTERN, NOP})

    @property
    def touched(self) -> frozenset[Value]:
        return frozenset(d.value for d in (*self.reads, *self.writes))


def union(a: Loops, b: Loops) -> Loops:
    """Both in one kernel; what one writes and the other reads the same way is read no more."""
    writes = a.writes | b.writes
    leader = b if b.is_reduction and not a.is_reduction else a
    return Loops(
        min(a.id, b.id),
        a.buffers + b.buffers,
        a.kinds | b.kinds,
        leader.numel,
        leader.rnumel,
        a.ranges + b.ranges,
        (a.reads | b.reads) - writes,
        writes,
        (min(a.orders[0], b.orders[0]), max(a.orders[1], b.orders[1])),
    )


def loops_of(low: Lowering) -> dict[int, Loops]:
    """The scheduler's nodes by the graph's node; buffers that nobody reads are left out."""
    accesses = Accesses(low.graph)
    wanted = _wanted(low)
    order = sorted(b for b in low.buffers if b in wanted)
    return {b: _loops(low, accesses, b, k) for k, b in enumerate(order)}


def _wanted(low: Lowering) -> set[int]:
    """Buffers that the graph's results need: one may be inlined everywhere before it is one."""

    def near(at: int) -> Iterator[int]:
        return (n for n, _, _ in low.body[at].reads if n in low.buffers)

    return closure((v.node for v in low.graph.outputs if v.node in low.buffers), near)


def _loops(low: Lowering, accesses: Accesses, node: int, order: int) -> Loops:
    graph, kind = low.graph, low.buffers[node]
    numel, rnumel, start = _start(graph, node, kind)
    domain = numel * rnumel
    out = graph[node].types[0].shape
    values = [Value(node, k) for k in range(len(graph[node].types))]
    if kind in (EXTERN, NOP):
        reads = [_whole(graph, accesses, v) for v in graph[node].inputs]
        writes = [_whole(graph, accesses, v) for v in values]
    else:
        found = _reads(graph, accesses, low.body[node].nodes, start)
        reads = [accesses.dep(v, at, domain) for v, at in found]
        written = start[0][1] if kind == SCAN else whole(out, rnumel)
        writes = [accesses.dep(v, written, domain) for v in values]
    ranges = [] if kind in (REDUCTION, SCAN) else [out]
    own = (order, order)
    return Loops(
        node, [node], {kind}, numel, rnumel, ranges, frozenset(reads), frozenset(writes), own
    )


def _whole(graph: Graph, accesses: Accesses, value: Value) -> Dep:
    own = graph.type_of(value)
    return accesses.dep(value, whole(own.shape), own.size)


Demands = list[tuple[Value, tuple[Axis, ...]]]


def _start(graph: Graph, node: int, kind: str) -> tuple[int, int, Demands]:
    """The loops of a buffer, and where its operands are read in them: for pointwise ones, where
    the buffer itself is computed."""
    n, call = graph[node], graph.call(node)
    if kind in (REDUCTION, SCAN):
        shape = call.ins[0].shape
        gone = reduced_axes(call) if kind == REDUCTION else (call["axis"],)
        kept = [a for a in range(len(shape)) if a not in gone]
        order = (*kept, *gone)
        digits = dict(zip(order, whole([shape[a] for a in order]), strict=True))
        at = tuple(digits[a] for a in range(len(shape)))
        rnumel = math.prod(shape[a] for a in gone)
        return math.prod(shape[a] for a in kept), rnumel, [(n.inputs[0], at)]
    own = n.types[0]
    return own.size, 1, [(Value(node), whole(own.shape))]


def _reads(
    graph: Graph, accesses: Accesses, inside: frozenset[int], start: Demands
) -> Iterable[tuple[Value, AffineIndex]]:
    """Every read of memory by loops that compute the nodes `inside`."""
    demands: dict[int, dict[AffineIndex, None]] = {}
    reads: dict[tuple[Value, AffineIndex], None] = {}

    def want(value: Value, at: AffineIndex) -> None:
        if value.node in inside:
            demands.setdefault(value.node, {})[at] = None
        elif not is_inline(graph, value.node):
            reads[value, at] = None

    for value, place in start:
        want(value, place)
    for node in sorted(inside, reverse=True):
        for at in demands.get(node, ()):
            for value, below in accesses.through(node, at):
                want(value, below)
    return reads


# tilings


def tiling_scores(loops: Iterable[Loops], numel: int) -> Tiling:
    """The 2-D tiling that the accesses of pointwise loops prefer, or None for one dimension:
    a split after the loop whose step is one element, by how much is accessed that way."""
    scores: dict[tuple[int, int], int] = {}
    seen: set[Value] = set()
    for one in loops:
        for dep in sorted((*one.reads, *one.writes), key=lambda d: (d.value, d.offset, d.terms)):
            split = _split(dep.terms, numel, dep.extent)
            if split is None or dep.value in seen:
                continue
            seen.add(dep.value)
            score = _score(dep, split) * (2 if dep in one.writes else 1)
            if score >= numel:
                scores[split] = scores.get(split, 0) + score
    return max(scores, key=lambda s: scores[s]) if scores else None


def _split(terms: tuple[Term, ...], numel: int, extent: int) -> tuple[int, int] | None:
    inner = numel // extent if extent else 1
    unit = next((lo for lo, _, coef in terms if coef == 1), 1)
    below = any(lo < unit for lo, _, _ in terms)
    return (numel // (unit * inner), unit * inner) if below else None


# loop order


def _score(dep: Dep, split: tuple[int, int]) -> int:
    """Elements accessed, twice as many for each side of a tile that fills whole warps."""
    full = sum(size >= 32 and size % 32 == 0 for size in split)
    return math.prod(n for _, n, _ in dep.terms) << full


def reordered(loops: Loops, wanted: Dep, own: Dep) -> Loops | None:
    """Pointwise loops permuted so that access `own` becomes `wanted`, or None if they cannot be.

    Both accesses touch the same elements by the same strides."""
    moves = _moves(own.terms, wanted.terms)
    if moves is None or math.prod(size for _, size, _ in moves) != loops.numel:
        return None
    reads = _all_moved(loops.reads, moves, loops.numel)
    writes = _all_moved(loops.writes, moves, loops.numel)
    if reads is None or writes is None:
        return None
    sizes = tuple(size for _, size, _ in sorted(moves, key=lambda m: -m[2]))
    return Loops(
        loops.id, loops.buffers, loops.kinds, loops.numel, loops.rnumel,
        [sizes for _ in loops.ranges], reads, writes, loops.orders,
    )  # fmt: skip


Move = tuple[int, int, int]  # a digit's lo and size, and its new lo


def _moves(own: tuple[Term, ...], wanted: tuple[Term, ...]) -> list[Move] | None:
    """Where each digit goes so that steps of equal stride are taken by equal digits."""
    left = sorted(own, key=lambda t: -t[2])
    right = sorted(wanted, key=lambda t: -t[2])
    found: list[Move] = []
    while left and right:
        (lo, size, coef), (to, other, stride) = left.pop(), right.pop()
        part = min(size, other)
        if coef != stride or size % part or other % part:
            return None
        found.append((lo, part, to))
        if size > part:
            left.append((lo * part, size // part, coef * part))
        if other > part:
            right.append((to * part, other // part, coef * part))
    return None if left or right else found


def _all_moved(deps: Iterable[Dep], moves: list[Move], numel: int) -> frozenset[Dep] | None:
    moved = [_moved(d, moves, numel) for d in deps]
    found = frozenset(d for d in moved if d is not None)
    return None if None in moved else found


def _moved(dep: Dep, moves: list[Move], numel: int) -> Dep | None:
    """An access after its digits moved, cut where the moved digits end."""
    if dep.token:
        return dep
    inner = numel // dep.extent
    found: list[Term] = []
    for lo, size, coef in dep.terms:
        first, last = lo * inner, lo * inner * size
        for at, extent, to in moves:
            start, end = max(first, at), min(last, at * extent)
            if start >= end:
                continue
            if start % first or start % at or end % start:
                return None
            found.append((start // at * to, end // start, coef * (start // first)))
    terms = merged(found)
    low = terms[-1][0] if terms else numel
    kept = tuple((lo // low, size, coef) for lo, size, coef in terms)
    return Dep(dep.value, dep.offset, kept, numel // low, 0, dep.nbytes)
