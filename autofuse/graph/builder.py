"""Builds graphs node by node, checking each op as it is added."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autofuse.graph.types import Graph, Node, Value
from autofuse.graph.verify import describe, infer_node, verify
from autofuse.ops.dtypes import DType
from autofuse.ops.types import GraphError, Literal, TensorType, make_attrs

Number = bool | int | float


class GraphBuilder:
    """Adds nodes in order and hands out the values they compute.

    Nothing is merged or simplified here, except that equal scalar constants are one node.
    """

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._types: list[tuple[TensorType, ...]] = []
        self._inputs: list[int] = []
        self._scalars: dict[Literal, Value] = {}

    def input(
        self,
        name: str,
        shape: Sequence[int],
        dtype: DType,
        *,
        low: float | None = None,
        high: float | None = None,
        constant: bool = False,
    ) -> Value:
        """The next graph input. `low`, `high` bound the random values that tests and tuning draw
        for it (both included for integers), and mean nothing else. A `constant` one is bound once,
        when a compiled function is made. Raises GraphError when the name is taken."""
        if name and any(self._nodes[i].name == name for i in self._inputs):
            raise GraphError(f"input '{name}' is declared twice")
        attrs: dict[str, Any] = {"position": len(self._inputs), "shape": tuple(shape)}
        attrs["dtype"] = str(dtype)
        attrs |= {k: v for k, v in (("low", low), ("high", high)) if v is not None}
        if constant:
            attrs["constant"] = True
        (value,) = self.add_multi("input", name=name, **attrs)
        self._inputs.append(value.node)
        return value

    def constant(
        self, value: Number | np.ndarray, dtype: DType, shape: Sequence[int] | None = None
    ) -> Value:
        """A constant of `shape` (default: that of `value`), stored as `dtype`.

        A number or single element with a larger `shape` is a () constant and a broadcast.
        Raises GraphError when an array does not have that shape.
        """
        literal = _literal(value, dtype)
        wanted = literal.type.shape if shape is None else tuple(shape)
        if literal.type.shape == wanted:
            return self._literal(literal)
        if literal.type.size != 1:
            raise GraphError(f"constant {literal.type} does not have shape {list(wanted)}")
        scalar = self._literal(Literal(TensorType((), dtype), literal.data))
        return self.add("broadcast", scalar, shape=wanted, dims=()) if wanted else scalar

    def _literal(self, literal: Literal) -> Value:
        if literal in self._scalars:
            return self._scalars[literal]
        made = self.add("constant", value=literal)
        if literal.type.size == 1:
            self._scalars[literal] = made
        return made

    def add(self, op: str, *inputs: Value, name: str = "", **attrs: Any) -> Value:
        """Append an op of one output; raises GraphError naming the node when it does not fit."""
        values = self.add_multi(op, *inputs, name=name, **attrs)
        if len(values) != 1:
            where = describe(len(self._nodes) - 1, op, name)
            raise GraphError(f"{where} has {len(values)} outputs, not one")
        return values[0]

    def add_multi(self, op: str, *inputs: Value, name: str = "", **attrs: Any) -> tuple[Value, ...]:
        """Append an op and return all its outputs; raises GraphError when it does not fit."""
        index = len(self._nodes)
        node = Node(op, tuple(inputs), make_attrs(attrs), (), name)
        types = infer_node(index, node, self._types)
        self._nodes.append(Node(op, node.inputs, node.attrs, types, name))
        self._types.append(types)
        return tuple(Value(index, i) for i in range(len(types)))

    def type_of(self, value: Value) -> TensorType:
        """Shape and dtype of a value of this builder."""
        return self._types[value.node][value.index]

    def build(self, outputs: Sequence[Value], names: Sequence[str] = ()) -> Graph:
        """The finished graph; raises GraphError when it is not well formed."""
        if len(set(names)) != len(names):
            raise GraphError(f"output names repeat: {', '.join(names)}")
        made = Graph(tuple(self._nodes), tuple(self._inputs), tuple(outputs), tuple(names))
        return verify(made)


def _literal(value: Number | np.ndarray, dtype: DType) -> Literal:
    if isinstance(value, float) and not dtype.is_float and not value.is_integer():
        raise GraphError(f"constant {value} is not a whole number, as {dtype} needs")
    if isinstance(value, int | float) and dtype.is_int:
        info = np.iinfo(dtype.numpy)
        if not info.min <= value <= info.max:
            raise GraphError(f"constant {value} does not fit in {dtype}")
    return Literal.of(np.asarray(value), dtype)
