"""What is certain of values that are not constant: bounds of whole numbers, signs of floats."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from autofuse.graph.known import Span
from autofuse.graph.types import Node, Value
from autofuse.ops.dtypes import DType
from autofuse.ops.spec import Family
from autofuse.simplify.draft import Draft
from autofuse.simplify.rules import all_of

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
    if not node.inputs:
        return _counted(draft, value)
    combine = _BOUNDS.get(node.op, _either if node.spec.family is Family.MOVEMENT else None)
    spans = _operand_bounds(draft, value, depth - 1) if combine is not None else None
    if combine is None or not spans:
        return None
    return _inside(combine(*spans), _range(kind.dtype))


def bounds_of(draft: Draft, values: Iterable[Value], depth: int = DEPTH) -> list[Span] | None:
    """The bounds of each; None where those of one are unknown."""
    return all_of(bounds(draft, v, depth) for v in values)


def _counted(draft: Draft, value: Value) -> Span | None:
    """Of the iteration counter, and of positions."""
    node = draft.node(value)
    if node.op == "iota":
        return 0, draft.shape(value)[dict(node.attrs)["axis"]] - 1
    counter = draft.counter_trip and draft.inputs.get(value.node) == 0
    return (0, draft.counter_trip - 1) if counter else None


def _operand_bounds(draft: Draft, value: Value, depth: int) -> list[Span] | None:
    if draft.node(value).op not in _LIMITS:
        return bounds_of(draft, _data(draft, value), depth)
    spans = (bounds(draft, v, depth) for v in _data(draft, value))
    return [s or _range(draft.dtype(value)) for s in spans]


def _range(dtype: DType) -> Span:
    info = np.iinfo(dtype.numpy)
    return int(info.min), int(info.max)


def _inside(span: Span, limits: Span) -> Span | None:
    return span if limits[0] <= span[0] and span[1] <= limits[1] else None


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
    op = draft.node(value).op
    if not depth or op == "input":
        return False
    if op in _POSITIVE or op == "iota":
        return True
    return _keeps_minus_zero_away(draft, value, depth - 1)


def _keeps_minus_zero_away(draft: Draft, value: Value, depth: int) -> bool:
    """Whether no element is -0.0 because of what is known of the operands."""
    node = draft.node(value)
    if node.op == "cast":
        return _cast_without_minus_zero(draft, node.inputs[0], draft.dtype(value), depth)
    if node.op == "add":
        # A sum is -0.0 only if both terms are.
        return any(never_minus_zero(draft, v, depth) for v in node.inputs)
    if node.op not in _PICKING and node.spec.family is not Family.MOVEMENT:
        return False
    through = _data(draft, value)
    return bool(through) and all(never_minus_zero(draft, v, depth) for v in through)


def _cast_without_minus_zero(draft: Draft, x: Value, dtype: DType, depth: int) -> bool:
    if not draft.dtype(x).is_float:
        return True
    # A small negative number may become -0.0 on its way to a narrower float.
    wider = draft.dtype(x).eps >= dtype.eps
    return (wider and never_minus_zero(draft, x, depth)) or non_negative(draft, x, depth)


# Their results are never negative, nor -0.0; NaN is neither.
_POSITIVE = ("exp", "abs", "logistic", "cosh")
# Their results are among their operands.
_PICKING = ("select", "max", "min")


# Of what is never negative their results are not either.
_KEEPING_SIGN = (
    "sqrt", "add", "mul", "div", "select", "cast", "reduce_max", "reduce_min", "reduce_sum",
)  # fmt: skip


def non_negative(draft: Draft, value: Value, depth: int = DEPTH) -> bool:
    """Whether every element is at least +0.0 or NaN: never negative, never -0.0."""
    array = draft.known(value)
    if array is not None:
        return not bool(np.signbit(array).any() if draft.dtype(value).is_float else array.min() < 0)
    node = draft.node(value)
    if not depth or not draft.dtype(value).is_float:
        return False
    if node.op in _POSITIVE or _is_square(node):
        return True
    if node.op in _KEEPING_SIGN or node.spec.family is Family.MOVEMENT:
        return all(non_negative(draft, v, depth - 1) for v in _data(draft, value))
    return False


def _is_square(node: Node) -> bool:
    return node.op == "mul" and node.inputs[0] == node.inputs[1]


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
