"""GpuInstructionFusion: pulls single ops into their consumers, users first."""

from __future__ import annotations

from autofuse.baselines.xla.predicates import (
    LEGALITY,
    XlaRules,
    budget,
    code_duplication,
    first_refusal,
    reuses,
)
from autofuse.baselines.xla.state import LIBRARY, PRODUCER_IS_FUSION, Instr, XlaState
from autofuse.graph.types import Value

PASS_1 = "instruction-fusion"
PASS_2 = "instruction-fusion-duplicating"
DO_NOT_DUPLICATE = "do-not-duplicate"


def producer_is_fusion(state: XlaState, producer: Instr, consumer: Instr) -> str | None:
    return "the producer is a fusion already" if producer.is_fusion else None


def expensive_reuse(state: XlaState, producer: Instr, consumer: Instr) -> str | None:
    if state.fact(producer.id).expensive and reuses(state, producer, consumer):
        return "the producer is expensive and the consumer reads its elements repeatedly"
    return None


def _others(state: XlaState, producer: Instr) -> int:
    """Users besides the one it would be fused into."""
    return state.user_count(producer) - 1


def duplicates_any(state: XlaState, producer: Instr, consumer: Instr) -> str | None:
    others = _others(state, producer)
    if others and not state.fact(producer.id).duplicable:
        return f"it would be duplicated ({others + 1} users), which this pass never does"
    return None


def duplicates_expensive(state: XlaState, producer: Instr, consumer: Instr) -> str | None:
    fact, others = state.fact(producer.id), _others(state, producer)
    if others and fact.expensive and not fact.duplicable:
        return f"the producer is expensive and would be duplicated ({others + 1} users)"
    return None


_FIRST: XlaRules = ((PRODUCER_IS_FUSION, producer_is_fusion), *LEGALITY)
_LAST: XlaRules = (("budget", budget), ("code-duplication", code_duplication))
RULES: dict[bool, XlaRules] = {
    False: (*_FIRST, ("expensive-reuse", expensive_reuse),
            ("duplication", duplicates_any), *_LAST),
    True: (*_FIRST, ("expensive-reuse", expensive_reuse),
           ("expensive-duplication", duplicates_expensive), *_LAST),
}  # fmt: skip


def instruction_fusion(state: XlaState, may_duplicate: bool) -> bool:
    """One run of the pass; True when something fused.

    Consumers are visited in reverse post-order, operands latest first; after a success the new
    fusion is visited again.
    """
    order = state.post_order()
    position = {item: k for k, item in enumerate(order)}
    is_kept = may_duplicate and DO_NOT_DUPLICATE not in state.off
    kept = _globally_unfusible(state, order) if is_kept else {}
    stack = [*order]
    changed = False
    while stack:
        consumer = state.instrs.get(stack.pop())
        if consumer is None:
            continue
        producers = [p for p in state.producers(consumer) if p.id in position]
        producers.sort(key=lambda p: -position[p.id])
        if any(_fuse(state, p, consumer, may_duplicate, kept) for p in producers):
            stack.append(consumer.id)
            changed = True
    return changed


def _fuse(
    state: XlaState, producer: Instr, consumer: Instr, may_duplicate: bool, kept: dict[int, str]
) -> bool:
    if producer.id in kept:
        refusal: tuple[str, str] | None = (DO_NOT_DUPLICATE, kept[producer.id])
    else:
        refusal = first_refusal(RULES[may_duplicate], state, producer, consumer)
    copies = _others(state, producer) > 0
    how = "duplicated into the consumer" if copies else "moved into the consumer"
    name = PASS_2 if may_duplicate else PASS_1
    state.note(name, producer, consumer, refusal, ("producer-consumer", how))
    if refusal is not None:
        return False
    state.absorb(producer, consumer)
    state.drop_if_unread(producer)
    return True


# what the duplicating pass leaves alone


def _globally_unfusible(state: XlaState, order: list[int]) -> dict[int, str]:
    """Producers whose duplication would read more memory, unless they fuse into all users along
    all paths; with the reason, by id."""
    kept: dict[int, str] = {}
    search = _Paths(state, kept)
    for item in reversed(order):
        producer = state.instrs.get(item)
        if producer is None or _at_most_unary(state, producer):
            continue
        read = sum(state.graph.type_of(v).size for v in producer.operands)
        if read <= sum(state.graph.type_of(v).size for v in state.values(producer)):
            continue
        why = search.blocked(producer)
        if why is not None:
            kept[item] = why
    return kept


def _at_most_unary(state: XlaState, instr: Instr) -> bool:
    """Whether at most one operand is as large (in rank) as the result; broadcasts and iotas are
    not read from memory and do not count."""
    rank = max(state.fact(r).true_rank for r in instr.roots)
    if instr.is_fusion:
        operands = [v.node for v in instr.operands]
    else:
        operands = list(state.fact(instr.id).raw_operands)
    return sum(_is_large(state, node, rank) for node in operands) <= 1


def _is_large(state: XlaState, node: int, rank: int) -> bool:
    owner = state.producer_of(Value(node))
    if owner is not None and not owner.is_fusion and state.graph[node].op in ("broadcast", "iota"):
        return False
    kind = state.graph[node].types[0]
    if owner is None and kind.size == 1 and state.graph[node].op == "constant":
        return False
    return sum(n > 1 for n in kind.shape) >= rank


class _Paths:
    """Whether a producer can be fused into its users along every path, remembering verdicts."""

    def __init__(self, state: XlaState, kept: dict[int, str]) -> None:
        self.state, self.kept = state, kept
        self._fusible: dict[tuple[int, int], str | None] = {}
        self._verdicts: dict[tuple[int, int], str | None] = {}

    def blocked(self, producer: Instr) -> str | None:
        """Why not, or None."""
        if producer.kind == LIBRARY:
            return "it is a library call"
        if self.state.is_output(producer):
            return "it reads more than it writes and is a result of the graph"
        for user in self.state.users(producer):
            why = self._between(producer, user)
            if why is not None:
                return f"it reads more than it writes and cannot fuse into every user: {why}"
        return None

    def _is_on_path(self, producer: Instr, operand: Instr) -> bool:
        return operand is producer or self.state.reaches(producer, operand)

    def _between(self, producer: Instr, consumer: Instr) -> str | None:
        """Fusible along all paths down to `consumer`, walked without recursion."""
        pending = [consumer]
        seen = {consumer.id}
        while pending:
            at = pending.pop()
            key = (producer.id, at.id)
            if self._verdicts.get(key) is not None:
                return self._verdicts[key]
            if key in self._verdicts:
                continue
            for operand in self.state.producers(at):
                if not self._is_on_path(producer, operand):
                    continue
                why = self._edge(operand, at)
                if why is not None:
                    self._verdicts[(producer.id, consumer.id)] = why
                    return why
                if operand is not producer and operand.id not in seen:
                    seen.add(operand.id)
                    pending.append(operand)
        self._verdicts |= dict.fromkeys(((producer.id, s) for s in seen), None)
        return None

    def _edge(self, producer: Instr, consumer: Instr) -> str | None:
        if producer.id in self.kept:
            return f"%{producer.id} is kept"
        key = (producer.id, consumer.id)
        if key not in self._fusible:
            refusal = first_refusal(RULES[True], self.state, producer, consumer)
            self._fusible[key] = None if refusal is None else (
                f"%{producer.id} into %{consumer.id} [{refusal[0]}] {refusal[1]}"
            )  # fmt: skip
        return self._fusible[key]
