"""Primitive ops: types, the op table, and every family that fills it."""

from autofuse.ops import (
    contraction,
    control,
    convolution,
    elementwise,
    fourier,
    movement,
    random,
    reduction,
    scatter,
    sorting,
    source,
    updates,
    window_reduction,
)
from autofuse.ops.dtypes import DType
from autofuse.ops.spec import Family, Motion, OpSpec, Sample, all_specs, infer, register, spec_of
from autofuse.ops.types import GraphError, Literal, OpCall, TensorType, make_attrs

__all__ = [
    "DType",
    "Family",
    "GraphError",
    "Literal",
    "Motion",
    "OpCall",
    "OpSpec",
    "Sample",
    "TensorType",
    "all_specs",
    "contraction",
    "control",
    "convolution",
    "elementwise",
    "fourier",
    "infer",
    "make_attrs",
    "movement",
    "random",
    "reduction",
    "register",
    "scatter",
    "sorting",
    "source",
    "spec_of",
    "updates",
    "window_reduction",
]
