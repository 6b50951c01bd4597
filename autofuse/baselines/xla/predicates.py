"""The fusion rules of XLA:GPU as of April 2022, each a predicate that explains its refusal.

A rule takes the state, a producer and a consumer, and returns None or why it refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autofuse.baselines.xla.flow import Flow
from autofuse.baselines.xla.shapes import Fact
from autofuse.baselines.xla.state import INPUT, LIBRARY, LOOP, OP, Instr, XlaState
from autofuse.patience import look

XlaRule = Callable[[XlaState, Instr, Instr], str | None]
XlaRules = Sequence[tuple[str, XlaRule]]

MAX_DUPLICATION = 15


def first_refusal(
    rules: XlaRules, state: XlaState, producer: Instr, consumer: Instr
) -> tuple[str, str] | None:
    """The first rule that refuses, as (name, reason); None when all that are not off agree."""
    look()
    for name, rule in rules:
        reason = None if name in state.off else rule(state, producer, consumer)
        if reason is not None:
            return name, reason
    return None


# what an instruction is


def root_facts(state: XlaState, instr: Instr) -> list[Fact]:
    return [state.fact(r) for r in sorted(instr.roots)]


def is_loop_fusible(state: XlaState, instr: Instr) -> bool:
    """Whether it may sit in a kernel of one thread per output element."""
    return instr.kind == LOOP or (instr.kind == OP and state.fact(instr.id).loop_fusible)


def is_input_fusible(state: XlaState, instr: Instr) -> bool:
    """Whether it is a reduction kernel that producers can be pulled into."""
    return instr.kind == INPUT or (instr.kind == OP and bool(state.fact(instr.id).fast))


def contains(state: XlaState, instr: Instr, want: Callable[[Fact], bool]) -> int | None:
    """The lowest node of `instr` whose facts satisfy `want`."""
    return next((n for n in sorted(instr.nodes) if want(state.fact(n))), None)


def reuses(state: XlaState, producer: Instr, consumer: Instr) -> bool:
    """Whether `consumer` reads elements of `producer` more than once."""
    flow = state.flow(consumer)
    return any(r in flow.reused for r in producer.roots)


# producer-consumer legality


def library_call(state: XlaState, producer: Instr, consumer: Instr) -> str | None:
    for side, instr in (("producer", producer), ("consumer", consumer)):
        if instr.kind == LIBRARY:
            return f"the {side} is a library call ({state.fact(instr.id).op})"
    return None


def not_loop_fusible(state: XlaState, producer: Instr, consumer: Instr) -> str | None:
    if is_loop_fusible(state, producer):
        return None
    return "the producer is a reduction kernel or has several results, not a loop over outputs"


def consumer_not_fusible(state: XlaState, producer: Instr, consumer: Instr) -> str | None:
    if is_loop_fusible(state, consumer) or is_input_fusible(state, consumer):
        return None
    return "the consumer is neither a loop over outputs nor a fast reduction"


def multi_output_producer(state: XlaState, producer: Instr, consumer: Instr) -> str | None:
    return "the producer has several outputs" if producer.multi_output else None


def nested_loop(state: XlaState, producer: Instr, consumer: Instr) -> str | None:
    inner = contains(state, producer, lambda f: f.loops)
    if inner is None:
        return None
    flow = state.flow(consumer)
    if not any(r in flow.looped for r in producer.roots):
        return None
    return f"%{inner} would loop inside another loop of the consumer"


def reduction_transposes(state: XlaState, producer: Instr, consumer: Instr) -> str | None:
    if not is_input_fusible(state, consumer):
        return None
    moved = contains(state, producer, lambda f: f.transposes)
    return None if moved is None else f"a reduction would read through the transposition %{moved}"


LEGALITY: XlaRules = (
    ("library-call", library_call),
    ("not-loop-fusible", not_loop_fusible),
    ("consumer-not-fusible", consumer_not_fusible),
    ("multi-output-producer", multi_output_producer),
    ("nested-loop", nested_loop),
    ("reduction-transpose", reduction_transposes),
)


# budget


def _buffers(state: XlaState, instr: Instr) -> int:
    """Output buffers; several of them need a table of their own."""
    outputs = sum(f.outputs for f in root_facts(state, instr))
    return outputs if outputs == 1 else outputs + 1


def _over_budget(state: XlaState, a: Instr, b: Instr, into_consumer: bool) -> str | None:
    """`a` is the consumer when `into_consumer`."""
    limits = state.limits
    shared = a.shared + b.shared
    if shared > limits.shared_bytes:
        return f"{shared} bytes of shared memory (limit {limits.shared_bytes})"
    if a.fast + b.fast > limits.fast_reductions:
        return f"{a.fast + b.fast} reductions in one kernel (limit {limits.fast_reductions})"
    buffers = _buffers(state, a) + _buffers(state, b)
    if len(a.operands) + len(b.operands) - 1 + buffers <= limits.operands_and_outputs:
        return None
    inside = a.roots | b.roots
    union = {v for v in (*a.operands, *b.operands) if v.node not in inside}
    if into_consumer and len(union) <= len(a.operands):
        return None
    total = len(union) + buffers
    if total <= limits.operands_and_outputs:
        return None
    return f"{total} operands and outputs (limit {limits.operands_and_outputs})"


def budget(state: XlaState, producer: Instr, consumer: Instr) -> str | None:
    return _over_budget(state, consumer, producer, True)


def sibling_budget(state: XlaState, first: Instr, second: Instr) -> str | None:
    return _over_budget(state, first, second, False)


# code duplication


def _duplicated(emitted: int, users: int, fact: Fact) -> str | None:
    if emitted > MAX_DUPLICATION:
        return f"{emitted} index expressions (limit {MAX_DUPLICATION})"
    if fact.invalidates and emitted > 1:
        return f"{emitted} index expressions of %{fact.node} {fact.op} (limit 1 for such ops)"
    if fact.invalidates and users > 1:
        return f"%{fact.node} {fact.op} has {users} users (limit 1 for such ops)"
    return None


def code_duplication(state: XlaState, producer: Instr, consumer: Instr) -> str | None:
    """The guard of instruction fusion: only for a consumer that is a fusion already."""
    if not consumer.is_fusion:
        return None
    fact = state.fact(producer.id)
    users = state.real_users(producer.id) if fact.invalidates else 0
    return _duplicated(state.flow(consumer).emitted(producer.id), users, fact)


def inefficient_emitter(state: XlaState, producer: Instr, consumer: Instr) -> str | None:
    """The same guard for the later passes, looking into a producer that is a fusion."""
    if not consumer.is_fusion or not producer.is_fusion:
        return code_duplication(state, producer, consumer)
    emitted = max(state.flow(consumer).emitted(r) for r in producer.roots)
    if emitted > MAX_DUPLICATION:
        return f"{emitted} index expressions (limit {MAX_DUPLICATION})"
    inner = Flow(state.facts, state.shapes, producer.nodes, producer.roots, emitted)
    for node in sorted(producer.nodes):
        users = sum(u in producer.nodes for u in state.graph.users[node])
        reason = _duplicated(inner.count[node], users, state.fact(node))
        if reason is not None:
            return reason
    return None
