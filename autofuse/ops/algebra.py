"""What holds of scalar ops for all operands: identities that a program may be rewritten by.

They hold exactly, for NaN, infinities and signed zeros too, as IEEE 754 has them; which NaN it is
does not count. Of 0.0 and -0.0 max and min give either, as the Python array API and IEEE 754-2008
(minNum, maxNum) leave it open and C's fmin and fmax do: so do kernels, and these ops commute.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from autofuse.ops.dtypes import DType

# The operand that something is said of, and its number there; None: nothing is said for the dtype.
Special = Callable[[DType, int], int | float | bool | None]


def _nothing(dtype: DType, operand: int) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Algebra:
    """Identities of one elementwise op f.

    `commutes`: f(x, y) = f(y, x). `associates`: f(f(x, y), z) = f(x, f(y, z)), in whole numbers,
    or with `exact_floats` in floats too. `involution`: f(f(x)) = x. `idempotent`: f(x, x) = x, or
    f(f(x)) = f(x). `neutral(dtype, k)`: the number c such that f is its other operand where operand
    k is c. `absorbing(dtype, k)`: such that f is c. `cancels`: f(x, x) = 0, in whole numbers.
    `opposite`: the comparison that is true where f is not; of floats only if `exact_floats`.
    `on_equals`: what a comparison of whole numbers with themselves is.
    """

    commutes: bool = False
    associates: bool = False
    exact_floats: bool = False
    involution: bool = False
    idempotent: bool = False
    neutral: Special = _nothing
    absorbing: Special = _nothing
    cancels: bool = False
    opposite: str = ""
    on_equals: bool | None = None


NO_ALGEBRA = Algebra()


def _limit(dtype: DType, highest: bool) -> int | float:
    if dtype.is_float:
        return float("inf") if highest else float("-inf")
    info = np.iinfo(dtype.numpy)
    return int(info.max if highest else info.min)


def _ones(dtype: DType) -> int | bool:
    """All bits set."""
    if dtype is DType.BOOL:
        return True
    return -1 if dtype.is_signed else int(np.iinfo(dtype.numpy).max)


def _zeros(dtype: DType) -> int | bool:
    return False if dtype is DType.BOOL else 0


def _second(number: int | float) -> Special:
    return lambda dtype, operand: number if operand == 1 else None


# The sum of 0.0 and -0.0 is 0.0, so only -0.0 is neutral.
_SUM = Algebra(
    commutes=True,
    associates=True,
    neutral=lambda dtype, operand: -0.0 if dtype.is_float else 0,
)
_PRODUCT = Algebra(
    commutes=True,
    associates=True,
    neutral=lambda dtype, operand: 1,
    # In floats, NaN, infinities and signs come through a product with zero.
    absorbing=lambda dtype, operand: None if dtype.is_float else 0,
)


def _extremum(highest: bool) -> Algebra:
    return Algebra(
        commutes=True,
        associates=True,
        exact_floats=True,
        idempotent=True,
        neutral=lambda dtype, operand: _limit(dtype, not highest),
        # A NaN wins against the largest number.
        absorbing=lambda dtype, operand: None if dtype.is_float else _limit(dtype, highest),
    )


def _bits(
    neutral: Callable[[DType], int | bool], absorbing: Callable[[DType], int | bool]
) -> Algebra:
    return Algebra(
        commutes=True,
        associates=True,
        idempotent=True,
        neutral=lambda dtype, operand: neutral(dtype),
        absorbing=lambda dtype, operand: absorbing(dtype),
    )


def _comparison(opposite: str, on_equals: bool, exact_floats: bool = False) -> Algebra:
    commutes = exact_floats
    return Algebra(commutes, exact_floats=exact_floats, opposite=opposite, on_equals=on_equals)


ALGEBRA: dict[str, Algebra] = {
    "add": _SUM,
    "sub": Algebra(neutral=_second(0), cancels=True),
    "mul": _PRODUCT,
    "div": Algebra(neutral=_second(1)),
    "pow": Algebra(neutral=_second(1)),
    "max": _extremum(True),
    "min": _extremum(False),
    "and": _bits(_ones, _zeros),
    "or": _bits(_zeros, _ones),
    "xor": Algebra(
        commutes=True, associates=True, cancels=True, neutral=lambda dtype, operand: _zeros(dtype)
    ),
    "shl": Algebra(neutral=_second(0)),
    "shr": Algebra(neutral=_second(0)),
    "shr_logical": Algebra(neutral=_second(0)),
    "neg": Algebra(involution=True),
    "not": Algebra(involution=True),
    "abs": Algebra(idempotent=True),
    "sign": Algebra(idempotent=True),
    "floor": Algebra(idempotent=True),
    "ceil": Algebra(idempotent=True),
    "round": Algebra(idempotent=True),
    "eq": _comparison("ne", True, exact_floats=True),
    "ne": _comparison("eq", False, exact_floats=True),
    "lt": _comparison("ge", False),
    "ge": _comparison("lt", True),
    "gt": _comparison("le", False),
    "le": _comparison("gt", True),
}
