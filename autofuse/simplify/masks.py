"""Selects: those that are decided, and those whose condition is an interval of one axis."""

from __future__ import annotations

from itertools import accumulate

from autofuse.graph.types import Value
from autofuse.simplify.cuts import fill
from autofuse.simplify.draft import Draft
from autofuse.simplify.patterns import Identity, holes, ops, rewrite
from autofuse.simplify.rules import Replacement, rule
from autofuse.simplify.written import interval

c, x, y, z, w = holes("c x y z w")
select, not_, both, either = ops("select not and or")

rewrite(
    "masks", "decided-select", "XLA AlgebraicSimplifier HandleSelect; LLVM InstSimplify",
    "select(true, x, y) -> x; select(c, x, x) -> x; select(not c, x, y) -> select(c, y, x).",
    Identity(select(c, x, x), x),
    Identity(select(True, x, y), x),
    Identity(select(False, x, y), y),
    Identity(select(not_(c), x, y), select(c, y, x)),
)  # fmt: skip
rewrite(
    "masks", "select-of-bools",
    "XLA AlgebraicSimplifier select(a, true, false); LLVM InstCombine",
    "select(c, true, false) -> c, select(c, x, false) -> c and x, select(c, true, x) -> c or x.",
    Identity(select(c, True, False), c),
    Identity(select(c, False, True), not_(c)),
    # Two arrays of one value, which nobody may have found equal yet.
    Identity(select(c, True, True), True),
    Identity(select(c, False, False), False),
    Identity(select(c, x, False), both(c, x)),
    Identity(select(c, True, x), either(c, x)),
)  # fmt: skip
rewrite(
    "masks", "select-of-select", "LLVM InstCombine foldSelectOfSelects; Inductor",
    "select(c, select(c, x, y), z) -> select(c, x, z), and likewise where c does not hold.",
    Identity(select(c, select(c, x, y), select(c, z, w)), select(c, x, w)),
    Identity(select(c, select(c, x, y), z), select(c, x, z)),
    Identity(select(c, x, select(c, y, z)), select(c, x, z)),
)  # fmt: skip


def _run(draft: Draft, mask: Value, holds: bool = True) -> tuple[int, int, int] | None:
    """(axis, from, to) of a mask that is `holds` in one run of positions of one axis only."""
    array = draft.known(mask)
    varying = [] if array is None else [a for a, n in enumerate(array.shape) if n > 1]
    if array is None or len(varying) != 1:
        return None
    found = interval(array.reshape(-1) == holds)
    return None if found is None else (varying[0], *found)


@rule("select-as-concat", "XLA AlgebraicSimplifier select(iota < C) => concatenate / "
      "dynamic-update-slice", "select")  # fmt: skip
def select_as_concat(draft: Draft, at: int) -> Replacement:
    """A select between runs of positions along one axis -> the parts end to end. Along the axis
    whose elements are neighbours a select is the cheaper one, unless no part has to be cut out:
    parts begin anywhere, and lanes read them element by element."""
    condition, yes, no = draft[at].inputs
    inside = _run(draft, condition) is not None
    run = _run(draft, condition, inside)
    if run is None:
        return None
    axis, low, high = run
    last = draft.shape(yes)[axis]
    inner, outer = (yes, no) if inside else (no, yes)
    parts = [(outer, 0, low), (inner, low, high), (outer, high, last)]
    reached = [part for part in parts if part[1] < part[2]]
    if _neighbours(draft, yes, axis) and not all(_comes_free(draft, axis, *p) for p in reached):
        return None
    return draft.concat([draft.cut(v, axis, *where) for v, *where in reached], axis)


def _neighbours(draft: Draft, value: Value, axis: int) -> bool:
    """Whether elements along an axis lie side by side in a row-major array."""
    return all(n == 1 for n in draft.shape(value)[axis + 1 :])


def _comes_free(draft: Draft, axis: int, value: Value, low: int, high: int) -> bool:
    """Whether a part of `value` is a whole array, or one element repeated."""
    if fill(draft, value) is not None:
        return True
    if draft.is_op(value, "broadcast"):
        return axis not in draft.attr(value, "dims")
    if draft.is_op(value, "pad"):
        start = draft.attr(value, "low")[axis]
        end = start + draft.shape(draft.operand(value))[axis]
        return bool(high <= start or low >= end or low <= start <= end <= high)
    if draft.is_op(value, "concat") and draft.attr(value, "axis") == axis:
        extents = (draft.shape(part)[axis] for part in draft[value.node].inputs)
        return {low, high} <= set(accumulate(extents, initial=0))
    return (low, high) == (0, draft.shape(value)[axis])


@rule("select-of-two-masks", "LLVM InstCombine select(and(a, b), x, y)", "select")
def select_of_two_masks(draft: Draft, at: int) -> Replacement:
    """select(m and c, x, y) -> select(m, select(c, x, y), y) where m is a run of positions of an
    outer axis, so that the rest is only chosen within the run."""
    condition, yes, no = draft[at].inputs
    if not draft.is_op(condition, "and"):
        return None
    pair = draft[condition.node].inputs
    for mask, rest in (pair, pair[::-1]):
        run = _run(draft, mask)
        if run is not None and not _neighbours(draft, yes, run[0]):
            return draft.add("select", mask, draft.add("select", rest, yes, no), no)
    return None
