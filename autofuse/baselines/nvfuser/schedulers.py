"""Which of nvFuser's schedulers accepts a set of ops: each a predicate that says why not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from autofuse.graph.types import Graph, Value
from autofuse.ops.reduction import reduced_axes
from autofuse.ops.spec import Family
from autofuse.plan.fusion.clusters import connected
from autofuse.plan.fusion.groups import needed_outputs, reads
from autofuse.plan.schedules.forms import align

# Half of the registers of a streaming multiprocessor, in bytes: what a persistent row may take.
PERSISTENT_BYTES = 128 * 1024
ALONE = (
    Family.CONTRACTION, Family.CONTROL, Family.SCAN, Family.SOLVER, Family.SORT, Family.WINDOW,
)  # fmt: skip
RESIZES = frozenset(("concat", "pad", "slice"))


@dataclass(frozen=True)
class Segment:
    """A set of ops asked about."""

    graph: Graph
    nodes: frozenset[int]

    @cached_property
    def reductions(self) -> list[int]:
        family = Family.REDUCTION
        return [n for n in sorted(self.nodes) if self.graph[n].spec.family is family]

    @cached_property
    def outputs(self) -> tuple[Value, ...]:
        return needed_outputs(self.graph, self.nodes)

    @cached_property
    def below(self) -> dict[int, int]:
        """Per node a bit mask of the reductions of the set that it comes after."""
        found: dict[int, int] = {}
        for n in sorted(self.nodes):
            mask = 0
            for value in self.graph[n].inputs:
                mask |= found.get(value.node, 0)
                mask |= 1 << value.node if self.is_reduction(value.node) else 0
            found[n] = mask
        return found

    @cached_property
    def above(self) -> dict[int, int]:
        """Per node, those read from outside included, a mask of the reductions that need it."""
        found: dict[int, int] = {}
        for n in sorted(self.nodes, reverse=True):
            mask = found.get(n, 0) | (1 << n if self.is_reduction(n) else 0)
            for value in self.graph[n].inputs:
                found[value.node] = found.get(value.node, 0) | mask
        return found

    def is_reduction(self, node: int) -> bool:
        return node in self.nodes and self.graph[node].spec.family is Family.REDUCTION

    def has(self, ops: frozenset[str]) -> int | None:
        return next((n for n in sorted(self.nodes) if self.graph[n].op in ops), None)

    def shape(self, node: int) -> tuple[int, ...]:
        return self.graph[node].types[0].shape

    def reduction(self, node: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Shape of what a reduction reads, and the axes it folds."""
        call = self.graph.call(node)
        return call.ins[0].shape, reduced_axes(call)


# what every scheduler but the matmul one asks


def unsupported(segment: Segment) -> str | None:
    graph = segment.graph
    alone = next((n for n in sorted(segment.nodes) if graph[n].spec.family in ALONE), None)
    if alone is not None and len(segment.nodes) > 1:
        return f"%{alone} {graph[alone].op} is a segment of its own"
    for n in sorted(segment.nodes):
        if graph[n].op == "gather" and graph[n].inputs[0].node in segment.nodes:
            return f"the array that %{n} gathers from must be an input"
    return None


def disconnected(segment: Segment) -> str | None:
    graph, nodes = segment.graph, segment.nodes
    links = ((v.node, n) for n in nodes for v in graph[n].inputs if v.node in nodes)
    return "its ops are not connected" if len(connected(nodes, links)) > 1 else None


# the schedulers


def matmul(segment: Segment) -> str | None:
    only = len(segment.nodes) == 1 and segment.graph[min(segment.nodes)].spec.family in ALONE
    return None if only else "not a product alone"


def reduction(segment: Segment) -> str | None:
    if not segment.reductions:
        return "no reduction"
    if (reason := _unlike(segment)) is not None:
        return reason
    shape, _ = segment.reduction(segment.reductions[0])
    for n in sorted(segment.nodes):
        if segment.below[n] and segment.shape(n) == shape and not segment.is_reduction(n):
            return f"%{n} needs the reduced axes again after the reduction"
    return _covered(segment, shape)


def resize(segment: Segment) -> str | None:
    if segment.reductions:
        return "it reduces"
    if segment.has(RESIZES) is None:
        return "nothing is resized"
    return _reference(segment)


def transpose(segment: Segment) -> str | None:
    if segment.reductions:
        return "it reduces"
    moved = next((n for n in sorted(segment.nodes) if _moves_innermost(segment, n)), None)
    if moved is None:
        return "one innermost axis"
    return _reference(segment)


def pointwise(segment: Segment) -> str | None:
    if segment.reductions:
        return "it reduces"
    resized = segment.has(RESIZES)
    if resized is not None and len(segment.nodes) > 1:
        return f"%{resized} resizes"
    return _reference(segment)


def inner_persistent(segment: Segment) -> str | None:
    return _persistent(segment, {"inner"})


def outer_persistent(segment: Segment) -> str | None:
    return _persistent(segment, {"outer"})


def inner_outer_persistent(segment: Segment) -> str | None:
    return _persistent(segment, {"inner", "outer"})


SchedulerRule = Callable[[Segment], str | None]
SCHEDULERS: Sequence[tuple[str, SchedulerRule]] = (
    ("matmul", matmul),
    ("reduction", reduction),
    ("resize", resize),
    ("transpose", transpose),
    ("pointwise", pointwise),
    ("inner persistent", inner_persistent),
    ("outer persistent", outer_persistent),
    ("inner-outer persistent", inner_outer_persistent),
)


def accepting(graph: Graph, nodes: frozenset[int]) -> tuple[str, str]:
    """The first scheduler that accepts a set; or "" and why none does."""
    segment = Segment(graph, nodes)
    for common in (unsupported, disconnected):
        reason = common(segment)
        if reason is not None:
            return "", reason
    reasons: list[str] = []
    for name, accepts in SCHEDULERS:
        reason = accepts(segment)
        if reason is None:
            return name, ""
        reasons.append(f"{name}: {reason}")
    return "", "; ".join(reasons[1:])


# shared conditions


def _reference(segment: Segment) -> str | None:
    """One result must cover the axes of all others."""
    shapes = [segment.graph.type_of(v).shape for v in segment.outputs]
    main = max(shapes, key=lambda s: (_size(s), len(s)), default=())
    return _covered(segment, main)


def _covered(segment: Segment, main: tuple[int, ...]) -> str | None:
    wide = tuple(e for e in main if e > 1)
    for value in segment.outputs:
        own = tuple(e for e in segment.graph.type_of(value).shape if e > 1)
        if _size(own) != _size(wide) and align(own, wide) is None:
            return f"no tensor covers the axes of {value}"
    return None


def _size(shape: tuple[int, ...]) -> int:
    total = 1
    for extent in shape:
        total *= extent
    return total


def _unlike(segment: Segment) -> str | None:
    """All reductions fold the same axes of the same shape."""
    kinds = {segment.reduction(n) for n in segment.reductions}
    return None if len(kinds) == 1 else "its reductions do not map to each other"


def _moves_innermost(segment: Segment, node: int) -> bool:
    n = segment.graph[node]
    if n.op != "transpose":
        return False
    perm: tuple[int, ...] = segment.graph.call(node)["perm"]
    return bool(perm) and perm[-1] != len(perm) - 1


def _side(segment: Segment, node: int) -> str:
    """Whether a reduction folds the innermost axes, the outermost ones, or others."""
    shape, axes = segment.reduction(node)
    real = [a for a, e in enumerate(shape) if e > 1]
    gone = [a for a in real if a in axes]
    if gone == real[len(real) - len(gone) :]:
        return "inner"
    return "outer" if gone == real[: len(gone)] else "mixed"


def _persistent(segment: Segment, wanted: set[str]) -> str | None:
    if not segment.reductions:
        return "no reduction"
    sides = {_side(segment, n) for n in segment.reductions}
    if sides != wanted:
        return f"it reduces {' and '.join(sorted(sides))} axes"
    if len(wanted) == 1 and (reason := _unlike(segment)) is not None:
        return reason
    shapes = {segment.reduction(n)[0] for n in segment.reductions}
    if len(shapes) > 1:
        return "its reductions read different shapes"
    shape = shapes.pop()
    nbytes = _row_bytes(segment, shape)
    if nbytes > PERSISTENT_BYTES:
        return f"a row takes {nbytes} bytes (limit {PERSISTENT_BYTES})"
    return _covered(segment, shape)


def _row_bytes(segment: Segment, shape: tuple[int, ...]) -> int:
    """Bytes of a row of everything that is read for a reduction and again after that one."""
    _, axes = segment.reduction(segment.reductions[0])
    length = _size(tuple(shape[a] for a in axes))
    kept = 0
    for value in (*reads(segment.graph, segment.nodes), *(Value(n) for n in sorted(segment.nodes))):
        own, needed = segment.graph.type_of(value), segment.above.get(value.node, 0)
        users = [u for u in segment.graph.users[value.node] if u in segment.nodes]
        if own.shape == shape and any(segment.below[u] & needed for u in users):
            kept += length * own.dtype.itemsize
    return kept
