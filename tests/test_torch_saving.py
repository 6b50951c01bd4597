"""What a forward graph keeps for its backward graph."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autofuse.errors import AutofuseError
from autofuse.interop.torch.saving import Worth, kept

SOURCE = Worth(0, 0.0, None, (), False)


def value(nbytes: int, again_us: float | None, *operands: int, read: bool = False) -> Worth:
    return Worth(nbytes, float(nbytes), again_us, operands, read)


def test_what_is_cheap_to_compute_again_is_not_kept() -> None:
    values = [SOURCE, value(10, 500.0, 0), value(100, 1.0, 1, read=True)]
    assert kept(values, None) == (1,)
    assert kept([SOURCE, value(100, 1.0, 0, read=True)], None) == (0,)


def test_memory_is_paid_for_with_time() -> None:
    values = [SOURCE, value(100, 150.0, 0, read=True), value(100, 300.0, 0, read=True)]
    assert kept(values, None) == (1, 2)
    assert kept(values, 150) == (0, 2)
    assert kept(values, 99) == (0,)


def test_what_is_computed_ahead_to_be_kept_costs_that_too() -> None:
    values = [SOURCE, value(10, 500.0, 0, read=True), value(10, 20.0, 1, read=True)]
    assert kept(values, None) == (1, 2)
    values[2] = replace(values[2], is_forward=False)
    assert kept(values, None) == (1,)


def test_what_cannot_be_had_is_said() -> None:
    values = [SOURCE, value(100, None, 0, read=True), value(60, 1.0, 0, read=True)]
    with pytest.raises(AutofuseError, match="max_memory of 99 bytes is too little: 100 bytes"):
        kept(values, 99)
    lost = Worth(0, None, None, (), True)
    with pytest.raises(AutofuseError, match="neither be kept nor computed again"):
        kept([lost], None)


@st.composite
def programs(draw: st.DrawFn) -> list[Worth]:
    values = [SOURCE]
    for i in range(1, draw(st.integers(2, 7))):
        operands = tuple(draw(st.sets(st.integers(0, i - 1), min_size=1, max_size=2)))
        nbytes, again = draw(st.integers(1, 9)), draw(st.none() | st.integers(0, 9))
        made = value(nbytes, again, *operands, read=draw(st.booleans()))
        late = draw(st.booleans()) or not all(values[k].is_forward for k in operands)
        values.append(replace(made, is_forward=not late))
    return values


def late_before(values: list[Worth], last: int) -> set[int]:
    """What is computed in the forward graph for a value, and only for it."""
    if values[last].is_forward:
        return set()
    return {last}.union(*(late_before(values, i) for i in values[last].operands))


def cost_of(values: list[Worth], chosen: set[int]) -> float | None:
    """Microseconds where these are kept; None where something that is needed cannot be had."""
    total = sum(values[i].keep_us or 0.0 for i in chosen)
    ahead = set[int]().union(*(late_before(values, i) for i in chosen))
    total += sum(values[i].again_us or 0.0 for i in ahead)
    again: set[int] = set()
    stack = [i for i, v in enumerate(values) if v.is_read]
    while stack:
        i = stack.pop()
        if i not in chosen and i not in again:
            if values[i].again_us is None:
                return None
            again.add(i)
            total += values[i].again_us or 0.0
            stack += values[i].operands
    return total


@given(programs(), st.none() | st.integers(0, 30))
def test_no_other_choice_is_better(values: list[Worth], limit: int | None) -> None:
    def fits(chosen: set[int]) -> bool:
        return limit is None or sum(values[i].nbytes for i in chosen) <= limit

    choices = [set(c) for n in range(len(values) + 1) for c in combinations(range(len(values)), n)]
    costs = [c for chosen in choices if fits(chosen) and (c := cost_of(values, chosen)) is not None]
    if not costs:
        with pytest.raises(AutofuseError):
            kept(values, limit)
        return
    found = set(kept(values, limit))
    assert fits(found)
    assert cost_of(values, found) == pytest.approx(min(costs), abs=0.01)
