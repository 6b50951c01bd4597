"""What an iteration computes of the states it was given, although the one before computed it of
the states that it left."""

from __future__ import annotations

from collections.abc import Iterator

from autofuse.graph.types import Graph, Value
from autofuse.ops.spec import Family
from autofuse.ops.types import TensorType
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
    largest, places = _most(loop)
    needed, number = _needed(body), 1 << body.inputs[0]
    states = sum(1 << v.node for v in loop.states)
    alike: dict[object, list[int]] = {}
    for i in reversed(range(len(body.nodes))):
        node, now = body[i], Value(i)
        later = alike.setdefault((node.op, node.attrs, node.types), [])
        fits = _fits(node.types, largest, places)
        follows = needed[i] & states and not needed[i] & number
        if later and fits and follows and _is_worth(body, needed[i], now):
            for other in reversed(later):
                if is_alike(loop, Value(other), now):
                    yield now, Value(other)
        later.append(i)


def _most(loop: LoopParts) -> tuple[int, tuple[int, ...]]:
    """Elements that a new state may have, and the axes that it must begin with."""
    kinds = [loop.body.type_of(v) for v in loop.states]
    return max((k.size for k in kinds), default=0), () if loop.counted else kinds[0].shape


def _fits(kinds: tuple[TensorType, ...], largest: int, places: tuple[int, ...]) -> bool:
    small = len(kinds) == 1 and kinds[0].size <= largest
    return small and kinds[0].shape[: len(places)] == places


def _needed(body: Graph) -> list[int]:
    """Of each node the nodes that it depends on, itself included, as bits by their numbers."""
    found: list[int] = []
    for i, node in enumerate(body.nodes):
        bits = 1 << i
        for v in node.inputs:
            bits |= found[v.node]
        found.append(bits)
    return found


def _is_worth(body: Graph, needed: int, value: Value) -> bool:
    wanted, flops = WORTH_FLOPS * body.type_of(value).size, 0.0
    while needed and flops < wanted:
        i = needed.bit_length() - 1
        needed ^= 1 << i
        flops += body[i].spec.flops(body.call(i))
    return flops >= wanted


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
