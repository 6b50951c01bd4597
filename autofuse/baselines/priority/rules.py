"""What XLA:GPU of 2026 refuses to fuse whatever it would save: a producer into a consumer."""

from __future__ import annotations

from typing import cast

from autofuse.baselines.priority.model import LOOP_EMITTER
from autofuse.baselines.priority.state import REDUCTIONS, PriorityState
from autofuse.baselines.xla.predicates import XlaRules, budget, library_call
from autofuse.baselines.xla.state import OP, Instr, XlaState

MAX_EMITTED = 10_000


def is_bare_bitcast(state: XlaState, instr: Instr) -> bool:
    """An instruction of its own that only renames an array."""
    return instr.kind == OP and state.fact(instr.id).bitcast


def tuple_result(state: XlaState, producer: Instr, consumer: Instr) -> str | None:
    """XLA reads such a result through get-tuple-element, which nothing fuses into."""
    variadic = next((n for n in sorted(producer.roots) if _is_variadic(state, n)), None)
    if variadic is None and not producer.multi_output:
        return None
    return "the producer has several results"


def _is_variadic(state: XlaState, node: int) -> bool:
    return state.fact(node).op in ("argmax", "argmin")


def bitcast_consumer(state: XlaState, producer: Instr, consumer: Instr) -> str | None:
    if is_bare_bitcast(state, consumer):
        return "the consumer only renames the array, which is free"
    return None


def two_reductions(state: XlaState, producer: Instr, consumer: Instr) -> str | None:
    priced = cast(PriorityState, state)
    if priced.kernel(producer).emitter.reduces and priced.kernel(consumer).emitter.reduces:
        return "both fold 16 elements or more into one, which the cost model does not understand"
    return None


def loop_fallback(state: XlaState, producer: Instr, consumer: Instr) -> str | None:
    priced = cast(PriorityState, state)
    if priced.kernel(producer).emitter.kind not in REDUCTIONS:
        return None
    if priced.fused_emitter(producer, consumer).kind == LOOP_EMITTER:
        return "the reduction kernel would become a loop over outputs"
    return None


def emitted_size(state: XlaState, producer: Instr, consumer: Instr) -> str | None:
    emitted = cast(PriorityState, state).joined(producer, consumer).emitted
    if emitted > MAX_EMITTED:
        return f"{emitted} instructions with their copies (limit {MAX_EMITTED})"
    return None


RULES: XlaRules = (
    ("library-call", library_call),
    ("tuple-result", tuple_result),
    ("bare-bitcast", bitcast_consumer),
    ("two-reductions", two_reductions),
    ("loop-fallback", loop_fallback),
    ("budget", budget),
    ("code-size", emitted_size),
)
