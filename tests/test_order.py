"""Orders and closures, against their definitions."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autofuse.order import closure, depths, on_circle, post_order, stable_order

Sources = list[set[int]]


@st.composite
def acyclic(draw: st.DrawFn) -> Sources:
    """What each of a few numbers reads: lower ones, under other names."""
    size = draw(st.integers(0, 6))
    names = draw(st.permutations(range(size)))
    reads: Sources = [set() for _ in range(size)]
    for i in range(size):
        reads[names[i]] = {names[j] for j in draw(st.sets(st.integers(0, max(0, i - 1)))) if j < i}
    return reads


@given(acyclic())
def test_an_order_is_the_first_of_all_valid_ones(reads: Sources) -> None:
    valid = [
        order
        for order in permutations(range(len(reads)))
        if all(order.index(b) < order.index(i) for i in order for b in reads[i])
    ]
    assert tuple(stable_order(range(len(reads)), reads.__getitem__)) == min(valid)
    high = stable_order(range(len(reads)), reads.__getitem__, key=lambda i: -i)
    assert tuple(high) == max(valid)


@given(acyclic())
def test_walks_agree_with_an_order(reads: Sources) -> None:
    near = reads.__getitem__
    everything = range(len(reads))
    assert sorted(post_order(everything, near)) == list(everything)
    for root in everything:
        needed = closure([root], near)
        assert needed == {root}.union(*(closure([b], near) for b in reads[root]))
        walk = list(post_order([root], near))
        assert set(walk) == needed and walk[-1] == root
        assert all(walk.index(b) < k for k, i in enumerate(walk) for b in reads[i])
    found = depths(stable_order(everything, near), near)
    assert all(found[i] == 1 + max((found[b] for b in reads[i]), default=-1) for i in everything)


def test_operands_are_met_in_their_order() -> None:
    reads = {"z": ["b", "a"], "b": ["c"], "a": ["c"], "c": []}
    assert list(post_order(["z"], reads.__getitem__)) == ["c", "b", "a", "z"]


def test_a_value_is_there_after_its_first_writer() -> None:
    reads, writes = {0: "x", 1: "", 2: "", 3: "y"}, {0: "", 1: "y", 2: "xy", 3: "x"}
    assert stable_order(reads, reads.__getitem__, writes.__getitem__) == [1, 2, 0, 3]
    writes[2] = ""
    assert stable_order(reads, reads.__getitem__, writes.__getitem__) == [1, 2, 3, 0]


def test_what_waits_for_itself_is_left_out_and_named() -> None:
    reads = [(2,), (), (3,), (2,)]
    assert stable_order(range(4), reads.__getitem__) == [1]
    assert on_circle([0, 2, 3], reads.__getitem__) == 2


@pytest.mark.parametrize("size", [100_000])
def test_long_chains_need_no_stack(size: int) -> None:
    def before(i: int) -> tuple[int, ...]:
        return (i - 1,) if i else ()

    assert list(post_order([size - 1], before)) == stable_order(range(size), before)
    assert len(closure([size - 1], before)) == size
