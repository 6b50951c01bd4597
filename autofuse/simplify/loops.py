"""Loops: what is the same in every iteration leaves them, what nobody reads goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph, Node, Value
from autofuse.ops.control import is_counted
from autofuse.ops.types import Literal, TensorType, make_attrs
from autofuse.order import closure
from autofuse.simplify.draft import Draft
from autofuse.simplify.rules import Replacement, rule

# Nodes of a constant that is computed inside a loop's body instead of being handed to it.
_SUNK = 8


@dataclass(frozen=True, slots=True)
class LoopParts:
    """A loop taken apart: the values that its states begin as, those it reads throughout, and its
    body, whose inputs are the counter, the states, the invariants. Unless it is `counted`, its
    first state ends it, and `trip` is the most iterations that there may be."""

    counted: bool
    body: Graph
    trip: int
    init: tuple[Value, ...]
    invariants: tuple[Value, ...]

    @property
    def carries(self) -> int:
        return len(self.init)

    @property
    def named(self) -> tuple[str, str]:
        """Its op, and the attribute that holds `trip`."""
        return ("loop", "trip") if self.counted else ("while", "max_trips")

    @property
    def states(self) -> tuple[Value, ...]:
        """The states as the body sees them."""
        return tuple(Value(i) for i in self.body.inputs[1 : 1 + self.carries])

    @property
    def reads(self) -> tuple[Value, ...]:
        """The invariants as the body sees them."""
        return tuple(Value(i) for i in self.body.inputs[1 + self.carries :])

    @property
    def news(self) -> tuple[Value, ...]:
        """The states that the body leaves."""
        return self.body.outputs[: self.carries]

    @property
    def rows(self) -> tuple[Value, ...]:
        """What the body leaves to be stacked."""
        return self.body.outputs[self.carries :]


def parts_of_loop(draft: Draft, at: int) -> LoopParts:
    """The loop that node `at` is."""
    node = draft[at]
    attrs = dict(node.attrs)
    carries: int = attrs["carries"]
    counted = is_counted(node.op)
    trip = attrs["trip"] if counted else attrs["max_trips"]
    return LoopParts(counted, attrs["body"], trip, node.inputs[:carries], node.inputs[carries:])


class BodyWriter:
    """Writes a body with what another one computes."""

    def __init__(self, body: Graph) -> None:
        self._body = body
        self._nodes: list[Node] = []
        self._inputs: list[int] = []
        self._found: dict[Value, Value] = {}

    def input(self, kind: TensorType, inside: Sequence[Value]) -> None:
        """The next input, which stands for these values of the old body."""
        name = self._body[inside[0].node].name
        attrs = {"position": len(self._inputs), "shape": kind.shape, "dtype": str(kind.dtype)}
        self._inputs.append(len(self._nodes))
        self._nodes.append(Node("input", (), make_attrs(attrs), (kind,), name))
        self._found |= dict.fromkeys(inside, Value(self._inputs[-1]))

    def constant(self, nodes: Sequence[Node], inside: Value) -> None:
        """Nodes, of which the last computes what stands for a value of the old body."""
        first = len(self._nodes)
        for node in nodes:
            moved = tuple(Value(first + v.node, v.index) for v in node.inputs)
            self._nodes.append(replace(node, inputs=moved))
        self._found[inside] = Value(len(self._nodes) - 1)

    def build(self, outputs: Sequence[Value]) -> Graph:
        """The body of these values of the old one, which must follow from what has been said."""
        for i, node in enumerate(self._body.nodes):
            if Value(i) not in self._found and all(v in self._found for v in node.inputs):
                if node.op == "input":
                    continue
                operands = tuple(self._found[v] for v in node.inputs)
                self._nodes.append(replace(node, inputs=operands))
                made = len(self._nodes) - 1
                self._found |= {Value(i, k): Value(made, k) for k in range(len(node.types))}
        wanted = tuple(self._found[v] for v in outputs)
        return canonical(Graph(tuple(self._nodes), tuple(self._inputs), wanted))


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What a loop becomes: which of its states and rows stay, by number; the values of the draft
    that it reads, each with the values of the body that it stands for; the values of the body that
    are made by nodes instead; and what else is carried or stacked, in terms of the old body: of a
    state what it begins as, what it is in the body, and what becomes of it."""

    states: Sequence[int]
    rows: Sequence[int]
    reads: Sequence[tuple[Value, Sequence[Value]]]
    constants: Sequence[tuple[Sequence[Node], Value]] = ()
    more_rows: Sequence[Value] = ()
    more_states: Sequence[tuple[Value, Sequence[Value], Value]] = ()


def rebuilt(draft: Draft, loop: LoopParts, new: Rebuilt) -> tuple[Value, ...]:
    """The new loop's outputs: states, more states, rows, more rows; none where nothing is left to
    run."""
    wanted = [*(loop.news[k] for k in new.states), *(value for *_, value in new.more_states)]
    wanted += [*(loop.rows[k] for k in new.rows), *new.more_rows]
    if not wanted:
        return ()
    op, limit = loop.named
    carries = len(new.states) + len(new.more_states)
    body = _begun(draft, loop, new).build(wanted)
    attrs = {"body": body, "carries": carries, limit: loop.trip}
    operands = [*(loop.init[k] for k in new.states), *(v for v, *_ in new.more_states)]
    operands += [value for value, _ in new.reads]
    return draft.add_many(op, *operands, **attrs)


def _begun(draft: Draft, loop: LoopParts, new: Rebuilt) -> BodyWriter:
    """The inputs and constants of the new body."""
    writer = BodyWriter(loop.body)
    writer.input(loop.body.input_types[0], [Value(loop.body.inputs[0])])
    for k in new.states:
        writer.input(loop.body.input_types[1 + k], [loop.states[k]])
    for value, inside, _ in new.more_states:
        writer.input(draft.type_of(value), inside)
    for value, inside in new.reads:
        writer.input(draft.type_of(value), inside)
    for nodes, value in new.constants:
        writer.constant(nodes, value)
    return writer


def same_reads(loop: LoopParts) -> list[tuple[Value, Sequence[Value]]]:
    """The invariants as they are."""
    return [(value, (inside,)) for value, inside in zip(loop.invariants, loop.reads, strict=True)]


def outputs_of(
    draft: Draft, at: int, made: Sequence[Value], new: Rebuilt, others: Mapping[int, Value]
) -> tuple[Value, ...]:
    """A value for each output of the loop that was: of the new loop, or of `others`. For what
    nobody reads any value of the type does."""
    carries: int = dict(draft[at].attrs)["carries"]
    more = len(new.states) + len(new.more_states)
    found = dict(others) | dict(zip(new.states, made, strict=False))
    found |= dict(zip((carries + k for k in new.rows), made[more:], strict=False))
    return tuple(
        found[k] if k in found else draft.full(0, kind) for k, kind in enumerate(draft[at].types)
    )


def is_read(draft: Draft, at: int) -> set[int]:
    """The outputs of a node that something reads."""
    found = {v.index for v in draft.outputs if v.node == at}
    for user in draft.users(at):
        found |= {v.index for v in draft[user].inputs if v.node == at}
    return found


@rule("loop-body", "XLA runs its passes on while bodies", "loop", "while")
def loop_body(draft: Draft, at: int) -> Replacement:
    """The body is simplified as a graph of its own, whose counter is known to be below the trip
    count."""
    attrs, loop = dict(draft[at].attrs), parts_of_loop(draft, at)
    body = draft.simplify_body(loop.body, loop.trip)
    if body == loop.body:
        return None
    return draft.add_many(draft[at].op, *draft[at].inputs, **(attrs | {"body": body}))


@rule("one-trip", "XLA WhileLoopSimplifier (trip count 1); LLVM LoopUnroll", "loop")
def one_trip(draft: Draft, at: int) -> Replacement:
    """A loop of one iteration is its body, and a stack of one row that row."""
    loop = parts_of_loop(draft, at)
    if loop.trip != 1:
        return None
    places = {loop.body.inputs[0]: draft.full(0, loop.body.input_types[0])}
    places |= dict(zip(loop.body.inputs[1:], (*loop.init, *loop.invariants), strict=True))
    results = copied(draft, loop.body, places, range(len(loop.body.nodes)))
    return tuple(
        draft.reshape(results[v], kind.shape)
        for v, kind in zip(loop.body.outputs, draft[at].types, strict=True)
    )


def copied(
    draft: Draft, body: Graph, places: dict[int, Value], nodes: Sequence[int]
) -> dict[Value, Value]:
    """Nodes of a body as nodes of the draft; inputs of the body are `places`. By their values in
    the body."""
    found = {Value(i): value for i, value in places.items()}
    for i in nodes:
        if i not in places:
            node = body[i]
            operands = [found[v] for v in node.inputs]
            made = draft.add_many(node.op, *operands, **dict(node.attrs))
            found |= {Value(i, k): value for k, value in enumerate(made)}
    return found


@rule("unused-state", "XLA WhileLoopSimplifier / while DCE; LLVM LoopDeletion", "loop", "while")
def unused_state(draft: Draft, at: int) -> Replacement:
    """States that only make themselves, stacks that nobody reads, invariants that the body does not
    read."""
    loop, read = parts_of_loop(draft, at), is_read(draft, at)
    rows = [k for k in range(len(loop.rows)) if loop.carries + k in read]
    states = read & set(range(loop.carries))
    states, needed = _needed(loop, states if loop.counted else states | {0}, rows)
    reads = [(value, inside) for value, inside in same_reads(loop) if inside[0].node in needed]
    before = (loop.carries, len(loop.rows), len(loop.invariants))
    if (len(states), len(rows), len(reads)) == before or not (states or rows):
        return None
    new = Rebuilt(sorted(states), rows, reads)
    return outputs_of(draft, at, rebuilt(draft, loop, new), new, {})


def _needed(loop: LoopParts, states: set[int], rows: list[int]) -> tuple[set[int], set[int]]:
    """The states that these states and rows depend on, themselves among them, and all nodes."""
    ends = [loop.rows[k] for k in rows]
    while True:
        needed = reached(loop.body, [*(loop.news[k] for k in states), *ends])
        more = {k for k, v in enumerate(loop.states) if v.node in needed}
        if more <= states:
            return states, needed
        states |= more


def reached(body: Graph, values: Sequence[Value]) -> set[int]:
    """The nodes that values of a body depend on."""
    nodes = body.nodes
    return closure((v.node for v in values), lambda i: [v.node for v in nodes[i].inputs])


@rule("unchanged-state", "XLA WhileLoopInvariantCodeMotion (invariant tuple elements); LLVM "
      "IndVarSimplify", "loop", "while")  # fmt: skip
def unchanged_state(draft: Draft, at: int) -> Replacement:
    """A state that every iteration leaves as it was is an invariant; so is one that begins as the
    invariant, or the constant, that every iteration makes it."""
    loop = parts_of_loop(draft, at)
    inside, first = dict(zip(loop.reads, loop.invariants, strict=True)), 0 if loop.counted else 1
    still = {k: loop.init[k] for k in range(first, loop.carries) if _stays(draft, loop, inside, k)}
    if not still:
        return None
    states = [k for k in range(loop.carries) if k not in still]
    reads = [*((value, (loop.states[k],)) for k, value in still.items()), *same_reads(loop)]
    new = Rebuilt(states, range(len(loop.rows)), reads)
    return outputs_of(draft, at, rebuilt(draft, loop, new), new, still)


def _stays(draft: Draft, loop: LoopParts, inside: Mapping[Value, Value], k: int) -> bool:
    """Whether a state is always what it begins as."""
    new, init = loop.news[k], loop.init[k]
    same = new == loop.states[k] or inside.get(new) == init
    return same or _same_constant(draft, loop, new, init)


def _same_constant(draft: Draft, loop: LoopParts, new: Value, init: Value) -> bool:
    """Whether the body makes the same one number everywhere that a state begins as."""
    found = draft.uniform(init)
    if found is None:
        return False
    literal = repeated_literal(loop.body, new)
    return literal is not None and bool(literal.data == np.asarray(found).tobytes())


def repeated_literal(body: Graph, value: Value) -> Literal | None:
    """The one number that a value of a body is everywhere."""
    node = body[value.node]
    while node.op == "broadcast":
        node = body[node.inputs[0].node]
    if node.op != "constant" or node.types[0].size != 1:
        return None
    literal: Literal = dict(node.attrs)["value"]
    return literal


@rule(
    "settled-output", "XLA WhileLoopSimplifier; LLVM IndVarSimplify (rewriteLoopExitValues)", "loop"
)
def settled_output(draft: Draft, at: int) -> Replacement:
    """What a loop leaves that is known without running it: a state or row that is an invariant, a
    row that is the counter."""
    loop = parts_of_loop(draft, at)
    others: dict[int, Value] = {}
    inside = dict(zip(loop.reads, loop.invariants, strict=True))
    read, types = is_read(draft, at), draft[at].types
    for k, value in enumerate(loop.body.outputs):
        if k not in read:
            continue
        if value in inside:
            rank = len(types[k].shape)
            dims = range(rank - len(draft.shape(inside[value])), rank)
            others[k] = draft.spread(inside[value], types[k].shape, dims)
        elif k >= loop.carries and value.node == loop.body.inputs[0]:
            others[k] = draft.add("iota", shape=types[k].shape, dtype=str(types[k].dtype), axis=0)
    if not others:
        return None
    # The loop itself is the same: that nobody reads some of its outputs any more is seen later.
    return tuple(others.get(k, Value(at, k)) for k in range(len(types)))


@rule("constant-sunk", "XLA WhileLoopConstantSinking", "loop", "while")
def constant_sunk(draft: Draft, at: int) -> Replacement:
    """Invariants that are small constants are computed in the body, which then simplifies; equal
    invariants are one."""
    loop = parts_of_loop(draft, at)
    constants: list[tuple[Sequence[Node], Value]] = []
    reads: dict[Value, list[Value]] = {}
    for value, inside in same_reads(loop):
        nodes = _recipe(draft, value)
        if nodes is None:
            reads.setdefault(value, []).extend(inside)
        else:
            constants += ((nodes, v) for v in inside)
    if len(reads) == len(loop.invariants):
        return None
    states, rows = range(loop.carries), range(len(loop.rows))
    return rebuilt(draft, loop, Rebuilt(states, rows, list(reads.items()), constants))


def _recipe(draft: Draft, value: Value) -> list[Node] | None:
    """Nodes that make a constant with no operands but their own; None where it is none, or a large
    literal is read, or many nodes are needed."""
    if not draft.is_constant(value) or value.index:
        return None
    order = _few_needed(draft, value.node)
    if any(_is_array(draft[i]) for i in order):
        return None
    place = {number: k for k, number in enumerate(order)}
    inputs = [tuple(Value(place[v.node], v.index) for v in draft[i].inputs) for i in order]
    return [replace(draft[i], inputs=own) for i, own in zip(order, inputs, strict=True)] or None


def _is_array(node: Node) -> bool:
    return node.op == "constant" and node.types[0].size > 1


def _few_needed(draft: Draft, last: int) -> list[int]:
    """What a node is made of, operands first; none where many nodes are needed."""
    order: list[int] = []
    stack = [(last, False)]
    while stack:
        number, ready = stack.pop()
        if number not in order:
            if ready:
                order.append(number)
            else:
                stack.append((number, True))
                stack += [(v.node, False) for v in draft[number].inputs]
        if len(order) + len(stack) > 2 * _SUNK:
            return []
    return order
