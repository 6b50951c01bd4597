"""What elementwise functions are called elsewhere: one table, from which the plain rules of all
front ends follow, and the names that ONNX files are written with.

A function is an op of the table of ops, or a composite. What does more than rename is a rule of its
front end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from autofuse.graph.composites import activations
from autofuse.graph.composites import math as composites_math
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter
from autofuse.ops.dtypes import DType


class Kind(Enum):
    """What a function takes, where a source leaves it open, and gives."""

    FLOATS = "floats"  # whole numbers are computed as floats
    NUMBERS = "numbers"  # truth values are whole numbers
    ROUNDING = "rounding"  # whole numbers stay what they are
    TEST = "test"  # says something of floats that holds for no whole number
    COMPARISON = "comparison"
    BITS = "bits"
    LOGIC = "logic"  # whether numbers are not 0


@dataclass(frozen=True, slots=True)
class OpNames:
    """One function, of one operand or two, and its names; "" and () where there is none. `onnx` is
    an operator and the version since which it is this function, `aten` are whole overloads."""

    function: str
    kind: Kind
    operands: int
    jax: str
    aten: tuple[str, ...]
    onnx: str
    since: int
    array: str

    @property
    def is_op(self) -> bool:
        """Whether the function is an op of the table of ops."""
        return self.function not in _COMPOSITES

    @property
    def write(self) -> Callable[..., Value]:
        """The function of a writer and operands."""
        return _COMPOSITES.get(self.function) or elementwise(self.function)


# What does on truth values as arithmetic on them.
_OF_BOOLS = {"add": "or", "mul": "and", "max": "or", "min": "and"}


def elementwise(op: str) -> Callable[..., Value]:
    """An op as a function of a writer and operands; truth values add up to truth values."""

    def function(w: GraphWriter, *values: Value) -> Value:
        boolean = w.dtype(values[0]) is DType.BOOL
        return w.map(_OF_BOOLS.get(op, op) if boolean else op, *values)

    return function


_COMPOSITES: dict[str, Callable[..., Value]] = {
    f.__name__: f
    for f in (
        activations.hard_sigmoid, activations.hard_swish, activations.mish, activations.relu,
        activations.silu, activations.softplus, activations.softsign,
        composites_math.acosh, composites_math.asinh, composites_math.atanh, composites_math.cbrt,
        composites_math.erf_inv, composites_math.erfc, composites_math.exp2,
        composites_math.floor_divide, composites_math.hypot, composites_math.isinf,
        composites_math.log2, composites_math.log10, composites_math.logaddexp,
        composites_math.remainder, composites_math.square, composites_math.trunc,
    )
}  # fmt: skip
# Function, JAX primitive, ONNX operator @ version, array API, aten overloads ("default" where none
# is said; T: Tensor, S: Scalar); "-" for none.
_ROWS = {
    (Kind.FLOATS, 1): """
        acos          acos          Acos@7         acos         acos
        acosh         acosh         Acosh@9        acosh        acosh
        asin          asin          Asin@7         asin         asin
        asinh         asinh         Asinh@9        asinh        asinh
        atan          atan          Atan@7         atan         atan
        atanh         atanh         Atanh@9        atanh        atanh
        cbrt          cbrt          -              -            -
        cos           cos           Cos@7          cos          cos
        cosh          cosh          Cosh@9         cosh         cosh
        erf           erf           Erf@9          erf          erf
        erf_inv       erf_inv       -              -            erfinv
        erfc          erfc          -              -            erfc
        exp           exp           Exp@6          exp          exp
        exp2          exp2          -              -            exp2
        expm1         expm1         -              expm1        expm1
        hard_sigmoid  -             -              -            hardsigmoid
        hard_swish    -             HardSwish@14   -            hardswish
        log           log           Log@6          log          log
        log10         -             -              log10        log10
        log1p         log1p         -              log1p        log1p
        log2          log2          -              log2         log2
        logistic      logistic      Sigmoid@6      logistic     sigmoid
        mish          -             Mish@18        -            mish
        reciprocal    -             Reciprocal@6   reciprocal   reciprocal
        rsqrt         rsqrt         -              rsqrt        rsqrt
        silu          -             -              silu         silu
        sin           sin           Sin@7          sin          sin
        sinh          sinh          Sinh@9         sinh         sinh
        softplus      -             Softplus@1     -            -
        softsign      -             Softsign@1     -            -
        sqrt          sqrt          Sqrt@6         sqrt         sqrt
        tan           tan           Tan@7          tan          tan
        tanh          tanh          Tanh@6         tanh         tanh
    """,
    (Kind.FLOATS, 2): """
        atan2         atan2         -              atan2        atan2
        div           div           Div@6          divide       div/T,S
        hypot         -             -              hypot        hypot
        logaddexp     -             -              logaddexp    logaddexp
    """,
    (Kind.NUMBERS, 1): """
        abs           abs           Abs@6          abs          abs
        neg           neg           Neg@6          negative     neg
        relu          -             Relu@6         relu         relu
        sign          sign          Sign@9         sign         sign
        square        square        -              square       -
    """,
    (Kind.NUMBERS, 2): """
        add           add           Add@6          add          -
        add           add_any       -              -            -
        floor_divide  -             -              floor_divide -
        max           max           Max@6          maximum      maximum
        min           min           Min@6          minimum      minimum
        mul           mul           Mul@6          multiply     mul/T,S
        rem           rem           -              -            fmod/T,S
        remainder     -             -              remainder    remainder/T,S,ST
        sub           sub           Sub@6          subtract     -
    """,
    (Kind.ROUNDING, 1): """
        ceil          ceil          Ceil@6         ceil         ceil
        floor         floor         Floor@6        floor        floor
        round         -             Round@11       round        round
        trunc         -             -              trunc        trunc
    """,
    (Kind.TEST, 1): """
        isfinite      is_finite     -              isfinite     -
        isinf         -             -              isinf        isinf
        isnan         -             IsNaN@9        isnan        isnan
    """,
    (Kind.COMPARISON, 2): """
        eq            eq            Equal@1        equal        eq/T,S
        ge            ge            GreaterOrEqual@12  greater_equal  ge/T,S
        gt            gt            Greater@1      greater      gt/T,S
        le            le            LessOrEqual@12 less_equal   le/T,S
        lt            lt            Less@1         less         lt/T,S
        ne            ne            -              not_equal    ne/T,S
    """,
    (Kind.BITS, 1): """
        not           not           BitwiseNot@18  bitwise_invert  bitwise_not
    """,
    (Kind.BITS, 2): """
        and           and           BitwiseAnd@18  bitwise_and  bitwise_and/T,S,ST
        or            or            BitwiseOr@18   bitwise_or   bitwise_or/T,S,ST
        shl           -             -              -            __lshift__/T,S
        shl           shift_left    -         bitwise_left_shift  bitwise_left_shift/T,TS
        shr           -             -              -            __rshift__/T,S
        shr    shift_right_arithmetic  -      bitwise_right_shift  bitwise_right_shift/T,TS
        shr_logical   shift_right_logical  -       -            -
        xor           xor           BitwiseXor@18  bitwise_xor  bitwise_xor/T,S,ST
    """,
    (Kind.LOGIC, 1): """
        not           -             Not@1          logical_not  logical_not
    """,
    (Kind.LOGIC, 2): """
        and           -             And@1          logical_and  logical_and
        or            -             Or@1           logical_or   logical_or
        xor           -             Xor@1          logical_xor  logical_xor
    """,
}
_OVERLOADS = {"T": "Tensor", "S": "Scalar", "ST": "Scalar_Tensor", "TS": "Tensor_Scalar"}


def _row(kind: Kind, operands: int, text: str) -> OpNames:
    function, jax, onnx, array, aten = (word.replace("-", "") for word in text.split())
    operator, _, since = onnx.partition("@")
    base, _, codes = aten.partition("/")
    overloads = [_OVERLOADS[code] for code in codes.split(",")] if codes else ["default"]
    whole = tuple(f"aten.{base}.{overload}" for overload in overloads) if base else ()
    return OpNames(function, kind, operands, jax, whole, operator, int(since or 0), array)


NAMES: tuple[OpNames, ...] = tuple(
    _row(kind, operands, line)
    for (kind, operands), text in _ROWS.items()
    for line in text.splitlines()
    if line.strip()
)


@lru_cache(maxsize=1)
def by_array_name() -> dict[str, OpNames]:
    """The rows that the array API, or `xp` beyond it, has a name for."""
    return {row.array: row for row in NAMES if row.array}
