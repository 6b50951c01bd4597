"""Loops that go on while anything does, though each place of their arrays ends by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from autofuse.graph.types import Graph, Node, Value
from autofuse.ops.dtypes import DType
from autofuse.ops.types import Literal, TensorType, make_attrs
from autofuse.simplify.draft import Draft
from autofuse.simplify.loops import (
    BodyWriter,
    LoopParts,
    copied,
    is_read,
    parts_of_loop,
    reached,
)
from autofuse.simplify.rules import Replacement, rule
from autofuse.simplify.successors import Successors

# Bodies larger than this are left alone: they are compared node by node.
_MOST_NODES = 500


@rule("counting-state", "LLVM IndVarSimplify; XLA WhileLoopTripCountAnnotator", "while")
def counting_state(draft: Draft, at: int) -> Replacement:
    """A number that begins as 0 and grows by 1, and that nobody reads afterwards, is the iteration
    counter."""
    loop, read = parts_of_loop(draft, at), is_read(draft, at)
    counting = {k for k in range(1, loop.carries) if k not in read and _counts(draft, loop, k)}
    if not counting:
        return None
    kept = [k for k in range(loop.carries) if k not in counting]
    body = _with_counter(loop, sorted(counting), kept)
    made = _written(draft, loop, [loop.init[k] for k in kept], body)
    found = dict(zip(kept, made, strict=True))
    kinds = draft[at].types
    return tuple(found[k] if k in found else draft.full(0, kind) for k, kind in enumerate(kinds))


def _with_counter(loop: LoopParts, counting: Sequence[int], kept: Sequence[int]) -> Graph:
    """The body that reads the counter instead of states."""
    writer = BodyWriter(loop.body)
    counter = [Value(loop.body.inputs[0]), *(loop.states[k] for k in counting)]
    writer.input(loop.body.input_types[0], counter)
    for value in (*(loop.states[k] for k in kept), *loop.reads):
        writer.input(loop.body.type_of(value), [value])
    return writer.build([loop.news[k] for k in kept])


def _counts(draft: Draft, loop: LoopParts, k: int) -> bool:
    new, state = loop.body[loop.news[k].node], loop.states[k]
    start = draft.uniform(loop.init[k])
    if loop.body.type_of(state) != TensorType((), DType.I32) or start is None or start != 0:
        return False
    ones = (v for v in new.inputs if v != state)
    return new.op == "add" and state in new.inputs and any(_is_one(loop.body, v) for v in ones)


def _is_one(body: Graph, value: Value) -> bool:
    node = body[value.node]
    return node.op == "constant" and bool(dict(node.attrs)["value"].scalar == 1)


def _written(
    draft: Draft, loop: LoopParts, init: Sequence[Value], body: Graph
) -> tuple[Value, ...]:
    attrs = {"body": body, "carries": len(init), "max_trips": loop.trip}
    return draft.add_many("while", *init, *loop.invariants, **attrs)


@dataclass(frozen=True, slots=True)
class _Ends:
    """What ends a loop, in terms of its body: `later` says where there is another iteration after
    this one, `now` where there is this one, and both mean the same, of new and of old states.
    `others` must hold besides, everywhere."""

    later: Value
    now: Value
    others: tuple[Value, ...]


@rule("own-ends", "JAX's batching rule of while_loop, backwards", "while")
def own_ends(draft: Draft, at: int) -> Replacement:
    """while any(p(s)): s = select(p(s), f(s), s) -> places that end alone: while p(s): s = f(s).
    Once p is false somewhere the states there stay what they are, and p with them."""
    loop = parts_of_loop(draft, at)
    plain = draft.shape(loop.init[0]) == () and len(loop.body.nodes) <= _MOST_NODES
    ends = _ends(loop) if plain else None
    if ends is None or loop.body.users[loop.body.inputs[1]]:
        return None
    places = dict(zip((v.node for v in loop.states), loop.init, strict=True))
    places |= dict(zip((v.node for v in loop.reads), loop.invariants, strict=True))
    needed = sorted(reached(loop.body, [ends.now]))
    first = copied(draft, loop.body, places, [i for i in needed if i not in places])
    begun = first.get(ends.now) or places[ends.now.node]
    go = draft.add("and", draft.spread(loop.init[0], draft.shape(begun), ()), begun)
    made = _written(draft, loop, [go, *loop.init[1:]], _alone(loop, ends))
    axes = tuple(range(len(draft.shape(go))))
    return (draft.add("reduce_any", made[0], axes=axes), *made[1:])


def _ends(loop: LoopParts) -> _Ends | None:
    """How each place ends by itself, if it does."""
    body = loop.body
    terms = _terms(body, loop.news[0])
    folds = list(filter(partial(_is_any, body), terms))
    others = tuple(v for v in terms if v not in folds[:1])
    if len(folds) != 1 or not reached(body, others).isdisjoint(v.node for v in loop.states):
        return None
    later = body[folds[0].node].inputs[0]
    if not _one_place_each(loop, body.type_of(later).shape):
        return None
    successors = Successors(loop.body, loop.carries)
    for now in _flags(loop):
        if _ends_each(loop, successors, later, now):
            return _Ends(later, now, others)
    return None


def _flags(loop: LoopParts) -> list[Value]:
    """What may say which places go on."""
    found = {_flag(loop.body, k, new, loop.states[k]) for k, new in enumerate(loop.news) if k}
    return sorted(v for v in found if v is not None)


def _one_place_each(loop: LoopParts, shape: tuple[int, ...]) -> bool:
    """Whether every state has these axes first."""
    states = (loop.body.type_of(v).shape for v in loop.states[1:])
    return bool(shape) and all(own[: len(shape)] == shape for own in states)


def _ends_each(loop: LoopParts, successors: Successors, later: Value, now: Value) -> bool:
    """Whether what decides about the next iteration is the flag `now` of this one, without which
    no state changes."""
    body = loop.body
    if body.type_of(now).shape != body.type_of(later).shape or not successors.is_next(later, now):
        return False
    return all(_stays(body, new, state, now) for new, state in _pairs(loop))


def _pairs(loop: LoopParts) -> list[tuple[Value, Value]]:
    return list(zip(loop.news[1:], loop.states[1:], strict=True))


def _terms(body: Graph, value: Value) -> list[Value]:
    """What is true where `value`, a conjunction, is."""
    node = body[value.node]
    if node.op != "and":
        return [value]
    return [term for v in node.inputs for term in _terms(body, v)]


def _is_any(body: Graph, value: Value) -> bool:
    return body[value.node].op == "reduce_any" and body.type_of(value).shape == ()


def _flag(body: Graph, k: int, new: Value, state: Value) -> Value | None:
    """The condition under which a state changes, where a select says so."""
    node = body[new.node]
    if node.op != "select" or node.inputs[2] != state:
        return None
    return _unspread(body, node.inputs[0])


def _unspread(body: Graph, mask: Value) -> Value:
    """What a mask repeats along further axes."""
    node = body[mask.node]
    if node.op != "broadcast":
        return mask
    leading = tuple(range(body.type_of(node.inputs[0]).rank))
    return node.inputs[0] if dict(node.attrs)["dims"] == leading else mask


def _stays(body: Graph, new: Value, state: Value, flag: Value) -> bool:
    """Whether a state is what it was wherever the flag is false."""
    node = body[new.node]
    if new == state:
        return True
    match node.op:
        case "select":
            return node.inputs[2] == state and _unspread(body, node.inputs[0]) == flag
        case "and":
            return state in node.inputs and (flag == state or flag in node.inputs)
        case "add":
            return _counts_where(body, node, state, flag)
    return False


def _counts_where(body: Graph, node: Node, state: Value, flag: Value) -> bool:
    """Whether a sum is a state and one more where the flag is set."""
    others = [body[v.node] for v in node.inputs if v != state]
    casts = [n for n in others if n.op == "cast" and n.inputs[0] == flag]
    return state in node.inputs and len(casts) == 1 and node.types[0].dtype.is_int


def _alone(loop: LoopParts, ends: _Ends) -> Graph:
    """The body of one place that goes on: there the flag is set."""
    body, nodes = loop.body, list(loop.body.nodes)
    kind = body.type_of(ends.later)

    def add(op: str, *operands: Value, **attrs: object) -> Value:
        nodes.append(Node(op, operands, make_attrs(attrs), (kind,)))
        return Value(len(nodes) - 1)

    go = ends.later
    for term in ends.others:
        go = add("and", go, add("broadcast", term, shape=kind.shape, dims=()))
    writer = BodyWriter(Graph(tuple(nodes), body.inputs, body.outputs))
    writer.input(body.input_types[0], [Value(body.inputs[0])])
    writer.input(kind, [loop.states[0]])
    for value in (*loop.states[1:], *loop.reads):
        writer.input(body.type_of(value), [value])
    scalar = TensorType((), DType.BOOL)
    true = Literal(scalar, b"\x01")
    set_everywhere = [
        Node("constant", (), make_attrs({"value": true}), (scalar,)),
        Node("broadcast", (Value(0),), make_attrs({"shape": kind.shape, "dims": ()}), (kind,)),
    ]
    writer.constant(set_everywhere, ends.now)
    return writer.build([go, *loop.news[1:]])
