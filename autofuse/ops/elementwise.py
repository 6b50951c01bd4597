"""Elementwise ops: out[i] = f(in[i], ...), operands of one shape (nothing broadcasts here)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from autofuse.ops import checks
from autofuse.ops import elementwise_bodies as bodies
from autofuse.ops.algebra import ALGEBRA, NO_ALGEBRA
from autofuse.ops.domains import DOMAINS
from autofuse.ops.dtypes import FLOATS, INTS, SELDOM, DType
from autofuse.ops.elementwise_bodies import Scalar
from autofuse.ops.elementwise_reference import (
    bitcast_reference,
    cast_reference,
    int_div,
    int_rem,
    shift_left,
    shift_right,
    shift_right_logical,
)
from autofuse.ops.pull import Index, Pull
from autofuse.ops.scalar import Expr
from autofuse.ops.source import dtype_attr
from autofuse.ops.spec import (
    AxisMap,
    Family,
    OpSpec,
    Reference,
    Sample,
    always,
    never,
    register,
    sampled,
)
from autofuse.ops.types import GraphError, OpCall, TensorType

NUMBERS = (*FLOATS, *INTS)
BITS = (*INTS, DType.BOOL)
Arrays = tuple[np.ndarray, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """One elementwise op of the simple kind: operands of one dtype, a scalar body, a ufunc."""

    name: str
    dtypes: tuple[DType, ...]
    arity: int
    reference: Callable[..., np.ndarray]
    scalar: Scalar
    flops: float = 1.0
    low: float = -2.0
    high: float = 2.0
    predicate: bool = False
    special: bool = False
    exact: bool = False
    divides: bool = False
    snaps: bool = False
    proportional: tuple[int, ...] = ()


def _same_types(call: OpCall, start: int = 0) -> TensorType:
    """The one type of operands start, start + 1, ..."""
    first = call.ins[start]
    for other in call.ins[start + 1 :]:
        if other.shape != first.shape:
            raise GraphError(f"operand shapes {first} and {other} differ")
        if other.dtype != first.dtype:
            raise GraphError(f"operand dtypes {first} and {other} differ")
    return first


def _infer(row: Row) -> Callable[[OpCall], tuple[TensorType, ...]]:
    def infer(call: OpCall) -> tuple[TensorType, ...]:
        checks.operands(call, row.arity)
        first = _same_types(call)
        checks.dtype_in(first.dtype, row.dtypes)
        return (TensorType(first.shape, DType.BOOL) if row.predicate else first,)

    return infer


def _reference(function: Callable[..., np.ndarray]) -> Reference:
    def reference(arrays: Arrays, call: OpCall) -> Arrays:
        with np.errstate(all="ignore"):
            return (np.asarray(function(*arrays), dtype=call.out.dtype.reference),)

    return reference


def _body(scalar: Scalar) -> Callable[[OpCall, Index, Pull], tuple[Expr, ...]]:
    def body(call: OpCall, index: Index, pull: Pull) -> tuple[Expr, ...]:
        operands = [pull(i, index) for i in range(len(call.ins))]
        return (scalar(call, pull, *operands),)

    return body


def _identity(call: OpCall) -> AxisMap:
    return (tuple(range(call.out.rank)),) * len(call.ins)


def _flops(each: float) -> Callable[[OpCall], float]:
    return lambda call: each * call.out.size


def _samples(row: Row) -> Callable[[], Sequence[Sample]]:
    def samples() -> list[Sample]:
        dtypes = sampled(row.dtypes) if row.exact or row.predicate else row.dtypes
        made = [(TensorType((3, 5), dtype),) * row.arity for dtype in dtypes]
        made += [(TensorType(shape, row.dtypes[0]),) * row.arity for shape in ((), (17,))]
        return [Sample(ins, {}, row.low, row.high) for ins in made]

    return samples


def _spec(row: Row) -> OpSpec:
    return OpSpec(
        row.name,
        Family.ELEMENTWISE,
        _infer(row),
        _reference(row.reference),
        _flops(row.flops),
        _samples(row),
        body=_body(row.scalar),
        axes=_identity,
        special=row.special,
        exact=always if row.exact else never,
        divides=row.divides,
        proportional=row.proportional,
        snaps=_of_floats if row.snaps else never,
        algebra=ALGEBRA.get(row.name, NO_ALGEBRA),
        domains=DOMAINS.get(row.name, {}),
    )


def _of_floats(call: OpCall) -> bool:
    return call.out.dtype.is_float


def _logistic(x: np.ndarray) -> np.ndarray:
    return np.asarray(1.0 / (1.0 + np.exp(-x)))


def _erf(x: np.ndarray) -> np.ndarray:
    # Only this op needs SciPy, whose import would be a good part of every start-up.
    from scipy import special

    return np.asarray(special.erf(x))


def _invert(x: np.ndarray) -> np.ndarray:
    return np.asarray(~x)


def _div(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return int_div(x, y) if x.dtype.kind in "iu" else np.asarray(x / y)


def _rem(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return int_rem(x, y) if x.dtype.kind in "iu" else np.asarray(np.fmod(x, y))


_UNARY = (
    Row("neg", NUMBERS, 1, np.negative, bodies.negate, exact=True),
    Row("abs", NUMBERS, 1, np.abs, bodies.absolute, exact=True),
    Row("sign", NUMBERS, 1, np.sign, bodies.sign, exact=True),
    Row("floor", FLOATS, 1, np.floor, bodies.primitive("floor"), exact=True, snaps=True),
    Row("ceil", FLOATS, 1, np.ceil, bodies.primitive("ceil"), exact=True, snaps=True),
    Row("round", FLOATS, 1, np.rint, bodies.primitive("rint"), exact=True, snaps=True),
    Row("exp", FLOATS, 1, np.exp, bodies.primitive("exp"), 15, special=True),
    Row("expm1", FLOATS, 1, np.expm1, bodies.primitive("expm1"), 18, special=True),
    Row("log", FLOATS, 1, np.log, bodies.primitive("log"), 15, 0.1, 8.0, special=True),
    Row("log1p", FLOATS, 1, np.log1p, bodies.primitive("log1p"), 18, -0.5, 4.0, special=True),
    Row("sqrt", FLOATS, 1, np.sqrt, bodies.primitive("sqrt"), 4, 0.0, 8.0, divides=True),
    Row("rsqrt", FLOATS, 1, lambda x: 1.0 / np.sqrt(x), bodies.rsqrt, 8, 0.1, 8.0, divides=True),
    Row("reciprocal", FLOATS, 1, np.reciprocal, bodies.reciprocal, 4, 0.25, 4.0, divides=True),
    Row("sin", FLOATS, 1, np.sin, bodies.primitive("sin"), 15, special=True),
    Row("cos", FLOATS, 1, np.cos, bodies.primitive("cos"), 15, special=True),
    Row("tan", FLOATS, 1, np.tan, bodies.primitive("tan"), 20, -1.2, 1.2, special=True),
    Row("tanh", FLOATS, 1, np.tanh, bodies.primitive("tanh"), 20, special=True),
    Row("sinh", FLOATS, 1, np.sinh, bodies.primitive("sinh"), 20, special=True),
    Row("cosh", FLOATS, 1, np.cosh, bodies.primitive("cosh"), 20, special=True),
    Row("asin", FLOATS, 1, np.arcsin, bodies.primitive("asin"), 20, -0.9, 0.9, special=True),
    Row("acos", FLOATS, 1, np.arccos, bodies.primitive("acos"), 20, -0.9, 0.9, special=True),
    Row("atan", FLOATS, 1, np.arctan, bodies.primitive("atan"), 20, special=True),
    Row("logistic", FLOATS, 1, _logistic, bodies.logistic, 20, special=True, divides=True),
    Row("erf", FLOATS, 1, _erf, bodies.primitive("erf"), 20, special=True),
    Row("not", BITS, 1, _invert, bodies.invert),
    Row("isnan", FLOATS, 1, np.isnan, bodies.primitive("isnan"), predicate=True),
    Row("isfinite", FLOATS, 1, np.isfinite, bodies.primitive("isfinite"), predicate=True),
)

_BINARY = (
    Row("add", NUMBERS, 2, np.add, bodies.primitive("add")),
    Row("sub", NUMBERS, 2, np.subtract, bodies.primitive("sub")),
    Row("mul", NUMBERS, 2, np.multiply, bodies.primitive("mul"), proportional=(0, 1)),
    Row("div", NUMBERS, 2, _div, bodies.divide, 4, 0.5, 4.0, divides=True, proportional=(0,)),
    Row("rem", NUMBERS, 2, _rem, bodies.remainder, 10, 0.5, 4.0, snaps=True),
    Row("pow", FLOATS, 2, np.power, bodies.primitive("pow"), 30, 0.5, 2.0, special=True),
    Row("atan2", FLOATS, 2, np.arctan2, bodies.primitive("atan2"), 25, 0.1, 2.0, special=True),
    Row("max", NUMBERS, 2, np.maximum, bodies.maximum, exact=True),
    Row("min", NUMBERS, 2, np.minimum, bodies.minimum, exact=True),
    Row("and", BITS, 2, np.bitwise_and, bodies.primitive("and")),
    Row("or", BITS, 2, np.bitwise_or, bodies.primitive("or")),
    Row("xor", BITS, 2, np.bitwise_xor, bodies.primitive("xor")),
    Row("shl", INTS, 2, shift_left, bodies.shift_left, 2),
    Row("shr", INTS, 2, shift_right, bodies.shift_right, 2),
    Row("shr_logical", INTS, 2, shift_right_logical, bodies.shift_right_logical, 2),
    Row("eq", (*NUMBERS, DType.BOOL), 2, np.equal, bodies.primitive("eq"), predicate=True),
    Row("ne", (*NUMBERS, DType.BOOL), 2, np.not_equal, bodies.primitive("ne"), predicate=True),
    Row("lt", (*NUMBERS, DType.BOOL), 2, np.less, bodies.primitive("lt"), predicate=True),
    Row("le", (*NUMBERS, DType.BOOL), 2, np.less_equal, bodies.primitive("le"), predicate=True),
    Row("gt", (*NUMBERS, DType.BOOL), 2, np.greater, bodies.primitive("gt"), predicate=True),
    Row("ge", (*NUMBERS, DType.BOOL), 2, np.greater_equal, bodies.primitive("ge"), predicate=True),
)


def _clamp(x: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    return np.asarray(np.minimum(np.maximum(x, low), high))


_TERNARY = (Row("clamp", NUMBERS, 3, _clamp, bodies.clamp, 2, exact=True),)


def _infer_select(call: OpCall) -> tuple[TensorType, ...]:
    checks.operands(call, 3)
    picked = _same_types(call, 1)
    if call.ins[0].dtype != DType.BOOL:
        raise GraphError(f"the condition must be bool, got {call.ins[0]}")
    if call.ins[0].shape != picked.shape:
        raise GraphError(f"operand shapes {call.ins[0]} and {picked} differ")
    return (picked,)


def _infer_cast(call: OpCall) -> tuple[TensorType, ...]:
    checks.operands(call, 1)
    return (TensorType(call.ins[0].shape, dtype_attr(call)),)


def _cast_is_exact(call: OpCall) -> bool:
    """Integers and bools become floats exactly (large ones within half a unit in the last
    place)."""
    return not call.ins[0].dtype.is_float


def _cast_cuts(call: OpCall) -> bool:
    """Floats become whole numbers."""
    return call.ins[0].dtype.is_float and not call.out.dtype.is_float


# Half types are f32 in registers, whose bits are not theirs, and a bool is not bits.
_RAW = (DType.F64, DType.F32, *INTS)


def _infer_bitcast(call: OpCall) -> tuple[TensorType, ...]:
    checks.operands(call, 1)
    source, target = call.ins[0].dtype, dtype_attr(call)
    checks.dtype_in(source, _RAW)
    checks.dtype_in(target, _RAW)
    if source.itemsize != target.itemsize:
        raise GraphError(f"bitcast from {source} to {target} changes the size")
    return (TensorType(call.ins[0].shape, target),)


def _select_samples() -> list[Sample]:
    def sample(dtype: DType, shape: tuple[int, ...] = (3, 5)) -> Sample:
        x = TensorType(shape, dtype)
        return Sample((TensorType(shape, DType.BOOL), x, x))

    return [sample(dtype) for dtype in sampled(DType)] + [sample(DType.F32, ())]


def _cast_samples() -> list[Sample]:
    """Every pair, but of whole numbers that are seldom sampled only those of one size."""
    return [
        Sample((TensorType((3, 4), a),), {"dtype": str(b)}, -3.75, 3.75)
        for a in DType
        for b in DType
        if a.itemsize == b.itemsize or not {a, b} & {*SELDOM} or DType.F32 in (a, b)
    ]


def _bitcast_samples() -> list[Sample]:
    return [
        Sample((TensorType((5,), a),), {"dtype": str(b)}, 0.5, 4.0)
        for a in _RAW
        for b in _RAW
        # Small integers are denormal floats, which a fast-math kernel may flush.
        if a.itemsize == b.itemsize and not (a.is_int and b.is_float)
    ]


register(
    *map(_spec, (*_UNARY, *_BINARY, *_TERNARY)),
    OpSpec("select", Family.ELEMENTWISE, _infer_select, _reference(np.where), _flops(1),
           _select_samples, body=_body(bodies.select), axes=_identity, exact=always),
    OpSpec("cast", Family.ELEMENTWISE, _infer_cast, cast_reference, _flops(1),
           _cast_samples, body=_body(bodies.convert), axes=_identity, exact=_cast_is_exact,
           snaps=_cast_cuts),
    OpSpec("bitcast", Family.ELEMENTWISE, _infer_bitcast, bitcast_reference, _flops(0),
           _bitcast_samples, body=_body(bodies.reinterpret), axes=_identity, exact=always),
)  # fmt: skip
