"""What an iteration computes of the states it was given, although the one before computed it of
the states that it left."""

from __future__ import annotations

from collections.abc import Iterator

from autofuse.graph.types import Graph, Value
from autofuse.ops.spec import Family
from autofuse.simplify.draft import Draft
from autofuse.simplify.loops import (
    LoopParts,
    Rebuilt,
    is_alike,
    outputs_of,
    parts_of_loop,
    reached,
    rebuilt,
    same_reads,
)
from autofuse.simplify.rules import Replacement, rule

# Operations for each element from which on a value is carried rather than computed again.
WORTH_FLOPS = 8.0
# Bodies larger than this are left alone: they are compared node by node.
_MOST_NODES = 500


@rule("recurring-value", "GCC -fpredictive-commoning; LLVM GVN (PRE across the back edge)",
      "loop", "while")  # fmt: skip
def recurring_value(draft: Draft, at: int) -> Replacement:
    """f(state) in a body that has f(new state), too, where f(initial state) is there already -> a
    state of its own, so that f is computed once an iteration."""
    loop = parts_of_loop(draft, at)
    if len(loop.body.nodes) > _MOST_NODES:
        return None
    for now, later in _pairs(loop):
        begun = _begun(draft, loop, now)
        if begun is not None:
            states, rows = range(loop.carries), range(len(loop.rows))
            new = Rebuilt(states, rows, same_reads(loop), more_states=[(begun, [now], later)])
            return outputs_of(draft, at, rebuilt(draft, loop, new), new, {})
    return None


def _pairs(loop: LoopParts) -> Iterator[tuple[Value, Value]]:
    """Values worth carrying and what they are in the next iteration, those nearest to the results
    first."""
    body = loop.body
    states = {v.node for v in loop.states}
    largest = max((body.type_of(v).size for v in loop.states), default=0)
    places = body.type_of(loop.states[0]).shape if not loop.counted else ()
    for i in reversed(range(len(body.nodes))):
        node, now = body[i], Value(i)
        kind = node.types[0]
        if len(node.types) > 1 or kind.size > largest or kind.shape[: len(places)] != places:
            continue
        needed = reached(body, [now])
        if not needed & states or body.inputs[0] in needed or not _is_worth(body, needed, now):
            continue
        same = (n for n in range(i + 1, len(body.nodes)) if _looks_alike(body, n, i))
        for other in same:
            if is_alike(loop, Value(other), now):
                yield now, Value(other)


def _looks_alike(body: Graph, a: int, b: int) -> bool:
    first, second = body[a], body[b]
    return (first.op, first.attrs, first.types) == (second.op, second.attrs, second.types)


def _is_worth(body: Graph, needed: set[int], value: Value) -> bool:
    flops = sum(body[i].spec.flops(body.call(i)) for i in needed)
    return flops >= WORTH_FLOPS * body.type_of(value).size


def _begun(draft: Draft, loop: LoopParts, now: Value) -> Value | None:
    """The value before the first iteration, where the graph has it."""
    body = loop.body
    found = {v.node: init for v, init in zip(loop.states, loop.init, strict=True)}
    found |= {v.node: outer for v, outer in zip(loop.reads, loop.invariants, strict=True)}
    for i in sorted(reached(body, [now])):
        node = body[i]
        if i in found:
            continue
        if len(node.types) > 1:
            return None
        operands = tuple(found[v.node] for v in node.inputs)
        if node.spec.family is Family.SOURCE or all(map(draft.is_constant, operands)):
            found[i] = draft.add(node.op, *operands, **dict(node.attrs))
            continue
        there = draft.existing(node.op, operands, node.attrs)
        if there is None:
            return None
        found[i] = there
    return found[now.node]
