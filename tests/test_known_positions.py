"""Minima and maxima of positions of which a known comparison says which they are."""

from __future__ import annotations

import itertools

import pytest

from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.positions import resolved
from autofuse.ops.scalar import Call, Expr, Lit, Sym

ROW = Sym("r", DType.I64, 25)
FACTS = ("lt", "le", "gt", "ge", "eq")


def fact(fn: str, bound: int, value: bool) -> dict[Expr, Lit]:
    return {Call(fn, (ROW, ix.lit(bound)), DType.BOOL): Lit(value, DType.BOOL)}


def holds(fn: str, row: int, bound: int) -> bool:
    return {"lt": row < bound, "le": row <= bound, "gt": row > bound, "ge": row >= bound,
            "eq": row == bound}[fn]  # fmt: skip


def clamped(row: int) -> int:
    return min(max(row - 3, 0), 17)


def test_a_clamp_goes_where_a_fact_leaves_no_room_for_it() -> None:
    clamp = ix.iclamp(ix.isub(ROW, ix.lit(3)), 0, 17)
    inside = fact("ge", 3, True) | fact("lt", 21, True)
    assert resolved(clamp, {}, inside) == ix.isub(ROW, ix.lit(3))
    assert resolved(clamp, {}, fact("lt", 4, True)) == ix.lit(0)
    assert resolved(clamp, {}, fact("ge", 2, True)) == clamp
    assert resolved(clamp, {}, fact("eq", 3, True)) == clamp


@pytest.mark.parametrize("fn", FACTS)
def test_what_is_left_is_the_same_wherever_the_fact_holds(fn: str) -> None:
    clamp = ix.iclamp(ix.isub(ROW, ix.lit(3)), 0, 17)
    for bound, value in itertools.product(range(26), (True, False)):
        found = resolved(clamp, {}, fact(fn, bound, value))
        for row in range(25):
            if holds(fn, row, bound) == value:
                assert resolved(found, {ROW.name: ix.lit(row)}) == ix.lit(clamped(row))
