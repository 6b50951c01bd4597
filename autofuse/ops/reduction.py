"""Ops that fold over axes: sums, products, extrema, any/all, argmax/argmin, running sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from autofuse.ops import checks
from autofuse.ops.dtypes import FLOATS, INTS, DType
from autofuse.ops.scalar import Expr, Lit, call, cast
from autofuse.ops.spec import (
    AxisMap,
    Family,
    Fold,
    OpSpec,
    Reference,
    Sample,
    always,
    never,
    register,
    sampled,
)
from autofuse.ops.types import GraphError, OpCall, TensorType

Accs = tuple[Expr, ...]
Arrays = tuple[np.ndarray, ...]
NUMBERS = (*FLOATS, *INTS)
_LAST = 2**31 - 1


def lowest(dtype: DType) -> Lit:
    """The identity of max: minus infinity, or the least integer."""
    return Lit(float("-inf") if dtype.is_float else int(np.iinfo(dtype.numpy).min), dtype)


def highest(dtype: DType) -> Lit:
    """The identity of min: infinity, or the greatest integer."""
    return Lit(float("inf") if dtype.is_float else int(np.iinfo(dtype.numpy).max), dtype)


def number(value: int, dtype: DType) -> Lit:
    """`value` as a literal of `dtype`."""
    return Lit(float(value) if dtype.is_float else value, dtype)


def single_fold(operator: str, start: Callable[[DType], Lit]) -> Fold:
    """The fold of one primitive; accumulators have the output's compute type."""
    return Fold(
        init=lambda c: (start(c.out.dtype.compute),),
        lift=lambda c, element, at: (element,),
        combine=lambda a, b: (call(operator, a[0], b[0]),),
        finish=lambda c, accs: accs[0],
        operator=operator,
    )


def _sum_of_powers(a: Accs, b: Accs) -> Accs:
    """log(exp(a) + exp(b)); of infinities the larger."""
    top = call("max", a[0], b[0])
    apart = call("neg", call("abs", call("sub", a[0], b[0])))
    total = call("add", top, call("log1p", call("exp", apart)))
    return (call("select", call("isfinite", top), total, top),)


SUM = single_fold("add", lambda dtype: number(0, dtype))
PROD = single_fold("mul", lambda dtype: number(1, dtype))
MAX, MIN = single_fold("max", lowest), single_fold("min", highest)
LOG_SUM = replace(single_fold("add", lowest), combine=_sum_of_powers, operator=None)


def reduced_axes(c: OpCall) -> tuple[int, ...]:
    """The operand axes a reduction folds away, ascending."""
    return (c["axis"],) if c.get("axes") is None else tuple(c["axes"])


def _kept(c: OpCall) -> tuple[int, ...]:
    gone = reduced_axes(c)
    return tuple(a for a in range(c.ins[0].rank) if a not in gone)


def _axes_map(c: OpCall) -> AxisMap:
    return (_kept(c),)


def _infer_over(dtypes: Sequence[DType]) -> Callable[[OpCall], tuple[TensorType, ...]]:
    def infer(c: OpCall) -> tuple[TensorType, ...]:
        checks.operands(c, 1)
        x = c.ins[0]
        checks.dtype_in(x.dtype, dtypes)
        if not checks.sorted_axes_attr(c, x.rank):
            raise GraphError("attribute 'axes' is empty: nothing is reduced")
        return (TensorType(tuple(x.shape[a] for a in _kept(c)), x.dtype),)

    return infer


def _infer_arg(c: OpCall) -> tuple[TensorType, ...]:
    checks.operands(c, 1)
    x = c.ins[0]
    checks.dtype_in(x.dtype, NUMBERS)
    axis = checks.axis_attr(c, x.rank)
    if x.shape[axis] == 0:
        raise GraphError(f"axis {axis} of {x} is empty: it has no extremum")
    return (TensorType(tuple(x.shape[a] for a in _kept(c)), DType.I32),)


def _infer_scan(dtypes: Sequence[DType]) -> Callable[[OpCall], tuple[TensorType, ...]]:
    def infer(c: OpCall) -> tuple[TensorType, ...]:
        checks.operands(c, 1)
        checks.dtype_in(c.ins[0].dtype, dtypes)
        checks.axis_attr(c, c.ins[0].rank)
        return (c.ins[0],)

    return infer


def _wrapping(fn: np.ufunc) -> Reference:
    """Fold a ufunc in the array's own dtype, so that small integers wrap."""

    def reference(arrays: Arrays, c: OpCall) -> Arrays:
        x = arrays[0]
        return (np.asarray(fn.reduce(x, axis=c["axes"], dtype=x.dtype)),)

    return reference


def _extremum(fn: np.ufunc, start: Callable[[DType], Lit]) -> Reference:
    def reference(arrays: Arrays, c: OpCall) -> Arrays:
        initial = start(c.ins[0].dtype).value
        return (np.asarray(fn.reduce(arrays[0], axis=c["axes"], initial=initial)),)

    return reference


def _arg_reference(fn: Callable[..., np.ndarray]) -> Reference:
    return lambda arrays, c: (np.asarray(fn(arrays[0], axis=c["axis"])).astype(np.int32),)


def _scan_reference(fn: np.ufunc) -> Reference:
    def reference(arrays: Arrays, c: OpCall) -> Arrays:
        x = arrays[0]
        return (np.asarray(fn.accumulate(x, axis=c["axis"], dtype=x.dtype)),)

    return reference


def _arg_fold(better: str, start: Callable[[DType], Lit]) -> Fold:
    """Keep (value, position); a NaN beats every number, and the lower position wins a tie.

    The rule does not depend on the order of combination, so parallel folds agree.
    """

    def combine(a: Accs, b: Accs) -> Accs:
        (x, i), (y, j) = a, b
        wins, ties = call(better, y, x), call("eq", x, y)
        if x.dtype.is_float:
            x_nan, y_nan = call("isnan", x), call("isnan", y)
            wins = call("or", wins, call("and", y_nan, call("not", x_nan)))
            ties = call("or", ties, call("and", x_nan, y_nan))
        take = call("or", wins, call("and", ties, call("lt", j, i)))
        return (call("select", take, y, x), call("select", take, j, i))

    return Fold(
        init=lambda c: (start(c.ins[0].dtype.compute), Lit(_LAST, DType.I32)),
        lift=lambda c, element, at: (element, cast(at, DType.I32)),
        combine=combine,
        finish=lambda c, accs: accs[1],
    )


_CASES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((3, 5), (1,)), ((7,), (0,)), ((3, 5), (0,)), ((3, 5), (0, 1)), ((2, 3, 5), (0, 2)),
    ((1, 5), (0,)), ((2, 3, 1, 4), (1, 3)), ((1,), (0,)),
]  # fmt: skip


def _samples(dtypes: Sequence[DType]) -> Callable[[], list[Sample]]:
    def samples() -> list[Sample]:
        found = [Sample((TensorType(s, dtypes[0]),), {"axes": axes}) for s, axes in _CASES]
        return found + [Sample((TensorType((3, 5), d),), {"axes": (1,)}) for d in sampled(dtypes)]

    return samples


def _axis_samples(dtypes: Sequence[DType] = NUMBERS) -> list[Sample]:
    cases = [((7,), 0), ((3, 5), 0), ((3, 1), 1), ((2, 3, 5), 1), ((2, 1, 3, 2), 3), ((1,), 0)]
    found = [Sample((TensorType(s, DType.F32),), {"axis": axis}) for s, axis in cases]
    return found + [Sample((TensorType((3, 5), d),), {"axis": 1}) for d in sampled(dtypes)]


def _terms(c: OpCall) -> int:
    return math.prod(c.ins[0].shape[a] for a in reduced_axes(c))


def _reduce(
    name: str, fold: Fold, reference: Reference, dtypes: Sequence[DType], exact: bool = False
) -> OpSpec:
    return OpSpec(
        name=name,
        family=Family.REDUCTION,
        infer=_infer_over(dtypes),
        reference=reference,
        flops=lambda c: float(c.ins[0].size),
        samples=_samples(dtypes),
        fold=fold,
        axes=_axes_map,
        exact=always if exact else never,
        terms=_terms,
    )


def _arg(name: str, fold: Fold, fn: Callable[..., np.ndarray]) -> OpSpec:
    return OpSpec(
        name=name,
        family=Family.REDUCTION,
        infer=_infer_arg,
        reference=_arg_reference(fn),
        flops=lambda c: 2.0 * c.ins[0].size,
        samples=_axis_samples,
        fold=fold,
        axes=_axes_map,
        exact=always,
        terms=_terms,
    )


def _scan_axes(c: OpCall) -> AxisMap:
    return (tuple(None if a == c["axis"] else a for a in range(c.ins[0].rank)),)


def _scan(
    name: str, fold: Fold, fn: np.ufunc, exact: bool = False, dtypes: Sequence[DType] = NUMBERS
) -> OpSpec:
    return OpSpec(
        name=name,
        family=Family.SCAN,
        infer=_infer_scan(dtypes),
        reference=_scan_reference(fn),
        flops=lambda c: float(c.ins[0].size),
        samples=partial(_axis_samples, dtypes),
        fold=fold,
        axes=_scan_axes,
        exact=always if exact else never,
        terms=lambda c: int(c.ins[0].shape[c["axis"]]),
    )


_ANY = single_fold("or", lambda dtype: Lit(False, DType.BOOL))
_ALL = single_fold("and", lambda dtype: Lit(True, DType.BOOL))
register(
    _reduce("reduce_sum", SUM, _wrapping(np.add), NUMBERS),
    _reduce("reduce_prod", PROD, _wrapping(np.multiply), NUMBERS),
    _reduce("reduce_max", MAX, _extremum(np.maximum, lowest), NUMBERS, exact=True),
    _reduce("reduce_min", MIN, _extremum(np.minimum, highest), NUMBERS, exact=True),
    _reduce("reduce_any", _ANY, _wrapping(np.logical_or), (DType.BOOL,)),
    _reduce("reduce_all", _ALL, _wrapping(np.logical_and), (DType.BOOL,)),
    _arg("argmax", _arg_fold("gt", lowest), np.argmax),
    _arg("argmin", _arg_fold("lt", highest), np.argmin),
    _scan("cumsum", SUM, np.add),
    _scan("cumprod", PROD, np.multiply),
    _scan("cummax", MAX, np.maximum, exact=True),
    _scan("cummin", MIN, np.minimum, exact=True),
    replace(_scan("cumlogsumexp", LOG_SUM, np.logaddexp, dtypes=FLOATS), special=True),
)
