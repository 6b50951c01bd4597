"""Reads the data of a JSON graph file into a Graph: references resolved, every type checked."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from autofuse.frontends.jsonvalues import (
    NAME,
    UNNAMED,
    VERSION,
    check_size,
    keys_of,
    parse_shape,
    parse_type,
    quoted,
    read_literal,
    read_plain,
)
from autofuse.graph.types import Graph, Node, Value
from autofuse.graph.verify import verify
from autofuse.ops.spec import spec_of
from autofuse.ops.types import Attrs, GraphError, OpCall, TensorType, make_attrs

_MAX_NODES = 1_000_000


@dataclass(frozen=True)
class _Entry:
    """One node as the file has it. `position` is set on inputs."""

    name: str
    label: str
    op: str
    reads: tuple[tuple[str, int], ...]
    attrs: Attrs
    types: tuple[TensorType, ...] | None
    position: int | None = None

    @property
    def where(self) -> str:
        return f"node '{self.name}' ({self.op})"


def read_graph(data: Any) -> Graph:
    """The graph of a whole file; raises GraphError."""
    keys = ("inputs", "nodes", "outputs")
    if isinstance(data, Mapping) and "autofuse_graph" not in data:
        raise GraphError("not a graph file: it lacks the key 'autofuse_graph'")
    keys_of(data, "the graph file", ("autofuse_graph", *keys), ())
    version = data["autofuse_graph"]
    if type(version) is not int or version != VERSION:
        raise GraphError(f"graph file version {quoted(version)} is not {VERSION}, the one known")
    return _read(data)


def _read_body(data: Any) -> Graph:
    return _read(keys_of(data, "a loop body", ("inputs", "nodes", "outputs"), ()))


def _read(data: Mapping[str, Any]) -> Graph:
    entries = _sorted(_entries(data))
    index = {entry.name: i for i, entry in enumerate(entries)}
    nodes: list[Node] = []
    for entry in entries:
        nodes.append(_node(entry, index, nodes))
    positions = {e.position: i for i, e in enumerate(entries) if e.position is not None}
    values, names = _outputs(data["outputs"], index, nodes)
    inputs = tuple(positions[p] for p in sorted(positions))
    return verify(Graph(tuple(nodes), inputs, values, names))


def _entries(data: Mapping[str, Any]) -> list[_Entry]:
    for key in ("inputs", "nodes", "outputs"):
        if not isinstance(data[key], list):
            raise GraphError(f"'{key}' must be a list, got {quoted(data[key])}")
        if len(data[key]) > _MAX_NODES:
            raise GraphError(f"'{key}' has {len(data[key])} entries, more than {_MAX_NODES}")
    inputs = [_input(item, position) for position, item in enumerate(data["inputs"])]
    declared = {entry.name: entry for entry in inputs}
    placed: list[_Entry] = []
    for i, item in enumerate(data["nodes"]):
        if isinstance(item, Mapping) and item.get("op") == "input":
            keys_of(item, f"nodes[{i}]", ("name", "op"), ())
            if not isinstance(item["name"], str) or item["name"] not in declared:
                raise GraphError(f"node {quoted(item['name'])} is not one of the 'inputs'")
            placed.append(declared[item["name"]])
        else:
            placed.append(_entry(item, i))
    named = {entry.name for entry in placed if entry.position is not None}
    found = [entry for entry in inputs if entry.name not in named] + placed
    seen: set[str] = set()
    for entry in found:
        if entry.name in seen:
            raise GraphError(f"two nodes are named '{entry.name}'")
        seen.add(entry.name)
    if len(declared) != len(inputs):
        twice = next(e.name for e in inputs if declared[e.name] is not e)
        raise GraphError(f"two inputs are named '{twice}'")
    return found


def _name(item: Mapping[str, Any], what: str) -> tuple[str, str]:
    """The name to refer by, and the name for people."""
    name, label = item["name"], item.get("label")
    if not isinstance(name, str) or not (NAME.fullmatch(name) or UNNAMED.fullmatch(name)):
        raise GraphError(f"{what} has the name {quoted(name)}: use letters, digits and _ . - /")
    if label is not None and not isinstance(label, str):
        raise GraphError(f"{what} has the label {quoted(label)}, which is not text")
    return name, (label if label is not None else "" if UNNAMED.fullmatch(name) else name)


def _input(item: Any, position: int) -> _Entry:
    what = f"inputs[{position}]"
    keys_of(item, what, ("name", "type"), ("label", "low", "high"))
    name, label = _name(item, what)
    try:
        kind = parse_type(item["type"])
        bounds = {key: read_plain(item[key]) for key in ("low", "high") if key in item}
    except GraphError as error:
        raise GraphError(f"input '{name}': {error}") from error
    attrs = {"position": position, "shape": kind.shape, "dtype": str(kind.dtype), **bounds}
    return _Entry(name, label, "input", (), make_attrs(attrs), (kind,), position)


def _entry(item: Any, i: int) -> _Entry:
    what = f"nodes[{i}]"
    keys_of(item, what, ("name", "op"), ("label", "inputs", "attrs", "types"))
    name, label = _name(item, what)
    op = item["op"]
    try:
        if not isinstance(op, str):
            raise GraphError(f"op {quoted(op)} is not text")
        spec_of(op)
        reads = tuple(_read_reference(r) for r in _list(item.get("inputs", []), "inputs"))
        given = item.get("attrs", {})
        if not isinstance(given, Mapping):
            raise GraphError(f"'attrs' must be an object, got {quoted(given)}")
        attrs = make_attrs({key: _read_attr(key, value) for key, value in given.items()})
        types = None
        if "types" in item:
            types = tuple(parse_type(t) for t in _list(item["types"], "types"))
    except GraphError as error:
        raise GraphError(f"node '{name}': {error}") from error
    return _Entry(name, label, op, reads, attrs, types)


def _list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise GraphError(f"'{what}' must be a list, got {quoted(value)}")
    return value


def _read_attr(key: str, value: Any) -> Any:
    if isinstance(value, Mapping) and list(value) == ["literal"]:
        return read_literal(value["literal"])
    if isinstance(value, Mapping) and list(value) == ["graph"]:
        return _read_body(value["graph"])
    if key == "shape":
        return check_size_of_shape(parse_shape(value))
    return read_plain(value)


def check_size_of_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """`shape` unless even one byte per element is too much."""
    from autofuse.ops.dtypes import DType

    return check_size(TensorType(shape, DType.U8)).shape


def _read_reference(text: Any) -> tuple[str, int]:
    """A node's name, with ":1" behind it for its second output."""
    if not isinstance(text, str):
        raise GraphError(f"reference {quoted(text)} is not text")
    name, colon, number = text.partition(":")
    if colon and not (number.isascii() and number.isdigit() and len(number) < 6):
        raise GraphError(f"reference {quoted(text)} is not written NAME or NAME:OUTPUT")
    return name, int(number) if colon else 0


def _sorted(entries: list[_Entry]) -> list[_Entry]:
    """Topological order, as close to the order of the file as that allows."""
    index = {entry.name: i for i, entry in enumerate(entries)}
    waiting: list[int] = []
    users: list[list[int]] = [[] for _ in entries]
    for i, entry in enumerate(entries):
        sources = {name for name, _ in entry.reads}
        for name in sources:
            if name not in index:
                raise GraphError(f"{entry.where} reads '{name}', which is not in the file")
            users[index[name]].append(i)
        waiting.append(len(sources))
    ready = [i for i, count in enumerate(waiting) if count == 0]
    order: list[int] = []
    while ready:
        i = heapq.heappop(ready)
        order.append(i)
        for user in users[i]:
            waiting[user] -= 1
            if waiting[user] == 0:
                heapq.heappush(ready, user)
    if len(order) < len(entries):
        raise GraphError(f"the graph has a cycle through {_on_cycle(entries, waiting).where}")
    return [entries[i] for i in order]


def _on_cycle(entries: list[_Entry], waiting: list[int]) -> _Entry:
    """An entry that reads itself in the end: walk back along unfinished operands."""
    index = {entry.name: i for i, entry in enumerate(entries)}
    at = next(i for i, count in enumerate(waiting) if count)
    seen: set[int] = set()
    while at not in seen:
        seen.add(at)
        at = next(index[name] for name, _ in entries[at].reads if waiting[index[name]])
    return entries[at]


@dataclass(frozen=True, slots=True)
class _Watched(OpCall):
    """A call that notes which attributes its shape rule asks for."""

    asked: set[str] = field(default_factory=set)

    def __getitem__(self, key: str) -> Any:
        self.asked.add(key)
        return OpCall.__getitem__(self, key)

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.add(key)
        return OpCall.get(self, key, default)


def _node(entry: _Entry, index: Mapping[str, int], nodes: list[Node]) -> Node:
    """The entry as a node reading `nodes`, with its types inferred and compared."""
    values = tuple(_value(name, output, index, nodes, entry.where) for name, output in entry.reads)
    call = _Watched(entry.attrs, tuple(nodes[v.node].types[v.index] for v in values))
    try:
        types = tuple(check_size(t) for t in spec_of(entry.op).infer(call))
        for key, _ in entry.attrs:
            if key not in call.asked:
                raise GraphError(f"op '{entry.op}' has no attribute {quoted(key)}")
        if entry.types is not None and entry.types != types:
            said, found = (", ".join(map(str, t)) for t in (entry.types, types))
            raise GraphError(f"declared as {said}, but it computes {found}")
    except GraphError as error:
        raise GraphError(f"{entry.where}: {error}") from error
    except (TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        # A shape rule met an attribute of a kind it did not foresee.
        raise GraphError(f"{entry.where}: an attribute has the wrong kind: {error}") from error
    return Node(entry.op, values, entry.attrs, types, entry.label)


def _value(
    name: str, output: int, index: Mapping[str, int], nodes: list[Node], where: str
) -> Value:
    node = index[name]
    if output >= len(nodes[node].types):
        count = len(nodes[node].types)
        raise GraphError(f"{where} reads '{name}:{output}', but '{name}' has {count} outputs")
    return Value(node, output)


def _outputs(
    data: list[Any], index: Mapping[str, int], nodes: list[Node]
) -> tuple[tuple[Value, ...], tuple[str, ...]]:
    values: list[Value] = []
    names: list[str] = []
    for i, item in enumerate(data):
        where = f"outputs[{i}]"
        reference = item
        if isinstance(item, Mapping):
            keys_of(item, where, ("name", "value"), ())
            if not isinstance(item["name"], str) or item["name"] in names:
                raise GraphError(f"{where} has the name {quoted(item['name'])}: not text, or taken")
            names.append(item["name"])
            reference = item["value"]
        try:
            name, output = _read_reference(reference)
        except GraphError as error:
            raise GraphError(f"{where}: {error}") from error
        if name not in index:
            raise GraphError(f"{where} is '{name}', which is not in the file")
        values.append(_value(name, output, index, nodes, where))
    if names and len(names) != len(values):
        raise GraphError("either all outputs have names or none has")
    return tuple(values), tuple(names)
