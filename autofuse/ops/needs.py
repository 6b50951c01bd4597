"""How many different operand elements a call needs at least: rules for rows of the op table.

A rule gets the call and `made` > 0, how many different elements of an output are made (of several
outputs the most), and answers for each operand. Answers are lower bounds: whichever elements are
made, no fewer different operand elements determine them.
"""

from __future__ import annotations

from collections.abc import Callable

from autofuse.ops.types import OpCall

Needed = Callable[[OpCall, int], tuple[int, ...]]


def nothing(call: OpCall, made: int) -> tuple[int, ...]:
    """Nothing is certain."""
    return (0,) * len(call.ins)


def any_one(call: OpCall, made: int) -> tuple[int, ...]:
    """Every result may be the same operand element."""
    return tuple(min(1, t.size) for t in call.ins)


def each(call: OpCall, made: int) -> tuple[int, ...]:
    """Every result needs an element of its own."""
    return (made,) * len(call.ins)


def share(call: OpCall, made: int) -> tuple[int, ...]:
    """All operand elements are used equally often, so a part of the results needs that part."""
    whole = max(1, call.out.size)
    return tuple(-(-t.size * min(made, whole) // whole) for t in call.ins)


def everything(call: OpCall, made: int) -> tuple[int, ...]:
    """Every result depends on all operand elements."""
    return tuple(t.size for t in call.ins)
