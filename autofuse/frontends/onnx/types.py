"""What the rules for ONNX operators share: a call with its operands, and what is known of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from autofuse.frontends.errors import FrontendError
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter, Shape
from autofuse.ops.dtypes import DType, from_numpy
from autofuse.ops.types import TensorType

# The domain of the standard's own operators.
STANDARD = ""


# Numbers of four bits, and what they are in graphs: they are read from bytes.
OF_FOUR_BITS = {"int4": DType.I8, "uint4": DType.U8}


def stored_as(dtype: np.dtype) -> DType:
    """What elements of an array that a model holds are in a graph."""
    return OF_FOUR_BITS.get(dtype.name) or from_numpy(dtype)


@dataclass(frozen=True, slots=True, eq=False)
class Weight:
    """An array that the model holds: a constant input of the graph, whose elements are no part of
    it. They are looked at only where something has to be known (an axis, a size)."""

    name: str
    array: np.ndarray


# What a name of a model stands for: a value of the graph, an array known while importing (of any
# NumPy dtype, also those that graphs do not have), or a weight.
Datum = Value | np.ndarray | Weight


class Subgraph(Protocol):
    """A graph attribute (a branch, the body of a loop)."""

    @property
    def inputs(self) -> tuple[str, ...]: ...

    @property
    def outputs(self) -> tuple[str, ...]: ...

    def write(
        self,
        w: GraphWriter,
        given: Sequence[Datum],
        capture: Callable[[Value], Value] | None = None,
    ) -> list[Datum]:
        """Writes the body's nodes with `w` and returns its outputs. `given` are its inputs.
        Names from around it are found by themselves; where `w` is not the writer of the node that
        has the attribute, `capture` (as `LoopWriter.capture`) brings their values into it."""
        ...


class Holder(Protocol):
    """Who knows how a datum becomes a value of the graph that is written."""

    w: GraphWriter

    def value_of(self, datum: Datum) -> Value: ...


class UnknownValueError(FrontendError):
    """A rule needs to know the elements of `value`, an operand that the graph would compute."""

    def __init__(self, value: Value, w: GraphWriter, message: str, located: bool = False) -> None:
        super().__init__(message, located)
        self.value, self.w = value, w


@dataclass(frozen=True, slots=True)
class OnnxCall:
    """A node, for the rule that writes it with `w`.

    `version` is the since_version of the operator's schema in the model's opset. `operands` are in
    the schema's order, None for an optional one that is left out (at the end they may be missing
    altogether: ask `has`). `attrs` has the node's attributes and the schema's defaults: numbers,
    strings, lists of these, arrays (tensors) and `Subgraph` (graphs). `wanted` says of each output
    whether anything reads it.

    A rule refuses by raising FrontendError with the reason; the importer adds node and operator.
    """

    holder: Holder
    version: int
    operands: tuple[Datum | None, ...]
    attrs: Mapping[str, Any]
    wanted: tuple[bool, ...] = (True,)

    @property
    def w(self) -> GraphWriter:
        return self.holder.w

    def __getitem__(self, name: str) -> Any:
        """A required attribute, or one with a default."""
        if name not in self.attrs:
            raise FrontendError(f"attribute '{name}' is missing")
        return self.attrs[name]

    def attr(self, name: str, default: Any = None) -> Any:
        """An optional attribute without a default in the schema."""
        return self.attrs.get(name, default)

    # Operands

    def has(self, k: int) -> bool:
        return k < len(self.operands) and self.operands[k] is not None

    def datum(self, k: int) -> Datum:
        found = self.operands[k] if k < len(self.operands) else None
        if found is None:
            raise FrontendError(f"operand {k} is missing")
        return found

    def value(self, k: int, dtype: DType | None = None) -> Value:
        """An operand as a value of the graph, converted to `dtype` (None: as it is)."""
        found = self.holder.value_of(self.datum(k))
        return found if dtype is None else self.w.cast(found, dtype)

    def optional(self, k: int, dtype: DType | None = None) -> Value | None:
        """As `value`; None where it is left out."""
        return self.value(k, dtype) if self.has(k) else None

    def values(self, start: int = 0) -> list[Value]:
        """Operands from `start` on, of a variadic operator."""
        return [self.value(k) for k in range(start, len(self.operands))]

    def known(self, k: int) -> np.ndarray | None:
        """The elements of an operand, if they are known without looking into a weight."""
        found = self.datum(k)
        if isinstance(found, np.ndarray):
            return found
        return self.w.known(found) if isinstance(found, Value) else None

    def needs(self, k: int, what: str) -> np.ndarray:
        """The elements of an operand, without which its rule cannot say what to compute: known
        ones, a weight's, or those that a run-time input will be given (the graph is then made for
        these). `what` names it in the sentence of a refusal."""
        found = self.datum(k)
        if isinstance(found, Weight):
            return found.array
        known = self.known(k)
        if known is None:
            assert isinstance(found, Value)
            raise UnknownValueError(found, self.w, f"{what} is not known before it is run")
        return known

    def ints(self, k: int, what: str) -> tuple[int, ...]:
        """The integers that an operand must be known to be (`needs`), in one row."""
        return tuple(int(n) for n in self.needs(k, what).reshape(-1))

    def type(self, k: int) -> TensorType:
        """Shape and dtype of an operand; raises FrontendError for a dtype graphs do not have."""
        found = self.datum(k)
        if isinstance(found, Value):
            return self.w.type_of(found)
        array = found.array if isinstance(found, Weight) else found
        return TensorType(array.shape, stored_as(array.dtype))

    def shape(self, k: int) -> Shape:
        found = self.datum(k)
        if isinstance(found, Value):
            return self.w.shape(found)
        return tuple((found.array if isinstance(found, Weight) else found).shape)

    def dtype(self, k: int) -> DType:
        return self.type(k).dtype


# A rule gives the one result, or all of them in order (None: not there). A result may be an array
# that is known, such as a shape.
OnnxResult = Datum | Sequence[Datum | None]
OnnxRule = Callable[[OnnxCall], OnnxResult]
# Domain, operator, and the since_version from which the rule holds, until the next row's.
OnnxRules = Mapping[tuple[str, str, int], OnnxRule]
