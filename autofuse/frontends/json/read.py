"""Reads the data of a JSON graph file: types, literals, attributes and nodes, all checked."""

from __future__ import annotations

import base64
import binascii
import math
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autofuse.graph.types import Graph, Node, Value
from autofuse.graph.verify import verify
from autofuse.ops.dtypes import DType
from autofuse.ops.spec import spec_of
from autofuse.ops.types import Attrs, GraphError, Literal, OpCall, TensorType, make_attrs
from autofuse.order import on_circle, stable_order

VERSION = 1
# A name in this form may be referred to as it stands; others are written as labels.
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-/]*")
# What stands for the name of an unnamed node.
UNNAMED = re.compile(r"%[0-9]+")
# Sizes beyond these are mistakes, and would only fail later and less clearly.
MAX_EXTENT = 2**31 - 1
MAX_BYTES = 2**40
MAX_RANK = 32
_MAX_INT, _MAX_NODES = 2**63, 1_000_000
_TYPE = re.compile(r"([a-z]+[0-9]*)\[((?:[0-9]{1,20}(?:,[0-9]{1,20})*)?)\]")
OPTIONAL = ("low", "high", "constant")  # what an input may say besides its name and type
SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


# Types, literals and attributes


def quoted(value: Any) -> str:
    """`value` as JSON-like text short enough for a message."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def parse_dtype(text: Any) -> DType:
    """The dtype spelled `text`."""
    found = next((d for d in DType if d.value == text), None)
    if found is None:
        raise GraphError(f"unknown dtype {quoted(text)} (known: {', '.join(map(str, DType))})")
    return found


def parse_shape(value: Any) -> tuple[int, ...]:
    """A list of extents."""
    if not isinstance(value, list) or any(type(n) is not int or n < 0 for n in value):
        raise GraphError(f"shape {quoted(value)} is not a list of non-negative integers")
    return tuple(value)


def check_size(found: TensorType) -> TensorType:
    """`found` itself unless no machine could hold it."""
    if found.rank > MAX_RANK or any(n > MAX_EXTENT for n in found.shape):
        raise GraphError(f"type {quoted(str(found))} is too large")
    if found.nbytes > MAX_BYTES:
        raise GraphError(f"type {found} is too large: {found.nbytes} bytes")
    return found


def parse_type(text: Any) -> TensorType:
    """A type such as "f32[3,4]"."""
    match = _TYPE.fullmatch(text) if isinstance(text, str) and len(text) < 1000 else None
    if match is None:
        raise GraphError(f'type {quoted(text)} is not written like "f32[3,4]"')
    extents = match[2].split(",") if match[2] else []
    return check_size(TensorType(tuple(map(int, extents)), parse_dtype(match[1])))


def numbers(values: list[Any], kind: TensorType) -> np.ndarray:
    """Checked numbers as an array of `kind`."""
    if kind.dtype is DType.BOOL:
        valid = all(isinstance(v, bool) for v in values)
    elif kind.dtype.is_int:
        info = np.iinfo(kind.dtype.numpy)
        valid = all(type(v) is int and info.min <= v <= info.max for v in values)
    else:
        return _floats(values, kind)
    if not valid:
        raise GraphError(f"a literal of {kind} holds a value that is not {kind.dtype}")
    return np.array(values, dtype=kind.dtype.numpy).reshape(kind.shape)


def _floats(values: list[Any], kind: TensorType) -> np.ndarray:
    """Numbers, and the three special names, rounded to `kind`; overflow is an error."""
    for v in values:
        special = isinstance(v, str) and v in SPECIAL
        if not special and (type(v) not in (int, float) or abs(v) > sys.float_info.max):
            raise GraphError(f"a literal of {kind} holds {quoted(v)}, which is not {kind.dtype}")
    numbers = [SPECIAL[v] if isinstance(v, str) else float(v) for v in values]
    exact = np.array(numbers, dtype=np.float64)
    with np.errstate(over="ignore"):
        rounded = exact.astype(kind.dtype.numpy)
    if (np.isfinite(exact) != np.isfinite(rounded.astype(np.float64))).any():
        raise GraphError(f"a literal of {kind} holds a value too large for {kind.dtype}")
    return rounded.reshape(kind.shape)


def read_literal(data: Any) -> Literal:
    """Inverse of write_literal; raises GraphError."""
    if not isinstance(data, dict) or len(data) != 2 or "type" not in data:
        raise GraphError(
            f'a literal must be {{"type": ..., "values" or "base64": ...}}, got {quoted(data)}'
        )
    kind = parse_type(data["type"])
    if isinstance(data.get("values"), list):
        values = data["values"]
        if len(values) != kind.size:
            raise GraphError(f"a literal of {kind} has {len(values)} values, not {kind.size}")
        return Literal.of(numbers(values, kind), kind.dtype)
    if isinstance(data.get("base64"), str):
        try:
            raw = base64.b64decode(data["base64"], validate=True)
        except (binascii.Error, ValueError):
            raise GraphError(f"a literal of {kind} is not valid base64") from None
        if len(raw) != kind.nbytes:
            raise GraphError(f"a literal of {kind} has {len(raw)} bytes, not {kind.nbytes}")
        return Literal(kind, raw)
    raise GraphError(f'a literal of {kind} needs a list "values" or a string "base64"')


def read_plain(value: Any) -> Any:
    """Inverse of write_plain; lists become tuples."""
    if isinstance(value, list):
        return tuple(read_plain(v) for v in value)
    if isinstance(value, dict):
        if list(value) != ["float"] or value["float"] not in SPECIAL:
            raise GraphError(f"attribute value {quoted(value)} is not understood")
        return SPECIAL[value["float"]]
    if isinstance(value, int) and not -_MAX_INT <= value < _MAX_INT:
        raise GraphError(f"the number {quoted(value)} is too large")
    if isinstance(value, bool | int | float) or is_text(value):
        return value
    raise GraphError(f"attribute value {quoted(value)} is not understood")


def is_text(value: Any) -> bool:
    """Whether `value` is a string that can be written again: JSON can spell half of a character."""
    return isinstance(value, str) and not any("\ud800" <= c <= "\udfff" for c in value)


def keys_of(data: Any, what: str, required: tuple[str, ...], optional: tuple[str, ...]) -> Any:
    """`data` when it is an object with these keys; raises GraphError naming the odd one."""
    if not isinstance(data, Mapping):
        raise GraphError(f"{what} must be an object, got {quoted(data)}")
    for key in required:
        if key not in data:
            raise GraphError(f"{what} lacks the key '{key}'")
    for key in data:
        if key not in (*required, *optional):
            raise GraphError(f"{what} has an unknown key {quoted(key)}")
    return data


# Nodes and graphs


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
    if label is not None and not is_text(label):
        raise GraphError(f"{what} has the label {quoted(label)}, which is not text")
    return name, (label if label is not None else "" if UNNAMED.fullmatch(name) else name)


def _input(item: Any, position: int) -> _Entry:
    what = f"inputs[{position}]"
    keys_of(item, what, ("name", "type"), ("label", *OPTIONAL))
    name, label = _name(item, what)
    try:
        kind = parse_type(item["type"])
        said = (k for k in OPTIONAL if k in item and (k, item[k]) != ("constant", False))
        given = {key: read_plain(item[key]) for key in said}
    except GraphError as error:
        raise GraphError(f"input '{name}': {error}") from error
    attrs = {"position": position, "shape": kind.shape, "dtype": str(kind.dtype), **given}
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
        shape = parse_shape(value)
        # Even one byte per element must fit.
        return check_size(TensorType(shape, DType.U8)).shape
    return read_plain(value)


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
    for entry in entries:
        for name, _ in entry.reads:
            if name not in index:
                raise GraphError(f"{entry.where} reads '{name}', which is not in the file")
    before = [{index[name] for name, _ in entry.reads} for entry in entries]
    order = stable_order(range(len(before)), before.__getitem__)
    if left := sorted({*range(len(before))}.difference(order)):
        where = entries[on_circle(left, before.__getitem__)].where
        raise GraphError(f"the graph has a cycle through {where}")
    return [entries[i] for i in order]


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
            if not is_text(item["name"]) or item["name"] in names:
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
