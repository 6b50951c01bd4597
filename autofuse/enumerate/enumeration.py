"""Enumerate candidate kernels: sets of nodes that can legally be one, grown from supernodes.

Growth is a beam search per supernode over producers, consumers and siblings. Three things are
always there, so that a program over the groups is feasible and never worse than what rules find:
every supernode alone, every legal group of the plans to `include`, and the groups of "fuse whatever
is legal".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from autofuse.cost.bounds import NOMINAL, Calibration, group_bound_us
from autofuse.enumerate.candidates import EnumerateOptions, GrownState, Judge, KernelOption, Sketch
from autofuse.enumerate.joins import (
    CROWD,
    fuse_legal,
    neighbours,
    products,
    side_by_side,
    whole_parts,
)
from autofuse.enumerate.structure import Key, Structures
from autofuse.enumerate.supernodes import Supernodes, supernodes_of
from autofuse.graph.types import Graph
from autofuse.plan.fusion.clusters import bits
from autofuse.plan.fusion.groups import rank
from autofuse.plan.types import FusionGroup, FusionPlan, LoopBody

Bodies = Mapping[int, Sequence[LoopBody]]
# Counted where there was no time: supernodes that nothing was grown from, groups without digest.
CUT_SHORT, UNNAMED = "limit: time", "limit: time to digest"


@dataclass(frozen=True)
class Enumeration:
    """Candidate groups with their lower bounds in microseconds (parallel), what was counted on the
    way, and the supernodes they are made of. `digest` names a group's kernel for the database.
    `base` are the groups without which there may be no plan: supernodes alone, those of given plans
    and the bodies of loops."""

    graph: Graph
    groups: tuple[FusionGroup, ...]
    bounds_us: tuple[float, ...]
    classes: tuple[int, ...]
    counts: dict[str, int]
    supernodes: Supernodes = field(repr=False)
    _shapes: Structures = field(repr=False)
    _keys: tuple[Key | None, ...] = field(repr=False)
    base: frozenset[FusionGroup] = field(repr=False)

    def digest(self, index: int) -> str:
        """The digest of group `index`; groups of one class share the work. For a loop that is
        run by the host the digest of the loop, which says nothing about its body's plan."""
        group, key = self.groups[index], self._keys[index]
        if key is None:
            key = self._shapes.key(group.nodes, group.outputs)
        return self._shapes.digest(key, group.nodes, group.outputs)

    def named(self, should_stop: Callable[[], bool]) -> Enumeration:
        """The groups whose digests were computed before `should_stop` said to stop, with all of the
        base among them; which were left out is counted. About half a millisecond per class."""
        late, kept = False, list[int]()
        for k, group in enumerate(self.groups):
            late = late or should_stop()
            if not late or group in self.base:
                self.digest(k)
                kept.append(k)
        if len(kept) == len(self.groups):
            return self
        counts = self.counts | {"kept": len(kept), UNNAMED: len(self.groups) - len(kept)}
        return replace(
            self,
            groups=tuple(self.groups[k] for k in kept),
            bounds_us=tuple(self.bounds_us[k] for k in kept),
            classes=tuple(self.classes[k] for k in kept),
            counts=dict(sorted(counts.items())),
            _keys=tuple(self._keys[k] for k in kept),
        )

    @property
    def cut_short(self) -> bool:
        """Whether there was no time for all of it."""
        return CUT_SHORT in self.counts or UNNAMED in self.counts


def enumerate_groups(
    graph: Graph,
    options: EnumerateOptions | None = None,
    *,
    include: Sequence[FusionPlan] = (),
    bodies: Bodies | None = None,
    calibration: Calibration = NOMINAL,
    should_stop: Callable[[], bool] = lambda: False,
    supernodes: Supernodes | None = None,
    shapes: Structures | None = None,
) -> Enumeration:
    """Candidate kernels of a canonical graph, or of some `supernodes` of it; `shapes` has what is
    known of its groups already.

    `bodies` gives the ways in which a loop may be run by the host, by loop node; a loop that can
    be no kernel and has no body plan makes the program infeasible. `should_stop` is asked every
    few milliseconds: what is always there is there when it says so, and the rest ends early."""
    limits = options or EnumerateOptions()
    supernodes = supernodes or supernodes_of(graph, limits.join)
    judge = Judge(supernodes, limits, calibration, should_stop, shapes)
    found = _Kept(judge)
    found.add_included(include)
    found.add_bodies(bodies or {}, calibration)
    singles = [
        state for k in range(len(supernodes.items)) if (state := judge.judge(1 << k)) is not None
    ]
    for state in singles:
        found.add_state(state)
    for option in products(judge):
        found.add(option, always=True)
    found.base = frozenset(found.options)
    fused = fuse_legal(judge)
    for state in (*fused, *whole_parts(judge)):
        found.add_state(state)
    for k in range(len(supernodes.items)):
        if judge.is_over():
            judge.counts[CUT_SHORT] = len(supernodes.items) - k
            break
        for state in _Growth(judge, k).run():
            found.add_state(state)
    for option in side_by_side(judge, [*fused, *singles]):
        found.add(option)
    return found.finish()


class _Kept:
    """Groups kept so far, each once."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.options: dict[FusionGroup, tuple[float, Key | None]] = {}
        self.counts: Counter[str] = judge.counts
        self.base: frozenset[FusionGroup] = frozenset()

    def add(self, option: KernelOption, always: bool = False) -> None:
        if option.group in self.options:
            return
        if len(self.options) >= self.judge.options.max_groups and not always:
            self.counts["limit: max_groups"] += 1
            return
        self.options[option.group] = (option.bound_us, option.key)

    def add_state(self, state: GrownState) -> None:
        always = state.mask & (state.mask - 1) == 0
        for option in self.judge.options_of(state):
            self.add(option, always)

    def add_included(self, plans: Iterable[FusionPlan]) -> None:
        """Groups of given plans, whatever their size; what is not legal is counted and left out."""
        judge = self.judge
        for plan in plans:
            for group in plan.groups:
                if group.body is not None:
                    bound = group_bound_us(judge.graph, group, judge.calibration)
                    self.options.setdefault(group, (bound, None))
                    continue
                option = judge.option(group.nodes, group.outputs)
                if option is None:
                    self.counts["included but not legal"] += 1
                else:
                    self.add(option, always=True)

    def add_bodies(self, bodies: Bodies, calibration: Calibration) -> None:
        home, graph = self.judge.supernodes.home, self.judge.graph
        for loop, ways in sorted(bodies.items()):
            if loop not in home:
                continue
            exports = self.judge.supernodes.items[home[loop]].exports
            outputs = tuple(sorted(e.value for e in exports))
            for way in ways:
                group = FusionGroup((loop,), outputs, way.plan, way.unroll)
                bound = group_bound_us(graph, group, calibration)
                self.options.setdefault(group, (bound, None))

    def finish(self) -> Enumeration:
        groups = tuple(sorted(self.options, key=rank))
        self.counts["kept"] = len(groups)
        classes: dict[object, int] = {}
        shapes = self.judge.shapes
        numbers: list[int] = []
        for group in groups:
            key = self.options[group][1] or shapes.key(group.nodes, group.outputs)
            numbers.append(classes.setdefault((key, group.body, group.unroll), len(classes)))
        self.counts["classes"] = len(classes)
        return Enumeration(
            self.judge.graph,
            groups,
            tuple(self.options[g][0] for g in groups),
            tuple(numbers),
            dict(sorted(self.counts.items())),
            self.judge.supernodes,
            self.judge.shapes,
            tuple(self.options[g][1] for g in groups),
            self.base,
        )


class _Growth:
    """Sets of supernodes around one seed, by beam search: the largest saving under the bound
    first."""

    def __init__(self, judge: Judge, seed: int) -> None:
        self.judge = judge
        self.seed = seed
        self.tried = 0

    def run(self) -> Iterator[GrownState]:
        """Every set that entered the beam."""
        start = self.judge.judge(1 << self.seed)
        if start is None or self.judge.supernodes.barriers >> self.seed & 1:
            return
        frontier, seen = [start], {start.mask}
        while frontier and self.tried < self.judge.options.max_per_seed:
            grown: list[tuple[float, int, GrownState]] = []
            for state in frontier:
                if self.judge.is_over():
                    return
                for mask in self._next(state.mask):
                    if mask in seen or self.tried >= self.judge.options.max_per_seed:
                        continue
                    seen.add(mask)
                    self.tried += self.judge.is_new(mask)
                    sketch = self.judge.sketch(mask)
                    if sketch is not None:
                        grown.append((-self._saving(sketch), mask, state))
            frontier = self._best(sorted(grown, key=lambda item: item[:2]))
            yield from frontier

    def _best(self, ranked: Sequence[tuple[float, int, GrownState]]) -> list[GrownState]:
        """The first that may be kernels and may gain, as many as the beam is wide."""
        kept: list[GrownState] = []
        for position, (_, mask, before) in enumerate(ranked):
            if len(kept) == self.judge.options.beam:
                self.judge.counts["dominated: beam"] += len(ranked) - position
                break
            after = self.judge.judge(mask)
            if after is not None and self._gains(before, after):
                kept.append(after)
        return kept

    def _next(self, mask: int) -> Iterator[int]:
        """The set with one neighbour more, and what lies between when it must come along."""
        for k in neighbours(self.judge.supernodes, mask, self.judge.options.fanout):
            union = mask | 1 << k
            yield union
            closed = self.judge.closure(union)
            if closed != union and (closed & ~union).bit_count() <= CROWD:
                yield closed

    def _gains(self, before: GrownState, after: GrownState) -> bool:
        """Whether one kernel may beat two: the bound of the union against those of its parts."""
        extra = after.mask & ~before.mask
        if not self.judge.options.prune or not (before.whole and after.whole):
            return True
        if extra & (extra - 1):
            return True
        part = self.judge.judge(extra)
        apart = before.first.bound_us + (part.first.bound_us if part is not None else 0.0)
        if part is None or after.first.bound_us < apart:
            return True
        self.judge.counts["pruned by bound"] += 1
        return False

    def _saving(self, sketch: Sketch) -> float:
        """By bounds, against every supernode alone."""
        alone = (self.judge.sketch(1 << k) for k in bits(sketch.mask))
        return sum(part.bound_us for part in alone if part is not None) - sketch.bound_us
