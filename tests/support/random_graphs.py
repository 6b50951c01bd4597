"""Random well-conditioned graphs over the elementwise, movement and reduction rows.

Every value carries a bound on its magnitude, so that nothing overflows in f32, and whether it is
exact (the same number in f32 and in the float64 reference): comparisons and argmax only read
exact values, because a tie broken by rounding would change the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from autofuse.graph.builder import GraphBuilder
from autofuse.graph.types import Graph, Value
from autofuse.ops.dtypes import DType
from autofuse.ops.types import TensorType

T = TypeVar("T")
SHAPES = ((6,), (4, 3), (2, 3, 4), (5, 1), (8, 8), (3, 40), (1, 7, 2))
# Extents at which kernels change form: unrolled, short rows, lanes, blocked extrema.
WIDE_SHAPES = ((2, 130), (70,), (20, 33), (17,), (3, 16, 17), (64, 9), (1, 200))
MAX_SIZE = 2048  # elements of one value
LIMIT = 100.0  # magnitude a float may reach before it is squashed by tanh
INT_LIMIT = 10_000.0


@dataclass(frozen=True)
class Made:
    """One value of the graph so far, with what is known of its elements."""

    value: Value
    type: TensorType
    bound: float
    exact: bool


class _Maker:
    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.builder = GraphBuilder()
        self.made: list[Made] = []
        self.computed: dict[Value, bool] = {}  # results of ops, and whether something reads them

    @property
    def ops(self) -> int:
        return len(self.computed)

    def pick(self, want: Callable[[Made], bool]) -> Made | None:
        """A random value that `want` accepts, mostly one that nothing reads yet."""
        found = [m for m in self.made if want(m)]
        fresh = [m for m in found if not self.computed.get(m.value, True)]
        if fresh and self.rng.random() < 0.7:
            return self.choice(fresh)
        return self.choice(found) if found else None

    def choice(self, items: Sequence[T]) -> T:
        return items[int(self.rng.integers(len(items)))]

    def add(self, op: str, ins: list[Made], bound: float, exact: bool, **attrs: Any) -> Made:
        value = self.builder.add(op, *(m.value for m in ins), **attrs)
        self.computed |= {m.value: True for m in ins if m.value in self.computed}
        self.computed[value] = False
        return Made(value, self.builder.type_of(value), bound, exact)

    def keep(self, made: Made) -> None:
        """Offer `made` as an operand of later ops, squashed first when it has grown large."""
        kind = made.type.dtype
        if made.type.size > MAX_SIZE or (kind.is_int and made.bound > INT_LIMIT):
            return
        if kind.is_float and made.bound > LIMIT:
            made = self.add("tanh", [made], 1.0, False)
        self.made.append(made)

    def scalar(self, value: float, dtype: DType) -> Made:
        made = self.builder.constant(int(value) if dtype.is_int else value, dtype)
        return Made(made, TensorType((), dtype), abs(value), True)

    def spread(self, scalar: Made, shape: tuple[int, ...]) -> Made:
        return self.add("broadcast", [scalar], scalar.bound, scalar.exact, shape=shape, dims=())


def _unary(m: _Maker) -> None:
    x = m.pick(lambda v: v.type.dtype.is_float)
    if x is None:
        return
    op = m.choice(("tanh", "sin", "cos", "logistic", "neg", "abs"))
    soft = op in ("neg", "abs")
    m.keep(m.add(op, [x], x.bound if soft else 1.0, x.exact and soft))


def _binary(m: _Maker) -> None:
    x = m.pick(lambda v: v.type.dtype is not DType.BOOL)
    if x is None:
        return
    y = m.pick(lambda v: v.type == x.type) or x
    op = m.choice(("add", "sub", "mul", "max", "min"))
    bound = x.bound * y.bound if op == "mul" else x.bound + y.bound
    whole = x.type.dtype.is_int or (op in ("max", "min") and x.exact and y.exact)
    m.keep(m.add(op, [x, y], bound, whole))


def _with_scalar(m: _Maker) -> None:
    x = m.pick(lambda v: v.type.dtype.is_float and v.type.shape != ())
    if x is None:
        return
    constant = m.scalar(float(m.choice((0.5, -1.25, 2.0, 0.1))), x.type.dtype)
    op = m.choice(("mul", "add", "sub"))
    m.keep(m.add(op, [x, m.spread(constant, x.type.shape)], x.bound * 2 + 2, False))


def _divide(m: _Maker) -> None:
    x = m.pick(lambda v: v.type.dtype.is_float)
    y = None if x is None else m.pick(lambda v: v.type == x.type)
    if x is None or y is None:
        return
    one = m.scalar(1.5, x.type.dtype)
    low = m.spread(one, x.type.shape) if x.type.shape else one
    below = m.add("max", [m.add("abs", [y], y.bound, y.exact), low], y.bound + 1.5, False)
    m.keep(m.add("div", [x, below], x.bound, False))


def _choose(m: _Maker) -> None:
    x = m.pick(lambda v: v.exact and v.type.dtype is not DType.BOOL)
    y = None if x is None else m.pick(lambda v: v.exact and v.type == x.type)
    if x is None or y is None:
        return
    test = m.add(m.choice(("lt", "le", "gt", "ge", "eq", "ne")), [x, y], 1.0, True)
    m.made.append(test)
    a = m.pick(lambda v: v.type.shape == x.type.shape and v.type.dtype is not DType.BOOL)
    b = None if a is None else m.pick(lambda v: v.type == a.type)
    if a is not None and b is not None:
        m.keep(m.add("select", [test, a, b], max(a.bound, b.bound), a.exact and b.exact))


def _logic(m: _Maker) -> None:
    x = m.pick(lambda v: v.type.dtype is DType.BOOL)
    if x is None:
        return
    y = m.pick(lambda v: v.type == x.type) or x
    op = m.choice(("and", "or", "not"))
    m.keep(m.add(op, [x] if op == "not" else [x, y], 1.0, True))


def _convert(m: _Maker) -> None:
    x = m.pick(lambda v: v.exact)
    if x is None:
        return
    wider = {DType.BOOL: "i32", DType.I32: "f32", DType.F32: "f64"}.get(x.type.dtype)
    if wider is not None:
        m.keep(m.add("cast", [x], x.bound, True, dtype=wider))


def _cut(m: _Maker) -> None:
    x = m.pick(lambda v: v.type.rank > 0 and v.type.size > 1)
    if x is None:
        return
    start = [int(m.rng.integers(0, (n + 1) // 2)) for n in x.type.shape]
    stop = [int(m.rng.integers(s + 1, n + 1)) for s, n in zip(start, x.type.shape, strict=True)]
    stride = [int(m.rng.integers(1, 3)) for _ in start]
    m.keep(m.add("slice", [x], x.bound, x.exact, start=start, stop=stop, stride=stride))


def _pad(m: _Maker) -> None:
    x = m.pick(lambda v: v.type.rank > 0 and v.type.dtype is not DType.BOOL)
    if x is None:
        return
    low = [int(m.rng.integers(0, 3)) for _ in x.type.shape]
    high = [int(m.rng.integers(0, 3)) for _ in x.type.shape]
    value = m.scalar(1.0, x.type.dtype)
    m.keep(m.add("pad", [x, value], x.bound + 1.0, x.exact, low=low, high=high))


def _join(m: _Maker) -> None:
    x = m.pick(lambda v: v.type.rank > 0)
    if x is None:
        return
    axis = int(m.rng.integers(x.type.rank))

    def fits(v: Made) -> bool:
        rest = [n for a, n in enumerate(v.type.shape) if a != axis]
        mine = [n for a, n in enumerate(x.type.shape) if a != axis]
        return v.type.rank == x.type.rank and v.type.dtype is x.type.dtype and rest == mine

    parts = [x] + [m.pick(fits) or x for _ in range(int(m.rng.integers(1, 4)))]
    exact = all(p.exact for p in parts)
    m.keep(m.add("concat", parts, max(p.bound for p in parts), exact, axis=axis))


def _turn(m: _Maker) -> None:
    x = m.pick(lambda v: v.type.rank > 0)
    if x is None:
        return
    if m.rng.random() < 0.5:
        perm = [int(a) for a in m.rng.permutation(x.type.rank)]
        m.keep(m.add("transpose", [x], x.bound, x.exact, perm=perm))
        return
    axes = sorted({int(m.rng.integers(x.type.rank)) for _ in range(2)})
    m.keep(m.add("reverse", [x], x.bound, x.exact, axes=axes))


def _reshape(m: _Maker) -> None:
    x = m.pick(lambda v: v.type.size > 1)
    if x is None:
        return
    size = x.type.size
    rows = m.choice([d for d in range(1, min(size, 64) + 1) if size % d == 0])
    shape = m.choice(((size,), (rows, size // rows), (rows, 1, size // rows)))
    if shape != x.type.shape:
        m.keep(m.add("reshape", [x], x.bound, x.exact, shape=shape))


def _gather(m: _Maker) -> None:
    x = m.pick(lambda v: v.type.rank > 0)
    at = m.pick(lambda v: v.type.dtype is DType.I32 and v.type.rank <= 1)
    if x is None or at is None:
        return
    axis = int(m.rng.integers(x.type.rank))
    m.keep(m.add("gather", [x, at], x.bound, x.exact, axis=axis))


def _iota(m: _Maker) -> None:
    shape = m.choice(SHAPES)
    dtype = m.choice(("f32", "i32"))
    axis = int(m.rng.integers(len(shape)))
    m.keep(m.add("iota", [], float(shape[axis]), True, shape=shape, dtype=dtype, axis=axis))


def _reduce(m: _Maker) -> None:
    x = m.pick(lambda v: v.type.rank > 0)
    if x is None:
        return
    rank = x.type.rank
    axes = sorted({int(m.rng.integers(rank)) for _ in range(1 if m.rng.random() < 0.7 else 2)})
    count = math.prod(x.type.shape[a] for a in axes)
    if x.type.dtype is DType.BOOL:
        out = m.add(m.choice(("reduce_any", "reduce_all")), [x], 1.0, True, axes=axes)
    elif m.rng.random() < 0.5 or x.type.dtype.is_int:
        op = m.choice(("reduce_max", "reduce_min"))
        out = m.add(op, [x], x.bound, x.exact, axes=axes)
    else:
        total = m.add("reduce_sum", [x], x.bound * count, False, axes=axes)
        share = m.scalar(1.0 / count, x.type.dtype)
        scale = m.spread(share, total.type.shape) if total.type.shape else share
        out = m.add("mul", [total, scale], x.bound, False)
    m.keep(out)
    if m.rng.random() < 0.6:
        dims = [a for a in range(rank) if a not in axes]
        back = m.add("broadcast", [out], out.bound, out.exact, shape=x.type.shape, dims=dims)
        m.keep(back)


def _position(m: _Maker) -> None:
    x = m.pick(lambda v: v.exact and v.type.rank > 0 and v.type.dtype is not DType.BOOL)
    if x is None:
        return
    axis = int(m.rng.integers(x.type.rank))
    out = m.add(m.choice(("argmax", "argmin")), [x], float(x.type.shape[axis]), True, axis=axis)
    m.keep(out)


def _running(m: _Maker) -> None:
    x = m.pick(lambda v: v.type.rank > 0 and v.type.dtype.is_float)
    if x is None:
        return
    axis = int(m.rng.integers(x.type.rank))
    m.keep(m.add("cumsum", [x], x.bound * x.type.shape[axis], False, axis=axis))


MOVES: tuple[tuple[Callable[[_Maker], None], float], ...] = (
    (_unary, 4), (_binary, 6), (_with_scalar, 2), (_divide, 1), (_choose, 1), (_logic, 0.5),
    (_convert, 1), (_cut, 2), (_pad, 1), (_join, 1.5), (_turn, 1.5), (_reshape, 1.5),
    (_gather, 0.5), (_iota, 0.5), (_reduce, 2.5), (_position, 0.4), (_running, 0.4),
)  # fmt: skip


def _product(m: _Maker) -> None:
    """A matrix product of a value with a transpose of itself, scaled down."""
    x = m.pick(lambda v: v.type.rank >= 2 and v.type.dtype.is_float and v.type.shape[-2] <= 32)
    if x is None:
        return
    rank, batch = x.type.rank, list(range(x.type.rank - 2))
    last = [rank - 1]
    dims = {"lhs_contract": last, "rhs_contract": last, "lhs_batch": batch, "rhs_batch": batch}
    count = x.type.shape[-1]
    out = m.add("dot_general", [x, x], x.bound**2 * count, False, **dims)
    share = m.spread(m.scalar(1.0 / count, x.type.dtype), out.type.shape)
    m.keep(m.add("mul", [out, share], x.bound**2, False))


def _half(m: _Maker) -> None:
    """Through a half type and back: only the rounding stays."""
    x = m.pick(lambda v: v.type.dtype is DType.F32)
    if x is not None:
        narrow = m.add("cast", [x], x.bound, False, dtype=m.choice(("f16", "bf16")))
        m.keep(m.add("cast", [narrow], x.bound, False, dtype="f32"))


def _repeat(m: _Maker) -> None:
    """A counted loop that carries one value, reads another, and sometimes leaves a stack."""
    x = m.pick(lambda v: v.type.dtype is DType.F32)
    y = m.pick(lambda v: v.type.dtype is DType.F32 and v.type.size > 1)
    if x is None or y is None:
        return
    trip, stacked = int(m.rng.integers(1, 6)), bool(m.rng.random() < 0.4)
    body = _loop_body(m, x, y, stacked)
    carried = [x.value, y.value]
    state, *stack = m.builder.add_multi("loop", *carried, body=body, trip=trip, carries=1)
    m.computed |= {v: True for v in carried if v in m.computed}
    for value in (state, *stack):
        m.computed[value] = False
        m.keep(Made(value, m.builder.type_of(value), 2.0, False))


def _loop_body(m: _Maker, x: Made, y: Made, stacked: bool) -> Graph:
    """state, other -> tanh(state) + something of its shape made of both, at most 2 in size."""
    inner = _Maker(int(m.rng.integers(2**31)))
    b = inner.builder
    step = b.input("step", (), DType.I32)
    state = Made(b.input("state", x.type.shape, DType.F32), x.type, max(x.bound, 2.0), False)
    other = Made(b.input("other", y.type.shape, DType.F32), y.type, y.bound, False)
    inner.made += [state, other, Made(step, TensorType((), DType.I32), 8.0, True)]
    goal = inner.ops + int(m.rng.integers(2, 9))
    while inner.ops < goal:
        moves = (_unary, _binary, _with_scalar, _turn, _cut, _join, _pad, _reduce)
        inner.choice(moves)(inner)
    mine = inner.pick(lambda v: v.type == x.type and v.value != state.value) or state
    squashed = inner.add("sin", [mine], 1.0, False)
    new = inner.add("add", [inner.add("tanh", [state], 1.0, False), squashed], 2.0, False)
    extra = inner.pick(lambda v: v.type.dtype is DType.F32) if stacked else None
    leave = [] if extra is None else [inner.add("cos", [extra], 1.0, False).value]
    return b.build([new.value, *leave])


ALL_MOVES = (*MOVES, (_product, 0.7), (_half, 0.7), (_repeat, 0.7))


def random_graph(
    seed: int,
    nodes: int,
    shapes: Sequence[tuple[int, ...]] = SHAPES,
    moves: Sequence[tuple[Callable[[_Maker], None], float]] = MOVES,
) -> Graph:
    """A graph of about `nodes` ops (never fewer) with 2 to 4 inputs and one output or more.

    `shapes` are those of inputs, `moves` what may be added (ALL_MOVES: matrix products, half
    types and counted loops too). Equal arguments give equal graphs. Inputs and constants are not
    counted; every op feeds some output; f32 mostly, some f64, i32 and bool. Inputs are declared
    to lie in [-2, 2] (floats) or 0 to 8 (integers).
    """
    m = _Maker(seed)
    for k in range(int(m.rng.integers(2, 5))):
        dtype = m.choice((DType.F32, DType.F32, DType.F32, DType.F32, DType.F64, DType.I32))
        low, high = (0.0, 8.0) if dtype is DType.I32 else (-2.0, 2.0)
        shape = m.choice(shapes)
        value = m.builder.input(f"x{k}", shape, dtype, low=low, high=high)
        m.made.append(Made(value, TensorType(shape, dtype), high, True))
    weights = np.array([w for _, w in moves])
    while m.ops < nodes:
        move, _ = moves[int(m.rng.choice(len(moves), p=weights / weights.sum()))]
        move(m)
    return _finish(m)


def _finish(m: _Maker) -> Graph:
    """Outputs are all results nobody reads, and sometimes one that somebody does."""
    outputs = [value for value, read in m.computed.items() if not read]
    inner = [value for value, read in m.computed.items() if read]
    if inner and m.rng.random() < 0.5:
        outputs.append(m.choice(inner))
    return m.builder.build(outputs)
