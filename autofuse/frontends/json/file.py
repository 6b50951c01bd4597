"""The JSON graph file (docs/graph-format.md): written one node a line, read strictly."""

from __future__ import annotations

import base64
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from autofuse.frontends.json.read import (
    NAME,
    OPTIONAL,
    SPECIAL,
    VERSION,
    numbers,
    quoted,
    read_graph,
)
from autofuse.graph.types import Graph, Node, Value
from autofuse.ops.types import GraphError, Literal

# Literals of more elements than this are written as base64 of their bytes.
MAX_VALUES = 64
# Characters of a message about a file, its name aside.
MAX_MESSAGE = 400


def save(graph: Graph, path: str | Path) -> None:
    """Write `graph` as a graph file; raises GraphError when the file cannot be written."""
    text = dumps(graph)
    try:
        Path(path).write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise GraphError(f"cannot write {path}: {error.strerror or error}") from error


def load(path: str | Path) -> Graph:
    """The graph in file `path`; raises GraphError, one sentence naming the file and the node."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise GraphError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError:
        raise GraphError(f"{path} is not a graph file: it is not UTF-8 text") from None
    return loads(text, str(path))


def loads(text: str, source: str = "<text>") -> Graph:
    """The graph in `text`; `source` names it in messages. Raises GraphError."""
    try:
        return read_graph(parse(text))
    except GraphError as error:
        raise GraphError(f"{source}: {_sentence(str(error))}") from error
    except RecursionError:
        raise GraphError(f"{source}: the graph is nested too deeply") from None


def _sentence(text: str) -> str:
    """`text`, which may quote anything from a file, as one printable line of bounded length."""
    line = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return line if len(line) <= MAX_MESSAGE else f"{line[: MAX_MESSAGE - 100]} ... {line[-90:]}"


def dumps(graph: Graph) -> str:
    """`graph` as the text of a graph file; `loads` gives back an equal graph with equal names."""
    data = _graph_data(graph)
    nodes = ",\n".join(f"  {_compact(node)}" for node in data["nodes"])
    lines = [
        f'"autofuse_graph": {VERSION}',
        f'"inputs": [{_block([_compact(i) for i in data["inputs"]])}]',
        f'"nodes": [{chr(10) + nodes + chr(10) if nodes else ""}]',
        f'"outputs": [{_block([_compact(o) for o in data["outputs"]])}]',
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _block(items: list[str]) -> str:
    return "\n  " + ",\n  ".join(items) + "\n" if items else ""


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def parse(text: str) -> Any:
    """JSON text with no repeated keys and no numbers that JSON does not have."""

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(items)
        if len(found) != len(items):
            counts = Counter(key for key, _ in items)
            twice = next(key for key, count in counts.items() if count > 1)
            raise GraphError(f"key {quoted(twice)} is given twice")
        return found

    def number(digits: str) -> float:
        value = float(digits)
        if value in (float("inf"), float("-inf")):
            raise GraphError(f"the number {quoted(digits)} is too large")
        return value

    def constant(word: str) -> Any:
        raise GraphError(f'{word} is not JSON: write it as a string, "{word}"')

    try:
        return json.loads(
            text, object_pairs_hook=pairs, parse_float=number, parse_constant=constant
        )
    except json.JSONDecodeError as error:
        raise GraphError(
            f"not JSON: {error.msg} at line {error.lineno} column {error.colno}"
        ) from error
    except ValueError as error:
        raise GraphError("not JSON: a number has too many digits") from error


# Writing


def _graph_data(graph: Graph) -> dict[str, Any]:
    names = _names(graph)
    inputs = [_input_data(graph.nodes[i], names[i]) for i in graph.inputs]
    return {
        "inputs": [
            _labelled(data, graph.nodes[i]) for data, i in zip(inputs, graph.inputs, strict=True)
        ],
        "nodes": _nodes_data(graph, names),
        "outputs": _outputs_data(graph, names),
    }


def _names(graph: Graph) -> list[str]:
    """One unique name per node: its own where it can be referred to, else its number."""
    taken: set[str] = set()
    found = []
    for i, node in enumerate(graph.nodes):
        fits = NAME.fullmatch(node.name) and node.name not in taken
        found.append(node.name if fits else f"%{i}")
        taken.add(found[-1])
    return found


def _labelled(data: dict[str, Any], node: Node) -> dict[str, Any]:
    """`data`, with the node's name beside it where it could not serve as a reference."""
    return data if not node.name or data["name"] == node.name else {**data, "label": node.name}


def _input_data(node: Node, name: str) -> dict[str, Any]:
    data: dict[str, Any] = {"name": name, "type": str(node.types[0])}
    return data | {key: write_plain(v) for key, v in node.attrs if key in OPTIONAL}


def _nodes_data(graph: Graph, names: list[str]) -> list[dict[str, Any]]:
    """Nodes in order; inputs are left out where they lead, in order of position."""
    leading = graph.inputs == tuple(range(len(graph.inputs)))
    found = []
    for node, name in zip(graph.nodes, names, strict=True):
        if node.op == "input":
            found += [] if leading else [{"name": name, "op": "input"}]
            continue
        data: dict[str, Any] = {"name": name, "op": node.op}
        if node.inputs:
            data["inputs"] = [_reference(v, names) for v in node.inputs]
        if node.attrs:
            data["attrs"] = {key: _attr_data(value) for key, value in node.attrs}
        data["types"] = [str(t) for t in node.types]
        found.append(_labelled(data, node))
    return found


def _attr_data(value: Any) -> Any:
    if isinstance(value, Literal):
        return {"literal": write_literal(value)}
    if isinstance(value, Graph):
        return {"graph": _graph_data(value)}
    return write_plain(value)


def _reference(value: Value, names: list[str]) -> str:
    name = names[value.node]
    return name if value.index == 0 else f"{name}:{value.index}"


def _outputs_data(graph: Graph, names: list[str]) -> list[Any]:
    values = [_reference(v, names) for v in graph.outputs]
    if not graph.output_names:
        return list(values)
    pairs = zip(graph.output_names, values, strict=True)
    return [{"name": name, "value": value} for name, value in pairs]


def write_literal(literal: Literal) -> dict[str, Any]:
    """A literal as {"type", "values"} with shortest exact numbers, or {"type", "base64"}."""
    array = literal.array()
    if array.size <= MAX_VALUES:
        values = [_number(x) for x in array.reshape(-1)]
        if Literal.of(numbers(values, literal.type), literal.type.dtype).data == literal.data:
            return {"type": str(literal.type), "values": values}
    return {"type": str(literal.type), "base64": base64.b64encode(literal.data).decode("ascii")}


def _number(x: Any) -> bool | int | float | str:
    """One element: a float by the shortest decimal that reads back as it in its own dtype."""
    if isinstance(x, np.bool_):
        return bool(x)
    if isinstance(x, np.integer):
        return int(x)
    value = float(x)
    if not math.isfinite(value):
        return next(
            name for name, v in SPECIAL.items() if v == value or (math.isnan(value) and v != v)
        )
    short = float(str(x))
    return short if np.asarray(short).astype(x.dtype) == x else value


def write_plain(value: Any) -> Any:
    """An attribute made of numbers, booleans, strings and tuples of them."""
    if isinstance(value, tuple):
        return [write_plain(v) for v in value]
    if isinstance(value, np.generic):
        return write_plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(_number(np.float64(value)))}
    if isinstance(value, bool | int | float | str):
        return value
    raise GraphError(f"attribute value {quoted(value)} cannot be written to a graph file")
