"""What an iteration computes of the states it was given, although the one before computed it of
the states that it left."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from autofuse.graph.types import Graph, Value
from autofuse.ops.spec import Family
from autofuse.ops.types import TensorType
from autofuse.simplify.draft import Draft
from autofuse.simplify.loops import (
    LoopParts,
    Rebuilt,
    outputs_of,
    parts_of_loop,
    reached,
    rebuilt,
    same_reads,
)
from autofuse.simplify.rules import Replacement, rule
from autofuse.simplify.successors import Successors

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
    for now, later in _pairs(loop.body, loop.carries, loop.counted):
        begun = _begun(draft, loop, now)
        if begun is not None:
            states, rows = range(loop.carries), range(len(loop.rows))
            new = Rebuilt(states, rows, same_reads(loop), more_states=[(begun, [now], later)])
            return outputs_of(draft, at, rebuilt(draft, loop, new), new, {})
    return None


@lru_cache(maxsize=64)
def _pairs(body: Graph, carries: int, counted: bool) -> tuple[tuple[Value, Value], ...]:
    """Values worth carrying and what they are in the next iteration, those nearest to the results
    first. (A loop is shown to its rules again whenever something before it changed.)"""
    states = tuple(Value(i) for i in body.inputs[1 : 1 + carries])
    largest, places = _most(body, states, counted)
    successors, number = Successors(body, carries), 1 << body.inputs[0]
    needed, varying = successors.needed, sum(1 << v.node for v in states)
    alike: dict[object, list[int]] = {}
    found: list[tuple[Value, Value]] = []

    def is_carried(i: int) -> bool:
        follows = needed[i] & varying and not needed[i] & number
        fits = _fits(body[i].types, largest, places)
        return bool(fits and follows and _is_worth(body, needed[i], Value(i)))

    for i in reversed(range(len(body.nodes))):
        node, now = body[i], Value(i)
        later = alike.setdefault((node.op, node.attrs, node.types), [])
        if later and is_carried(i):
            others = map(Value, reversed(later))
            found += ((now, other) for other in others if successors.is_next(other, now))
        later.append(i)
    return tuple(found)


def _most(body: Graph, states: Sequence[Value], counted: bool) -> tuple[int, tuple[int, ...]]:
    """Elements that a new state may have, and the axes that it must begin with."""
    kinds = [body.type_of(v) for v in states]
    return max((k.size for k in kinds), default=0), () if counted else kinds[0].shape


def _fits(kinds: tuple[TensorType, ...], largest: int, places: tuple[int, ...]) -> bool:
    small = len(kinds) == 1 and kinds[0].size <= largest
    return small and kinds[0].shape[: len(places)] == places


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
