"""Comparisons that are decided, and limits that limit nothing."""

from __future__ import annotations

import numpy as np

from autofuse.graph.types import Value
from autofuse.ops.algebra import ALGEBRA
from autofuse.ops.dtypes import DType
from autofuse.ops.spec import OpSpec
from autofuse.ops.types import OpCall, TensorType
from autofuse.simplify.arithmetic import truth
from autofuse.simplify.draft import Draft
from autofuse.simplify.facts import bounds, bounds_of, is_float, is_whole
from autofuse.simplify.patterns import Applied, Identity, holes, ops, rewrite, same_op
from autofuse.simplify.rules import Replacement, rule


def _compares(spec: OpSpec) -> bool:
    return spec.algebra.on_equals is not None


def _always(spec: OpSpec) -> bool:
    """Whether a comparison of whole numbers with themselves is true."""
    return spec.algebra.on_equals is True


def _never(spec: OpSpec) -> bool:
    """Whether a comparison with itself is false, of NaN too."""
    return spec.algebra.on_equals is False and spec.name != "ne"


x, y = holes("x y")
ne, eq, le, ge, isnan, not_, both = ops("ne eq le ge isnan not and")

rewrite(
    "comparisons", "compared-with-itself",
    "XLA AlgebraicSimplifier eq(A, A), lt(A, A); LLVM InstSimplify",
    "Of whole numbers what the op says; x != x of floats -> isnan(x); x < x is never true.",
    Identity(ne(x.where(is_float), x), isnan(x)),
    Identity(ne(x.where(is_whole), x), False),
    Identity(same_op(x, x), False, of=_never),
    Identity(same_op(x.where(is_whole), x), True, of=_always),
    Identity(same_op(x.where(is_float), x), not_(isnan(x)), of=_always),
)  # fmt: skip
rewrite(
    "comparisons", "opposite-comparison", "XLA AlgebraicSimplifier not(Compare); LLVM InstCombine",
    "not(x < y) -> x >= y, where x is no float: with NaN both are false. != and == always.",
    *(
        Identity(
            not_(Applied(op, (x if algebra.exact_floats else x.where(is_whole), y))),
            Applied(algebra.opposite, (x, y)),
        )
        for op, algebra in ALGEBRA.items()
        if algebra.opposite
    ),
)  # fmt: skip


@rule("decided-comparison", "LLVM ConstantRange / CorrelatedValuePropagation", _compares)
def decided_comparison(draft: Draft, at: int) -> Replacement:
    """A comparison of whole numbers that their bounds decide."""
    node = draft[at]
    left, right = (bounds(draft, v) for v in node.inputs)
    if left is None or right is None:
        return None
    verdicts = {
        "lt": (left[1] < right[0], left[0] >= right[1]),
        "le": (left[1] <= right[0], left[0] > right[1]),
        "gt": (left[0] > right[1], left[1] <= right[0]),
        "ge": (left[0] >= right[1], left[1] < right[0]),
        "eq": (left == right and left[0] == left[1], left[1] < right[0] or left[0] > right[1]),
        "ne": (left[1] < right[0] or left[0] > right[1], left == right and left[0] == left[1]),
    }
    always, never = verdicts.get(node.op, (False, False))
    return truth(draft, always, node.types[0]) if always or never else None


@rule(
    "idle-limit", "XLA AlgebraicSimplifier clamp; LLVM ConstantRange", "max", "min", "clamp", "rem"
)
def idle_limit(draft: Draft, at: int) -> Replacement:
    """max, min, clamp and rem of whole numbers that are within the limits anyway -> the number, or
    the limit where they never are."""
    node = draft[at]
    spans = bounds_of(draft, node.inputs)
    if spans is None:
        return None
    x, *limits = spans
    if node.op == "clamp":
        low, high = limits
        return node.inputs[0] if low[1] <= x[0] and x[1] <= high[0] else None
    if node.op == "rem":
        return node.inputs[0] if x[0] >= 0 and x[1] < limits[0][0] else None
    return _extremum(node.inputs, (x, limits[0]), node.op == "max")


def _extremum(
    values: tuple[Value, ...], spans: tuple[tuple[int, int], tuple[int, int]], highest: bool
) -> Replacement:
    """The operand that is always the higher (or lower) one."""
    (low, high), (first, last) = spans
    if low >= last:
        return values[0 if highest else 1]
    if first >= high:
        return values[1 if highest else 0]
    return None


@rule(
    "bool-regained",
    "XLA AlgebraicSimplifier ne(convert(pred), 0); LLVM InstCombine icmp(zext(i1 A), C)",
    _compares,
)
def bool_regained(draft: Draft, at: int) -> Replacement:
    """A bool, or the number that it was made, compared with a constant: itself, its opposite, or
    known."""
    node = draft[at]
    x, number = node.inputs
    found, kind = draft.uniform(number), draft.dtype(x)
    if draft.is_op(x, "cast"):
        x = draft.operand(x)
    if found is None or draft.dtype(x) is not DType.BOOL:
        return None
    both = np.array([False, True]).astype(kind.reference)
    pair, truths = TensorType((2,), kind), TensorType((2,), DType.BOOL)
    call = OpCall(node.attrs, (pair, pair), (truths,))
    limits = np.full(2, found).astype(kind.reference)
    no, yes = node.spec.reference((both, limits), call)[0].tolist()
    if no == yes:
        return truth(draft, bool(yes), node.types[0])
    return x if yes else draft.add("not", x)


@rule(
    "shifted-comparison", "LLVM InstCombine icmp (X - Y), C and icmp (X + C1), C2 (nsw)", _compares
)
def shifted_comparison(draft: Draft, at: int) -> Replacement:
    """x - y < c -> x < y + c, and x + c < d -> x < d - c, of whole numbers that stay in range;
    x < y + 1 -> x <= y."""
    node = draft[at]
    left, right = node.inputs
    kind = draft.type_of(left)
    if not kind.dtype.is_int:
        return None
    if node.op in _CLOSED and draft.is_op(right, "add") and bounds(draft, right) is not None:
        y, one = draft[right.node].inputs
        if draft.uniform(one) == _CLOSED[node.op][1]:
            return draft.add(_CLOSED[node.op][0], left, y)
    if not draft.is_op(left, "sub", "add") or bounds(draft, left) is None:
        return None
    x, y = draft[left.node].inputs
    other = _moved_over(draft, left, right)
    if other is None or bounds(draft, other) is None:
        return None
    return draft.add(node.op, x, other)


def _moved_over(draft: Draft, left: Value, right: Value) -> Value | None:
    """c + y of x - y < c, c - y of x + y < c, where c is a number, and of the latter y too."""
    y, number = draft[left.node].inputs[1], draft.uniform(right)
    if number is None:
        return None
    if draft.is_op(left, "sub"):
        return y if number == 0 else draft.add("add", y, right)
    return draft.add("sub", right, y) if draft.uniform(y) is not None else None


# x < y + 1 is x <= y; x >= y + 1 is x > y.
_CLOSED = {"lt": ("le", 1), "ge": ("gt", 1)}


rewrite(
    "comparisons", "both-limits", "LLVM InstCombine foldAndOfICmps",
    "x >= y and x <= y -> x == y, of whole numbers.",
    Identity(both(le(x.where(is_whole), y), ge(x, y)), eq(x, y)),
)  # fmt: skip
