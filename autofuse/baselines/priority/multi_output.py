"""MultiOutputFusion of XLA:GPU of 2026: other shape rules than in 2022, and a profit test."""

from __future__ import annotations

from typing import cast

from autofuse.baselines.priority.model import LAUNCH, TICKS_PER_NS
from autofuse.baselines.priority.rules import emitted_size
from autofuse.baselines.priority.state import REDUCTIONS, PriorityState
from autofuse.baselines.xla.multi_output import (
    MultiOutput,
    connected,
    cycle,
    pair_budget,
    transposes,
    unused,
)
from autofuse.baselines.xla.predicates import (
    multi_output_producer,
    not_loop_fusible,
    sibling_budget,
)
from autofuse.baselines.xla.shapes import Fact
from autofuse.baselines.xla.state import LOOP, OP, Instr, XlaState
from autofuse.graph.types import Graph, Value

SMALL_PARENT_BYTES = 1024


def _hero(state: XlaState, instr: Instr) -> Fact:
    """The op that decides the iteration space."""
    hero = cast(PriorityState, state).kernel(instr).emitter.hero
    return state.fact(hero if hero >= 0 else min(instr.roots))


def _kind(state: XlaState, instr: Instr) -> str:
    return cast(PriorityState, state).kernel(instr).emitter.kind


def not_a_root(state: XlaState, first: Instr, second: Instr) -> str | None:
    """The second must be something a kernel of several outputs can be rooted in."""
    loop = second.kind == LOOP or (second.kind == OP and state.fact(second.id).elementwise)
    if loop or _kind(state, second) != "loop":
        return None
    return f"%{second.id} is not elementwise, a loop fusion, a reduction or a tiled transposition"


def variadic(state: XlaState, first: Instr, second: Instr) -> str | None:
    """A reduction of several values at once joins nobody."""
    for instr in (first, second):
        if any(state.fact(r).op in ("argmax", "argmin") for r in instr.roots):
            return f"%{instr.id} is a reduction with several results"
    return None


def incompatible_shapes(state: XlaState, first: Instr, second: Instr) -> str | None:
    a, b = _hero(state, first), _hero(state, second)
    kinds = _kind(state, first), _kind(state, second)
    reductions = [k in REDUCTIONS for k in kinds]
    if "transpose" in kinds and any(reductions):
        return "a transposition and a reduction do not share a kernel"
    if all(reductions) and (a.axes != b.axes or a.loop_shape != b.loop_shape):
        return f"reductions over axes {list(a.axes)} and {list(b.axes)} differ"
    sizes = [_loop_size(state, f, k) for f, k in zip((a, b), kinds, strict=True)]
    if sizes[0] != sizes[1]:
        return f"iteration spaces of {sizes[0]} and {sizes[1]} elements differ"
    return None


def _loop_size(state: XlaState, fact: Fact, kind: str) -> int:
    """Elements looped over; arrays of equal size are row-major views of each other."""
    if kind == "loop":
        return fact.size
    return state.graph.type_of(state.graph[fact.node].inputs[0]).size


def disjoint_slices(state: XlaState, first: Instr, second: Instr) -> str | None:
    """Siblings that read different parts of a large array share nothing."""
    for parent in first.operands:
        if parent not in second.operands:
            continue
        if state.graph.type_of(parent).nbytes < SMALL_PARENT_BYTES:
            return None
        a, b = _only_slice(state, first, parent), _only_slice(state, second, parent)
        if a is None or b is None or _overlap(state.graph, a, b):
            return None
    return "they read different parts of what they share"


def _only_slice(state: XlaState, instr: Instr, parent: Value) -> int | None:
    """The one op of `instr` that reads `parent`, if it is a slice."""
    readers = [u for u in state.graph.users[parent.node] if u in instr.nodes]
    found = [u for u in readers if parent in state.graph[u].inputs]
    return found[0] if len(found) == 1 and state.graph[found[0]].op == "slice" else None


def _overlap(graph: Graph, a: int, b: int) -> bool:
    one, two = graph.call(a), graph.call(b)
    ranges = zip(one["start"], one["stop"], two["start"], two["stop"], strict=True)
    return all(s < other_stop and other < stop for s, stop, other, other_stop in ranges)


def slower(state: XlaState, producer: Instr, consumer: Instr) -> str | None:
    """One launch and one kernel that also writes the producer, against two of each."""
    priced = cast(PriorityState, state)
    first = priced.kernel(producer)
    apart = 2 * LAUNCH + first.time + priced.kernel(consumer).time
    fused = LAUNCH + priced.joined(producer, consumer).time() + first.write
    if fused <= apart:
        return None
    us = 1000 * TICKS_PER_NS
    return f"{fused / us:.3f} us in one kernel against {apart / us:.3f} us in two"


def _worth_sharing(graph: Graph, parent: Value) -> bool:
    """Siblings come together over arrays, not over single numbers."""
    return graph.type_of(parent).size > 1


RULES_2026 = MultiOutput(
    siblings=(
        ("not-a-root", not_a_root),
        ("no-users", unused),
        ("variadic", variadic),
        ("dependence", connected),
        ("shapes", incompatible_shapes),
        ("disjoint-slices", disjoint_slices),
        ("budget", sibling_budget),
    ),
    producers=(
        ("multi-output-producer", multi_output_producer),
        ("not-loop-fusible", not_loop_fusible),
        ("transpose", transposes),
        ("not-a-root", not_a_root),
        ("shapes", incompatible_shapes),
        ("dependence", cycle),
        ("budget", pair_budget),
        ("code-size", emitted_size),
        ("cost-model", slower),
    ),
    worth_sharing=_worth_sharing,
)
