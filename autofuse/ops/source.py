"""Ops that read nothing: graph inputs, constants and iota."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autofuse.ops import checks
from autofuse.ops.dtypes import FLOATS, INTS, DType
from autofuse.ops.pull import Index, Pull
from autofuse.ops.scalar import Expr, Lit, cast
from autofuse.ops.spec import AxisMap, Family, OpSpec, Sample, register, sampled
from autofuse.ops.types import GraphError, Literal, OpCall, TensorType

Arrays = tuple[np.ndarray, ...]


def dtype_attr(call: OpCall, key: str = "dtype") -> DType:
    """Attribute `key` as a DType; raises GraphError for an unknown spelling."""
    value = call[key]
    try:
        return DType(value)
    except ValueError:
        known = ", ".join(map(str, DType))
        raise GraphError(f"unknown dtype {value!r} (known: {known})") from None


def is_scalar_constant(op: str, types: Sequence[TensorType]) -> bool:
    """Whether a node is a constant of one element, which kernels hold as a literal."""
    return op == "constant" and types[0].size == 1


def _range_bound(call: OpCall, key: str) -> None:
    value = call.get(key)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise GraphError(f"attribute '{key}' must be a number, got {value!r}")


def _infer_input(call: OpCall) -> tuple[TensorType, ...]:
    checks.operands(call, 0)
    if checks.int_attr(call, "position") < 0:
        raise GraphError(f"attribute 'position' is {call['position']}")
    _range_bound(call, "low")
    _range_bound(call, "high")
    if call.get("constant", True) is not True:
        raise GraphError(f"attribute 'constant' is true or left out, got {call['constant']!r}")
    return (TensorType(checks.shape_attr(call), dtype_attr(call)),)


def _no_reference(arrays: Arrays, call: OpCall) -> Arrays:
    """Never called: the graph's reference interpreter is given the inputs."""
    raise NotImplementedError("an input has no value of its own")


def _infer_constant(call: OpCall) -> tuple[TensorType, ...]:
    checks.operands(call, 0)
    value = call["value"]
    if not isinstance(value, Literal):
        raise GraphError(f"attribute 'value' must be a literal array, got {value!r}")
    if len(value.data) != value.type.nbytes:
        raise GraphError(f"a literal of {value.type} has {len(value.data)} bytes")
    return (value.type,)


def _constant_reference(arrays: Arrays, call: OpCall) -> Arrays:
    value: Literal = call["value"]
    return (value.array().astype(value.type.dtype.reference),)


def _constant_body(call: OpCall, index: Index, pull: Pull) -> tuple[Expr, ...]:
    """A literal; a constant of several elements has no body and is read as a buffer."""
    value: Literal = call["value"]
    if value.type.size != 1:
        raise GraphError(f"a constant {value.type} is a buffer, not a literal")
    return (Lit(value.scalar, value.type.dtype.compute),)


def _infer_iota(call: OpCall) -> tuple[TensorType, ...]:
    checks.operands(call, 0)
    shape, dtype = checks.shape_attr(call), dtype_attr(call)
    checks.dtype_in(dtype, (*FLOATS, *INTS))
    checks.axis_attr(call, len(shape))
    return (TensorType(shape, dtype),)


def _iota_reference(arrays: Arrays, call: OpCall) -> Arrays:
    axis, out = call["axis"], call.out
    steps = np.arange(out.shape[axis]).astype(out.dtype.reference)
    along = [1] * out.rank
    along[axis] = -1
    return (np.broadcast_to(steps.reshape(along), out.shape).copy(),)


def _iota_body(call: OpCall, index: Index, pull: Pull) -> tuple[Expr, ...]:
    return (cast(index[call["axis"]], call.out.dtype.compute),)


def _no_axes(call: OpCall) -> AxisMap:
    return ()


def _no_flops(call: OpCall) -> float:
    return 0.0


def _constant_samples() -> list[Sample]:
    def sample(dtype: DType, shape: tuple[int, ...]) -> Sample:
        values = np.arange(int(np.prod(shape))).reshape(shape) + 1
        return Sample((), {"value": Literal.of(values.astype(dtype.numpy), dtype)})

    return [sample(dtype, ()) for dtype in DType] + [sample(DType.F32, (2, 3))]


def _iota_samples() -> list[Sample]:
    def attrs(dtype: DType, axis: int) -> dict[str, Any]:
        return {"shape": (3, 4), "dtype": str(dtype), "axis": axis}

    return [
        Sample((), attrs(dtype, axis)) for dtype in sampled((*FLOATS, *INTS)) for axis in (0, 1)
    ]


def _no_samples() -> list[Sample]:
    return []


register(
    # Attributes: position, shape, dtype; optional low, high bound the random values that tests and
    # tuning draw for this input; constant (true): it is bound once, not given to each call.
    OpSpec("input", Family.SOURCE, _infer_input, _no_reference, _no_flops, _no_samples,
           axes=_no_axes),
    OpSpec("constant", Family.SOURCE, _infer_constant, _constant_reference, _no_flops,
           _constant_samples, body=_constant_body, axes=_no_axes),
    OpSpec("iota", Family.SOURCE, _infer_iota, _iota_reference, _no_flops, _iota_samples,
           body=_iota_body, axes=_no_axes, varies=lambda call: (call["axis"],)),
)  # fmt: skip
