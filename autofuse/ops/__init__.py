"""Primitive ops: types, the op table, and the families that fill it when they are asked for."""

from autofuse.ops.dtypes import DType
from autofuse.ops.spec import (
    Family,
    Motion,
    OpSpec,
    Sample,
    all_specs,
    families,
    infer,
    register,
    spec_of,
)
from autofuse.ops.types import GraphError, Literal, OpCall, TensorType, make_attrs

# Those that most graphs need come first.
families(
    "elementwise", "source", "movement", "reduction", "contraction", "control", "random",
    "updates", "scatter", "sorting", "window_reduction", "convolution", "fourier",
    "solvers",
)  # fmt: skip

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
    "families",
    "infer",
    "make_attrs",
    "register",
    "spec_of",
]
