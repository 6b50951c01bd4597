"""What writes random graphs: values with what is known of their elements, and operands that fit.

Every value of floats carries an interval that its elements lie in, so that ops stay where they are
defined and nothing overflows, and whether it is exact (the same number in the kernel's arithmetic
and in the float64 reference): what jumps (comparisons, orders, roundings) reads exact values only,
since a tie that rounding breaks would change a result that is right.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from autofuse.graph.builder import GraphBuilder
from autofuse.graph.types import Graph, Value
from autofuse.ops.dtypes import FLOATS, INTS, DType
from autofuse.ops.types import GraphError, TensorType

T = TypeVar("T")
Shape = tuple[int, ...]
MAX_SIZE = 1536  # elements of one value
LIMIT = 60.0  # magnitude that a float may reach before it is squashed
# Extents at which kernels change form, and the edges: nothing, one.
EXTENTS = (0,) + (1,) * 5 + (2, 3, 3, 4, 4, 5, 5, 6, 7, 8, 8, 9, 12, 16, 17, 24, 33, 40, 64, 70)
RANKS = (0, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 4)


@dataclass(frozen=True)
class Made:
    """One value of the graph so far; `low` and `high` bound its elements where it is a float."""

    value: Value
    type: TensorType
    low: float = 0.0
    high: float = 0.0
    exact: bool = True

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def shape(self) -> Shape:
        return self.type.shape

    @property
    def most(self) -> float:
        return max(abs(self.low), abs(self.high))


class Maker:
    """A graph in the making. `inner`: it is a loop's body, whose inputs are given."""

    def __init__(self, seed: int, dtypes: Sequence[DType], inner: bool = False) -> None:
        self.rng = random.Random(seed)
        self.builder = GraphBuilder()
        self.dtypes = tuple(dtypes)
        self.inner = inner
        self.made: list[Made] = []
        self.read: set[Value] = set()
        self.computed: list[Value] = []
        self.inputs = 0
        self.ops = 0
        # What an inner graph may take from around it: gives a value of this graph, or None.
        self.capture: Callable[[], Made | None] = lambda: None

    # --- drawing

    def choice(self, items: Sequence[T]) -> T:
        return items[self.rng.randrange(len(items))]

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def extent(self) -> int:
        return self.choice(EXTENTS)

    def shape(self, rank: int | None = None, most: int = MAX_SIZE) -> Shape:
        rank = self.choice(RANKS) if rank is None else rank
        for _ in range(20):
            found = tuple(self.extent() for _ in range(rank))
            if math.prod(found) <= most:
                return found
        return (1,) * rank

    def dtype(self, among: Sequence[DType]) -> DType:
        usual = [d for d in self.dtypes if d in among]
        return self.choice(usual) if usual and self.chance(0.85) else self.choice(among)

    # --- writing

    def add(
        self, op: str, ins: Sequence[Made], least: float = 0.0, most: float = 0.0,
        exact: bool = False, **attrs: Any,
    ) -> Made:  # fmt: skip
        """An op of one result, whose elements lie between two numbers if they are floats; raises
        GraphError where it is refused."""
        (value,) = self.add_values(op, [m.value for m in ins], **attrs)
        type_ = self.builder.type_of(value)
        if not type_.dtype.is_float:
            least, most, exact = 0.0, 0.0, True
        return Made(value, type_, least, most, exact)

    def add_values(self, op: str, values: Sequence[Value], **attrs: Any) -> tuple[Value, ...]:
        found = self.builder.add_multi(op, *values, **attrs)
        self.read.update(values)
        self.computed += found
        self.ops += 1
        return found

    def keep(self, made: Made) -> None:
        """Offer a value as an operand of later ops, squashed first where it has grown large."""
        if made.type.size > 4 * MAX_SIZE:
            return
        if made.dtype.is_float and made.most > LIMIT:
            made = self.add("tanh", [made], -1.0, 1.0)
        self.made.append(made)

    def within(self, made: Made, low: float, high: float) -> Made:
        """A value of floats made of another that lies between two numbers."""
        if low <= made.low and made.high <= high:
            return made
        narrow = self.add("tanh", [made], -1.0, 1.0)
        middle, half = (low + high) / 2, (high - low) / 2
        factor, offset = self.full(half, made.type), self.full(middle, made.type)
        scaled = self.add("mul", [narrow, factor], -half, half)
        return self.add("add", [scaled, offset], low, high)

    # --- operands

    def full(self, number: float, type_: TensorType) -> Made:
        """A number repeated."""
        stored = int(number) if type_.dtype.is_int else number
        if type_.dtype is DType.BOOL:
            stored = bool(number)
        value = self.builder.constant(stored, type_.dtype, type_.shape)
        real = float(np.asarray(stored).astype(type_.dtype.numpy).astype(np.float64))
        return Made(value, type_, real, real, True)

    def literal(self, type_: TensorType) -> Made:
        """A constant array."""
        numbers = self._numbers(type_)
        value = self.builder.constant(numbers, type_.dtype)
        if not type_.dtype.is_float:
            return Made(value, type_)
        return Made(value, type_, -2.0, 2.0, True)

    def _numbers(self, type_: TensorType) -> np.ndarray:
        rng = np.random.default_rng(self.rng.randrange(2**31))
        if type_.dtype is DType.BOOL:
            return np.asarray(rng.integers(0, 2, type_.shape).astype(np.bool_))
        if type_.dtype.is_int:
            return np.asarray(rng.integers(0, 7, type_.shape).astype(type_.dtype.numpy))
        drawn = rng.uniform(-2, 2, type_.shape)
        if self.chance(0.3):
            drawn = np.round(drawn)
        return np.asarray(drawn.astype(type_.dtype.numpy))

    def input(self, type_: TensorType, low: float = -2.0, high: float = 2.0) -> Made:
        """A new input of the graph."""
        name = f"x{self.inputs}"
        self.inputs += 1
        whole = type_.dtype.is_int
        bounds: dict[str, Any] = {}
        if whole:
            ends = type_.dtype.limits
            drawn = ends if self.chance(0.15) else (max(-4, ends[0]), 9)
            bounds = {"low": drawn[0], "high": drawn[1]}
        elif type_.dtype.is_float:
            bounds = {"low": low, "high": high}
        value = self.builder.input(name, type_.shape, type_.dtype, **bounds)
        self.read.add(value)
        return Made(value, type_, low, high, True)

    def source(self, type_: TensorType) -> Made:
        """A value out of nothing: an input, a constant of many numbers or of one, positions."""
        drawn = self.rng.random()
        if drawn < 0.15 and type_.size <= 512:
            return self.literal(type_)
        if drawn < 0.3:
            return self.full(self.choice((0, 1, 1, 2, 3)), type_)
        if drawn < 0.4 and _may_count(type_):
            axis = self.rng.randrange(len(type_.shape))
            return self.add("iota", [], 0.0, 64.0, True, shape=type_.shape,
                            dtype=str(type_.dtype), axis=axis)  # fmt: skip
        if self.inner or self.inputs >= 6:
            return (
                self.full(self.choice((0, 1, 2)), type_)
                if type_.size > 512
                else (self.literal(type_))
            )
        return self.input(type_)

    def pick(self, want: Callable[[Made], bool]) -> Made | None:
        """A value that is wanted, mostly one that nothing reads yet."""
        found = list(filter(want, self.made))
        fresh = [m for m in found if m.value not in self.read]
        if fresh and self.chance(0.7):
            return self.choice(fresh)
        if self.chance(0.3) and (outer := self.capture()) is not None and want(outer):
            return outer
        return self.choice(found) if found else None

    def any(self, dtypes: Sequence[DType], exact: bool = False, least_rank: int = 0) -> Made:
        """Some value of one of these dtypes."""

        def want(m: Made) -> bool:
            return m.dtype in dtypes and (m.exact or not exact) and len(m.shape) >= least_rank

        found = self.pick(want) if self.chance(0.85) else None
        if found is None:
            shape = self.shape()
            while len(shape) < least_rank:
                shape = (*shape, self.extent() or 1)
            if math.prod(shape) > MAX_SIZE:
                shape = (3,) * len(shape)
            found = self.source(TensorType(shape, self.dtype(dtypes)))
        return found

    def of_type(self, type_: TensorType, exact: bool = False) -> Made:
        """Some value of a type: one that is there, a view of one, or a new one."""

        def fits(m: Made) -> bool:
            return m.dtype is type_.dtype and (m.exact or not exact)

        if self.chance(0.6):
            found = self.pick(lambda m: fits(m) and m.shape == type_.shape)
            if found is not None:
                return found
        if self.chance(0.5):
            found = self.pick(fits)
            if found is not None:
                made = self._viewed(found, type_.shape)
                if made is not None:
                    return made
        return self.source(type_)

    def _viewed(self, made: Made, shape: Shape) -> Made | None:
        """Another value under a shape, where one move gives that."""

        def moved(op: str, **attrs: Any) -> Made:
            return self.add(op, [made], made.low, made.high, made.exact, **attrs)

        if made.type.size == math.prod(shape):
            return made if made.shape == shape else moved("reshape", shape=shape)
        for first in range(len(shape) - len(made.shape) + 1):
            dims = tuple(range(first, first + len(made.shape)))
            if all(n in (1, shape[d]) for n, d in zip(made.shape, dims, strict=True)):
                return moved("broadcast", shape=shape, dims=dims)
        if _fits_in(shape, made.shape):
            start = tuple(self.rng.randint(0, m - n)
                          for n, m in zip(shape, made.shape, strict=True))  # fmt: skip
            stop = tuple(s + n for s, n in zip(start, shape, strict=True))
            return moved("slice", start=start, stop=stop, stride=(1,) * len(shape))
        return None


def _may_count(type_: TensorType) -> bool:
    """Whether positions along any axis are exact."""
    return type_.dtype in (*FLOATS, *INTS) and 0 < max(type_.shape, default=0) < 64


def _fits_in(shape: Shape, other: Shape) -> bool:
    return len(shape) == len(other) and all(n <= m for n, m in zip(shape, other, strict=True))


def attempt(make: Callable[[Maker], None], maker: Maker) -> None:
    """Add a random op; one that a shape rule refuses is none."""
    try:
        make(maker)
    except GraphError:
        return


def finish(maker: Maker) -> Graph:
    """All results that nothing reads, and sometimes one that something does."""
    outputs = [v for v in maker.computed if v not in maker.read]
    inner = [v for v in maker.computed if v in maker.read]
    if inner and (not outputs or maker.chance(0.3)):
        outputs.append(maker.choice(inner))
    return maker.builder.build(outputs[-8:])
