"""What the rules for aten overloads share: a call with its operands, and torch's dtypes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from autofuse.errors import AutofuseError
from autofuse.frontends.errors import FrontendError
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter, Shape
from autofuse.ops.dtypes import DType
from autofuse.ops.types import TensorType

_DTYPES = {f"torch.{dtype.numpy}": dtype for dtype in DType}
# A dtype that meets one further right becomes that one; pairs that this does not hold for are
# handled where it is asked.
_ASCENDING = (DType.BOOL, DType.U8, DType.I8, DType.U16, DType.I16, DType.U32, DType.I32,
              DType.U64, DType.I64, DType.F16, DType.BF16, DType.F32, DType.F64)  # fmt: skip
# Dtypes that torch lets meet no other whole number.
_APART = {DType.U16, DType.U32, DType.U64}


def torch_module() -> Any:
    """torch, which is imported when it is first needed; raises AutofuseError without it."""
    try:
        return import_module("torch")
    except ImportError as error:
        raise AutofuseError("the PyTorch front end needs torch: pip install autofuse[torch]") \
            from error  # fmt: skip


def dtype_of_torch(dtype: Any) -> DType:
    """The DType of a torch dtype; raises FrontendError for one graphs do not have."""
    try:
        return _DTYPES[str(dtype)]
    except KeyError:
        known = ", ".join(map(str, DType))
        raise FrontendError(f"dtype {dtype} is not supported (supported: {known})") from None


def dtype_in_torch(dtype: DType) -> Any:
    """Inverse of `dtype_of_torch`."""
    name = next(name for name, each in _DTYPES.items() if each is dtype)
    return getattr(torch_module(), name.removeprefix("torch."))


@dataclass(frozen=True, slots=True)
class TorchTensor:
    """What torch knows of a tensor: its type, and where its elements lie in its storage."""

    type: TensorType
    strides: Shape
    offset: int


@dataclass(frozen=True, slots=True)
class TorchCall:
    """A call of an aten overload, for the rule that writes it with `w`.

    `given` has every argument of the overload by its name in torch's schema, defaults filled in:
    graph values, numbers, lists of these, None. `tensors` says what torch knows of those that are
    tensors by themselves. `results` are the types that torch gives the results, in order; None for
    one that is not asked for. Ranks and dtypes of results are torch's decisions: rules follow them.
    """

    w: GraphWriter
    given: Mapping[str, Any]
    tensors: Mapping[str, TorchTensor]
    results: tuple[TensorType | None, ...]

    def __getitem__(self, name: str) -> Any:
        return self.given[name]

    @property
    def out(self) -> TensorType:
        """The type of the first (usually only) result."""
        first = self.results[0] if self.results else None
        if first is None:
            raise FrontendError("it has no first result")
        return first

    def value(self, name: str, dtype: DType | None = None) -> Value:
        """An operand, a number as a constant, converted to `dtype` (None: numbers get that of the
        first result)."""
        found = self.given[name]
        if isinstance(found, Value):
            return found if dtype is None else self.w.cast(found, dtype)
        kind = dtype or self.out.dtype
        return self.w.constant(number_as(found, kind), kind)

    def optional(self, name: str, dtype: DType | None = None) -> Value | None:
        """As `value`; None where nothing was given."""
        return None if self.given[name] is None else self.value(name, dtype)

    def shape(self, name: str) -> Shape:
        return self.w.shape(self.value(name))


# A rule gives the one result, or all of them in order.
TorchResult = Value | Sequence[Value | None]
TorchRule = Callable[[TorchCall], TorchResult]


def number_as(number: Any, dtype: DType) -> bool | int | float:
    """A Python number as torch stores it in `dtype`, which cuts for integers; raises FrontendError
    for what is none."""
    if not isinstance(number, bool | int | float):
        raise FrontendError(f"{type(number).__name__} is not a number")
    if dtype is DType.BOOL:
        return bool(number)
    if dtype.is_float:
        return float(number)
    return int(number) if math.isfinite(number) else number


def promoted(a: DType, b: DType) -> DType:
    """What torch makes of two dtypes that meet (torch.promote_types); raises FrontendError where
    that is no dtype of graphs."""
    low, high = sorted((a, b), key=_ASCENDING.index)
    if {low, high} == {DType.F16, DType.BF16}:
        return DType.F32
    if (low, high) == (DType.U8, DType.I8):
        return DType.I16
    if low is not high and not high.is_float and _APART & {low, high}:
        raise FrontendError(f"{a} and {b} have no common dtype")
    return high


def joint_dtype(c: TorchCall, names: Sequence[str]) -> DType:
    """What torch computes operands of different dtypes in (torch.result_type): tensors with axes
    first, then () tensors, then numbers; a later kind only counts where its category is higher."""
    kinds: list[DType | None] = [None, None, None]
    for name in names:
        found = c[name]
        if isinstance(found, Value):
            kind, dtype = int(not c.w.shape(found)), c.w.dtype(found)
        else:
            kind, dtype = 2, _dtype_of_number(found)
        before = kinds[kind]
        kinds[kind] = dtype if before is None else promoted(before, dtype)
    return _over(kinds[0], _over(kinds[1], kinds[2])) or DType.F32


def _dtype_of_number(number: Any) -> DType:
    """That of a Python number as an operand, with float32 as torch's default dtype."""
    if isinstance(number, bool):
        return DType.BOOL
    return DType.I64 if isinstance(number, int) else DType.F32


def _over(first: DType | None, second: DType | None) -> DType | None:
    if first is None or second is None:
        return first or second
    if first.is_float:
        return first
    raised = first is DType.BOOL or second.is_float
    return promoted(first, second) if raised else first


def computed(
    c: TorchCall, function: Callable[..., Value], *names: str, dtype: DType | None = None
) -> Value:
    """`function(w, *operands)` in the dtype that the result (or `dtype`) is computed in: halves are
    widened first and rounded once."""
    kind = dtype or c.out.dtype
    values = (c.value(name, kind.compute) for name in names)
    return c.w.cast(function(c.w, *values), kind)


def axes_of(given: Any, rank: int) -> tuple[int, ...]:
    """Axes as torch takes them (None or none at all: every one), ascending from the front. A ()
    tensor has no axis, but torch lets it be asked for."""
    if given is None or (isinstance(given, Sequence) and not given):
        return tuple(range(rank))
    numbers = (given,) if isinstance(given, int) else given
    return tuple(sorted(int(a) % rank for a in numbers)) if rank else ()
