"""What computes the float64 reference of a graph: kernels, loops, and NumPy for the rest.

The plainest of all plans. Elementwise ops of one shape are one kernel; what only says where an
element lies (`LIGHT`) is read in place; every other value is in memory. A loop is compiled if all
of its body is. What libraries of NumPy do well once (products, sums, sorts) they do; inside a loop
that is compiled, small ones are loops over their terms.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from autofuse.graph.types import Graph, Node, Value
from autofuse.ops.control import is_counted
from autofuse.ops.dtypes import DType
from autofuse.ops.source import is_scalar_constant
from autofuse.ops.spec import Family
from autofuse.ops.types import TensorType

# Ops that only say where an element of their operand lies, or what it is from its place.
LIGHT = frozenset(("broadcast", "transpose", "slice", "reverse", "dynamic_slice", "iota"))
# Kernels by themselves at the top of a graph; inside loops everything that can be one is.
_ALONE = frozenset(("gather", "take_along", "random_bits"))
# Nodes of one kernel: compiling grows faster than their number.
MOST_NODES = 48
# Terms that one node in the body of a compiled loop may sum: beyond that BLAS is better.
MOST_TERMS = 1 << 18


@dataclass(frozen=True)
class TruthKernel:
    """Nodes whose results have one shape, and what of them is stored."""

    nodes: tuple[int, ...]
    outs: tuple[Value, ...]
    reads: tuple[Value, ...]


@dataclass(frozen=True)
class ByNumPy:
    """One node as NumPy defines it; inside a loop only a reshape, which is the same memory."""

    node: int
    reads: tuple[Value, ...]


@dataclass(frozen=True)
class TruthLoop:
    """A loop whose body is compiled."""

    node: int
    reads: tuple[Value, ...]


TruthItem = TruthKernel | ByNumPy | TruthLoop


def promoted(graph: Graph) -> Graph:
    """The graph with every float an f64; attributes are as they were."""
    return _promoted(graph)


@lru_cache(maxsize=64)
def _promoted(graph: Graph) -> Graph:
    nodes = tuple(replace(n, types=tuple(map(_wide, n.types))) for n in graph.nodes)
    return Graph(nodes, graph.inputs, graph.outputs, graph.output_names)


def _wide(type_: TensorType) -> TensorType:
    return TensorType(type_.shape, DType.F64) if type_.dtype.is_float else type_


def is_light(graph: Graph, i: int) -> bool:
    """Whether readers of node `i` compute its elements themselves."""
    node = graph[i]
    return node.op in LIGHT or is_scalar_constant(node.op, node.types)


def given(node: Node) -> bool:
    """In memory before anything runs: inputs and constant arrays."""
    return node.op in ("input", "constant")


def loads(graph: Graph, values: Sequence[Value]) -> tuple[Value, ...]:
    """The values in memory that elements of `values` are computed from, each once."""
    found: dict[Value, None] = {}
    stack, seen = list(values)[::-1], set()
    while stack:
        value = stack.pop()
        if value in seen:
            continue
        seen.add(value)
        if is_light(graph, value.node):
            stack.extend(reversed(graph[value.node].inputs))
        else:
            found[value] = None
    return tuple(found)


@lru_cache(maxsize=256)
def compiles(body: Graph) -> bool:
    """Whether all of a loop's body can be compiled."""
    return all(
        given(node) or is_light(body, i) or _kernel_inside(body, i) or _loop_compiles(node)
        or node.op == "reshape"
        for i, node in enumerate(body.nodes)
    )  # fmt: skip


def _loop_compiles(node: Node) -> bool:
    if node.spec.family is not Family.CONTROL:
        return False
    body = dict(node.attrs)["body"]
    empty = any(t.size == 0 for t in (*body.input_types, *body.output_types))
    return not empty and compiles(body)


def _kernel_inside(graph: Graph, i: int) -> bool:
    """Whether node `i` of a loop's body can be a kernel."""
    node, spec = graph[i], graph[i].spec
    if any(t.size == 0 for t in node.types):
        return False
    if spec.family in (Family.ELEMENTWISE, Family.MOVEMENT, Family.RANDOM):
        return spec.body is not None and _plain(graph, i)
    call = graph.call(i)
    if spec.family in (Family.REDUCTION, Family.SCAN):
        return spec.fold is not None and call.ins[0].size > 0
    if spec.over is None or spec.fold is None or spec.transforms is not None:
        return False
    return call.out.size * max(1, spec.terms(call)) <= MOST_TERMS


def _plain(graph: Graph, i: int) -> bool:
    """Bits of halves are NumPy's to turn over: kernels compute these as wider floats."""
    if graph[i].op != "bitcast":
        return True
    types = (*graph.call(i).ins, *graph[i].types)
    return all(t.dtype.compute is t.dtype for t in types)


def _kernel_on_top(graph: Graph, i: int) -> bool:
    node = graph[i]
    chained = node.spec.family is Family.ELEMENTWISE or node.op in _ALONE
    return chained and _kernel_inside(graph, i)


@lru_cache(maxsize=256)
def items(graph: Graph, inside: bool) -> tuple[TruthItem, ...]:
    """What computes `graph`, in order; `inside`: as the body of a compiled loop."""
    return tuple(_Planner(graph, inside).items())


def _alone(graph: Graph, i: int) -> TruthItem:
    """A node that is no kernel."""
    node = graph[i]
    if node.spec.family is Family.CONTROL and _loop_compiles(node):
        return TruthLoop(i, node.inputs)
    return ByNumPy(i, node.inputs)


class _Planner:
    def __init__(self, graph: Graph, inside: bool) -> None:
        self.graph, self.inside = graph, inside
        self.done = {i for i, node in enumerate(graph.nodes) if given(node)}
        # Light values that somebody needs in memory, and everything else that is computed.
        self.stored = self._stored()
        self.left = [
            i for i in range(len(graph.nodes))
            if i not in self.done and (not is_light(graph, i) or Value(i) in self.stored)
        ]  # fmt: skip
        # What may be in kernels of several nodes, by shape, as long as it is not computed.
        self.chained: dict[tuple[int, ...], list[int]] = {}
        for i in self.left:
            if self._chains(i) and self._is_kernel(i):
                self.chained.setdefault(graph[i].types[0].shape, []).append(i)
        self._loads: dict[Value, tuple[Value, ...]] = {}

    def _stored(self) -> set[Value]:
        """Light values that outputs, loops and NumPy read."""
        found = {v for v in self.graph.outputs if is_light(self.graph, v.node)}
        stack = [
            v for i, node in enumerate(self.graph.nodes)
            if not given(node) and not is_light(self.graph, i) and not self._is_kernel(i)
            for v in node.inputs
        ]  # fmt: skip
        found |= {v for v in stack if is_light(self.graph, v.node)}
        if not self.inside:
            # NumPy computes those that are stored from their own operands.
            todo = list(found)
            while todo:
                for v in self.graph[todo.pop().node].inputs:
                    if is_light(self.graph, v.node) and v not in found:
                        found.add(v)
                        todo.append(v)
        return found

    def _is_kernel(self, i: int) -> bool:
        if self.inside:
            light = is_light(self.graph, i)
            return light or (self.graph[i].op != "reshape" and _kernel_inside(self.graph, i))
        return _kernel_on_top(self.graph, i)

    def items(self) -> Iterator[TruthItem]:
        left = self.left
        while left:
            first = next(i for i in left if self._ready(i))
            item = self._item(first)
            taken = set(item.nodes) if isinstance(item, TruthKernel) else {item.node}
            self.done |= taken
            left = [i for i in left if i not in taken]
            if not isinstance(item, TruthKernel) or item.outs:  # else nobody reads it
                yield item

    def _ready(self, i: int) -> bool:
        """Whether all is in memory that must be: loops and NumPy take operands as they are."""
        inputs = self.graph[i].inputs
        if self._is_kernel(i):
            return all(map(self._in_memory, inputs))
        return all(v.node in self.done for v in inputs)

    def _in_memory(self, value: Value) -> bool:
        """Whether all is computed that elements of `value` are computed from."""
        if value not in self._loads:
            self._loads[value] = loads(self.graph, (value,))
        return all(v.node in self.done for v in self._loads[value])

    def _item(self, first: int) -> TruthItem:
        graph = self.graph
        if not self._is_kernel(first):
            return _alone(graph, first)
        nodes = self._chain(first) if self._chains(first) else (first,)
        inside = set(nodes)
        outs = tuple(
            Value(i, k) for i in nodes for k in range(len(graph[i].types))
            if self._needed(Value(i, k), inside)
        )  # fmt: skip
        reads = loads(graph, tuple(v for i in nodes for v in graph[i].inputs))
        return TruthKernel(nodes, outs, tuple(v for v in reads if v.node not in inside))

    def _chains(self, i: int) -> bool:
        return self.graph[i].spec.family is Family.ELEMENTWISE

    def _chain(self, first: int) -> tuple[int, ...]:
        """`first` and what of its shape can be computed with it, each element from elements at the
        same place, or from what is done."""
        shape, inside = self.graph[first].types[0].shape, {first}
        for i in self.chained[shape]:
            if len(inside) >= MOST_NODES:
                break
            inputs = self.graph[i].inputs
            if i > first and all(v.node in inside or self._in_memory(v) for v in inputs):
                inside.add(i)
        self.chained[shape] = [i for i in self.chained[shape] if i not in inside]
        return tuple(sorted(inside))

    def _needed(self, value: Value, inside: set[int]) -> bool:
        """Whether something outside of a kernel reads `value`, moved ones included."""
        if value in self._outputs:
            return True
        for user in self.graph.users[value.node]:
            if user not in inside or is_light(self.graph, user):
                return True
        return False

    @property
    def _outputs(self) -> frozenset[Value]:
        return frozenset(self.graph.outputs)


def trips(node: Node) -> int:
    """Iterations of a loop, at most."""
    attrs = dict(node.attrs)
    return int(attrs["trip"] if is_counted(node.op) else attrs["max_trips"])
