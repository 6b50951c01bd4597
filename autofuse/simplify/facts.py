"""What is certain of values that are not constant: bounds of whole numbers, signs of floats."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from autofuse.graph.known import Span
from autofuse.graph.types import Value
from autofuse.ops.spec import Family
from autofuse.simplify.draft import Draft

# How many ops in a row are looked through.
DEPTH = 6


def bounds(draft: Draft, value: Value, depth: int = DEPTH) -> Span | None:
    """Span (both included) of the elements of a value of whole numbers; None where unknown."""
    kind, node = draft.type_of(value), draft.node(value)
    if not kind.dtype.is_int or not kind.size or not depth:
        return None
    array = draft.known(value)
    if array is not None:
        return int(array.min()), int(array.max())
    if node.op == "input":
        counter = draft.counter_trip and draft.inputs.get(value.node) == 0
        return (0, draft.counter_trip - 1) if counter else None
    if node.op == "iota":
        return 0, kind.shape[dict(node.attrs)["axis"]] - 1
    spans = [bounds(draft, v, depth - 1) for v in _data(draft, value)]
    if node.op in _LIMITS:
        info = np.iinfo(kind.dtype.numpy)
        spans = [s or (int(info.min), int(info.max)) for s in spans]
    combine = _BOUNDS.get(node.op, _either if node.spec.family is Family.MOVEMENT else None)
    if combine is None or not spans or any(s is None for s in spans):
        return None
    low, high = combine(*(s for s in spans if s is not None))
    info = np.iinfo(kind.dtype.numpy)
    return (low, high) if info.min <= low and high <= info.max else None


# How many operands of what is picked or written at computed places are data.
_DATA = {"gather": 1, "take_along": 1, "dynamic_slice": 1, "dynamic_update_slice": 2}


def _data(draft: Draft, value: Value) -> tuple[Value, ...]:
    """The operands whose elements are found in a result or are computed with: neither conditions
    nor indices."""
    node = draft.node(value)
    if node.op == "select":
        return node.inputs[1:]
    return node.inputs[: _DATA.get(node.op, len(node.inputs))]


def _either(*spans: Span) -> Span:
    return min(s[0] for s in spans), max(s[1] for s in spans)


def _product(a: Span, b: Span) -> Span:
    ends = [x * y for x in a for y in b]
    return min(ends), max(ends)


# Their results have bounds though an operand has none.
_LIMITS = ("max", "min", "clamp")
_BOUNDS: dict[str, Callable[..., Span]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "mul": _product,
    "neg": lambda a: (-a[1], -a[0]),
    "max": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "min": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "clamp": lambda x, a, b: (min(max(x[0], a[0]), b[0]), min(max(x[1], a[1]), b[1])),
    "select": _either,
    "cast": lambda a: a,
}


def never_minus_zero(draft: Draft, value: Value, depth: int = DEPTH) -> bool:
    """Whether no element is -0.0, so that adding 0.0 changes nothing."""
    if not draft.dtype(value).is_float:
        return True
    array = draft.known(value)
    if array is not None:
        return not bool(np.any((array == 0) & np.signbit(array)))
    node = draft.node(value)
    if not depth or node.op == "input":
        return False
    if node.op in _POSITIVE or node.op == "iota":
        return True
    if node.op == "cast":
        # A small negative number may become -0.0 on its way to a narrower float.
        x = node.inputs[0]
        wider = draft.dtype(x).is_float and draft.dtype(x).eps >= draft.dtype(value).eps
        never = wider and never_minus_zero(draft, x, depth - 1)
        return never or not draft.dtype(x).is_float or non_negative(draft, x, depth - 1)
    through = _data(draft, value) if node.spec.family is Family.MOVEMENT else ()
    if node.op in ("select", "max", "min"):
        through = _data(draft, value)
    if node.op == "add":
        # A sum is -0.0 only if both terms are.
        return any(never_minus_zero(draft, v, depth - 1) for v in node.inputs)
    return bool(through) and all(never_minus_zero(draft, v, depth - 1) for v in through)


# Their results are never negative, nor -0.0; NaN is neither.
_POSITIVE = ("exp", "abs", "logistic", "cosh")


# Of what is never negative their results are not either.
_KEEPING_SIGN = (
    "sqrt", "add", "mul", "div", "select", "reduce_max", "reduce_min", "reduce_sum",
)  # fmt: skip


def non_negative(draft: Draft, value: Value, depth: int = DEPTH) -> bool:
    """Whether every element is at least +0.0 or NaN: never negative, never -0.0."""
    array = draft.known(value)
    if array is not None:
        return not bool(np.signbit(array).any() if draft.dtype(value).is_float else array.min() < 0)
    node = draft.node(value)
    if not depth or not draft.dtype(value).is_float:
        return False
    if node.op in _POSITIVE:
        return True
    if node.op == "mul" and node.inputs[0] == node.inputs[1]:
        return True
    if node.op == "cast":
        return non_negative(draft, node.inputs[0], depth - 1)
    if node.op in _KEEPING_SIGN or node.spec.family is Family.MOVEMENT:
        return all(non_negative(draft, v, depth - 1) for v in _data(draft, value))
    return False


def is_uniform(draft: Draft, value: Value) -> bool:
    """Whether a value is a constant that is the same everywhere."""
    return draft.uniform(value) is not None


def is_float(draft: Draft, value: Value) -> bool:
    return draft.dtype(value).is_float


def is_whole(draft: Draft, value: Value) -> bool:
    """Whether elements are whole numbers or bools: no NaN, nothing rounds."""
    return not draft.dtype(value).is_float


def is_signed(draft: Draft, value: Value) -> bool:
    return draft.dtype(value).is_float or draft.dtype(value).is_signed


def is_unsigned(draft: Draft, value: Value) -> bool:
    return draft.dtype(value).is_int and not draft.dtype(value).is_signed
