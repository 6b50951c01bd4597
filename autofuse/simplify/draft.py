"""Draft: a graph while it is rewritten, as rules see it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from autofuse.graph.types import Graph, Node, Value
from autofuse.ops import spec
from autofuse.ops.dtypes import DType
from autofuse.ops.spec import Family
from autofuse.ops.types import Attrs, GraphError, Literal, OpCall, TensorType, make_attrs
from autofuse.order import post_order
from autofuse.simplify.constants import Constants

Shape = tuple[int, ...]
NodeKey = tuple[str, tuple[Value, ...], Attrs]
# What is made of constants alone, apart from sources.
_COMPUTED = (
    Family.ELEMENTWISE, Family.MOVEMENT, Family.REDUCTION, Family.SCAN, Family.WINDOW,
    Family.CONTRACTION,
)  # fmt: skip


class Draft:
    """Nodes by number, equal ones once, with who reads them.

    Rules read it and `add` to it; only the driver replaces. `todo` holds the nodes to look at next:
    whatever changed, and whoever reads it; `settled` those in their normal form until they read
    something else. `counter_trip` is the number of iterations where the
    graph is a loop's body, else 0.
    """

    def __init__(
        self, graph: Graph, simplify_body: Callable[[Graph, int], Graph], counter_trip: int = 0
    ) -> None:
        self.simplify_body = simplify_body
        self.counter_trip = counter_trip
        self._graph = graph
        self._nodes: dict[int, Node] = {}
        self._users: dict[int, dict[int, None]] = {}
        self._table: dict[NodeKey, int] = {}
        self._constant: dict[int, bool] = {}
        self._next = 0
        self.todo: deque[int] = deque()
        self.settled: set[int] = set()
        self.inputs: dict[int, int] = {}
        self.outputs: list[Value] = []
        self._leaving: set[int] = set()
        self.constants = Constants(self._nodes.__getitem__, self.call, self._constant.__getitem__)
        self._load()

    def _load(self) -> None:
        """The graph's nodes under their own numbers; what no output needs comes in too, dead."""
        moved: dict[int, int] = {}
        for i, node in enumerate(self._graph.nodes):
            operands = tuple(Value(moved[v.node], v.index) for v in node.inputs)
            key = (node.op, operands, node.attrs)
            self._next = i
            same = self._table.get(key)
            renamed = _reading(node, operands)
            moved[i] = self._insert(key, renamed) if same is None else same
        self.inputs = {moved[i]: position for position, i in enumerate(self._graph.inputs)}
        self._leave([Value(moved[v.node], v.index) for v in self._graph.outputs])
        for i in reversed(list(self._nodes)):
            self.drop_dead(i)

    def _leave(self, outputs: list[Value]) -> None:
        self.outputs = outputs
        self._leaving = {v.node for v in outputs}

    # What rules ask

    def node(self, value: Value) -> Node:
        """The node that computes a value."""
        return self._nodes[value.node]

    def __getitem__(self, number: int) -> Node:
        return self._nodes[number]

    def __contains__(self, number: int) -> bool:
        return number in self._nodes

    def is_op(self, value: Value, *names: str) -> bool:
        """Whether a value is computed by one of these ops."""
        return self._nodes[value.node].op in names

    def attr(self, value: Value, key: str) -> Any:
        """An attribute of the node that computes a value; None where it has none of that name."""
        return next((v for k, v in self._nodes[value.node].attrs if k == key), None)

    def operand(self, value: Value, position: int = 0) -> Value:
        """What the node of a value reads."""
        return self._nodes[value.node].inputs[position]

    def type_of(self, value: Value) -> TensorType:
        return self._nodes[value.node].types[value.index]

    def shape(self, value: Value) -> Shape:
        return self.type_of(value).shape

    def dtype(self, value: Value) -> DType:
        return self.type_of(value).dtype

    def call(self, number: int) -> OpCall:
        """A node as its op sees it."""
        node = self._nodes[number]
        return OpCall(node.attrs, tuple(map(self.type_of, node.inputs)), node.types)

    def users(self, number: int) -> Collection[int]:
        """The nodes that read a node, each once."""
        return self._users[number].keys()

    def alone(self, value: Value) -> bool:
        """Whether one node reads `value`, and nothing else does: to change it is to move it."""
        return len(self._users[value.node]) == 1 and not self.leaves(value.node)

    def leaves(self, number: int) -> bool:
        """Whether an output is a value of this node."""
        return number in self._leaving

    def is_constant(self, value: Value) -> bool:
        """Whether a value depends on constants and iotas alone."""
        return self._constant[value.node]

    def known(self, value: Value) -> np.ndarray | None:
        """The elements of a value that is constant, in its dtype and rank; axes along which it
        repeats have extent 1. None where they are not known, or too many."""
        return self.constants.array(value)

    def uniform(self, value: Value) -> np.generic | None:
        """The one element of a constant that is the same everywhere."""
        found = self.constants.array(value)
        return found.reshape(-1)[0] if found is not None and found.size == 1 else None

    # What rules write

    def add(self, op: str, *values: Value, **attrs: Any) -> Value:
        """An op of one output, or the equal one there is. Raises GraphError for a misfit."""
        return self.add_many(op, *values, **attrs)[0]

    def add_many(self, op: str, *values: Value, **attrs: Any) -> tuple[Value, ...]:
        """As `add`, all outputs."""
        key = (op, values, make_attrs(attrs))
        if key not in self._table:
            types = spec.infer(op, tuple(map(self.type_of, values)), key[2])
            number = self._insert(key, Node(op, values, key[2], types))
            self.todo.appendleft(number)
        number = self._table[key]
        return tuple(Value(number, k) for k in range(len(self._nodes[number].types)))

    def existing(self, op: str, values: tuple[Value, ...], attrs: Attrs) -> Value | None:
        """The first output of the equal node, where there is one."""
        number = self._table.get((op, values, attrs))
        return None if number is None else Value(number)

    def literal(self, array: Any, dtype: DType) -> Value:
        """A constant of the array's own shape."""
        return self.add("constant", value=Literal.of(np.asarray(array), dtype))

    def full(self, number: Any, kind: TensorType) -> Value:
        """`number` everywhere."""
        return self.spread(self.literal(np.asarray(number), kind.dtype), kind.shape, ())

    def spread(self, value: Value, shape: Sequence[int], dims: Sequence[int]) -> Value:
        """Axis i of `value` becomes axis dims[i] of `shape`."""
        same = self.shape(value) == tuple(shape)
        return value if same else self.add("broadcast", value, shape=tuple(shape), dims=tuple(dims))

    def reshape(self, value: Value, shape: Sequence[int]) -> Value:
        same = self.shape(value) == tuple(shape)
        return value if same else self.add("reshape", value, shape=tuple(shape))

    def transpose(self, value: Value, perm: Sequence[int]) -> Value:
        same = tuple(perm) == tuple(range(len(perm)))
        return value if same else self.add("transpose", value, perm=tuple(perm))

    def cut(self, value: Value, axis: int, start: int, stop: int) -> Value:
        """`value` from `start` to `stop` along one axis."""
        shape = self.shape(value)
        if (start, stop) == (0, shape[axis]):
            return value
        low = tuple(start if a == axis else 0 for a in range(len(shape)))
        high = tuple(stop if a == axis else n for a, n in enumerate(shape))
        return self.add("slice", value, start=low, stop=high, stride=(1,) * len(shape))

    def concat(self, values: Sequence[Value], axis: int) -> Value:
        """The non-empty ones of `values`, end to end."""
        found = [v for v in values if self.shape(v)[axis]] or list(values[:1])
        return found[0] if len(found) == 1 else self.add("concat", *found, axis=axis)

    # What the driver does

    def _values(self, number: int) -> tuple[Value, ...]:
        return tuple(Value(number, k) for k in range(len(self._nodes[number].types)))

    def replace(self, number: int, values: Sequence[Value]) -> None:
        """Whoever reads outputs of `number` reads `values` instead; it is dropped, and with it what
        only it needed. Raises GraphError when types differ."""
        waiting = deque([(number, tuple(values))])
        moved: dict[int, tuple[Value, ...]] = {}
        while waiting:
            old, new = waiting.popleft()
            new = tuple(_followed(v, moved) for v in new)
            if old in moved or new == self._values(old):
                continue
            if tuple(map(self.type_of, new)) != self._nodes[old].types:
                raise GraphError(f"%{old} was replaced by values of other types")
            self._keep_name(old, new)
            if self.leaves(old):
                self._leave([new[v.index] if v.node == old else v for v in self.outputs])
            for user in list(self._users[old]):
                same = self._reread(user, old, new)
                if same is not None:
                    waiting.append((user, self._values(same)))
            if all(v.node != old for v in new):
                moved[old] = new
        # Only now, because a node that nothing reads for the moment may be what others merge with.
        for old in (*moved, number):
            self.drop_dead(old)

    def _keep_name(self, old: int, new: Sequence[Value]) -> None:
        name, heir = self._nodes[old].name, self._nodes[new[0].node]
        if name and not heir.name and new[0].node not in self.inputs:
            self._nodes[new[0].node] = replace(heir, name=name)

    def _reread(self, user: int, old: int, new: Sequence[Value]) -> int | None:
        """`user` reads the new values from now on; the node that it is now equal to, if any."""
        node = self._nodes[user]
        self._unlist(user)
        operands = tuple(new[v.index] if v.node == old else v for v in node.inputs)
        self._nodes[user] = _reading(node, operands)
        self._users[old].pop(user, None)
        for value in operands:
            self._users[value.node][user] = None
        self._note_constant(user)
        self.settled.discard(user)
        self.todo.append(user)
        equal = self._table.setdefault((node.op, operands, node.attrs), user)
        return None if equal == user else equal

    def drop_dead(self, number: int) -> None:
        """Forget a node that nothing needs, and what nothing but it needed."""
        stack = [number]
        while stack:
            at = stack.pop()
            if at not in self._nodes or self._users[at] or at in self.inputs or self.leaves(at):
                continue
            self._unlist(at)
            node = self._nodes.pop(at)
            del self._users[at], self._constant[at]
            self.constants.forget(at)
            for value in dict.fromkeys(node.inputs):
                readers = self._users[value.node]
                readers.pop(at, None)
                stack.append(value.node)
                # Rules that ask whether a value is read alone may now say yes.
                self.todo.extend(readers if len(readers) == 1 else ())

    def _insert(self, key: NodeKey, node: Node) -> int:
        number, self._next = self._next, self._next + 1
        self._nodes[number] = node
        self._users[number] = {}
        for value in node.inputs:
            self._users[value.node][number] = None
        self._table[key] = number
        self._note_constant(number)
        return number

    def _unlist(self, number: int) -> None:
        """Nodes that are to be like this one are no longer merged with it."""
        node = self._nodes[number]
        key = (node.op, node.inputs, node.attrs)
        if self._table.get(key) == number:
            del self._table[key]

    def _note_constant(self, number: int) -> None:
        """Say whether a node is constant, and so whether those that read it are."""
        stack = [number]
        while stack:
            at = stack.pop()
            node, before = self._nodes[at], self._constant.get(at)
            if node.inputs:
                read = (self._constant[v.node] for v in node.inputs)
                self._constant[at] = node.spec.family in _COMPUTED and all(read)
            else:
                self._constant[at] = node.op != "input" and node.spec.family is Family.SOURCE
            self.constants.forget(at)
            if self._constant[at] != before:
                stack += self._users[at]
                self.todo += self._users[at]

    def finish(self) -> Graph:
        """What the draft has become; inputs keep their places."""
        order = self.numbers()
        moved = {old: new for new, old in enumerate(order)}

        def renumber(values: Iterable[Value]) -> tuple[Value, ...]:
            return tuple(Value(moved[v.node], v.index) for v in values)

        nodes = tuple(_reading(self._nodes[i], renumber(self._nodes[i].inputs)) for i in order)
        inputs = tuple(sorted(self.inputs, key=self.inputs.__getitem__))
        return replace(
            self._graph,
            nodes=nodes,
            inputs=tuple(moved[i] for i in inputs),
            outputs=renumber(self.outputs),
        )

    def look_at_all(self) -> None:
        """Every node is to be looked at, operands first."""
        self.constants.look_again()
        self.todo.extend(self.numbers())

    def numbers(self) -> list[int]:
        """All nodes, operands first."""
        roots = (*self.inputs, *(v.node for v in self.outputs))
        return list(post_order(roots, lambda n: [v.node for v in self._nodes[n].inputs]))

    @property
    def made(self) -> int:
        """How many nodes there have ever been: those made from now on have this number or more."""
        return self._next


def _reading(node: Node, operands: tuple[Value, ...]) -> Node:
    """The node, reading these operands."""
    if operands == node.inputs:
        return node
    return Node(node.op, operands, node.attrs, node.types, node.name)


def _followed(value: Value, moved: dict[int, tuple[Value, ...]]) -> Value:
    """Where a value has gone."""
    while value.node in moved:
        value = moved[value.node][value.index]
    return value
