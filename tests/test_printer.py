"""Expressions as text: no parenthesis too many, none too few, and every literal of its type."""

from __future__ import annotations

import pytest

from autofuse.kernel.text.dialects import CUDA, C
from autofuse.kernel.text.expressions import expression, operand
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Call, Expr, Lit, Load, Sym, call, cast

F32, F64, I64, I32, I8, U8, U32 = (
    DType.F32, DType.F64, DType.I64, DType.I32, DType.I8, DType.U8, DType.U32,
)  # fmt: skip
BOOL, F16, BF16 = DType.BOOL, DType.F16, DType.BF16
x, y, z = (Sym(n, F32) for n in "xyz")
i, j = Sym("i", I64), Sym("j", I64)
n, m = Sym("n", I32), Sym("m", I32)
p, q = Sym("p", BOOL), Sym("q", BOOL)
a, b = Sym("a", I8), Sym("b", I8)
u, w = Sym("u", U32), Sym("w", U32)
one, big = Lit(1, I64), Lit(2**40, I64)

CASES: list[tuple[Expr, str]] = [
    # precedence and associativity
    (call("add", x, call("mul", y, z)), "x + y * z"),
    (call("mul", x, call("add", y, z)), "x * (y + z)"),
    (call("sub", call("sub", x, y), z), "x - y - z"),
    (call("sub", x, call("sub", y, z)), "x - (y - z)"),
    (call("div", x, call("mul", y, z)), "x / (y * z)"),
    (call("add", x, call("add", y, z)), "x + (y + z)"),
    (call("neg", call("neg", x)), "-(-x)"),
    (call("neg", call("add", x, y)), "-(x + y)"),
    (call("sub", x, call("neg", y)), "x - -y"),
    (call("lt", call("add", x, y), z), "(x + y) < z"),
    (call("and", call("lt", x, y), call("ge", y, z)), "(x < y) & (y >= z)"),
    (call("or", p, call("and", p, q)), "p | (p & q)"),
    (call("not", call("eq", n, m)), "!(n == m)"),
    (call("not", n), "~n"),
    # GCC has no vectors of conditions as floats, but as whole numbers
    (cast(p, F32), "(float)(int32_t)p"),
    (cast(p, I32), "(int32_t)p"),
    # selects
    (call("select", p, x, y), "p ? x : y"),
    (call("select", p, x, call("select", q, y, z)), "p ? x : q ? y : z"),
    (call("select", p, call("select", q, x, y), z), "p ? (q ? x : y) : z"),
    (call("add", call("select", p, x, y), z), "(p ? x : y) + z"),
    (call("select", call("lt", x, y), x, y), "x < y ? x : y"),
    # literals
    (Lit(1.0, F32), "1.0f"),
    (Lit(1.0, F64), "1.0"),
    (Lit(1e-5, F32), "1e-05f"),
    (Lit(0.1, F64), "0.1"),
    (Lit(-0.0, F32), "(-0.0f)"),
    (call("sub", x, Lit(-2.5, F32)), "x - (-2.5f)"),
    (Lit(float("inf"), F32), "AF_INFF"),
    (Lit(float("-inf"), F64), "(-AF_INF)"),
    (Lit(float("nan"), F32), "AF_NANF"),
    (Lit(1.5, BF16), "af_store_bf16(1.5f)"),
    (Lit(True, BOOL), "true"),
    (Lit(3, U32), "3u"),
    (Lit(-3, I32), "(-3)"),
    (Lit(-(2**31), I32), "(-2147483647 - 1)"),
    (Lit(-(2**63), I64), "(-9223372036854775807LL - 1)"),
    (Lit(2**64 - 1, DType.U64), "18446744073709551615ULL"),
    (big, "1099511627776LL"),
    # an i64 literal is as wide as its type wherever nothing else makes it so
    (one, "1"),
    (call("add", i, one), "i + 1"),
    (call("mul", one, i), "1 * i"),
    (call("mul", Lit(3, I64), Lit(5, I64)), "3LL * 5LL"),
    (call("shl", one, i), "1LL << (i & 63)"),
    (call("shl", i, Lit(40, I64)), "i << 40"),
    (call("shl", call("select", p, one, Lit(0, I64)), Lit(40, I64)), "(p ? 1LL : 0LL) << 40"),
    (call("not", one), "~1LL"),
    # shifts stay below the width; small integers are cut back to their type
    (call("shr", u, w), "u >> (w & 31)"),
    (call("add", a, b), "(int8_t)(a + b)"),
    (call("mul", call("add", a, b), b), "(int8_t)((int8_t)(a + b) * b)"),
    (call("neg", a), "(int8_t)(-a)"),
    (call("shl", a, b), "(int8_t)(a << (b & 7))"),
    (call("lt", a, b), "a < b"),
    # division by what might be zero is a function, by a literal an operator
    (call("div", n, m), "af_div_i32(n, m)"),
    (call("rem", n, m), "af_rem_i32(n, m)"),
    (call("div", i, Lit(7, I64)), "i / 7"),
    (call("rem", i, Lit(7, I64)), "i % 7"),
    (call("div", x, y), "x / y"),
    (call("rem", x, y), "af_rem_f32(x, y)"),
    # functions
    (call("log", x), "logf(x)"),
    (call("log", Sym("d", F64)), "log(d)"),
    (call("max", x, call("add", y, z)), "af_max_f32(x, y + z)"),
    (call("isnan", x), "af_isnan_f32(x)"),
    (call("mulhi", u, w), "af_mulhi_u32(u, w)"),
    # casts
    (cast(call("add", n, m), F32), "(float)(n + m)"),
    (cast(n, I64), "(int64_t)n"),
    (call("mul", cast(n, F32), x), "(float)n * x"),
    (cast(n, BOOL), "n != 0"),
    (call("select", cast(n, BOOL), x, y), "n != 0 ? x : y"),
    (call("bitcast", x, dtype=U32), "af_bits_f32_u32(x)"),
    (cast(Load("buf", i, F16), F32), "af_load_f16(buf[i])"),
    (Call("cast", (x,), BF16), "af_store_bf16(x)"),
    (cast(Call("cast", (x,), F16), F32), "af_load_f16(af_store_f16(x))"),
    # loads
    (Load("buf", call("add", i, one), F32), "buf[i + 1]"),
    (Load("buf", Lit(0, I64), F32), "buf[0]"),
]


@pytest.mark.parametrize(("expr", "text"), CASES, ids=[text for _, text in CASES])
def test_expression_text(expr: Expr, text: str) -> None:
    assert expression(expr, C) == text
    assert expression(expr, CUDA) == text


def test_what_text_adds_to_or_compares_is_parenthesised_if_it_binds_less() -> None:
    """`tk < p ? 4 : 8` is no end of a loop: it never comes."""
    chosen = call("select", p, i, j)
    assert operand(chosen, CUDA) == f"({expression(chosen, CUDA)})"
    for plain in (i, one, call("add", i, one)):
        assert operand(plain, CUDA) == expression(plain, CUDA)


def test_c_spells_exp_its_own_way() -> None:
    double = call("exp", Sym("d", F64))
    assert (expression(call("exp", x), C), expression(double, C)) == (
        "af_exp_f32(x)",
        "af_exp_f64(d)",
    )
    assert (expression(call("exp", x), CUDA), expression(double, CUDA)) == ("expf(x)", "exp(d)")
