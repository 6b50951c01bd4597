"""The rules of nvFuser's segmenter (`csrc/fusion_segmenter.cpp`): does one scheduler accept it?

The whole graph is asked first; then every op is a segment, and segments merge while some
scheduler accepts the union. Nothing is timed.
"""

from __future__ import annotations

from autofuse.baselines.base import BaselineResult
from autofuse.baselines.merging import Fusing, Rules
from autofuse.baselines.nvfuser.schedulers import accepting
from autofuse.graph.types import Graph
from autofuse.order import depths, post_order

WHOLE, SWEEP, FINAL = "whole-graph", "sweep", "final"


class Segments(Fusing):
    """Segments being merged, with what is known of sets asked about before."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self._asked: dict[frozenset[int], tuple[str, str]] = {}

    def scheduler(self, nodes: frozenset[int]) -> tuple[str, str]:
        """The first scheduler that accepts a set, or "" and why none does."""
        if nodes not in self._asked:
            self._asked[nodes] = accepting(self.graph, nodes)
        return self._asked[nodes]

    def together(self, producer: int, consumer: int) -> frozenset[int]:
        return frozenset(self.group(producer)) | frozenset(self.group(consumer))

    def levels(self) -> dict[int, int]:
        """The longest way from an input to each segment, in segments."""
        return depths(post_order(self.members, self.preds), self.preds)

    def neighbours(self) -> dict[int, list[int]]:
        """Segments that read or feed each one, ascending."""
        return {s: sorted(self.preds(s) | self.succs(s)) for s in self.members}

    def edge(self, a: int, b: int) -> tuple[int, int]:
        """A producer and a consumer, one in each of two neighbouring segments."""
        if a not in self.preds(b):
            a, b = b, a
        consumer, producer = next(
            (n, p) for n in self.members[b] for p in self.operands[n] if self.home[p] == a
        )
        return producer, consumer


def no_scheduler(state: Fusing, producer: int, consumer: int) -> str | None:
    """Some scheduler must accept the two segments as one."""
    assert isinstance(state, Segments)
    name, reason = state.scheduler(state.together(producer, consumer))
    return None if name else reason


RULES: Rules = (("no-scheduler", no_scheduler),)


def nvfuser(graph: Graph) -> BaselineResult:
    """The plan nvFuser would make of a canonical graph; bodies of loops likewise."""
    state = Segments(graph)
    if not _whole(state):
        while _sweep(state):
            pass
        while _one_by_one(state):
            pass
    return state.result(nvfuser)


def _whole(state: Segments) -> bool:
    """Everything as one kernel, if a scheduler accepts it."""
    if not state.items:
        return True
    name, reason = state.scheduler(frozenset(state.items))
    first = state.items[0]
    refusal = None if name else ("no-scheduler", reason)
    state.notes.add(WHOLE, first, first, refusal, ("accepted", f"the {name} scheduler takes all"))
    if not name:
        return False
    for producer, consumer in state.edges():
        if state.home[producer] != state.home[consumer]:
            state.merge(state.home[producer], state.home[consumer])
    return True


def _sweep(state: Segments) -> bool:
    """Merge many pairs at once: of neighbouring levels, none next to another pair that merges,
    which is what keeps the segments free of circles (Herrmann et al. 2019, theorem 4.2)."""
    levels, near = state.levels(), state.neighbours()
    paired: set[int] = set()
    pairs: list[tuple[int, int]] = []
    for segment in sorted(state.members, key=lambda s: (levels[s], s)):
        if segment in paired or not paired.isdisjoint(near[segment]):
            continue
        for other in near[segment]:
            apart = abs(levels[segment] - levels[other])
            if apart > 1 or other in paired or not paired.isdisjoint(near[other]):
                continue
            if _try(state, SWEEP, segment, other):
                paired |= {segment, other}
                pairs.append((segment, other))
                break
    for a, b in pairs:
        state.merge(a, b)
    return bool(pairs)


def _try(state: Segments, name: str, a: int, b: int) -> bool:
    producer, consumer = state.edge(a, b)
    refusal = state.refusal(RULES, producer, consumer)
    taker = state.scheduler(state.together(producer, consumer))[0]
    state.notes.add(name, producer, consumer, refusal, ("accepted", f"by the {taker} scheduler"))
    return refusal is None


def _one_by_one(state: Segments) -> bool:
    """Merge any two neighbours that no third segment lies between."""
    changed = False
    for producer, consumer in state.edges():
        a, b = state.home[producer], state.home[consumer]
        if a != b and _try(state, FINAL, a, b):
            state.merge(a, b)
            changed = True
    return changed
