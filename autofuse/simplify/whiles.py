"""Loops that end by what they compute, and branches, which are such loops of one iteration."""

from __future__ import annotations

from autofuse.graph.types import Graph, Value
from autofuse.ops.spec import Family
from autofuse.simplify.draft import Draft
from autofuse.simplify.loops import copied, parts_of_loop
from autofuse.simplify.rules import Replacement, rule

# Operations for each element of the results up to which computing a branch in vain costs no more
# than moving its results; and operations that take no longer than launching a kernel.
CHEAP_FLOPS, FEW_FLOPS = 8.0, float(1 << 14)
_PURE = (Family.SOURCE, Family.ELEMENTWISE, Family.MOVEMENT)


@rule("never-begun", "XLA WhileLoopSimplifier / ConditionalSimplifier", "while")
def never_begun(draft: Draft, at: int) -> Replacement:
    """A loop whose flag is false from the start leaves its states as they are."""
    loop = parts_of_loop(draft, at)
    go = draft.uniform(loop.init[0])
    return loop.init if go is not None and not go else None


@rule("branch-taken", "XLA ConditionalSimplifier; LLVM SimplifyCFG", "while")
def branch_taken(draft: Draft, at: int) -> Replacement:
    """A loop of one iteration whose flag is true is its body."""
    loop = parts_of_loop(draft, at)
    go = draft.uniform(loop.init[0])
    return _once(draft, at) if loop.trip == 1 and go is not None and go else None


@rule("branch-as-select", "XLA ConditionalToSelect; LLVM SimplifyCFG (speculate)", "while")
def branch_as_select(draft: Draft, at: int) -> Replacement:
    """A branch of cheap elementwise work is computed in any case and selected: it fuses with what
    is around it, and nothing waits for the flag. Cheap are CHEAP_FLOPS for each element of its
    results, or FEW_FLOPS in all."""
    loop = parts_of_loop(draft, at)
    if loop.trip != 1 or not _is_cheap(loop.body):
        return None
    go, *states = loop.init
    again, *news = _once(draft, at)
    first = draft.add("and", go, again)
    return (first, *(_chosen(draft, go, a, b) for a, b in zip(news, states, strict=True)))


def _once(draft: Draft, at: int) -> tuple[Value, ...]:
    """The results of one iteration."""
    loop = parts_of_loop(draft, at)
    places = {loop.body.inputs[0]: draft.full(0, loop.body.input_types[0])}
    places |= dict(zip(loop.body.inputs[1:], (*loop.init, *loop.invariants), strict=True))
    results = copied(draft, loop.body, places, range(len(loop.body.nodes)))
    return tuple(results[v] for v in loop.body.outputs)


def _chosen(draft: Draft, go: Value, yes: Value, no: Value) -> Value:
    if draft.is_op(go, "not"):
        go, yes, no = draft.operand(go), no, yes
    mask = draft.spread(go, draft.shape(yes), range(len(draft.shape(go))))
    return draft.add("select", mask, yes, no)


def _is_cheap(body: Graph) -> bool:
    if any(node.spec.family not in _PURE for node in body.nodes):
        return False
    flops = sum(node.spec.flops(body.call(i)) for i, node in enumerate(body.nodes))
    made = max(t.size for t in body.output_types)
    return flops <= max(FEW_FLOPS, CHEAP_FLOPS * made)
