"""HorizontalLoopFusion and HorizontalInputFusion: independent small kernels side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from autofuse.baselines.xla.multi_output import hero, incompatible_shapes
from autofuse.baselines.xla.predicates import (
    XlaRules,
    first_refusal,
    is_input_fusible,
    root_facts,
    sibling_budget,
)
from autofuse.baselines.xla.state import HORIZONTAL, LOOP, OP, Instr, XlaState

LOOPS = "horizontal-loop"
PARAMETER = "parameter"
INPUTS = "horizontal-input"
MAX_ELEMENTS = 128 * 2048
MAX_INSTRUCTIONS = 30
MAX_MEMBERS = 32
MAX_ARGUMENT_BYTES = 4000
POINTER_BYTES = 8


def instruction_count(state: XlaState, instr: Instr) -> int:
    """Instructions of a fused computation, parameters and scalar constants included."""
    if not instr.is_fusion:
        return 1
    scalars = {
        n for m in instr.nodes for n in state.fact(m).raw_operands
        if state.facts[n] is None and state.graph[n].types[0].size == 1
        and state.graph[n].op == "constant"
    }  # fmt: skip
    return len(instr.nodes) + len(instr.operands) + len(scalars)


def _candidates(state: XlaState, consumer: Instr | None) -> list[Instr]:
    """Distinct producers whose only user, besides the graph's result, is `consumer` (None: the
    result itself)."""
    if consumer is None:
        owners = dict.fromkeys(
            state.owner[v.node] for v in state.graph.outputs if v.node in state.owner
        )
        found = [state.instrs[i] for i in owners]
    else:
        found = state.producers(consumer)
    return [p for p in found if all(u is consumer for u in state.users(p))]


# loops


def too_many_elements(state: XlaState, instr: Instr, _: Instr) -> str | None:
    size = max(f.size for f in root_facts(state, instr))
    return f"{size} elements (limit {MAX_ELEMENTS})" if size > MAX_ELEMENTS else None


def too_many_instructions(state: XlaState, instr: Instr, _: Instr) -> str | None:
    count = instruction_count(state, instr)
    return f"{count} instructions (limit {MAX_INSTRUCTIONS})" if count > MAX_INSTRUCTIONS else None


def several_dtypes(state: XlaState, instr: Instr, _: Instr) -> str | None:
    if len({f.dtype for f in root_facts(state, instr)}) == 1:
        return None
    return "its outputs have several element types"


# About one member, which stands in the consumer's place, too.
MEMBER: XlaRules = (
    ("elements", too_many_elements),
    ("instructions", too_many_instructions),
    ("dtypes", several_dtypes),
)


def _is_loop(state: XlaState, instr: Instr) -> bool:
    return instr.kind == LOOP or (instr.kind == OP and state.fact(instr.id).elementwise)


def _shares_parameter(state: XlaState, instr: Instr, members: Iterable[int]) -> bool:
    others = set(members) - {instr.id}
    return any(
        not others.isdisjoint(state.readers[v])
        for v in instr.operands
        if state.graph[v.node].op == "input"
    )


def _sharing(state: XlaState, producer: Instr, ids: list[int]) -> tuple[str, str] | None:
    shares = PARAMETER not in state.off and _shares_parameter(state, producer, ids)
    return (PARAMETER, "shares an input with another") if shares else None


def horizontal_loop_fusion(state: XlaState) -> bool:
    """One run over the entry computation, users first; True when something fused."""
    changed = False
    for consumer in _consumers(state, users_first=True):
        loops = [p for p in _candidates(state, consumer) if _is_loop(state, p)]
        small = [p for p in loops if _note_member(state, p, consumer, _unfit(state, p))]
        ids = [p.id for p in small]
        free = [p for p in small if _note_member(state, p, consumer, _sharing(state, p, ids))]
        free.sort(key=lambda p: _alike(state, p))
        for run in _runs(state, free):
            changed |= _fuse_run(state, run)
    return changed


def _unfit(state: XlaState, instr: Instr) -> tuple[str, str] | None:
    return first_refusal(MEMBER, state, instr, instr)


def _note_member(
    state: XlaState, instr: Instr, consumer: Instr | None, refusal: tuple[str, str] | None
) -> bool:
    if refusal is not None:
        state.note(LOOPS, instr, consumer or instr, refusal, ("", ""))
    return refusal is None


def _alike(state: XlaState, instr: Instr) -> tuple[str, int, int]:
    """Members of one kernel agree in this."""
    dtype = root_facts(state, instr)[0].dtype
    return str(dtype), len(instr.roots), instruction_count(state, instr)


def _runs(state: XlaState, members: list[Instr]) -> list[list[Instr]]:
    """Neighbours that are alike, cut at the member and kernel-argument limits."""
    runs: list[list[Instr]] = []
    spent = 0
    for member in members:
        cost = POINTER_BYTES * (len(member.operands) + len(member.roots))
        joins = (
            bool(runs)
            and _alike(state, runs[-1][0]) == _alike(state, member)
            and len(runs[-1]) < MAX_MEMBERS
            and spent + cost < MAX_ARGUMENT_BYTES
        )
        if joins:
            runs[-1].append(member)
            spent += cost
        else:
            runs.append([member])
            spent = cost
    return runs


def _fuse_run(state: XlaState, run: list[Instr]) -> bool:
    first = run[0]
    for other in run[1:]:
        reason = f"{len(run)} independent loops in one kernel"
        state.note(LOOPS, other, first, None, ("side-by-side", reason))
        state.take_over(other, first)
        first.kind = HORIZONTAL
    return len(run) > 1


# reductions

JOIN: XlaRules = (("shapes", incompatible_shapes), ("budget", sibling_budget))


def horizontal_input_fusion(state: XlaState) -> bool:
    """One run, definitions first; True when something fused."""
    changed = False
    for consumer in _consumers(state, users_first=False):
        found = [p for p in _candidates(state, consumer) if is_input_fusible(state, p)]
        key: Callable[[Instr], tuple[tuple[int, ...], int]] = lambda p: (  # noqa: E731 - its type stands beside it
            hero(state, p).loop_shape,
            instruction_count(state, p),
        )
        found.sort(key=key)
        anchor: Instr | None = None
        for member in found:
            if anchor is None:
                anchor = member
                continue
            changed |= _join(state, anchor, member)
            if member.id in state.instrs:
                anchor = member
    return changed


def _join(state: XlaState, anchor: Instr, member: Instr) -> bool:
    refusal = first_refusal(JOIN, state, anchor, member)
    state.note(INPUTS, member, anchor, refusal, ("side-by-side", "reductions of equal shape"))
    if refusal is not None:
        return False
    state.take_over(member, anchor)
    return True


def _consumers(state: XlaState, users_first: bool) -> Iterable[Instr | None]:
    """Every instruction still there when its turn comes, and the graph's result (None)."""
    order = state.post_order()
    if users_first:
        yield None
        order.reverse()
    for item in order:
        if item in state.instrs:
            yield state.instrs[item]
    if not users_first:
        yield None
