"""PriorityFusion: the producer whose fusion into all its users saves most time goes first."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappop, heappush

from autofuse.baselines.priority.model import LAUNCH, TICKS_PER_NS
from autofuse.baselines.priority.rules import RULES, is_bare_bitcast
from autofuse.baselines.priority.state import PriorityState
from autofuse.baselines.xla.predicates import first_refusal
from autofuse.baselines.xla.state import LIBRARY, Instr
from autofuse.patience import look

PASS = "priority-fusion"
COST_MODEL = "cost-model"
PriorityRefusal = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Pair:
    """A producer and one user: why they cannot be one kernel, or the ticks of the fused one."""

    refusal: PriorityRefusal | None
    time: int


@dataclass(frozen=True, slots=True)
class PriorityVerdict:
    """What fusing a producer into all its users saves (ticks); None when a rule refuses."""

    gain: float | None
    refusal: PriorityRefusal | None = None


class Queue:
    """Producers by what their fusion saves; ties go to the instruction made last, as in XLA."""

    def __init__(self, state: PriorityState) -> None:
        self.state = state
        self.pairs: dict[int, dict[int, Pair]] = {}
        self.age = {i: i for i in state.instrs}
        self.next_age = len(state.graph.nodes)
        self.verdicts: dict[int, PriorityVerdict] = {}
        self.versions: dict[int, int] = {}
        self.heap: list[tuple[float, int, int, int]] = []
        for instr in state.instrs.values():
            self.update(instr)

    def update(self, producer: Instr) -> None:
        """Judge a producer anew and queue it unless fusing it would lose time."""
        if producer.kind == LIBRARY:
            return
        verdict = self._judged(producer)
        self.verdicts[producer.id] = verdict
        self.versions[producer.id] = version = self.versions.get(producer.id, 0) + 1
        if verdict.gain is not None and (verdict.gain >= 0 or COST_MODEL in self.state.off):
            entry = (-verdict.gain, -self.age[producer.id], producer.id, version)
            heappush(self.heap, entry)

    def pop(self) -> Instr | None:
        """The producer to fuse next."""
        while self.heap:
            _, _, item, version = heappop(self.heap)
            if item in self.state.instrs and self.versions[item] == version:
                return self.state.instrs[item]
        return None

    def pair(self, producer: Instr, consumer: Instr) -> Pair:
        known = self.pairs.setdefault(producer.id, {})
        found = known.get(consumer.id)
        if found is None:
            refusal = first_refusal(RULES, self.state, producer, consumer)
            time = 0 if refusal else self.state.joined(producer, consumer).time()
            found = known[consumer.id] = Pair(refusal, time)
        return found

    def forget(self, instr: Instr) -> None:
        """Drop what is known of the pairs of an instruction about to change."""
        self.pairs.pop(instr.id, None)
        for producer in self.state.producers(instr):
            self.pairs.get(producer.id, {}).pop(instr.id, None)

    def _judged(self, producer: Instr) -> PriorityVerdict:
        look()
        state = self.state
        users = state.users(producer)
        if is_bare_bitcast(state, producer):
            return PriorityVerdict(math.inf)
        if state.is_output(producer):
            return PriorityVerdict(None, ("is-output", "the producer is a result of the graph"))
        real = [u for u in users if not is_bare_bitcast(state, u)]
        if not real:
            return PriorityVerdict(None, ("only-bitcasts", "only bitcasts read it, which are free"))
        gain = LAUNCH + state.kernel(producer).time
        for user in real:
            pair = self.pair(producer, user)
            if pair.refusal is not None:
                why = f"it cannot be fused into %{user.id}, so into none: [{pair.refusal[0]}]"
                return PriorityVerdict(None, ("all-or-none", why))
            gain += state.kernel(user).time - pair.time
        return PriorityVerdict(gain)

    def grown(self, consumer: Instr, was_fusion: bool) -> None:
        """A consumer took a producer in; one that was a plain op is a new instruction now."""
        if not was_fusion:
            self.age[consumer.id] = self.next_age
            self.next_age += 1


def priority_fusion(state: PriorityState) -> None:
    """Run the pass and note why every remaining producer was left."""
    queue = Queue(state)
    producer = queue.pop()
    while producer is not None:
        _fuse(state, queue, producer)
        producer = queue.pop()
    _explain(state, queue)


def _fuse(state: PriorityState, queue: Queue, producer: Instr) -> None:
    users = state.users(producer)
    gain = queue.verdicts[producer.id].gain
    consumers = [u for u in users if not is_bare_bitcast(state, u)]
    if is_bare_bitcast(state, producer):
        consumers = [u for u in consumers if queue.pair(producer, u).refusal is None]
    for consumer in consumers:
        was_fusion = consumer.is_fusion
        queue.forget(consumer)
        state.note(PASS, producer, consumer, None, _fused(gain, len(users)))
        state.fuse(producer, consumer)
        queue.grown(consumer, was_fusion)
    if consumers:
        queue.pairs.pop(producer.id, None)
        state.drop_if_unread(producer)
    for changed in _around(state, consumers):
        queue.update(changed)


def _around(state: PriorityState, consumers: Iterable[Instr]) -> list[Instr]:
    """They and what they read, each once, by number."""
    found = {p.id: p for c in consumers for p in (*state.producers(c), c)}
    return [found[item] for item in sorted(found)]


def _fused(gain: float | None, users: int) -> PriorityRefusal:
    if gain is None or math.isinf(gain):
        return "bitcast", "renaming an array is free inside a kernel"
    return "priority", f"saves {_us(gain)} us over all {users} users"


def _us(ticks: float) -> str:
    return f"{ticks / (1000 * TICKS_PER_NS):.3f}"


def _explain(state: PriorityState, queue: Queue) -> None:
    """Note the last verdict on every pair that stayed apart."""
    for producer in list(state.instrs.values()):
        verdict = queue.verdicts.get(producer.id)
        for user in state.users(producer):
            refusal = queue.pair(producer, user).refusal
            if refusal is None and verdict is not None:
                refusal = verdict.refusal
            if refusal is None and verdict is not None and verdict.gain is not None:
                refusal = COST_MODEL, f"fusing it would cost {_us(-verdict.gain)} us"
            if refusal is not None:
                state.note(PASS, producer, user, refusal, ("", ""))
