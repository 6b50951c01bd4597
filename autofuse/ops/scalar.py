"""Scalar expressions: what one element of an op is, independent of any device language.

The kernel IR reuses these nodes as its expressions; the two dialect tables (C, CUDA) spell
the primitive functions listed in PRIMITIVES.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from autofuse.ops.dtypes import DType

T = TypeVar("T")


class Hashed:
    """Has room for its hash, which is never pickled: of text it differs by process."""

    __slots__ = ("_hash",)


def hashed_once(kind: type[T]) -> type[T]:
    """Passes look expressions up over and over: the hash of a tree is not worked out from its
    leaves each time."""
    worked_out = kind.__hash__

    def kept(self: Any) -> int:
        try:
            known: int = self._hash
            return known
        except AttributeError:
            found = worked_out(self)
            object.__setattr__(self, "_hash", found)
            return found

    type.__setattr__(kind, "__hash__", kept)
    return kind


@hashed_once
@dataclass(frozen=True, slots=True)
class Lit(Hashed):
    """A literal number."""

    value: bool | int | float
    dtype: DType


@hashed_once
@dataclass(frozen=True, slots=True)
class Sym(Hashed):
    """A variable in scope. `extent` bounds an index variable to 0 <= v < extent."""

    name: str
    dtype: DType
    extent: int | None = None


@hashed_once
@dataclass(frozen=True, slots=True)
class Load(Hashed):
    """buffer[index], a row-major element offset."""

    buffer: str
    index: Expr
    dtype: DType


@hashed_once
@dataclass(frozen=True, slots=True)
class Call(Hashed):
    """A primitive function of scalars; `dtype` is that of the result."""

    fn: str
    args: tuple[Expr, ...]
    dtype: DType


Expr = Lit | Sym | Load | Call

COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
UNARY_MATH = (
    "neg abs floor ceil rint exp exp2 expm1 log log1p sqrt sin cos tan tanh sinh cosh asin acos "
    "atan erf"
).split()
BINARY_MATH = "add sub mul div rem pow atan2 min max and or xor shl shr".split()
# exp2: of f32, on CUDA alone (`kernel/tiles/powers.py`).
# mulhi: upper 32 bits of a u32 product. cast: value; bitcast: bits. select: (bool, then, else).
PRIMITIVES = (*UNARY_MATH, *BINARY_MATH, *COMPARISONS, "not", "isnan", "isfinite", "mulhi",
              "cast", "bitcast", "select")  # fmt: skip

# Those that no instruction computes: C's library of mathematics does.
LIBM = frozenset(
    "exp expm1 log log1p sin cos tan tanh sinh cosh asin acos atan erf pow atan2".split()
)


def walk(expr: Expr) -> Iterator[Expr]:
    """Every sub-expression, the expression itself first."""
    stack = [expr]
    while stack:
        e = stack.pop()
        yield e
        if isinstance(e, Call):
            stack.extend(e.args)
        elif isinstance(e, Load):
            stack.append(e.index)


def show(expr: Expr) -> str:
    """Canonical text of an expression."""
    match expr:
        case Lit(value, dtype):
            return f"{value!r}:{dtype}"
        case Sym(name=name):
            return name
        case Load(buffer, index, _):
            return f"{buffer}[{show(index)}]"
        case Call(fn, args, dtype):
            suffix = f":{dtype}" if fn in ("cast", "bitcast") else ""
            return f"{fn}{suffix}({', '.join(map(show, args))})"


def call(fn: str, *args: Expr, dtype: DType | None = None) -> Expr:
    """Apply a primitive; the result dtype defaults to that of the last operand (bool for tests)."""
    if dtype is None:
        boolean = fn in COMPARISONS or fn in ("isnan", "isfinite")
        dtype = DType.BOOL if boolean else args[-1].dtype
    return Call(fn, args, dtype)


def cast(value: Expr, dtype: DType) -> Expr:
    """`value` converted to `dtype`; the same expression when nothing changes."""
    if value.dtype == dtype:
        return value
    if isinstance(value, Lit) and dtype.is_float and not isinstance(value.value, bool):
        return Lit(float(value.value), dtype)
    return Call("cast", (value,), dtype)
