"""A graph from its canonical text, to count with: what a stored text says of shapes and attributes.

The text has array constants by hash only, so such a graph must not be run, compiled or digested.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from autofuse.graph.types import Graph, Node, Value
from autofuse.ops.dtypes import DType
from autofuse.ops.spec import spec_of
from autofuse.ops.types import GraphError, Literal, TensorType

_LINE = re.compile(r"%(\d+) = (\w+)\(([^()]*)\)(?: \{(.*)\})? : ([\w\[\], ]*)")
_VALUE = re.compile(r"%(\d+)(?:\.(\d+))?")
_TYPE = re.compile(r"(\w+)\[([\d,]*)\]")
_KEY = re.compile(r"(\w+)=")
_STRING = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_WORD = re.compile(r"[^,\]\[ ]+")
_BODY = re.compile(r"  (\w+):")
_DEEPER = "    "


def read_text(text: str) -> Graph:
    """The graph that `canonical.text` wrote; numbers of nodes are those of the text.

    Array constants have the right type and distinct, meaningless data; names are gone. Raises
    GraphError for anything that is no such text."""
    try:
        return _graph(text.splitlines())
    except (ValueError, LookupError, TypeError, OverflowError, RecursionError) as error:
        raise GraphError(f"not the canonical text of a graph: {error}") from error


def _check_values(nodes: Sequence[Node], outputs: Sequence[Value]) -> None:
    for value in (*(v for n in nodes for v in n.inputs), *outputs):
        if value.index >= len(nodes[value.node].types):
            raise ValueError(f"there is no value {value}")


def _graph(lines: Sequence[str]) -> Graph:
    nodes: list[Node] = []
    outputs: tuple[Value, ...] = ()
    at = 0
    while at < len(lines):
        line, at = lines[at], at + 1
        if line.startswith("return "):
            outputs = tuple(_values(line))
            continue
        bodies: dict[str, Graph] = {}
        while at < len(lines) and (found := _BODY.fullmatch(lines[at])):
            inside = _inside(lines, at + 1)
            bodies[found[1]] = _graph(inside)
            at += 1 + len(inside)
        nodes.append(_node(line, len(nodes), bodies))
    _check_values(nodes, outputs)
    inputs = [(dict(n.attrs)["position"], i) for i, n in enumerate(nodes) if n.op == "input"]
    return Graph(tuple(nodes), tuple(i for _, i in sorted(inputs)), outputs)


def _inside(lines: Sequence[str], start: int) -> list[str]:
    """The deeper lines from `start` on, without their indent."""
    found = []
    for line in lines[start:]:
        if not line.startswith(_DEEPER):
            break
        found.append(line.removeprefix(_DEEPER))
    return found


def _node(line: str, number: int, bodies: dict[str, Graph]) -> Node:
    found = _LINE.fullmatch(line)
    if found is None or int(found[1]) != number:
        raise ValueError(f"line '{line[:60]}' is not node %{number}")
    types = tuple(_types(found[5]))
    attrs = dict(_attrs(found[4] or "", types)) | bodies
    spec_of(found[2])
    operands = tuple(_values(found[3]))
    if any(v.node >= number for v in operands):
        raise ValueError(f"node %{number} reads what comes after it")
    return Node(found[2], operands, tuple(sorted(attrs.items())), types)


def _values(text: str) -> Iterator[Value]:
    return (Value(int(n), int(k or 0)) for n, k in _VALUE.findall(text))


def _types(text: str) -> Iterator[TensorType]:
    for dtype, shape in _TYPE.findall(text):
        yield TensorType(tuple(map(int, filter(None, shape.split(",")))), DType(dtype))


def _attrs(text: str, types: Sequence[TensorType]) -> Iterator[tuple[str, Any]]:
    at = 0
    while at < len(text):
        key = _KEY.match(text, at)
        if key is None:
            raise ValueError(f"attribute expected at '{text[at : at + 20]}'")
        value, at = _attribute(text, key.end(), types)
        yield key[1], value
        at += 2  # the comma and the space


def _attribute(text: str, at: int, types: Sequence[TensorType]) -> tuple[Any, int]:
    """The value that begins at `at`, and where it ends."""
    if text[at] == "[":
        items, at = [], at + 1
        while text[at] != "]":
            item, at = _attribute(text, at, types)
            items.append(item)
            at += text[at] == ","
        return tuple(items), at + 1
    found = _STRING.match(text, at)
    if found is not None:
        return ast.literal_eval(found[0]), found.end()
    found = _WORD.match(text, at)
    if found is None:
        raise ValueError(f"value expected at '{text[at : at + 20]}'")
    return _number(found[0], types), found.end()


def _number(word: str, types: Sequence[TensorType]) -> Any:
    if "#" in word:
        return _literal(word, types[0])
    if word in ("True", "False"):
        return word == "True"
    return int(word) if re.fullmatch(r"-?\d+", word) else float(word)


def _literal(word: str, type_: TensorType) -> Literal:
    """A scalar by its spelling; an array by its hash, which keeps different ones apart."""
    shown = word.rpartition("#")[0]
    if type_.size != 1 or shown.startswith("sha256:"):
        return Literal(type_, word.encode())
    array = np.full(type_.shape, _number(shown, ()), type_.dtype.numpy)
    return Literal.of(array, type_.dtype)
