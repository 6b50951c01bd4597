"""dot_general: the batched contraction of two tensors."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from autofuse.ops import checks
from autofuse.ops.dtypes import FLOATS, INTS, DType
from autofuse.ops.layout import laid_out
from autofuse.ops.pull import Index, Pull
from autofuse.ops.reduction import SUM
from autofuse.ops.scalar import Expr
from autofuse.ops.scalar import call as apply
from autofuse.ops.spec import AxisMap, Family, OpSpec, Sample, register, sampled
from autofuse.ops.terms import Factors, FoldOver, OutputRoles
from autofuse.ops.types import GraphError, OpCall, TensorType
from autofuse.ops.views import View, joined, row_major


@dataclass(frozen=True, slots=True)
class DotAxes:
    """The axes of each operand by role; contract and batch axes pair up in order."""

    lhs_batch: tuple[int, ...]
    rhs_batch: tuple[int, ...]
    lhs_contract: tuple[int, ...]
    rhs_contract: tuple[int, ...]
    lhs_free: tuple[int, ...]
    rhs_free: tuple[int, ...]


# Calls that one product may take: a library walks one batch axis by strides, and no more.
MOST_CALLS = 32


@dataclass(frozen=True, slots=True)
class Matrix:
    """How BLAS reads a matrix: from `offset` elements after the start of its array on, rows (of the
    transposed matrix where `transposed`) that are `leading` elements apart, each contiguous."""

    offset: int
    leading: int
    transposed: bool = False


@dataclass(frozen=True, slots=True)
class BatchAxis:
    """So many products, whose matrices are so many elements apart; 0: the same matrix again."""

    extent: int
    a: int
    b: int
    c: int


@dataclass(frozen=True, slots=True)
class GemmForm:
    """C[batch..., m, n] = A[batch..., m, k] B[batch..., k, n]; C is row-major and contiguous, A and
    B are read where they lie. `batch`: axes of more than one product, outermost first."""

    m: int
    n: int
    k: int
    a: Matrix
    b: Matrix
    batch: tuple[BatchAxis, ...] = ()

    @property
    def products(self) -> int:
        """Matrix products in all."""
        return math.prod(axis.extent for axis in self.batch)

    @property
    def walked(self) -> BatchAxis:
        """The batch axis that one call walks by strides: the longest."""
        return max(self.batch, key=lambda axis: axis.extent, default=BatchAxis(1, 0, 0, 0))

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Elements of A, B and C, from the start of each array to the last one used."""
        return (
            self._reach(self.a, self.m, self.k, "a"),
            self._reach(self.b, self.k, self.n, "b"),
            (self.m * self.n + sum((x.extent - 1) * x.c for x in self.batch)),
        )

    def _reach(self, matrix: Matrix, rows: int, columns: int, side: str) -> int:
        if matrix.transposed:
            rows, columns = columns, rows
        walked = sum((x.extent - 1) * (x.a if side == "a" else x.b) for x in self.batch)
        return matrix.offset + walked + (rows - 1) * matrix.leading + columns


def _roles(call: OpCall) -> OutputRoles:
    """The roles of the output axes of a contraction."""
    roles = dot_axes(call)
    first = len(roles.lhs_batch)
    second = first + len(roles.lhs_free)
    return OutputRoles(
        tuple(range(first)),
        tuple(range(first, second)),
        tuple(range(second, second + len(roles.rhs_free))),
    )


def dot_axes(call: OpCall) -> DotAxes:
    """The roles of all operand axes of a dot_general."""
    lhs, rhs = call.ins
    lb, rb, lc, rc = (call[k] for k in ("lhs_batch", "rhs_batch", "lhs_contract", "rhs_contract"))
    return DotAxes(
        lhs_batch=lb,
        rhs_batch=rb,
        lhs_contract=lc,
        rhs_contract=rc,
        lhs_free=tuple(a for a in range(lhs.rank) if a not in lb and a not in lc),
        rhs_free=tuple(a for a in range(rhs.rank) if a not in rb and a not in rc),
    )


def contract_shape(call: OpCall) -> tuple[int, ...]:
    """The extents summed over, in the order of `lhs_contract`."""
    return tuple(call.ins[0].shape[a] for a in call["lhs_contract"])


def _check_pairs(call: OpCall, role: str) -> None:
    lhs, rhs = call.ins
    ours = checks.axes_attr(call, lhs.rank, f"lhs_{role}")
    theirs = checks.axes_attr(call, rhs.rank, f"rhs_{role}")
    if [lhs.shape[a] for a in ours] != [rhs.shape[a] for a in theirs]:
        raise GraphError(
            f"dot_general of {lhs} and {rhs}: {role} axes {ours} and {theirs} differ in extent"
        )


def _infer(call: OpCall) -> tuple[TensorType, ...]:
    checks.operands(call, 2)
    dtype = checks.same_dtype(call)
    checks.dtype_in(dtype, (*FLOATS, *INTS))
    for role in ("contract", "batch"):
        _check_pairs(call, role)
    for side in ("lhs", "rhs"):
        both = set(call[f"{side}_contract"]) & set(call[f"{side}_batch"])
        if both:
            raise GraphError(f"{side} axes {sorted(both)} are both batch and contract axes")
    lhs, rhs = call.ins
    roles = dot_axes(call)
    batch = tuple(lhs.shape[a] for a in roles.lhs_batch)
    rows = tuple(lhs.shape[a] for a in roles.lhs_free)
    columns = tuple(rhs.shape[a] for a in roles.rhs_free)
    return (TensorType(batch + rows + columns, dtype),)


def operand_indices(call: OpCall, out_index: Index, contract_index: Index) -> tuple[Index, Index]:
    """The elements of lhs and rhs whose product goes into `out_index` at `contract_index`.

    `contract_index` has one entry per contracted pair, in the order of `lhs_contract`.
    """
    roles = dot_axes(call)
    batches, rows = len(roles.lhs_batch), len(roles.lhs_batch) + len(roles.lhs_free)
    batch, row, column = out_index[:batches], out_index[batches:rows], out_index[rows:]

    def place(*parts: tuple[tuple[int, ...], Index]) -> Index:
        found = {axis: at for axes, where in parts for axis, at in zip(axes, where, strict=True)}
        return tuple(found[axis] for axis in sorted(found))

    shared = (roles.lhs_batch, batch), (roles.lhs_contract, contract_index)
    lhs = place(*shared, (roles.lhs_free, row))
    shared = (roles.rhs_batch, batch), (roles.rhs_contract, contract_index)
    return lhs, place(*shared, (roles.rhs_free, column))


def _factor(call: OpCall, operand: int, index: Index, at: Index, pull: Pull) -> Expr:
    return pull(operand, operand_indices(call, index, at)[operand])


def _term(call: OpCall, index: Index, at: Index, pull: Pull) -> Expr:
    return apply("mul", *(_factor(call, k, index, at, pull) for k in (0, 1)))


# What BLAS counts rows, columns and terms with is an int of 32 bits.
_MOST_COUNTED = 2**31 - 1


def gemm_form(call: OpCall, lhs: View | None = None, rhs: View | None = None) -> GemmForm | None:
    """The (batched) GEMM this contraction is without moving any data, or None.

    `lhs` and `rhs` say where the operands lie (default: each is an array of its own). The free axes
    of each operand, and the contracted ones in one order for both, must be walked by one stride
    each, elements of either rows or columns must be neighbours, and batch axes must leave no more
    than MOST_CALLS calls."""
    roles = dot_axes(call)
    a, b = lhs or row_major(call.ins[0].shape), rhs or row_major(call.ins[1].shape)
    if 0 in (call.ins[0].size, call.ins[1].size):
        return None
    pairs = zip(roles.lhs_contract, roles.rhs_contract, strict=True)
    summed = sorted(pairs, key=lambda pair: -a.strides[pair[0]])
    m, n = _extent(a, roles.lhs_free), _extent(b, roles.rhs_free)
    k = math.prod(contract_shape(call))
    left = _matrix(
        a.offset, (m, joined(a, roles.lhs_free)), (k, joined(a, (ours for ours, _ in summed)))
    )
    right = _matrix(
        b.offset, (k, joined(b, (theirs for _, theirs in summed))), (n, joined(b, roles.rhs_free))
    )
    if left is None or right is None:
        return None
    if max(m, n, k, left.leading, right.leading) > _MOST_COUNTED:
        return None
    form = GemmForm(m, n, k, left, right, _batch_axes(roles, a, b, m * n))
    return form if form.products <= MOST_CALLS * form.walked.extent else None


def _matrix(
    offset: int, rows: tuple[int, int | None], columns: tuple[int, int | None]
) -> Matrix | None:
    """A matrix whose rows and columns are so many, and so far apart, if BLAS can read it."""
    (m, down), (n, across) = rows, columns
    if down is None or across is None:
        return None
    if _follow(m, down, n, across):
        return Matrix(offset, n if m == 1 else down)
    if _follow(n, across, m, down):
        return Matrix(offset, m if n == 1 else across, transposed=True)
    return None


def _follow(rows: int, down: int, columns: int, across: int) -> bool:
    """Whether the elements of a row are neighbours, and rows do not overlap."""
    return (columns == 1 or across == 1) and (rows == 1 or down >= columns)


def _extent(view: View, axes: Iterable[int]) -> int:
    return math.prod(view.shape[a] for a in axes)


def _batch_axes(roles: DotAxes, a: View, b: View, step: int) -> tuple[BatchAxis, ...]:
    """The batch axes, those as one that a single stride walks in both operands; `step` is the size
    of one result."""
    found: list[BatchAxis] = []
    for ours, theirs in reversed(tuple(zip(roles.lhs_batch, roles.rhs_batch, strict=True))):
        extent, left, right = a.shape[ours], a.strides[ours], b.strides[theirs]
        if extent == 1:
            continue
        last = found[-1] if found else None
        if last and (left, right) == (last.a * last.extent, last.b * last.extent):
            found[-1] = replace(last, extent=last.extent * extent)
        else:
            found.append(BatchAxis(extent, left, right, step))
        step *= extent
    return tuple(reversed(found))


def _reference(arrays: tuple[np.ndarray, ...], call: OpCall) -> tuple[np.ndarray, ...]:
    return (np.matmul(*matmul_operands(arrays, call)).reshape(call.out.shape),)


def matmul_operands(arrays: tuple[np.ndarray, ...], call: OpCall) -> tuple[np.ndarray, np.ndarray]:
    """A product's operands as (batch, rows, contract) and (batch, contract, columns)."""
    roles = dot_axes(call)
    lhs, rhs = arrays
    batch = math.prod(lhs.shape[a] for a in roles.lhs_batch)
    k = math.prod(contract_shape(call))
    m = math.prod(lhs.shape[a] for a in roles.lhs_free)
    n = math.prod(rhs.shape[a] for a in roles.rhs_free)
    left = lhs.transpose(roles.lhs_batch + roles.lhs_free + roles.lhs_contract)
    right = rhs.transpose(roles.rhs_batch + roles.rhs_contract + roles.rhs_free)
    # Copies: of operands with odd strides NumPy would multiply element by element.
    return laid_out(left).reshape(batch, m, k), laid_out(right).reshape(batch, k, n)


def _flops(call: OpCall) -> float:
    return 2.0 * call.out.size * math.prod(contract_shape(call))


def _axes(call: OpCall) -> AxisMap:
    roles = dot_axes(call)
    left: tuple[int | None, ...] = roles.lhs_batch + roles.lhs_free
    right = (*roles.rhs_batch, *(None,) * len(roles.lhs_free), *roles.rhs_free)
    return (left + (None,) * len(roles.rhs_free), right)


def dot_attrs(
    lhs_contract: tuple[int, ...],
    rhs_contract: tuple[int, ...],
    lhs_batch: tuple[int, ...] = (),
    rhs_batch: tuple[int, ...] = (),
) -> dict[str, tuple[int, ...]]:
    """The attributes of a dot_general."""
    return {
        "lhs_contract": lhs_contract,
        "rhs_contract": rhs_contract,
        "lhs_batch": lhs_batch,
        "rhs_batch": rhs_batch,
    }


def _samples() -> list[Sample]:
    matmul = dot_attrs((1,), (0,))
    batched = dot_attrs((2,), (1,), (0,), (0,))
    cases = [
        ((3,), (3,), dot_attrs((0,), (0,))),
        ((3,), (2,), dot_attrs((), ())),
        ((3, 5), (5,), matmul),
        ((1, 5), (5, 1), matmul),
        ((5, 3), (2, 5), dot_attrs((0,), (1,))),
        ((2, 3, 5), (2, 5, 3), batched),
        ((3, 2, 5), (5, 2, 3), dot_attrs((2,), (0,), (1,), (1,))),
        ((2, 3, 2, 3), (3, 2, 3), dot_attrs((1, 2), (2, 1))),
    ]
    f32 = DType.F32
    found = [Sample((TensorType(a, f32), TensorType(b, f32)), dict(at)) for a, b, at in cases]
    for d in sampled((*FLOATS, *INTS)):
        found.append(Sample((TensorType((3, 5), d), TensorType((5, 2), d)), dict(matmul)))
    return found


register(
    OpSpec(
        name="dot_general",
        family=Family.CONTRACTION,
        infer=_infer,
        reference=_reference,
        flops=_flops,
        samples=_samples,
        fold=SUM,
        over=FoldOver(contract_shape, _term),
        factors=Factors(_roles, _factor),
        axes=_axes,
        terms=lambda call: math.prod(contract_shape(call)),
    )
)
