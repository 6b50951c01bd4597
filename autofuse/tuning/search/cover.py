"""From candidate kernels to the exact planner's problem, and from its answer back to a plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from autofuse.cover import CoverProblem, Piece, k_best
from autofuse.enumerate.enumeration import Enumeration
from autofuse.enumerate.windows import Window
from autofuse.graph.types import Graph, Value
from autofuse.plan.fusion.groups import is_source, ordered_plan, reads
from autofuse.plan.types import FusionGroup, FusionPlan


@dataclass(frozen=True)
class Cover:
    """A problem and, per piece, the index of its group in the enumeration it was made from."""

    enumeration: Enumeration
    problem: CoverProblem
    sources: tuple[int, ...]

    def group(self, piece: int) -> FusionGroup:
        return self.enumeration.groups[self.sources[piece]]

    def places(self) -> dict[FusionGroup, str]:
        """The key of every group."""
        return {self.group(i): piece.key for i, piece in enumerate(self.problem.pieces)}

    def bounds(self) -> dict[str, float]:
        """The least microseconds of each key."""
        return {piece.key: piece.bound_us for piece in self.problem.pieces}

    def digest(self, piece: int) -> str:
        """The digest under which the database keeps the kernel of a piece."""
        return self.enumeration.digest(self.sources[piece])

    def groups(self, pieces: Iterable[int]) -> tuple[FusionGroup, ...]:
        return tuple(self.group(p) for p in pieces)

    def plan(self, pieces: Iterable[int]) -> FusionPlan:
        """The plan of chosen pieces, for a problem of a whole graph. Raises PlanError when a value
        is missing or kernels wait for each other."""
        return ordered_plan(self.enumeration.graph, self.groups(pieces))

    def lightest(self) -> tuple[int, ...]:
        """The plan that writes the fewest bytes of intermediates, for where memory is tight. Raises
        AutofuseError where there is none."""
        graph, leaves = self.enumeration.graph, set(self.enumeration.graph.outputs)
        pieces = []
        for i, piece in enumerate(self.problem.pieces):
            between = (v for v in self.group(i).outputs if v not in leaves)
            nbytes = 1.0 + sum(graph.type_of(v).nbytes for v in between)
            pieces.append(replace(piece, key=str(i), bound_us=nbytes))
        light = CoverProblem(tuple(pieces), self.problem.required, self.problem.given)
        return k_best(light)[0].plan

    def pieces_of(self, plan: FusionPlan) -> tuple[int, ...] | None:
        """A plan as pieces of this problem, or None when one of its groups is no candidate."""
        places = {self.group(k): k for k in range(len(self.sources))}
        found = [places.get(group) for group in plan.groups]
        return None if None in found else tuple(k for k in found if k is not None)


def cover_problem(
    enumeration: Enumeration, window: Window | None = None, *,
    bounds_us: Sequence[float] | None = None, digests: bool = False,
) -> Cover:  # fmt: skip
    """The pieces of all candidates, or of those inside one window.

    Graph inputs and constants are always there and are left out of what pieces read. Pieces whose
    groups are equal up to renaming share a key, which is the group digest with `digests` (about a
    millisecond per distinct group). `bounds_us` replaces the bounds of the enumeration."""
    graph, bounds = enumeration.graph, bounds_us or enumeration.bounds_us
    inside = None if window is None else window.nodes
    given = frozenset[Value]() if window is None else frozenset(window.given)
    pieces: list[Piece] = []
    sources: list[int] = []
    for k, group in enumerate(enumeration.groups):
        read = [v for v in reads(graph, group.nodes) if not is_source(graph, v.node)]
        if inside is not None and not _fits(group, read, inside, given):
            continue
        key = kernel_key(
            enumeration.digest(k) if digests else f"class{enumeration.classes[k]}", group
        )
        written = frozenset(map(str, group.outputs))
        pieces.append(Piece(key, frozenset(map(str, read)), written, bounds[k]))
        sources.append(k)
    required = graph.outputs if window is None else window.produced
    names = frozenset(str(v) for v in required if not is_source(graph, v.node))
    problem = CoverProblem(tuple(pieces), names, frozenset(map(str, given)))
    return Cover(enumeration, problem, tuple(sources))


def kernel_key(digest: str, group: FusionGroup) -> str:
    """What names the kernels of a group: its digest, and how the host runs a loop."""
    if group.body is None:
        return digest
    times = "" if group.unroll == 1 else f"x{group.unroll} "
    return f"{digest} body {times}{sha256(str(group.body).encode()).hexdigest()[:16]}"


def _fits(
    group: FusionGroup, read: Sequence[Value], inside: frozenset[int], given: frozenset[Value]
) -> bool:
    """Whether a window may choose a group: it writes there, and reads from there or the given."""
    if not all(v.node in inside for v in group.outputs):
        return False
    return all(v in given or v.node in inside for v in read)


def plan_of_windows(graph: Graph, tiles: Iterable[Iterable[FusionGroup]]) -> FusionPlan:
    """The plan of groups chosen tile by tile. Raises PlanError when they do not fit together."""
    chosen: Mapping[FusionGroup, None] = dict.fromkeys(g for tile in tiles for g in tile)
    return ordered_plan(graph, chosen)
