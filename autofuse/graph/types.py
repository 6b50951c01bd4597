"""The graph: an immutable DAG of primitive ops, in topological order by construction."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from autofuse.ops.spec import KNOWN, OpSpec, spec_of
from autofuse.ops.types import Attrs, OpCall, TensorType


class Value(NamedTuple):
    """Output `index` of node `node`. A tuple, because planning hashes and compares more of these
    than of anything else."""

    node: int
    index: int = 0  # type: ignore[assignment]  # of a tuple it is a method, which nobody wants here

    def __str__(self) -> str:
        return f"%{self.node}" if self.index == 0 else f"%{self.node}.{self.index}"


@dataclass(frozen=True, slots=True)
class Node:
    """One primitive op; `name` is for people and never changes meaning or digest."""

    op: str
    inputs: tuple[Value, ...]
    attrs: Attrs
    types: tuple[TensorType, ...]
    name: str = field(default="", compare=False)

    @property
    def spec(self) -> OpSpec:
        return KNOWN.get(self.op) or spec_of(self.op)


@dataclass(frozen=True)
class Graph:
    """Nodes in topological order. Graph inputs are nodes of op "input" (attribute `position`);
    `inputs` lists their node ids by position. Build with GraphBuilder, which verifies."""

    nodes: tuple[Node, ...]
    inputs: tuple[int, ...]
    outputs: tuple[Value, ...]
    output_names: tuple[str, ...] = field(default=(), compare=False)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        # Graphs key caches; hashing thousands of nodes at every look-up would dominate planning.
        return hash((self.nodes, self.inputs, self.outputs))

    def __getitem__(self, node: int) -> Node:
        return self.nodes[node]

    def type_of(self, value: Value) -> TensorType:
        return self.nodes[value.node].types[value.index]

    def call(self, node: int) -> OpCall:
        """Node `node` as its op sees it."""
        found = self._calls.get(node)
        if found is None:
            n = self.nodes[node]
            found = OpCall(n.attrs, tuple(self.type_of(v) for v in n.inputs), n.types)
            self._calls[node] = found
        return found

    @cached_property
    def _calls(self) -> dict[int, OpCall]:
        return {}

    @cached_property
    def users(self) -> tuple[tuple[int, ...], ...]:
        """For each node, the nodes that read any of its outputs, ascending, each once."""
        found: list[dict[int, None]] = [{} for _ in self.nodes]
        for i, node in enumerate(self.nodes):
            for value in node.inputs:
                found[value.node][i] = None
        return tuple(tuple(f) for f in found)

    @cached_property
    def input_types(self) -> tuple[TensorType, ...]:
        return tuple(self.nodes[i].types[0] for i in self.inputs)

    @cached_property
    def output_types(self) -> tuple[TensorType, ...]:
        return tuple(self.type_of(v) for v in self.outputs)

    @cached_property
    def input_names(self) -> tuple[str, ...]:
        return tuple(self.nodes[i].name or f"in{p}" for p, i in enumerate(self.inputs))
