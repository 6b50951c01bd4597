"""The op table: one OpSpec row per primitive op, in one registry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

import numpy as np

from autofuse.ops.scalar import Expr
from autofuse.ops.types import Attrs, GraphError, OpCall, TensorType

Index = tuple[Expr, ...]


class Pull(Protocol):
    """What a body asks operands of."""

    def __call__(self, operand: int, index: Index, /) -> Expr:
        """The element of `operand` at `index`, as its `dtype.compute`; the index is in range."""
        ...

    def let(self, value: Expr, /) -> Expr:
        """`value` bound to a variable, so that using it several times computes it once.

        A bounded non-negative index should come back as a Sym with its extent.
        """
        ...


Infer = Callable[[OpCall], tuple[TensorType, ...]]
Reference = Callable[[tuple[np.ndarray, ...], OpCall], tuple[np.ndarray, ...]]
Body = Callable[[OpCall, Index, Pull], tuple[Expr, ...]]
# For each operand: for each output axis, the operand axis read at the very same index, or None.
AxisMap = tuple[tuple[int | None, ...], ...]


class Family(Enum):
    """How a kernel realises an op; legality and lowering dispatch on nothing else."""

    SOURCE = "source"  # input, constant, iota: has a body, reads nothing
    ELEMENTWISE = "elementwise"  # out[i] = f(in[i]...)
    MOVEMENT = "movement"  # out[i] = in[g(i)]: broadcast, reshape, slice, concat, gather, ...
    REDUCTION = "reduction"  # out[i] = fold over the reduced axes
    SCAN = "scan"  # out[i] depends on out[i-1] along one axis
    CONTRACTION = "contraction"  # dot_general
    RANDOM = "random"  # out[i] = generator(key, i): a body like SOURCE, but a library call to rules
    CONTROL = "control"  # counted loop


@dataclass(frozen=True)
class Fold:
    """A reduction in scalar terms: fold `combine` over elements starting from `init`.

    `width` accumulators are kept (argmax keeps value and position); `lift` turns an element and
    its position along the (single) reduced axis into accumulators, `finish` turns them into the
    result.
    """

    init: Callable[[OpCall], tuple[Expr, ...]]
    lift: Callable[[OpCall, Expr, Expr], tuple[Expr, ...]]
    combine: Callable[[tuple[Expr, ...], tuple[Expr, ...]], tuple[Expr, ...]]
    finish: Callable[[OpCall, tuple[Expr, ...]], Expr]
    operator: str | None = None  # "add", "mul", "max", "min", "and", "or" when it is one primitive


@dataclass(frozen=True)
class Sample:
    """One generated test: operand types, attributes, and the range floats are drawn from."""

    ins: tuple[TensorType, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    low: float = -2.0
    high: float = 2.0


@dataclass(frozen=True)
class OpSpec:
    """One primitive op.

    `infer` checks operands and attributes (raising GraphError) and gives the output types;
    `reference` computes in NumPy, floats as float64, integers exactly;
    `body` gives one output element from operand elements (None for REDUCTION with a `fold`,
    SCAN, CONTRACTION and CONTROL); `axes` says which axes pass through untouched;
    `flops` counts arithmetic operations of the whole call.
    """

    name: str
    family: Family
    infer: Infer
    reference: Reference
    flops: Callable[[OpCall], float]
    samples: Callable[[], Sequence[Sample]]
    body: Body | None = None
    fold: Fold | None = None
    axes: Callable[[OpCall], AxisMap] | None = None


_REGISTRY: dict[str, OpSpec] = {}


def register(*specs: OpSpec) -> None:
    """Add rows to the op table; a name is taken once."""
    for spec in specs:
        if spec.name in _REGISTRY:
            raise ValueError(f"op '{spec.name}' is registered twice")
        _REGISTRY[spec.name] = spec


def spec_of(name: str) -> OpSpec:
    """The row of op `name`; raises GraphError for an unknown op."""
    try:
        return _REGISTRY[name]
    except KeyError:
        raise GraphError(f"unknown op '{name}'") from None


def all_specs() -> tuple[OpSpec, ...]:
    """Every row, sorted by name."""
    return tuple(_REGISTRY[name] for name in sorted(_REGISTRY))


def infer(name: str, ins: tuple[TensorType, ...], attrs: Attrs) -> tuple[TensorType, ...]:
    """Output types of op `name`; raises GraphError."""
    return spec_of(name).infer(OpCall(attrs, ins))
