"""dot_general: the batched contraction of two tensors."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from autofuse.ops import checks
from autofuse.ops.dtypes import FLOATS, INTS, DType
from autofuse.ops.layout import laid_out
from autofuse.ops.reduction import SUM
from autofuse.ops.scalar import Expr
from autofuse.ops.scalar import call as apply
from autofuse.ops.spec import (
    AxisMap,
    Factors,
    Family,
    FoldOver,
    Index,
    OpSpec,
    OutputRoles,
    Pull,
    Sample,
    register,
)
from autofuse.ops.types import GraphError, OpCall, TensorType


@dataclass(frozen=True, slots=True)
class DotAxes:
    """The axes of each operand by role; contract and batch axes pair up in order."""

    lhs_batch: tuple[int, ...]
    rhs_batch: tuple[int, ...]
    lhs_contract: tuple[int, ...]
    rhs_contract: tuple[int, ...]
    lhs_free: tuple[int, ...]
    rhs_free: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GemmForm:
    """C[batch, m, n] = op(A) op(B), all row-major and contiguous.

    A is stored [batch, m, k], or [batch, k, m] when `trans_a`; B is stored [batch, k, n], or
    [batch, n, k] when `trans_b`.
    """

    batch: int
    m: int
    n: int
    k: int
    trans_a: bool
    trans_b: bool

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Elements of A, B and C, from the start of each array to the last one used."""
        each = (self.m * self.k, self.k * self.n, self.m * self.n)
        return (self.batch * each[0], self.batch * each[1], self.batch * each[2])


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


def gemm_form(call: OpCall) -> GemmForm | None:
    """The (batched) GEMM this contraction is without moving any data, or None.

    Batch axes must lead in order in both operands; the contracted axes, and the free axes of each
    operand, must each be one run of neighbouring axes in the same order on both sides.
    """
    roles = dot_axes(call)
    lead = tuple(range(len(roles.lhs_batch)))
    if roles.lhs_batch != lead or roles.rhs_batch != lead:
        return None

    def stored(*parts: tuple[int, ...]) -> bool:
        joined = sum(parts, lead)
        return joined == tuple(range(len(joined)))

    trans_a = not stored(roles.lhs_free, roles.lhs_contract)
    trans_b = not stored(roles.rhs_contract, roles.rhs_free)
    if trans_a and not stored(roles.lhs_contract, roles.lhs_free):
        return None
    if trans_b and not stored(roles.rhs_free, roles.rhs_contract):
        return None
    lhs, rhs = (t.shape for t in call.ins)
    return GemmForm(
        batch=math.prod(lhs[a] for a in lead),
        m=math.prod(lhs[a] for a in roles.lhs_free),
        n=math.prod(rhs[a] for a in roles.rhs_free),
        k=math.prod(contract_shape(call)),
        trans_a=trans_a,
        trans_b=trans_b,
    )


def _reference(arrays: tuple[np.ndarray, ...], call: OpCall) -> tuple[np.ndarray, ...]:
    """One matmul over (batch, rows, contract) x (batch, contract, columns)."""
    roles = dot_axes(call)
    lhs, rhs = arrays
    batch = math.prod(lhs.shape[a] for a in roles.lhs_batch)
    k = math.prod(contract_shape(call))
    m = math.prod(lhs.shape[a] for a in roles.lhs_free)
    n = math.prod(rhs.shape[a] for a in roles.rhs_free)
    left = lhs.transpose(roles.lhs_batch + roles.lhs_free + roles.lhs_contract)
    right = rhs.transpose(roles.rhs_batch + roles.rhs_contract + roles.rhs_free)
    # Copies: of operands with odd strides NumPy would multiply element by element.
    product = np.matmul(
        laid_out(left).reshape(batch, m, k),
        laid_out(right).reshape(batch, k, n),
    )
    return (product.reshape(call.out.shape),)


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
    for d in (*FLOATS, *INTS):
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
