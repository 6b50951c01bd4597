"""One form for equal graphs: canonical order, canonical text, digests, and groups as graphs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256
from typing import Any

import numpy as np

from autofuse.graph.settled import settled
from autofuse.graph.surgery.handed import constants_outside
from autofuse.graph.types import Graph, Node, Value
from autofuse.ops.source import is_scalar_constant
from autofuse.ops.types import Attrs, Literal, TensorType, make_attrs
from autofuse.order import post_order


def canonical(graph: Graph) -> Graph:
    """The same computation in its one form: idempotent, independent of node order and names.

    Dead nodes go (inputs stay), equal nodes are merged, inputs come first by position and the
    rest in depth-first post-order from the outputs, operands in order. Loop bodies likewise; their
    arrays of constants are handed to them.
    """
    graph = constants_outside(graph)
    nodes: list[Node] = []
    renamed: dict[int, int] = {}
    merged: dict[tuple[str, tuple[Value, ...], Attrs], int] = {}
    for i in graph.inputs:
        renamed[i] = len(nodes)
        nodes.append(graph[i])

    def before(i: int) -> Iterator[int]:
        return (v.node for v in graph[i].inputs)

    for i in post_order((v.node for v in graph.outputs), before):
        if i in renamed:
            continue
        node = graph[i]
        operands = tuple(Value(renamed[v.node], v.index) for v in node.inputs)
        key = (node.op, operands, _canonical_attrs(node.attrs))
        if key not in merged:
            merged[key] = len(nodes)
            nodes.append(replace(node, inputs=operands, attrs=key[2]))
        renamed[i] = merged[key]
    outputs = tuple(Value(renamed[v.node], v.index) for v in graph.outputs)
    found = Graph(tuple(nodes), tuple(range(len(graph.inputs))), outputs, graph.output_names)
    return _same(found, _names(found))


def _names(graph: Graph) -> tuple[Any, ...]:
    """What equal graphs may differ in."""
    bodies = (v for node in graph.nodes for _, v in node.attrs if isinstance(v, Graph))
    return graph.output_names, tuple(n.name for n in graph.nodes), tuple(map(_names, bodies))


@lru_cache(maxsize=256)
def _same(graph: Graph, names: tuple[Any, ...]) -> Graph:
    """One object for equal graphs of equal names: graphs key caches, and to compare two of them
    node by node at every look-up took a third of planning a program with equal loops."""
    return graph


def _canonical_attrs(attrs: Attrs) -> Attrs:
    return tuple((k, canonical(v) if isinstance(v, Graph) else v) for k, v in attrs)


def text(graph: Graph) -> str:
    """The canonical text: one line per node of the canonical form, loop bodies indented.

    Names are left out, and the ranges of inputs, which only random test values are drawn from: a
    program exported with other example values is the same program. Array constants appear by
    their whole digest. Equal texts mean equal graphs.
    """
    return "\n".join(_lines(canonical(graph), "")) + "\n"


@lru_cache(maxsize=256)
def digest(graph: Graph) -> str:
    """Hash of the canonical text, 32 hex digits. Remembered: all that is looked up for a program
    asks for it."""
    return _hash(text(graph))


def _hash(content: str) -> str:
    return sha256(content.encode()).hexdigest()[:32]


def _lines(graph: Graph, indent: str) -> Iterator[str]:
    for i, node in enumerate(graph.nodes):
        yield f"{indent}{node_text(i, node)}"
        for key, value in node.attrs:
            if isinstance(value, Graph):
                yield f"{indent}  {key}:"
                yield from _lines(value, indent + "    ")
    yield f"{indent}return {', '.join(map(str, graph.outputs))}"


def node_text(i: int, node: Node) -> str:
    """One node as the canonical text has it, but for loop bodies."""
    unsaid = ("low", "high") if node.op == "input" else ()
    told = [(k, v) for k, v in node.attrs if k not in unsaid and not isinstance(v, Graph)]
    attrs = ", ".join(f"{k}={_attr(v)}" for k, v in told)
    operands = ", ".join(map(str, node.inputs))
    types = ", ".join(map(str, node.types))
    return f"%{i} = {node.op}({operands}){f' {{{attrs}}}' if attrs else ''} : {types}"


def _attr(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{','.join(map(_attr, value))}]"
    return _literal(value) if isinstance(value, Literal) else repr(value)


# What follows the name of an array constant. Texts that were written before names were whole have
# eight digits of a hash here: no text of one kind is one of the other.
NAMES = "2"


def _literal(literal: Literal) -> str:
    """What tells a literal from every other one of its type, which is said beside it."""
    if literal.type.size != 1:
        return f"sha256:{literal.digest}#{NAMES}"
    shown = repr(literal.scalar)
    if literal.scalar == literal.scalar or literal == _plain_nan(literal.type):
        # The spelling is the value; the digits are as they always were, since graphs without arrays
        # are to keep their digests.
        return f"{shown}#{sha256(literal.data).hexdigest()[:8]}"
    # All other NaNs are spelt alike: their bits are told by the whole digest.
    return f"{shown}#{literal.digest}"


@lru_cache(maxsize=64)
def _plain_nan(type_: TensorType) -> Literal:
    return Literal.of(np.full(type_.shape, np.nan), type_.dtype)


def subgraph(
    graph: Graph, nodes: Collection[int], outputs: Sequence[Value]
) -> tuple[Graph, tuple[Value, ...]]:
    """`nodes` as a graph of their own, and the values of `graph` that its inputs stand for.

    Values read from outside (also graph inputs) become inputs in the order they are first read
    (nodes ascending, operands in order), constant ones where no call changes them; scalar constants
    are copied in instead.
    """
    inside = _with_constants(graph, nodes)
    members = set(inside)
    reads = dict.fromkeys(v for i in inside for v in graph[i].inputs if v.node not in members)
    return _extract(graph, inside, outputs, tuple(reads)), tuple(reads)


def _with_constants(graph: Graph, nodes: Collection[int]) -> tuple[int, ...]:
    chosen = {i for i in nodes if graph[i].op != "input"}
    read = {v.node for i in nodes for v in graph[i].inputs}
    chosen |= {i for i in read if is_scalar_constant(graph[i].op, graph[i].types)}
    return tuple(sorted(chosen))


def _extract(
    graph: Graph, inside: Sequence[int], outputs: Sequence[Value], reads: Sequence[Value]
) -> Graph:
    made: list[Node] = []
    renamed: dict[Value, Value] = {}
    known = settled(graph)
    for position, value in enumerate(reads):
        outer, type_ = graph[value.node], graph.type_of(value)
        # What no call changes is a constant of the group too.
        fixed = {"constant": True} if value.node in known else {}
        attrs = make_attrs(
            {"position": position, "shape": type_.shape, "dtype": str(type_.dtype), **fixed}
        )
        renamed[value] = Value(position)
        made.append(Node("input", (), attrs, (type_,), outer.name))
    for i in inside:
        for k in range(len(graph[i].types)):
            renamed[Value(i, k)] = Value(len(made), k)
        made.append(replace(graph[i], inputs=tuple(renamed[v] for v in graph[i].inputs)))
    results = tuple(renamed[v] for v in outputs)
    return Graph(tuple(made), tuple(range(len(reads))), results)


def group_digest(graph: Graph, nodes: Collection[int], outputs: Sequence[Value]) -> str:
    """Digest of a group as a graph of its own, 32 hex digits.

    Names, node numbers and the order of outputs do not matter: outputs are ordered by their
    place in the group, inputs by first use from there.
    """
    return _group_digest(graph, tuple(nodes), tuple(outputs))


@lru_cache(maxsize=8192)
def _group_digest(graph: Graph, nodes: tuple[int, ...], outputs: tuple[Value, ...]) -> str:
    """Remembered: of a plan's groups prices, records and what is stored of kernels ask again."""
    inside = _with_constants(graph, nodes)
    marks = _marks(graph, inside, outputs)
    ordered = sorted(outputs, key=lambda v: (marks[v.node], v.index, v))
    within = set(inside)

    def before(i: int) -> Iterator[int]:
        return (v.node for v in graph[i].inputs if v.node in within)

    walk = tuple(post_order((v.node for v in ordered), before))
    members = set(walk)
    reads = dict.fromkeys(v for i in walk for v in graph[i].inputs if v.node not in members)
    return digest(_extract(graph, walk, ordered, tuple(reads)))


_SWEEPS = 4


def _marks(graph: Graph, inside: Sequence[int], outputs: Sequence[Value]) -> dict[int, str]:
    """A hash per node of its place in the group: what it computes from, and what reads it.

    Colour refinement in alternating sweeps down and up the group; values read from outside are
    told apart by their type and their readers.
    """
    members = set(inside)
    said = _said(graph)
    leaving: dict[int, list[int]] = {}
    for v in outputs:
        leaving.setdefault(v.node, []).append(v.index)
    # What a node says of itself, and which of its results leave the group.
    marks = {i: _hash(f"{said[i]} {sorted(leaving.get(i, ()))}") for i in inside}
    readers: dict[Value, list[tuple[int, int]]] = {}
    for i in inside:
        for k, v in enumerate(graph[i].inputs):
            readers.setdefault(v, []).append((i, k))
    outside = {v: str(graph.type_of(v)) for v in readers if v.node not in members}
    distinct = 0
    for _ in range(_SWEEPS):
        for i in inside:
            reads = [outside.get(v) or f"{marks[v.node]}.{v.index}" for v in graph[i].inputs]
            marks[i] = _hash(f"{marks[i]} {reads}")
        found = len({*marks.values(), *outside.values()})
        if found == distinct:
            break
        distinct = found
        for i in reversed(inside):
            seen = [
                (k, marks[j], at)
                for k in range(len(graph[i].types))
                for j, at in readers.get(Value(i, k), ())
            ]
            marks[i] = _hash(f"{marks[i]} {sorted(seen)}")
        for v, mark in outside.items():
            outside[v] = _hash(f"{mark} {sorted((marks[j], at) for j, at in readers[v])}")
    return marks


@lru_cache(maxsize=64)
def _said(graph: Graph) -> tuple[str, ...]:
    """What each node says of itself. Remembered: a search asks for digests of all its groups."""

    def said(node: Node) -> str:
        attrs = [(k, digest(v) if isinstance(v, Graph) else _attr(v)) for k, v in node.attrs]
        return f"{node.op} {attrs} {list(map(str, node.types))}"

    return tuple(map(said, graph.nodes))
