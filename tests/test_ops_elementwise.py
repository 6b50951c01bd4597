"""Elementwise rows at the edges: zero divisors, wide shifts, NaN, saturation, bad operands."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from autofuse.ops import GraphError, OpCall, TensorType, infer, make_attrs, spec_of
from autofuse.ops.dtypes import FLOATS, INTS, SIGNED, DType, from_numpy
from autofuse.ops.scalar import Call, Expr, Lit
from autofuse.ops.source import is_scalar_constant
from autofuse.ops.types import Literal
from tests.support.expr_eval import eval_body, reference_of

INF, NAN = float("inf"), float("nan")


def both(op: str, *arrays: np.ndarray, **attrs: Any) -> np.ndarray:
    """The result of `op` on stored arrays, by its body and its reference, which must agree."""
    spec = spec_of(op)
    ins = tuple(TensorType(a.shape, from_numpy(a.dtype)) for a in arrays)
    call = OpCall(make_attrs(attrs), ins)
    call = OpCall(call.attrs, ins, spec.infer(call))
    (found,) = eval_body(spec, call, arrays)
    (wanted,) = reference_of(spec, call, arrays)
    if call.out.dtype.is_float:
        rounded = wanted.astype(call.out.dtype.numpy).astype(np.float64)
        np.testing.assert_allclose(found.astype(np.float64), rounded, rtol=call.out.dtype.eps * 8)
    else:
        np.testing.assert_array_equal(found, wanted)
    return np.asarray(wanted)


def edges(dtype: DType) -> np.ndarray:
    """Every pairing's worth of extreme integers."""
    info = np.iinfo(dtype.numpy)
    values = {info.min, info.min + 1, 0, 1, 2, 7, info.max - 1, info.max}
    values |= {-1, -2, -7} if dtype.is_signed else set()
    return np.array(sorted(values), dtype.numpy)


def pairs(dtype: DType) -> tuple[np.ndarray, np.ndarray]:
    a, b = np.meshgrid(edges(dtype), edges(dtype))
    return a.reshape(-1).copy(), b.reshape(-1).copy()


@pytest.mark.parametrize("dtype", INTS)
@pytest.mark.parametrize(
    "op", ["add", "sub", "mul", "div", "rem", "max", "min", "and", "or", "xor"]
)
def test_integer_ops_on_extremes(op: str, dtype: DType) -> None:
    x, y = pairs(dtype)
    result = both(op, x, y)
    bits = dtype.itemsize * 8
    for a, b, r in zip(map(int, x), map(int, y), map(int, result), strict=True):
        if op == "div":
            exact = -1 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        elif op == "rem":
            exact = a if b == 0 else abs(a) % abs(b) * (-1 if a < 0 else 1)
        elif op in ("add", "sub", "mul"):
            exact = {"add": a + b, "sub": a - b, "mul": a * b}[op]
        else:
            exact = {"max": max(a, b), "min": min(a, b), "and": a & b, "or": a | b, "xor": a ^ b}[
                op
            ]
        assert (exact - r) % 2**bits == 0


@pytest.mark.parametrize("dtype", INTS)
def test_shifts_by_any_amount(dtype: DType) -> None:
    bits = dtype.itemsize * 8
    amounts = [0, 1, bits - 1, bits, bits + 1] + ([-1] if dtype.is_signed else [])
    x, y = np.meshgrid(edges(dtype), np.array(amounts, dtype.numpy))
    x, y = x.reshape(-1).copy(), y.reshape(-1).copy()
    results = [both(op, x, y) for op in ("shl", "shr", "shr_logical")]
    for a, n, *got in zip(map(int, x), map(int, y), *(map(int, r) for r in results), strict=True):
        inside = 0 <= n < bits
        wanted = (
            a << n if inside else 0,
            a >> n if inside else (-1 if a < 0 else 0),
            (a % 2**bits) >> n if inside else 0,
        )
        assert all((w - g) % 2**bits == 0 for w, g in zip(wanted, got, strict=True))


@pytest.mark.parametrize("dtype", SIGNED)
def test_signed_unary_ops_wrap(dtype: DType) -> None:
    x = edges(dtype)
    low = np.iinfo(dtype.numpy).min
    assert both("neg", x)[0] == low and both("abs", x)[0] == low
    assert both("sign", x).tolist() == np.sign(x).tolist()
    assert both("not", x).tolist() == (~x).tolist()


def test_unsigned_unary_ops() -> None:
    x = edges(DType.U32)
    assert both("neg", x).tolist() == [-int(v) % 2**32 for v in x]
    assert both("abs", x).tolist() == x.tolist()
    assert both("sign", x).tolist() == [min(int(v), 1) for v in x]


def test_bool_ops_are_logical() -> None:
    x, y = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    assert both("and", x, y).tolist() == [False, False, False, True]
    assert both("or", x, y).tolist() == [False, True, True, True]
    assert both("xor", x, y).tolist() == [False, True, True, False]
    assert both("not", x).tolist() == [True, True, False, False]
    assert both("lt", x, y).tolist() == [False, True, False, False]


@pytest.mark.parametrize("dtype", FLOATS)
def test_nan_wins_extrema_and_clamps(dtype: DType) -> None:
    x = np.array([1, NAN, 2, NAN, INF, -INF], dtype.numpy)
    y = np.array([NAN, 1, 3, NAN, 0, 0], dtype.numpy)
    np.testing.assert_array_equal(both("max", x, y), [NAN, NAN, 3, NAN, INF, 0])
    np.testing.assert_array_equal(both("min", x, y), [NAN, NAN, 2, NAN, 0, -INF])
    zeros, ones = np.zeros(6, dtype.numpy), np.ones(6, dtype.numpy)
    np.testing.assert_array_equal(both("clamp", x, zeros, ones), [1, NAN, 1, NAN, 1, 0])
    np.testing.assert_array_equal(both("sign", x), [1, NAN, 1, NAN, 1, -1])
    assert both("isnan", x).tolist() == [False, True, False, True, False, False]
    assert both("isfinite", x).tolist() == [True, False, True, False, False, False]


def test_round_goes_to_even() -> None:
    x = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.2], np.float32)
    assert both("round", x).tolist() == [-2, -2, 0, 0, 2, 2, 3]


def test_float_remainder_has_the_sign_of_the_dividend() -> None:
    x, y = np.array([5.5, -5.5, 5.5], np.float64), np.array([2.0, 2.0, -2.0])
    assert both("rem", x, y).tolist() == [1.5, -1.5, 1.5]


@pytest.mark.parametrize("target", INTS)
@pytest.mark.parametrize("source", [DType.F64, DType.F32])
def test_float_to_integer_truncates_and_saturates(source: DType, target: DType) -> None:
    info = np.iinfo(target.numpy)
    x = np.array([NAN, INF, -INF, 1e30, -1e30, 2.9, -2.9, -0.9, info.max, info.min], source.numpy)
    result = both("cast", x, dtype=str(target)).tolist()
    small = [2, -2, 0] if target.is_signed else [2, 0, 0]
    assert result[:8] == [0, info.max, info.min, info.max, info.min, *small]
    assert result[9] == info.min


def test_casts_between_the_rest() -> None:
    x = np.array([-1, 0, 255, 256], np.int32)
    assert both("cast", x, dtype="u8").tolist() == [255, 0, 255, 0]
    assert both("cast", x, dtype="u32").tolist() == [2**32 - 1, 0, 255, 256]
    assert both("cast", x, dtype="u64").tolist() == [2**64 - 1, 0, 255, 256]
    assert both("cast", x + 2**15, dtype="i16").tolist() == [2**15 - 1, *(-(2**15) + x[1:])]
    assert both("cast", x, dtype="bool").tolist() == [True, False, True, True]
    floats = np.array([0.0, -0.0, 0.5, NAN], np.float32)
    assert both("cast", floats, dtype="bool").tolist() == [False, False, True, True]


def test_a_cast_to_a_half_type_rounds_in_registers() -> None:
    x = np.array([1.001, 3.14159, 70000.0], np.float32)
    for dtype, stored in (("f16", np.float16), ("bf16", ml_dtypes.bfloat16)):
        with np.errstate(over="ignore"):
            wanted = x.astype(stored).astype(np.float64)
        np.testing.assert_array_equal(both("cast", x, dtype=dtype), wanted)
    assert both("cast", np.array([0.1]), dtype="f32")[0] == float(np.float32(0.1))


def test_bitcasts_round_trip() -> None:
    x = np.array([0.0, -1.5, INF, 1e-3], np.float32)
    bits = both("bitcast", x, dtype="u32").astype(np.uint32)
    assert bits.tolist() == x.view(np.uint32).tolist()
    assert both("bitcast", bits, dtype="f32").tolist() == x.tolist()
    wide = both("bitcast", x.astype(np.float64), dtype="u64")
    assert (
        both("bitcast", wide, dtype="i64").tolist() == x.astype(np.float64).view(np.int64).tolist()
    )


def test_a_literal_divisor_needs_no_guard() -> None:
    class Pull:
        def __call__(self, operand: int, index: tuple[Expr, ...], /) -> Expr:
            from autofuse.ops.scalar import Sym

            return Lit(4, DType.I32) if operand else Sym("x", DType.I32)

        def let(self, value: Expr, /) -> Expr:
            raise AssertionError("nothing is used twice")

    t = TensorType((), DType.I32)
    for op, fn in (("div", "div"), ("rem", "rem"), ("shl", "shl"), ("shr_logical", "bitcast")):
        body = spec_of(op).body
        assert body is not None
        (result,) = body(OpCall((), (t, t), (t,)), (), Pull())
        assert isinstance(result, Call) and result.fn == fn


@pytest.mark.parametrize(
    ("op", "ins", "attrs", "message"),
    [
        ("add", ["f32 2", "f32 3"], {}, r"operand shapes f32\[2\] and f32\[3\] differ"),
        ("add", ["f32 2", "f64 2"], {}, r"operand dtypes f32\[2\] and f64\[2\] differ"),
        ("add", ["f32 2"], {}, "expected 2 operands, got 1"),
        ("add", ["bool 2", "bool 2"], {}, "dtype bool is not one of"),
        ("exp", ["i32 2"], {}, "dtype i32 is not one of"),
        ("shl", ["f32 2", "f32 2"], {}, "dtype f32 is not one of"),
        ("select", ["f32 2", "f32 2", "f32 2"], {}, "the condition must be bool"),
        ("select", ["bool 3", "f32 2", "f32 2"], {}, "differ"),
        ("cast", ["f32 2"], {"dtype": "f31"}, "unknown dtype 'f31'"),
        ("cast", ["f32 2"], {}, "attribute 'dtype' is missing"),
        ("bitcast", ["f32 2"], {"dtype": "i64"}, "changes the size"),
        ("bitcast", ["f16 2"], {"dtype": "i8"}, "dtype f16 is not one of"),
        ("constant", [], {"value": 3.0}, "must be a literal array"),
        ("iota", [], {"shape": (2,), "dtype": "f32", "axis": 1}, "1 axes"),
        ("iota", [], {"shape": (2,), "dtype": "bool", "axis": 0}, "dtype bool"),
        ("input", [], {"position": 0, "shape": (-1,), "dtype": "f32"}, "negative extent"),
        ("input", [], {"position": 0, "shape": (), "dtype": "f32", "low": "x"}, "must be a number"),
        ("frobnicate", [], {}, "unknown op 'frobnicate'"),
    ],
)
def test_bad_operands_are_refused(
    op: str, ins: list[str], attrs: dict[str, Any], message: str
) -> None:
    types = tuple(
        TensorType((int(n),), DType(dtype)) for dtype, n in (entry.split() for entry in ins)
    )
    with pytest.raises(GraphError, match=message):
        infer(op, types, make_attrs(attrs))


def test_scalar_constants_are_literals_and_arrays_are_buffers() -> None:
    spec = spec_of("constant")
    assert spec.body is not None
    one = Literal.of(np.asarray(2.5), DType.BF16)
    call = OpCall(make_attrs({"value": one}), (), (one.type,))
    assert spec.body(call, (), None) == (Lit(2.5, DType.F32),)
    many = Literal.of(np.arange(3), DType.I32)
    assert is_scalar_constant("constant", (one.type,))
    assert not is_scalar_constant("constant", (many.type,))
    with pytest.raises(GraphError, match="is a buffer"):
        spec.body(OpCall(make_attrs({"value": many}), (), (many.type,)), (), None)
