"""Index expressions simplify, and never change their value."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from random import Random

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from autofuse.ops.dtypes import DType
from autofuse.ops.index import (
    bounds,
    delinearize,
    iadd,
    iand,
    iclamp,
    idiv,
    ige,
    ilt,
    imod,
    imul,
    iselect,
    isub,
    linearize,
    lit,
)
from autofuse.ops.scalar import Call, Expr, Lit, Load, Sym, cast

EXTENTS = {"r": 6, "c": 4, "k": 3, "f": 24}
R, C, K, F = (Sym(name, DType.I64, extent) for name, extent in EXTENTS.items())


def run(expr: Expr, env: dict[str, int]) -> int:
    """The value of an index expression with the C meaning of div and rem."""
    match expr:
        case Lit(value=value):
            return int(value)
        case Sym(name=name):
            return env[name]
        case Load(buffer=buffer):
            return env[buffer]
    a = [run(x, env) for x in expr.args]
    match expr.fn:
        case "add":
            return a[0] + a[1]
        case "sub":
            return a[0] - a[1]
        case "mul":
            return a[0] * a[1]
        case "div" | "rem":
            q = abs(a[0]) // a[1] * (1 if a[0] >= 0 else -1)
            return q if expr.fn == "div" else a[0] - q * a[1]
        case "lt":
            return int(a[0] < a[1])
        case "and":
            return int(bool(a[0] and a[1]))
        case "select":
            return a[1] if a[0] else a[2]
        case "min":
            return min(a)
        case "max":
            return max(a)
        case "cast":
            return a[0]
    raise AssertionError(expr.fn)


def test_row_and_column_come_back() -> None:
    flat = linearize((R, C), (6, 4))
    assert idiv(flat, 4) == R
    assert imod(flat, 4) == C
    assert delinearize(flat, (6, 4)) == (R, C)
    assert linearize(delinearize(F, (2, 3, 4)), (2, 3, 4)) == F
    assert linearize(delinearize(F, (6, 4)), (6, 4)) == F


def test_reshape_there_and_back_is_the_identity() -> None:
    there = delinearize(linearize((R, C), (6, 4)), (2, 3, 4))
    assert delinearize(linearize(there, (2, 3, 4)), (6, 4)) == (R, C)
    split = delinearize(linearize((R, C), (6, 4)), (3, 8))
    assert delinearize(linearize(split, (3, 8)), (6, 4)) == (R, C)


def test_order_of_construction_does_not_matter() -> None:
    a = iadd(imul(R, 4), iadd(C, lit(3)))
    b = isub(iadd(iadd(lit(5), C), imul(R, 4)), lit(2))
    assert a == b
    assert isub(a, b) == lit(0)


def test_nested_quotients_and_remainders() -> None:
    assert idiv(idiv(F, 3), 4) == idiv(F, 12) or idiv(idiv(F, 3), 4) == lit(0)
    assert imod(imod(F, 12), 4) == imod(F, 4)
    assert idiv(imod(F, 12), 4) == imod(idiv(F, 4), 3)
    assert idiv(imul(F, 12), 4) == imul(F, 3)
    assert imod(imul(F, 12), 4) == lit(0)
    assert iadd(imul(idiv(F, 4), 4), imod(F, 4)) == F
    assert idiv(iadd(imul(R, 4), C), 8) == idiv(R, 2)
    assert imod(iadd(imul(R, 4), C), 8) == iadd(imul(imod(R, 2), 4), C)


def test_bounds_decide_comparisons_selects_and_clamps() -> None:
    assert bounds(iadd(imul(R, 4), C)) == (0, 23)
    assert bounds(isub(C, lit(1))) == (-1, 2)
    assert ilt(C, lit(4)) == Lit(True, DType.BOOL)
    assert ige(C, lit(4)) == Lit(False, DType.BOOL)
    assert isinstance(ilt(C, R), Call)
    assert iselect(ilt(C, lit(4)), R, K) == R
    assert iselect(ilt(C, R), K, K) == K
    assert iand(ige(C, lit(0)), ilt(C, R)) == ilt(C, R)
    assert iclamp(C, 0, 3) == C
    assert iclamp(C, 0, 2) == Call("min", (C, lit(2)), DType.I64)
    assert iclamp(C, 5, 9) == lit(5)


def test_loaded_indices_are_unbounded_until_clamped() -> None:
    loaded = cast(Load("idx", C, DType.I32), DType.I64)
    assert bounds(loaded) is None
    assert bounds(iadd(loaded, R)) is None
    assert bounds(iclamp(loaded, 0, 5)) == (0, 5)
    assert imod(iadd(imul(iclamp(loaded, 0, 5), 4), C), 4) == C
    assert idiv(iadd(imul(loaded, 4), C), 4) == loaded


Pair = tuple[Expr, "object"]


@st.composite
def expressions(draw: st.DrawFn, depth: int = 4) -> tuple[Expr, object]:
    """A smart-constructed index and the plain function it must equal (None: dividend < 0)."""
    if depth == 0 or (draw(st.booleans()) is False and depth < 3):
        leaf = draw(st.sampled_from([R, C, K, F, None]))
        if leaf is None:
            n = draw(st.integers(-9, 30))
            return lit(n), lambda env: n
        return leaf, lambda env, name=leaf.name: env[name]
    kind = draw(st.sampled_from(["add", "sub", "mul", "div", "mod", "clamp", "select"]))
    a, fa = draw(expressions(depth=depth - 1))
    if kind in ("add", "sub", "select"):
        b, fb = draw(expressions(depth=depth - 1))
        if kind == "select":
            return (
                iselect(ilt(a, b), a, iadd(b, lit(1))),
                lambda env: _strict(lambda x, y: x if x < y else y + 1, fa(env), fb(env)),
            )
        sign = 1 if kind == "add" else -1
        made = iadd(a, b) if sign > 0 else isub(a, b)
        return made, lambda env: _strict(lambda x, y: x + sign * y, fa(env), fb(env))
    n = draw(st.sampled_from([1, 2, 3, 4, 6, 8, 12, 5]))
    if kind == "mul":
        return imul(a, n), lambda env: _strict(lambda x: x * n, fa(env))
    if kind == "clamp":
        return iclamp(a, 0, n), lambda env: _strict(lambda x: min(max(x, 0), n), fa(env))
    if kind == "div":
        return idiv(a, n), lambda env: _strict(lambda x: x // n if x >= 0 else None, fa(env))
    return imod(a, n), lambda env: _strict(lambda x: x % n if x >= 0 else None, fa(env))


def _strict(fn: Callable[..., int | None], *args: int | None) -> int | None:
    return None if any(a is None for a in args) else fn(*args)


@settings(max_examples=400, deadline=None)
@given(expressions(), st.lists(st.integers(0, 10_000), min_size=4, max_size=4))
def test_simplification_keeps_the_value(pair: tuple[Expr, object], seeds: list[int]) -> None:
    expr, plain = pair
    tried = 0
    for shift in range(12):
        env = {
            name: (seed + shift * 5) % extent
            for (name, extent), seed in zip(EXTENTS.items(), seeds, strict=True)
        }
        want = plain(env)
        if want is None:
            continue
        tried += 1
        assert run(expr, env) == want
        known = bounds(expr)
        assert known is not None and known[0] <= want <= known[1]
    assume(tried)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_reshapes_of_every_shape(shape: list[int], rnd: Random) -> None:
    syms = [Sym(f"i{a}", DType.I64, n) for a, n in enumerate(shape)]
    other = [n for n in shape if n > 1]
    rnd.shuffle(other)
    index = delinearize(linearize(syms, shape), other)
    assert linearize(index, other) == linearize(syms, shape)
    for point in itertools.product(*(range(n) for n in shape)):
        env = {f"i{a}": p for a, p in enumerate(point)}
        flat = run(linearize(syms, shape), env)
        for i, extent in zip(reversed(index), reversed(other), strict=True):
            assert run(i, env) == flat % extent
            flat //= extent
