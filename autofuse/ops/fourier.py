"""Fourier transforms along one axis, as NumPy's, but none divides by n; complex numbers have their
two parts as the last axis. Libraries do them (`OpSpec.transforms`); the body is the definition, a
sum of n terms for each number."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from autofuse.ops import checks
from autofuse.ops.dtypes import DType
from autofuse.ops.library_forms import Transform
from autofuse.ops.pull import Index, Pull
from autofuse.ops.reduction import SUM
from autofuse.ops.scalar import Expr, Lit, call, cast
from autofuse.ops.spec import AxisMap, Family, OpSpec, Sample, register
from autofuse.ops.terms import FoldOver
from autofuse.ops.types import GraphError, OpCall, TensorType

Arrays = tuple[np.ndarray, ...]
Shape = tuple[int, ...]
DTYPES = (DType.F32, DType.F64)
_LONGEST = 2**31 - 1


@dataclass(frozen=True, slots=True)
class _Kind:
    """One of the four transforms: what it takes and gives, and the sign of its angles."""

    name: str
    complex_in: bool
    complex_out: bool
    sign: int

    def length(self, c: OpCall) -> int:
        """Of the numbers, not of the half that real ones leave."""
        return int(c.ins[0].shape[c["axis"]] if self.complex_out else c["n"])

    def infer(self, c: OpCall) -> tuple[TensorType, ...]:
        checks.operands(c, 1)
        x = c.ins[0]
        checks.dtype_in(x.dtype, DTYPES)
        if self.complex_in and (not x.rank or x.shape[-1] != 2):
            raise GraphError(f"{x} has no last axis of real and imaginary parts")
        axis = checks.axis_attr(c, x.rank - self.complex_in)
        if not self.complex_out:
            checks.int_attr(c, "n")
        n = self.length(c)
        if not 1 <= n <= _LONGEST:
            raise GraphError(f"a transform of {n} elements")
        half = n // 2 + 1
        if not self.complex_out and x.shape[axis] != half:
            raise GraphError(f"the transform of {n} real numbers has {half} elements, not those "
                             f"of axis {axis} of {x}")  # fmt: skip
        numbers = list(x.shape[: x.rank - self.complex_in])
        numbers[axis] = n if self.complex_in else half
        return (TensorType((*numbers, *(2,) * self.complex_out), x.dtype),)

    def reference(self, arrays: Arrays, c: OpCall) -> Arrays:
        x, axis = arrays[0], c["axis"]
        z = x[..., 0] + 1j * x[..., 1] if self.complex_in else x
        given = {} if self.complex_out else {"n": c["n"]}
        norm = "forward" if self.sign > 0 else "backward"
        found = getattr(np.fft, self.name)(z, axis=axis, norm=norm, **given)
        return (np.stack([found.real, found.imag], -1) if self.complex_out else found,)

    def squares(self, arrays: Arrays, c: OpCall) -> Arrays:
        """Weights have absolute value 1; those of half a spectrum count twice, but for two."""
        x, axis = np.square(arrays[0]), c["axis"]
        total = (x.sum(-1) if self.complex_in else x).sum(axis, keepdims=True)
        if self.complex_out:
            return (np.broadcast_to(total[..., None], c.out.shape),)
        return (np.broadcast_to(4.0 * total, c.out.shape),)

    def axes(self, c: OpCall) -> AxisMap:
        numbers = c.out.rank - self.complex_out
        kept = [None if a == c["axis"] else a for a in range(numbers)]
        return ((*kept, *(None,) * self.complex_out),)

    def transform(self, c: OpCall) -> Transform | None:
        shape, axis = c.ins[0].shape, c["axis"]
        after = math.prod(shape[axis + 1 : len(shape) - self.complex_in])
        found = Transform(self.name, self.length(c), math.prod(shape[:axis]), after)
        return found if found.count else None

    def flops(self, c: OpCall) -> float:
        """5 n log2 n for complex numbers, half of that for real ones."""
        n, numbers = self.length(c), max(c.ins[0].size, c.out.size) / 2
        return 5.0 * numbers * math.log2(max(2, n))

    def extents(self, c: OpCall) -> Shape:
        return (c.ins[0].shape[c["axis"]], *(2,) * self.complex_in)

    def term(self, c: OpCall, index: Index, at: Index, pull: Pull) -> Expr:
        """A part of one number times cos(t + q quarters of a turn): each part of a result gets both
        parts of an operand, so q is the one part's number minus the other's."""
        axis, n, dtype = c["axis"], self.length(c), c.out.dtype
        own = list(index[: len(index) - self.complex_out])
        place, own[axis] = own[axis], at[0]
        turns = call("rem", call("mul", place, at[0]), Lit(n, DType.I64))
        angle = call("mul", cast(turns, dtype), Lit(self.sign * 2 * math.pi / n, dtype))
        quarters = [call("mul", cast(part, dtype), Lit(by * math.pi / 2, dtype))
                    for part, by in self._parts(index, at)]  # fmt: skip
        for quarter in quarters:
            angle = call("add", angle, quarter)
        read = pull(0, (*own, *at[1:]))
        made = call("mul", read, call("cos", angle))
        return made if self.complex_out else call("mul", made, self._weight(c, at[0]))

    def _parts(self, index: Index, at: Index) -> Iterator[tuple[Expr, int]]:
        if self.complex_out:
            yield index[-1], -1
        if self.complex_in:
            yield at[1], 1

    def _weight(self, c: OpCall, place: Expr) -> Expr:
        """Where only half is there all count twice but those that are their own conjugates."""
        twice = call("mul", place, Lit(2, DType.I64))
        own = call("eq", call("rem", twice, Lit(c["n"], DType.I64)), Lit(0, DType.I64))
        return call("select", own, Lit(1.0, c.out.dtype), Lit(2.0, c.out.dtype))


def _samples(kind: _Kind) -> Callable[[], list[Sample]]:
    cases = (((5,), 0), ((2, 8), 1), ((6, 3), 0), ((2, 7, 3), 1), ((3, 1), 1), ((2, 20), 1))

    def samples() -> list[Sample]:
        found = []
        for dtype in DTYPES:
            for shape, axis in cases if dtype is DType.F32 else cases[1:2]:
                n, own = shape[axis], list(shape)
                if not kind.complex_out:
                    own[axis] = n // 2 + 1
                attrs = {"axis": axis} | ({} if kind.complex_out else {"n": n})
                type_ = TensorType((*own, *(2,) * kind.complex_in), dtype)
                found.append(Sample((type_,), attrs))
        return found

    return samples


def _row(kind: _Kind) -> OpSpec:
    return OpSpec(
        name=kind.name,
        family=Family.WINDOW,
        infer=kind.infer,
        reference=kind.reference,
        flops=kind.flops,
        samples=_samples(kind),
        fold=SUM,
        over=FoldOver(kind.extents, kind.term),
        transforms=kind.transform,
        axes=kind.axes,
        depends=lambda c: ((),),
        needed=lambda c, made: (math.prod(kind.extents(c)),),
        terms=lambda c: math.prod(kind.extents(c)),
        squares=kind.squares,
    )


register(
    _row(_Kind("fft", True, True, -1)),
    _row(_Kind("ifft", True, True, 1)),
    _row(_Kind("rfft", False, True, -1)),
    _row(_Kind("irfft", True, False, 1)),
)
