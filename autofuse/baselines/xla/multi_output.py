"""GpuMultiOutputFusion: kernels with several outputs, from siblings and from producers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autofuse.baselines.xla.predicates import (
    XlaRules,
    contains,
    first_refusal,
    inefficient_emitter,
    is_input_fusible,
    multi_output_producer,
    nested_loop,
    not_loop_fusible,
    root_facts,
    sibling_budget,
)
from autofuse.baselines.xla.shapes import Fact
from autofuse.baselines.xla.state import INPUT, LIBRARY, LOOP, OP, Instr, XlaState
from autofuse.graph.types import Graph, Value

SIBLINGS = "multi-output-siblings"
PRODUCERS = "multi-output-producer"


def _any_value(graph: Graph, parent: Value) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class MultiOutput:
    """One version of the pass: rules for (first, second) sibling and for (producer, consumer), and
    which shared operands bring siblings together."""

    siblings: XlaRules
    producers: XlaRules
    worth_sharing: Callable[[Graph, Value], bool] = _any_value


def hero(state: XlaState, instr: Instr) -> Fact:
    """The root that decides the iteration space: a fast reduction when there is one."""
    roots = root_facts(state, instr)
    return next((f for f in roots if f.fast), roots[0])


def not_a_root(state: XlaState, first: Instr, second: Instr) -> str | None:
    """The second must be something a kernel of several outputs can be rooted in."""
    eligible = second.kind == LOOP or (second.kind == OP and state.fact(second.id).elementwise)
    if eligible or is_input_fusible(state, second):
        return None
    return f"%{second.id} is not elementwise, a loop fusion or a reduction"


def incompatible_shapes(state: XlaState, first: Instr, second: Instr) -> str | None:
    a, b = hero(state, first), hero(state, second)
    if a.fast and b.fast and (a.axes != b.axes or a.shape != b.shape):
        return f"reductions over axes {list(a.axes)} and {list(b.axes)} differ"
    if a.loop_shape != b.loop_shape:
        return f"iteration spaces {list(a.loop_shape)} and {list(b.loop_shape)} differ"
    return None


# siblings: (first, second) share an operand; neither is the other's producer


def unlike_kinds(state: XlaState, first: Instr, second: Instr) -> str | None:
    if second.is_fusion and first.kind != second.kind:
        return f"fusions of different kinds ({first.kind}, {second.kind})"
    if not second.is_fusion and first.kind == LOOP and is_input_fusible(state, second):
        return "a bare reduction does not join a loop fusion"
    return None


def unused(state: XlaState, first: Instr, second: Instr) -> str | None:
    return None if state.user_count(second) else f"%{second.id} has no users"


def connected(state: XlaState, first: Instr, second: Instr) -> str | None:
    if state.reaches(first, second) or state.reaches(second, first):
        return "one depends on the other"
    return None


SIBLING_RULES: XlaRules = (
    ("not-a-root", not_a_root),
    ("no-users", unused),
    ("kinds", unlike_kinds),
    ("shapes", incompatible_shapes),
    ("budget", sibling_budget),
    ("dependence", connected),
)


def multi_output_fusion(state: XlaState, rules: MultiOutput | None = None) -> bool:
    """One run of the pass (of 2022 unless other `rules` are given), users before definitions;
    True when something fused."""
    rules = rules or RULES_2022
    changed = False
    for item in reversed(state.post_order()):
        if item in state.instrs:
            values = list(state.values(state.instrs[item]))
        else:
            # An array constant is never a parent, and a node that was merged is gone.
            values = [Value(item)] if state.graph[item].op == "input" else []
        for value in values:
            if rules.worth_sharing(state.graph, value):
                changed |= _fuse_siblings(state, value, rules.siblings)
        if item in state.instrs:
            changed |= _fuse_into_user(state, state.instrs[item], rules.producers)
    return changed


def _fuse_siblings(state: XlaState, parent: Value, rules: XlaRules) -> bool:
    """Fuse readers of one value with each other."""
    found = [state.instrs[i] for i in sorted(state.readers.get(parent, ()))]
    siblings = sorted(found, key=_preference)
    changed, k = False, 0
    while k < len(siblings):
        first = siblings[k]
        k += 1
        if not first.is_fusion or first.kind not in (LOOP, INPUT):
            continue
        for second in siblings[k:]:
            if second.kind == LIBRARY:
                continue
            refusal = first_refusal(rules, state, first, second)
            reason = f"both read %{parent.node}"
            state.note(SIBLINGS, second, first, refusal, ("siblings", reason))
            if refusal is None:
                state.take_over(second, first)
                siblings.remove(second)
                changed = True
    return changed


def _preference(instr: Instr) -> int:
    """Multi-output fusions first, then fusions, then ops."""
    return 0 if instr.is_fusion and instr.multi_output else 1 if instr.is_fusion else 2


# producer and consumer


def transposes(state: XlaState, producer: Instr, consumer: Instr) -> str | None:
    moved = contains(state, producer, lambda f: f.transposes)
    return None if moved is None else f"the producer transposes (%{moved})"


def cycle(state: XlaState, producer: Instr, consumer: Instr) -> str | None:
    for other in state.producers(consumer):
        if other is not producer and state.reaches(producer, other):
            return f"%{other.id} lies between them"
    return None


def pair_budget(state: XlaState, producer: Instr, consumer: Instr) -> str | None:
    return sibling_budget(state, consumer, producer)


PRODUCER_RULES: XlaRules = (
    ("multi-output-producer", multi_output_producer),
    ("not-loop-fusible", not_loop_fusible),
    ("transpose", transposes),
    ("nested-loop", nested_loop),
    ("not-a-root", not_a_root),
    ("shapes", incompatible_shapes),
    ("budget", pair_budget),
    ("code-duplication", inefficient_emitter),
    ("dependence", cycle),
)

RULES_2022 = MultiOutput(SIBLING_RULES, PRODUCER_RULES)


def _fuse_into_user(state: XlaState, producer: Instr, rules: XlaRules) -> bool:
    """Merge `producer` into one of its users, keeping its output."""
    users = [u for u in state.users(producer) if u.kind != LIBRARY]
    alone = state.user_count(producer) == 1
    if producer.kind == LIBRARY or (alone and not any(_is_multi(u) for u in users)):
        return False
    for consumer in sorted(users, key=_preference):
        refusal = first_refusal(rules, state, producer, consumer)
        fused = "producer-consumer", "both outputs are kept"
        state.note(PRODUCERS, producer, consumer, refusal, fused)
        if refusal is None:
            state.take_over(producer, consumer)
            return True
    return False


def _is_multi(instr: Instr) -> bool:
    return instr.is_fusion and instr.multi_output
