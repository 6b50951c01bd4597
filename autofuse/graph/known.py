"""What is known of values while a graph is written: small constants, and bounds of integers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import repeat

import numpy as np

from autofuse.graph.types import Graph, Value
from autofuse.ops.dtypes import DType
from autofuse.ops.spec import Family, OpSpec, spec_of
from autofuse.ops.types import Attrs, GraphError, OpCall, TensorType

# Constants of at most this many elements are computed with while the graph is made.
FOLD_SIZE = 64
# Numbers that are worked out at once while a graph is made: its text may be a few bytes that ask
# for any number of them.
MOST_WORKED_OUT = 1 << 22
# Ops of all iterations of a loop that is worked out.
_MOST_ROUNDS = 1 << 14
_AROUND, _BETWEEN = ("low", "high"), ("window", "base_dilation", "lhs_dilation", "rhs_dilation")

Span = tuple[int, int]


def affordable(*extents: int) -> None:
    """Raises GraphError where an array of these extents is not worked out while a graph is made."""
    asked = math.prod(map(max, extents, repeat(0)))
    if asked > MOST_WORKED_OUT:
        raise GraphError(f"{asked} numbers would be worked out, more than {MOST_WORKED_OUT}")


def computed(spec: OpSpec, call: OpCall, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results of an op of constants, given and made in the call's own dtypes: computed in the
    reference's precision and rounded once."""
    wide = tuple(a.astype(t.dtype.reference) for a, t in zip(arrays, call.ins, strict=True))
    with np.errstate(all="ignore"):
        results = zip(spec.reference(wide, call), call.outs, strict=True)
        return [np.asarray(r).astype(t.dtype.numpy) for r, t in results]


def is_affordable(spec: OpSpec, call: OpCall) -> bool:
    """Whether an op whose operands and results are small is worked out while a graph is made: also
    its iterations are few, and what lies around windows and between their places is little."""
    if spec.family is Family.CONTROL:
        rounds, body = dict(call.attrs).get("trip"), dict(call.attrs).get("body")
        if not isinstance(rounds, int) or not isinstance(body, Graph):
            return False
        return rounds * len(body.nodes) <= _MOST_ROUNDS and spec.flops(call) <= MOST_WORKED_OUT
    attrs = dict(call.attrs)
    around = [
        1 + abs(n) + abs(m) for n, m in zip(*(attrs.get(k, ()) for k in _AROUND), strict=False)
    ]
    between = [n for key in _BETWEEN for n in attrs.get(key, ())]
    if math.prod(around) * math.prod(between) > MOST_WORKED_OUT:
        return False
    return spec.flops(call) <= MOST_WORKED_OUT


def _large(op: str, outs: Sequence[TensorType]) -> bool:
    """An op reads a broadcast of one element cheaper than an array."""
    return any(t.size > (1 if op == "broadcast" else FOLD_SIZE) for t in outs)


def _holds(dtype: DType, low: int, high: int) -> bool:
    info = np.iinfo(dtype.numpy)
    return bool(info.min <= low and high <= info.max)


class Known:
    """Constants of at most FOLD_SIZE elements, and bounds (both included) of () integers."""

    def __init__(self, type_of: Callable[[Value], TensorType]) -> None:
        self._type_of = type_of
        self._arrays: dict[Value, np.ndarray] = {}
        self._spans: dict[Value, Span] = {}

    def note(self, value: Value, array: np.ndarray) -> None:
        """`value` is the constant `array`, which is forgotten when it is large."""
        if array.size <= FOLD_SIZE:
            self._arrays[value] = array

    def bound(self, value: Value, low: int, high: int) -> None:
        """`value`, a () integer, lies in low..high."""
        self._spans[value] = (low, high)

    def array(self, value: Value) -> np.ndarray | None:
        """The elements of a small constant."""
        return self._arrays.get(value)

    def integer(self, value: Value) -> int | None:
        """A constant of one integer, as such."""
        data = self._arrays.get(value)
        if data is None or data.size != 1 or not self._type_of(value).dtype.is_int:
            return None
        return int(data.reshape(()))

    def span(self, value: Value) -> Span | None:
        """Bounds of a () integer where they are known."""
        if self._type_of(value).shape:
            return None
        known = self.integer(value)
        return (known, known) if known is not None else self._spans.get(value)

    def fold(
        self, op: str, values: tuple[Value, ...], attrs: Attrs
    ) -> list[tuple[np.ndarray, DType]] | None:
        """The results of an op of small constants, each with its dtype; None when it stays an op.

        Constants are not spread out: an op reads a broadcast of one element cheaper than an array.
        """
        arrays = tuple(self._arrays[v] for v in values if v in self._arrays)
        spec = spec_of(op)
        if not values or spec.family is Family.CONTROL or len(arrays) < len(values):
            return None
        call = OpCall(attrs, tuple(map(self._type_of, values)))
        outs = spec.infer(call)
        if _large(op, outs) or not is_affordable(spec, OpCall(attrs, call.ins, outs)):
            return None
        results = computed(spec, OpCall(attrs, call.ins, outs), arrays)
        return [(r, t.dtype) for r, t in zip(results, outs, strict=True)]

    def compare(self, op: str, values: tuple[Value, ...]) -> bool | None:
        """What bounds decide of `lt` or `ge` of two () integers; None where they do not."""
        if op not in ("lt", "ge") or self._type_of(values[0]).shape:
            return None
        left, right = map(self.span, values)
        if left is None or right is None:
            return None
        if left[1] < right[0] or left[0] >= right[1]:
            return (left[1] < right[0]) == (op == "lt")
        return None

    def derive(self, op: str, values: tuple[Value, ...], out: Value) -> None:
        """Note the bounds of `out`, a sum, difference or conversion of bounded () integers."""
        kind = self._type_of(out)
        if op not in ("add", "sub", "cast") or kind.shape or not kind.dtype.is_int:
            return
        spans = [found for found in map(self.span, values) if found is not None]
        if len(spans) != len(values):
            return
        (low, high), *rest = spans
        for first, last in rest:
            more = (first, last) if op == "add" else (-last, -first)
            low, high = low + more[0], high + more[1]
        if _holds(kind.dtype, low, high):
            self.bound(out, low, high)
