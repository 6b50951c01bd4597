"""Random elementwise ops, on operands of which they are defined, and values out of nothing."""

from __future__ import annotations

from collections.abc import Callable

from autofuse.ops.dtypes import FLOATS, INTS, DType
from autofuse.ops.spec import infer
from autofuse.ops.types import GraphError, TensorType
from benchmarks.fuzz.maker import Made, Maker

Move = Callable[[Maker], None]
ALL = tuple(DType)
NUMBERS = (*FLOATS, *INTS)

# Of floats: where the operands of an op must lie, and its results then do.
_UNARY: dict[str, tuple[float, float, float, float]] = {
    "exp": (-3, 3, 0, 21), "expm1": (-3, 3, -1, 20), "log": (0.25, 8, -1.5, 2.2),
    "log1p": (-0.75, 8, -1.5, 2.3), "sqrt": (0.125, 60, 0.35, 8), "rsqrt": (0.125, 60, 0.1, 3),
    "reciprocal": (0.25, 60, 0.01, 4), "sin": (-60, 60, -1, 1), "cos": (-60, 60, -1, 1),
    "tan": (-1.2, 1.2, -2.6, 2.6), "tanh": (-60, 60, -1, 1), "sinh": (-3, 3, -10.1, 10.1),
    "cosh": (-3, 3, 1, 10.1), "asin": (-0.875, 0.875, -1.1, 1.1),
    "acos": (-0.875, 0.875, 0.5, 2.7), "atan": (-60, 60, -1.6, 1.6),
    "logistic": (-60, 60, 0, 1), "erf": (-60, 60, -1, 1),
}  # fmt: skip
_EXACT_UNARY = ("neg", "abs")
# What jumps: of exact operands alone.
_JUMPS = ("sign", "floor", "ceil", "round")
_TESTS = ("eq", "ne", "lt", "le", "gt", "ge")


def dtypes_of(op: str, arity: int) -> tuple[DType, ...]:
    """The dtypes that an elementwise op of operands of one dtype takes, as its shape rule says."""
    found = []
    for dtype in DType:
        try:
            infer(op, (TensorType((), dtype),) * arity, ())
        except GraphError:
            continue
        found.append(dtype)
    return tuple(found)


def _smooth(op: str) -> Move:
    low, high, least, most = _UNARY[op]

    def move(m: Maker) -> None:
        m.keep(m.add(op, [m.within(m.any(FLOATS), low, high)], least, most))

    return move


def _unary(op: str) -> Move:
    def move(m: Maker) -> None:
        x = m.any(dtypes_of(op, 1), exact=op in _JUMPS)
        most = 1.0 if op == "sign" else x.most + 1
        m.keep(m.add(op, [x], -most, most, op in _EXACT_UNARY and x.exact))

    return move


def _test_of_floats(op: str) -> Move:
    return lambda m: m.keep(m.add(op, [m.any(FLOATS)]))


def _binary(op: str) -> Move:
    def move(m: Maker) -> None:
        dtypes = dtypes_of(op, 2)
        x = m.any(dtypes, exact=op in (*_TESTS, "rem"))
        y = m.of_type(x.type, exact=op in (*_TESTS, "rem"))
        low = high = 0.0
        exact = False
        if x.dtype.is_float:
            x, y, low, high, exact = _of_floats(m, op, x, y)
        m.keep(m.add(op, [x, y], low, high, exact))

    return move


def _divisor(m: Maker, op: str, y: Made) -> Made:
    if op == "div":
        return m.within(y, 0.5, 8)
    return y if y.low > 0 and y.exact else m.full(1.5, y.type)


def _of_floats(m: Maker, op: str, x: Made, y: Made) -> tuple[Made, Made, float, float, bool]:
    if op in ("div", "rem"):
        return x, _divisor(m, op, y), -2 * x.most, 2 * x.most, False
    if op == "pow":
        return m.within(x, 0.25, 4), m.within(y, -2, 2), 0, 16, False
    if op == "atan2":
        return m.within(x, 0.125, 4), m.within(y, 0.125, 4), 0, 1.6, False
    most = x.most * y.most if op == "mul" else x.most + y.most
    return x, y, -most, most, op in ("max", "min") and x.exact and y.exact


def draw_clamp(m: Maker) -> None:
    x = m.any(NUMBERS)
    low, high = m.of_type(x.type), m.of_type(x.type)
    most = max(x.most, low.most, high.most)
    m.keep(m.add("clamp", [x, low, high], -most, most, x.exact and low.exact and high.exact))


def draw_select(m: Maker) -> None:
    x = m.any(ALL)
    y = m.of_type(x.type)
    test = m.of_type(TensorType(x.shape, DType.BOOL))
    m.keep(m.add("select", [test, x, y], min(x.low, y.low), max(x.high, y.high),
                 x.exact and y.exact))  # fmt: skip


def draw_cast(m: Maker) -> None:
    to = m.dtype(ALL)
    x = m.any(ALL, exact=not to.is_float)
    whole = x.dtype.is_float and not (to.is_float or to is DType.BOOL)
    if whole and (not to.is_signed or x.most > 100):
        x = m.any((*INTS, DType.BOOL))
    if to.is_float and not x.dtype.is_float:
        m.keep(_as_float(m, x, to))
        return
    exact = x.exact and (not to.is_float or to in (DType.F64, x.dtype))
    m.keep(m.add("cast", [x], x.low, x.high, exact, dtype=str(to)))


def _as_float(m: Maker, x: Made, to: DType) -> Made:
    # Whole numbers of any size: what a narrow float cannot hold is infinite.
    small = m.add("cast", [x], dtype="i8") if x.dtype is not DType.BOOL else x
    return m.add("cast", [small], -128, 128, True, dtype=str(to))


def draw_bitcast(m: Maker) -> None:
    x = m.any([d for d in ALL if d is not DType.BOOL], exact=True)
    same = [d for d in (*INTS, *FLOATS) if d.itemsize == x.dtype.itemsize]
    to = m.choice(same)
    made = m.add("bitcast", [x], dtype=str(to))
    if to.is_float and not x.dtype.is_float:  # any bits: infinite, or no number at all
        m.keep(m.add(m.choice(("isnan", "isfinite")), [made]))
    elif not (x.dtype.is_float and not x.exact):
        m.keep(made if not to.is_float else Made(made.value, made.type, x.low, x.high, x.exact))


def draw_threefry(m: Maker) -> None:
    shape = m.shape()
    ins = [m.of_type(TensorType(shape, DType.U32)) for _ in range(4)]
    for value in m.add_values("threefry2x32", [x.value for x in ins]):
        m.keep(Made(value, m.builder.type_of(value)))


def elementwise(op: str) -> Move:
    if op in _UNARY:
        return _smooth(op)
    if op in ("isnan", "isfinite"):
        return _test_of_floats(op)
    return _unary(op) if dtypes_of(op, 1) else _binary(op)


def draw_bits(m: Maker) -> None:
    ins = [m.of_type(TensorType(s, DType.U32)) for s in ((2,), ())]
    m.keep(m.add("random_bits", ins, shape=m.shape(), generator="philox"))


def draw_iota(m: Maker) -> None:
    shape = m.shape(m.choice((1, 1, 2, 3)))
    axis = m.rng.randrange(len(shape))
    dtype = m.dtype(NUMBERS)
    m.keep(m.add("iota", [], 0, 64, dtype not in (DType.BF16, DType.F16), shape=shape,
                 dtype=str(dtype), axis=axis))  # fmt: skip


def draw_constant(m: Maker) -> None:
    made = m.literal(TensorType(m.shape(most=256), m.dtype(ALL)))
    m.made.append(made)
