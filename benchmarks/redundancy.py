"""Graphs with redundant structure put in: masks that let everything through, arrays that are split
and joined again, constants in disguise. What they compute is what the clean graph computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from autofuse.graph.builder import GraphBuilder
from autofuse.graph.types import Graph, Node, Value
from autofuse.ops.dtypes import DType
from autofuse.ops.types import TensorType

I32 = DType.I32


class Disguises:
    """Writes a graph again, and now and then a value in another way."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.builder = GraphBuilder()
        # What was put in, by name.
        self.told: list[str] = []

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def choice(self, items: Sequence[int]) -> int:
        return items[int(self.rng.integers(len(items)))]

    def add(self, op: str, *values: Value, **attrs: Any) -> Value:
        return self.builder.add(op, *values, **attrs)

    def type_of(self, value: Value) -> TensorType:
        return self.builder.type_of(value)

    def full(self, number: float | int | bool, kind: TensorType) -> Value:
        scalar = self.builder.constant(number, kind.dtype)
        return self.add("broadcast", scalar, shape=kind.shape, dims=()) if kind.shape else scalar

    def axis(self, kind: TensorType, least: int = 2) -> int | None:
        """An axis of at least so many elements."""
        found = [a for a, n in enumerate(kind.shape) if n >= least]
        return self.choice(found) if found else None

    def cut(self, value: Value, axis: int, start: int, stop: int) -> Value:
        shape = self.type_of(value).shape
        return self.add(
            "slice",
            value,
            start=tuple(start if a == axis else 0 for a in range(len(shape))),
            stop=tuple(stop if a == axis else n for a, n in enumerate(shape)),
            stride=(1,) * len(shape),
        )

    def junk(self, kind: TensorType) -> Value:
        """Something of a type, which nobody will see."""
        return self.full(
            int(self.rng.integers(1, 9)) if kind.dtype is not DType.BOOL else True, kind
        )


Disguise = Callable[[Disguises, Value], Value | None]


# Masks from iotas


def _mask(d: Disguises, kind: TensorType, op: str, axis: int, place: int) -> Value:
    """Positions along an axis compared with one of them."""
    wanted = TensorType(kind.shape, I32)
    at = d.add("iota", shape=kind.shape, dtype="i32", axis=axis)
    if d.chance(0.3):  # shifted, and compared with what is shifted alike
        at, place = d.add("add", at, d.full(3, wanted)), place + 3
    if d.chance(0.2):
        at = d.add("clamp", at, d.full(-5, wanted), d.full(kind.shape[axis] + 9, wanted))
    return d.add(op, at, d.full(place, wanted))


def masked_through(d: Disguises, x: Value) -> Value | None:
    """select(positions >= 0, x, anything)."""
    kind = d.type_of(x)
    axis = d.axis(kind, 1)
    if axis is None:
        return None
    op, place = (("ge", 0), ("lt", kind.shape[axis]), ("ne", -1))[d.choice(range(3))]
    mask = _mask(d, kind, op, axis, place)
    if d.chance(0.3):
        return d.add("select", d.add("not", mask), d.junk(kind), x)
    return d.add("select", mask, x, d.junk(kind))


def masked_twice(d: Disguises, x: Value) -> Value | None:
    """select(mask, x, x) with a mask that is no constant everywhere."""
    kind = d.type_of(x)
    axis = d.axis(kind)
    if axis is None:
        return None
    mask = _mask(d, kind, "lt", axis, int(d.rng.integers(1, kind.shape[axis])))
    return d.add("select", mask, x, x)


def masked_halves(d: Disguises, x: Value) -> Value | None:
    """select(positions < c, the first part padded, the last part padded)."""
    kind = d.type_of(x)
    axis = d.axis(kind)
    if axis is None:
        return None
    n = kind.shape[axis]
    place = int(d.rng.integers(1, n))
    padding = d.builder.constant(1, kind.dtype) if kind.dtype is not DType.BOOL else (
        d.builder.constant(True, DType.BOOL))  # fmt: skip
    rest = [0] * len(kind.shape)

    def padded(start: int, stop: int) -> Value:
        low, high = list(rest), list(rest)
        low[axis], high[axis] = start, n - stop
        return d.add("pad", d.cut(x, axis, start, stop), padding, low=tuple(low), high=tuple(high))

    mask = _mask(d, kind, "lt", axis, place)
    return d.add("select", mask, padded(0, place), padded(place, n))


def masked_bool(d: Disguises, x: Value) -> Value | None:
    """x and True, x or False, not not x, select(x, True, False)."""
    kind = d.type_of(x)
    if kind.dtype is not DType.BOOL:
        return None
    which = d.choice(range(4))
    if which == 3:
        return d.add("select", x, d.full(True, kind), d.full(False, kind))
    if which == 2:
        return d.add("not", d.add("not", x))
    return d.add("or", x, d.full(False, kind)) if which else d.add("and", d.full(True, kind), x)


# Split and joined again


def split_and_joined(d: Disguises, x: Value) -> Value | None:
    """Two or three parts of an axis, end to end."""
    kind = d.type_of(x)
    axis = d.axis(kind)
    if axis is None:
        return None
    n = kind.shape[axis]
    places = sorted({0, n, *(int(d.rng.integers(1, n)) for _ in range(2))})
    parts = [d.cut(x, axis, a, b) for a, b in pairwise(places)]
    if len(parts) == 3 and d.chance(0.5):
        return d.add("concat", d.add("concat", *parts[:2], axis=axis), parts[2], axis=axis)
    return d.add("concat", *parts, axis=axis)


def unstacked_and_stacked(d: Disguises, x: Value) -> Value | None:
    """Rows as arrays of their own, stacked again."""
    kind = d.type_of(x)
    axis = d.axis(kind)
    if axis is None or kind.shape[axis] > 8:
        return None
    row = tuple(n for a, n in enumerate(kind.shape) if a != axis)
    unit = tuple(1 if a == axis else n for a, n in enumerate(kind.shape))
    rows = [
        d.add("reshape", d.add("reshape", d.cut(x, axis, k, k + 1), shape=row), shape=unit)
        for k in range(kind.shape[axis])
    ]
    return d.add("concat", *rows, axis=axis)


def joined_and_cut(d: Disguises, x: Value) -> Value | None:
    """A slice of x with something else at its ends."""
    kind = d.type_of(x)
    axis = d.axis(kind, 1)
    if axis is None:
        return None
    n = kind.shape[axis]
    if d.chance(0.5):
        whole = d.add("concat", x, d.junk(kind), axis=axis)
        return d.cut(whole, axis, 0, n)
    low = tuple(2 if a == axis else 0 for a in range(len(kind.shape)))
    value = d.builder.constant(1, kind.dtype) if kind.dtype is not DType.BOOL else (
        d.builder.constant(True, DType.BOOL))  # fmt: skip
    return d.cut(d.add("pad", x, value, low=low, high=low), axis, 2, n + 2)


def turned_twice(d: Disguises, x: Value) -> Value | None:
    """A transpose, reversal or reshape and the way back."""
    kind = d.type_of(x)
    which, rank = d.choice(range(3)), len(kind.shape)
    if which == 0:
        perm = [int(p) for p in d.rng.permutation(rank)]
        back = [perm.index(a) for a in range(rank)]
        return d.add("transpose", d.add("transpose", x, perm=perm), perm=back) if rank else None
    if which == 1:
        axes = tuple(range(rank))[: int(d.rng.integers(1, rank + 1))] if rank else ()
        return d.add("reverse", d.add("reverse", x, axes=axes), axes=axes) if rank else None
    flat = d.add("reshape", x, shape=(kind.size,))
    return None if kind.shape == (kind.size,) else d.add("reshape", flat, shape=kind.shape)


def gathered(d: Disguises, x: Value) -> Value | None:
    """All places of an axis gathered, in order, or backwards and turned round."""
    kind = d.type_of(x)
    axis = d.axis(kind)
    if axis is None:
        return None
    n = kind.shape[axis]
    at = d.add("iota", shape=(n,), dtype="i32", axis=0)
    if d.chance(0.5):
        at = d.builder.constant(np.arange(n), I32)
    if d.chance(0.5):
        return d.add("gather", x, at, axis=axis)
    back = d.add("sub", d.full(n - 1, TensorType((n,), I32)), at)
    return d.add("reverse", d.add("gather", x, back, axis=axis), axes=(axis,))


def repeated_and_picked(d: Disguises, x: Value) -> Value | None:
    """One of several copies, or the largest of them."""
    kind = d.type_of(x)
    rank = len(kind.shape)
    if kind.size > 500:
        return None
    copies = d.add("broadcast", x, shape=(*kind.shape, 3), dims=tuple(range(rank)))
    if d.chance(0.5) and kind.dtype is not DType.BOOL:
        return d.add(("reduce_max", "reduce_min")[d.choice((0, 1))], copies, axes=(rank,))
    one = d.cut(copies, rank, 1, 2)
    return d.add("reshape", one, shape=kind.shape)


# Identities


def neutral(d: Disguises, x: Value) -> Value | None:
    """x * 1, x + -0.0, x - 0, x / 1, max(x, -inf), --x, ..."""
    kind = d.type_of(x)
    if kind.dtype is DType.BOOL:
        return None
    floats = kind.dtype.is_float
    pairs: list[tuple[str, float | int]] = [("mul", 1), ("sub", 0), ("div", 1)]
    pairs += [("add", -0.0), ("max", -np.inf), ("pow", 1)] if floats else [("add", 0), ("xor", 0)]
    op, number = pairs[d.choice(range(len(pairs)))]
    other = d.full(number, kind)
    if d.chance(0.2):
        return d.add("neg", d.add("neg", x))
    if op in ("mul", "add", "max") and d.chance(0.5):
        return d.add(op, other, x)
    return d.add(op, x, other)


def widened(d: Disguises, x: Value) -> Value | None:
    """A cast to a wider dtype and back."""
    kind = d.type_of(x)
    wider = {DType.BOOL: "i32", DType.I32: "i64", DType.F32: "f64", DType.F16: "f32"}
    if kind.dtype not in wider:
        return None
    wide = d.add("cast", x, dtype=wider[kind.dtype])
    return d.add("cast", wide, dtype=str(kind.dtype))


# Constants in disguise


def hidden_number(d: Disguises, node: Node) -> Value | None:
    """A scalar constant as what is computed from others."""
    literal = dict(node.attrs)["value"]
    kind = node.types[0]
    if kind.shape or kind.dtype is DType.BOOL:
        return None
    number, which = literal.scalar, d.choice(range(5))
    exact = kind.dtype.is_int or (float(number * 4).is_integer() and abs(number) < 1000)
    if which == 0 and exact:
        return d.add("sub", d.builder.constant(number + 1, kind.dtype), d.full(1, kind))
    if which == 1:
        table = np.full(5, 7).astype(kind.dtype.numpy)
        table[3] = number
        row = d.cut(d.builder.constant(table, kind.dtype), 0, 3, 4)
        return d.add("reshape", row, shape=())
    if which == 2:
        several = d.full(number, TensorType((4,), kind.dtype))
        return d.add("reduce_max", several, axes=(0,))
    if which == 3:
        table = np.full(6, number).astype(kind.dtype.numpy)
        place = d.builder.constant(2, I32)
        return d.add("gather", d.builder.constant(table, kind.dtype), place, axis=0)
    test = d.add("lt", d.builder.constant(1, I32), d.builder.constant(2, I32))
    return d.add("select", test, d.builder.constant(number, kind.dtype), d.full(3, kind))


def hidden_positions(d: Disguises, node: Node) -> Value | None:
    """An iota as a literal, a running sum, or a reversal of one."""
    attrs, kind = dict(node.attrs), node.types[0]
    n, axis = kind.shape[attrs["axis"]], attrs["axis"]
    which = d.choice(range(4))
    if which == 0 and n <= 64:
        line = d.builder.constant(np.arange(n).astype(kind.dtype.numpy), kind.dtype)
        return d.add("broadcast", line, shape=kind.shape, dims=(axis,))
    if which == 1 and n <= 64 and not kind.dtype.is_float:
        ones = d.full(1, TensorType((n,), kind.dtype))
        line = d.add("sub", d.add("cumsum", ones, axis=0), ones)
        return d.add("broadcast", line, shape=kind.shape, dims=(axis,))
    if which == 2:
        back = d.add("reverse", d.add("iota", **attrs), axes=(axis,))
        return d.add("sub", d.full(n - 1, kind), back)
    double = d.add("mul", d.add("iota", **attrs), d.full(2, kind))
    return d.add("sub", double, d.add("iota", **attrs))


VALUES: tuple[Disguise, ...] = (
    masked_through, masked_twice, masked_halves, masked_bool, split_and_joined,
    unstacked_and_stacked, joined_and_cut, turned_twice, gathered, repeated_and_picked, neutral,
    widened,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Redundant:
    """A graph with redundant structure, and the names of what was put in."""

    graph: Graph
    told: tuple[str, ...]


def with_redundancy(graph: Graph, seed: int, share: float = 0.2) -> Redundant:
    """`graph` with about this share of its values written in another way, at least one."""
    while True:
        d = Disguises(seed)
        found: dict[Value, Value] = {}
        for i, node in enumerate(graph.nodes):
            for k, value in enumerate(_written(d, node, [found[v] for v in node.inputs], share)):
                found[Value(i, k)] = value
        if d.told:
            outputs = [found[v] for v in graph.outputs]
            return Redundant(d.builder.build(outputs, graph.output_names), tuple(d.told))
        share *= 2


def _hidden(d: Disguises, node: Node, share: float) -> Value | None:
    """A constant or positions that something else computes."""
    special = {"constant": hidden_number, "iota": hidden_positions}.get(node.op)
    hidden = special(d, node) if special is not None and d.chance(2 * share) else None
    if hidden is not None and special is not None:
        d.told.append(special.__name__)
    return hidden


def _written(d: Disguises, node: Node, operands: Sequence[Value], share: float) -> Sequence[Value]:
    """A node's values, perhaps in disguise."""
    if node.op == "input":
        attrs = dict(node.attrs)
        bounds = {k: attrs[k] for k in ("low", "high") if k in attrs}
        made: Sequence[Value] = (
            d.builder.input(node.name, node.types[0].shape, node.types[0].dtype, **bounds),
        )
    else:
        hidden = _hidden(d, node, share)
        if hidden is not None:
            return (hidden,)
        made = d.builder.add_multi(node.op, *operands, **dict(node.attrs))
    if len(made) > 1 or not node.types[0].size or not d.chance(share):
        return made
    disguise = VALUES[d.choice(range(len(VALUES)))]
    other = disguise(d, made[0])
    if other is None:
        return made
    d.told.append(disguise.__name__)
    return (other,)
