"""How the states of a loop that the host runs take turns in buffers.

A state that an iteration computes needs a second buffer, unless it is updated in place. One that an
iteration only hands on, as a leapfrog does the step before last, stays where it is: the names of
buffers move on, never what they hold. So iterations repeat every few turns, and none copies a state
(rotating buffers, as modulo scheduling renames registers: Rau and others, PLDI 1992).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autofuse.graph.types import Graph, Value
from autofuse.plan.program.steps import Ref

# Different turns of a loop: each is a copy of the text that issues the kernels of an iteration.
MOST_TURNS = 12


@dataclass(frozen=True, slots=True)
class Ring:
    """States in `buffers` buffers: what is in `states[i]` is in `states[i + 1]` one iteration
    later."""

    states: tuple[int, ...]
    buffers: int

    def slot(self, position: int, iteration: int) -> int:
        """The buffer in which an iteration finds the state at a position."""
        return (iteration - position) % self.buffers


def known_slots(
    ring: Ring, begins: Sequence[Ref | None], homes: Sequence[Ref | None], trips: int | None
) -> dict[int, Ref]:
    """Buffers of a ring that need not be taken: where its states are at first, if that is free, and
    where they have to be after `trips` iterations (None: only data say how many)."""
    # Where nobody knows how it ends, states of one ring may have to be put in order.
    last = trips if trips is not None or len(ring.states) > 1 else 1
    first = {ring.slot(i, 0): ref for i, ref in enumerate(begins) if ref is not None}
    if last is None:
        return first
    # Rows of a stacked result do not lie on boundaries, which kernels may rely on.
    ends = ((i, ref) for i, ref in enumerate(homes) if ref is not None and not ref.stride)
    return first | {ring.slot(i, last): ref for i, ref in ends}


def turns_of(rings: Sequence[Ring]) -> int:
    """Iterations after which every state is where it was."""
    return math.lcm(*(ring.buffers for ring in rings))


def rings_of(body: Graph, carries: int, operand_of: Mapping[Value, Value]) -> tuple[Ring, ...]:
    """The rings of a loop's states, each state in one of them. `operand_of`: results of the body
    that lie where an operand does."""
    handed = _handed_on(body, carries)
    found = tuple(_ring(body, states, operand_of) for states in _chains(handed, carries))
    if turns_of(found) <= MOST_TURNS:
        return found
    return tuple(_ring(body, (k,), operand_of) for k in range(carries))


def _handed_on(body: Graph, carries: int) -> dict[int, int]:
    """For each state that an iteration hands on the state that it becomes; of several the first."""
    before = {Value(body.inputs[1 + k]): k for k in range(carries)}
    found: dict[int, int] = {}
    for k, value in enumerate(body.outputs[:carries]):
        if value in before:
            found.setdefault(before[value], k)
    return found


def _chains(handed: Mapping[int, int], carries: int) -> list[tuple[int, ...]]:
    """States in the order in which they are handed on: those that are computed first."""
    made = [k for k in range(carries) if k not in handed.values()]
    found: list[tuple[int, ...]] = []
    seen: set[int] = set()
    for first in (*made, *range(carries)):  # what is left after `made` goes round in circles
        chain: list[int] = []
        k: int | None = first
        while k is not None and k not in seen:
            chain.append(k)
            seen.add(k)
            k = handed.get(k)
        found += [tuple(chain)] if chain else []
    return found


def _ring(body: Graph, states: tuple[int, ...], operand_of: Mapping[Value, Value]) -> Ring:
    """One buffer more than there are states, unless the first one lies where the last one did."""
    value = body.outputs[states[0]]
    while value in operand_of:
        value = operand_of[value]
    in_place = value == Value(body.inputs[1 + states[-1]])
    return Ring(states, len(states) + (0 if in_place else 1))
