"""TorchInductor's second place of fusion: greedy pairwise merging of buffers, best score first."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from autofuse.baselines.inductor.index import Dep
from autofuse.baselines.inductor.lowering import Lowering
from autofuse.baselines.inductor.nodes import Loops, loops_of, reordered, union
from autofuse.baselines.inductor.rules import (
    LEAST_BYTES,
    Pair,
    pair_refusal,
    score,
    shared_bytes,
)
from autofuse.baselines.merging import MergeRefusal
from autofuse.graph.types import Value
from autofuse.order import post_order
from autofuse.patience import look
from autofuse.plan.fusion.clusters import Clusters
from autofuse.plan.fusion.partition import with_rematerialised
from autofuse.plan.types import FusionGroup, FusionPlan

FUSION, REORDER = "fusion", "fusion-reordering"
ROUNDS = 10
WINDOW = 64  # max_fusion_buffer_group_pairwise_attempts


class Scheduler:
    """Buffers being fused. `judge` is asked last about every pair that the rules would fuse."""

    def __init__(
        self, low: Lowering, judge: Callable[[Scheduler, Loops, Loops], MergeRefusal]
    ) -> None:
        self.low, self.graph, self.notes, self.judge = low, low.graph, low.notes, judge
        self.loops = loops_of(low)
        self.needs = {
            b: sorted({d.value.node for d in one.reads if d.value.node in self.loops})
            for b, one in self.loops.items()
        }
        self.clusters = Clusters(self.needs)

    def run(self) -> None:
        """Rounds until nothing changes, then one in which loops may be reordered."""
        self._note_fixed()
        for _ in range(ROUNDS):
            before = len(self.loops)
            self._round(reorder=False)
            if len(self.loops) in (before, 1):
                break
        self._round(reorder=True)

    def _note_fixed(self) -> None:
        for b, needed in self.needs.items():
            for a in needed:
                pair = self._pair(self.loops[a], self.loops[b])
                if pair.first.fixed or pair.second.fixed:
                    self._note(FUSION, pair, pair_refusal(pair, self.low.off))

    def _round(self, reorder: bool) -> None:
        found = [(a, b) for a, b in self._candidates() if self._refusal(a, b, reorder) is None]
        found.sort(key=lambda pair: score(*pair), reverse=True)
        for a, b in found:
            one = self.loops[self.clusters.home[a.buffers[0]]]
            two = self.loops[self.clusters.home[b.buffers[0]]]
            if one is two:
                continue
            if self.clusters.needed_by(two.id, one.id):
                one, two = two, one
            if self._refusal(one, two, reorder) is None:
                self._fuse(one, two, reorder)

    def _candidates(self) -> Iterator[tuple[Loops, Loops]]:
        """Pairs that access a value in common and are near each other among those that do."""
        buckets: dict[Value, list[Loops]] = {}
        for one in self._ordered():
            if not one.fixed:
                for value in sorted(one.touched):
                    buckets.setdefault(value, []).append(one)
        seen: set[tuple[int, int]] = set()
        for bucket in buckets.values():
            for k, one in enumerate(bucket):
                for two in bucket[k + 1 : k + 1 + WINDOW]:
                    if (one.id, two.id) not in seen:
                        seen.add((one.id, two.id))
                        yield one, two

    def _ordered(self) -> list[Loops]:
        """By place in the original order, but after all that is needed."""
        roots = sorted(self.loops, key=lambda b: self.loops[b].orders[0])
        order = post_order(roots, lambda b: sorted(self.clusters.preds(b)))
        return [self.loops[b] for b in order]

    def _pair(self, a: Loops, b: Loops) -> Pair:
        return Pair(self.graph, self.clusters, a, b, shared_bytes(a, b))

    def _refusal(self, a: Loops, b: Loops, reorder: bool) -> MergeRefusal:
        look()
        pair = self._pair(a, b)
        if reorder and pair.shared < LEAST_BYTES:
            pair = self._pair(*(_same_order(a, b) or (a, b)))
        refusal = pair_refusal(pair, self.low.off)
        self._note(REORDER if reorder else FUSION, pair, refusal)
        return refusal

    def _note(self, name: str, pair: Pair, refusal: MergeRefusal) -> None:
        producer, consumer = self._edge(pair)
        how = "producer-consumer" if pair.vertical else "shared-reads"
        self.notes.add(name, producer, consumer, refusal, (how, f"{pair.shared} bytes in common"))

    def _edge(self, pair: Pair) -> tuple[int, int]:
        """The buffers the verdict is shown for: where one reads the other, if it does."""
        for b in pair.second.buffers:
            for a in self.needs[b]:
                if a in pair.first.buffers:
                    return a, b
        return pair.first.id, pair.second.id

    def _fuse(self, a: Loops, b: Loops, reorder: bool) -> None:
        if reorder and shared_bytes(a, b) < LEAST_BYTES:
            a, b = _same_order(a, b) or (a, b)
        refusal = self.judge(self, a, b)
        if refusal is not None:
            self._note("benchmark", self._pair(a, b), refusal)
            return
        both = union(a, b)
        del self.loops[a.id], self.loops[b.id]
        self.loops[self.clusters.merge(a.id, b.id)] = both

    # results

    def nodes(self, one: Loops) -> tuple[int, ...]:
        """Nodes its kernel computes."""
        if one.fixed and len(one.buffers) == 1:
            return tuple(one.buffers)
        inside = {n for b in one.buffers for n in self.low.body[b].nodes}
        return tuple(sorted(with_rematerialised(self.graph, inside)))

    def outputs(self, one: Loops) -> tuple[Value, ...]:
        """Values of its buffers that the graph returns or that kernels besides its own read."""
        mine = set(one.buffers)
        wanted = {v for v in self.graph.outputs if v.node in mine}
        for b, needed in self.needs.items():
            taken = mine.intersection(needed) if b not in mine else ()
            if taken:
                reads = {v for n in self.low.body[b].nodes for v in self.graph[n].inputs}
                wanted |= {v for v in reads if v.node in taken}
        return tuple(sorted(wanted))

    def groups(self, bodies: dict[int, FusionPlan]) -> Iterator[FusionGroup]:
        """One group per kernel, and one per rematerialisable value that a library call
        reads from memory."""
        stored: set[Value] = set()
        for one in self.loops.values():
            yield FusionGroup(self.nodes(one), self.outputs(one), bodies.get(one.id))
            if one.fixed:
                read = (v for b in one.buffers for v in self.graph[b].inputs)
                stored.update(v for v in read if not self.low.is_buffer(v.node))
        stored.update(v for v in self.graph.outputs if not self.low.is_buffer(v.node))
        for value in sorted(stored):
            yield FusionGroup(
                tuple(sorted(with_rematerialised(self.graph, [value.node]))), (value,)
            )


def _turned(x: Dep, y: Dep) -> bool:
    """Whether two accesses of a value differ in nothing but the order of their loops."""
    return x.value == y.value and x != y and not x.token and x.by_stride == y.by_stride


def _same_order(a: Loops, b: Loops) -> tuple[Loops, Loops] | None:
    """The two with the loops of a pointwise one permuted so that the largest value they have in
    common is accessed in the same order; None if that cannot be."""
    pairs = [
        (x, y) for x in (*a.reads, *a.writes) for y in (*b.reads, *b.writes) if _turned(x, y)
    ]  # fmt: skip
    if not pairs or (a.is_reduction and b.is_reduction):
        return None
    key: Callable[[tuple[Dep, Dep]], tuple[object, ...]] = lambda p: (  # noqa: E731 - its type stands beside it
        -p[0].nbytes, p[0].value, p[0].terms, p[1].terms,
    )  # fmt: skip
    mine, theirs = min(pairs, key=key)
    if b.is_reduction:
        moved = reordered(a, theirs, mine)
        return None if moved is None else (moved, b)
    moved = reordered(b, mine, theirs)
    return None if moved is None else (a, moved)
