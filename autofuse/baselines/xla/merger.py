"""FusionMerger: merges a fusion into all its users, or none, by bytes moved and expense."""

from __future__ import annotations

from dataclasses import dataclass

from autofuse.baselines.xla.predicates import (
    LEGALITY,
    XlaRules,
    budget,
    contains,
    first_refusal,
    inefficient_emitter,
    reuses,
)
from autofuse.baselines.xla.state import LOOP, Instr, XlaState
from autofuse.graph.types import Value

PASS = "fusion-merger"
MAX_BYTE_RATIO = 1.10
FREE_EXPENSE_RATIO = 0.3
FREE_EXPENSE_BYTES = 1024


@dataclass(frozen=True, slots=True)
class MergeTraffic:
    """Bytes moved by a fusion and its users' reads of it, before and after merging."""

    current: float
    merged: float

    @property
    def ratio(self) -> float:
        return self.merged / self.current if self.current else 0.0


def bytes_read(state: XlaState, instr: Instr) -> int:
    """Bytes of all operands; one that only slices read counts as those slices."""
    return sum(_operand_bytes(state, instr, v) for v in instr.operands)


def _operand_bytes(state: XlaState, instr: Instr, value: Value) -> int:
    inside = [u for u in state.graph.users[value.node] if u in instr.nodes]
    readers = [u for u in inside if value in state.graph[u].inputs]
    whole = state.graph.type_of(value).nbytes
    if any(state.graph[u].op != "slice" for u in readers):
        return whole
    return min(whole, sum(state.fact(u).nbytes for u in readers))


def traffic(state: XlaState, producer: Instr) -> MergeTraffic:
    users = len(state.users(producer))
    read = bytes_read(state, producer)
    written = sum(state.fact(r).nbytes for r in producer.roots)
    return MergeTraffic(read + written * (users + 1), read * users)


# rules about the producer and its users as a whole: it stands in the consumer's place, too


def not_a_loop_fusion(state: XlaState, producer: Instr, _: Instr) -> str | None:
    return None if producer.kind == LOOP else "only a fusion of loop kind is merged"


def is_output(state: XlaState, producer: Instr, _: Instr) -> str | None:
    if state.is_output(producer):
        return "the fusion writes a result of the graph, so it stays"
    return None


def byte_ratio(state: XlaState, producer: Instr, _: Instr) -> str | None:
    ratio = traffic(state, producer).ratio
    if ratio <= MAX_BYTE_RATIO:
        return None
    return f"merging would move {ratio:.2f}x the bytes (limit {MAX_BYTE_RATIO:.2f})"


def expensive(state: XlaState, producer: Instr, _: Instr) -> str | None:
    dear = contains(state, producer, lambda f: f.expensive)
    if dear is None or _allow_expensive(state, producer, traffic(state, producer)):
        return None
    return f"%{dear} {state.graph[dear].op} is expensive and would be computed more than once"


WHOLE: XlaRules = (
    ("not-a-loop-fusion", not_a_loop_fusion),
    ("is-output", is_output),
    ("byte-ratio", byte_ratio),
    ("expensive", expensive),
)


def _allow_expensive(state: XlaState, producer: Instr, moved: MergeTraffic) -> bool:
    users = state.users(producer)
    cheap_enough = moved.ratio < FREE_EXPENSE_RATIO and moved.current > FREE_EXPENSE_BYTES
    worth_it = len(users) == 1 or cheap_enough
    return worth_it and not any(reuses(state, producer, u) for u in users)


def bare_bitcast(state: XlaState, producer: Instr, consumer: Instr) -> str | None:
    if not consumer.is_fusion and state.fact(consumer.id).bitcast:
        return "the user only renames the array, which is free"
    return None


RULES: XlaRules = (
    ("bare-bitcast", bare_bitcast),
    *LEGALITY,
    ("budget", budget),
    ("code-duplication", inefficient_emitter),
)


def fusion_merger(state: XlaState) -> bool:
    """One run of the pass, producers first; True when something merged."""
    changed = False
    for item in state.post_order():
        producer = state.instrs.get(item)
        if producer is not None and producer.is_fusion and state.users(producer):
            changed |= _merge(state, producer)
    return changed


def _merge(state: XlaState, producer: Instr) -> bool:
    users = state.users(producer)
    pairs = [(u, first_refusal(RULES, state, producer, u)) for u in users]
    whole = first_refusal(WHOLE, state, producer, producer)
    blocked = next((f"{u.id}" for u, refusal in pairs if refusal is not None), None)
    if whole is None and blocked is not None:
        whole = "all-or-none", f"the fusion cannot merge into its user %{blocked}"
    for user, refusal in pairs:
        count = f"merged into all {len(users)} users"
        state.note(PASS, producer, user, refusal or whole, ("merge", count))
    if whole is not None:
        return False
    for user in users:
        state.absorb(producer, user)
    state.remove(producer)
    return True
