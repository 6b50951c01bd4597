"""Graph files: written exactly, read back byte-equal, and every malformed one is one sentence."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autofuse.frontends.json.file import MAX_MESSAGE, dumps, load, loads, save, write_literal
from autofuse.frontends.json.read import read_literal
from autofuse.graph.reference import evaluate
from autofuse.graph.types import Graph
from autofuse.ops.dtypes import DType
from autofuse.ops.types import GraphError, Literal, TensorType
from tests.support.graph_files import GOOD, full_graph

DOCS = Path(__file__).parent.parent / "docs" / "graph-format.md"


def names_of(graph: Graph) -> list[str]:
    return [node.name for node in graph.nodes]


def test_round_trip_is_equal_and_byte_equal(tmp_path: Path) -> None:
    graph = full_graph()
    save(graph, tmp_path / "g.json")
    again = load(tmp_path / "g.json")
    assert again == graph
    assert names_of(again) == names_of(graph)
    assert again.output_names == graph.output_names
    save(again, tmp_path / "h.json")
    assert (tmp_path / "h.json").read_bytes() == (tmp_path / "g.json").read_bytes()


def test_one_node_a_line() -> None:
    text = dumps(full_graph())
    assert '\n  {"name": "y", "op": "mul", "inputs": ["x", "%2"], "types": ["f32[3,4]"]},\n' in text
    json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))


def test_documented_example_loads_and_computes() -> None:
    text = re.findall(r"```json\n(.*?)```", DOCS.read_text(), re.S)[0]
    graph = loads(text)
    assert graph.input_names == ("x", "scale") and graph.output_names == ("result",)
    x = np.random.default_rng(0).random((4096, 512), np.float32)
    scale = np.linspace(0.5, 1.5, 512, dtype=np.float32)
    (found,) = evaluate(graph, [x, scale])
    wide = x.astype(np.float64)
    want = (wide - wide.max(1, keepdims=True)) * scale * 0.5
    np.testing.assert_allclose(found, want, rtol=1e-12)
    assert dumps(loads(dumps(graph))) == dumps(graph)


@pytest.mark.parametrize("dtype", list(DType))
def test_literals_are_exact(dtype: DType) -> None:
    rng = np.random.default_rng(0)
    raw = rng.integers(0, 2 if dtype is DType.BOOL else 256, 64 * dtype.itemsize, dtype=np.uint8)
    for size in (0, 1, 3, 64):
        kind = TensorType((size,), dtype)
        literal = Literal(kind, raw[: kind.nbytes].tobytes())
        written = json.loads(json.dumps(write_literal(literal), allow_nan=False))
        assert read_literal(written) == literal


@settings(max_examples=100, deadline=None)
@given(st.floats(width=32), st.floats())
def test_floats_are_shortest(narrow: float, wide: float) -> None:
    for value, dtype in ((narrow, DType.F32), (wide, DType.F64)):
        literal = Literal.of(np.array(value), dtype)
        written = write_literal(literal)
        assert read_literal(json.loads(json.dumps(written))) == literal
        if np.isfinite(value):
            assert len(repr(written["values"][0])) <= len(repr(value))


def test_nan_payloads_survive() -> None:
    literal = Literal(TensorType((), DType.F32), bytes([1, 0, 160, 127]))
    assert read_literal(write_literal(literal)) == literal


def test_nodes_come_in_any_order() -> None:
    graph = loads(json.dumps(GOOD))
    assert names_of(graph) == ["x", "k", "a", "wide", "b", "c"]
    x = np.ones((3, 4), np.float32)
    found, same = evaluate(graph, [x, np.int32(0)])
    np.testing.assert_allclose(found, 1 + np.e)
    np.testing.assert_allclose(same, 1)
    assert dumps(loads(dumps(graph))) == dumps(graph)


def _set(path: str, value: Any) -> Any:
    """A change to GOOD: the entry at a path such as nodes.1.op; Ellipsis deletes."""

    def change(data: Any) -> None:
        *way, last = path.split(".")
        for step in way:
            data = data[int(step) if isinstance(data, list) else step]
        key: Any = int(last) if isinstance(data, list) else last
        if value is ...:
            del data[key]
        elif isinstance(data, list) and key == len(data):
            data.append(value)
        else:
            data[key] = value

    return change


def _literal(literal: Any) -> Any:
    node = {"name": "lit", "op": "constant", "attrs": {"value": {"literal": literal}}}
    return _set("nodes.4", node)


def _loop(**change: Any) -> Any:
    body = {
        "inputs": [{"name": "i", "type": "i32[]"}, {"name": "s", "type": "f32[3,4]"}],
        "nodes": [{"name": "t", "op": "neg", "inputs": ["s"]}],
        "outputs": ["t"],
    } | change
    attrs = {"trip": 2, "carries": 1, "body": {"graph": body}}
    return _set("nodes.4", {"name": "loop", "op": "loop", "inputs": ["x"], "attrs": attrs})


BAD: dict[str, tuple[Any, str]] = {
    "no version": (_set("autofuse_graph", ...), "lacks the key 'autofuse_graph'"),
    "other version": (_set("autofuse_graph", 2), "version 2 is not 1"),
    "boolean version": (_set("autofuse_graph", True), "version True is not 1"),
    "no nodes": (_set("nodes", ...), "lacks the key 'nodes'"),
    "nodes not a list": (_set("nodes", {}), "'nodes' must be a list"),
    "extra key": (_set("comment", "hi"), "unknown key 'comment'"),
    "no op": (_set("nodes.1.op", ...), "nodes[1] lacks the key 'op'"),
    "unknown op": (_set("nodes.1.op", "exq"), "node 'a': unknown op 'exq'"),
    "op not text": (_set("nodes.1.op", 3), "node 'a': op 3"),
    "node not an object": (_set("nodes.1", 7), "nodes[1] must be an object"),
    "node key": (_set("nodes.1.extra", 7), "unknown key 'extra'"),
    "bad name": (_set("nodes.1.name", "a b"), "nodes[1] has the name 'a b'"),
    "name not text": (_set("nodes.1.name", 4), "nodes[1] has the name 4"),
    "duplicate name": (_set("nodes.1.name", "c"), "two nodes are named 'c'"),
    "input taken": (_set("nodes.1.name", "x"), "two nodes are named 'x'"),
    "duplicate input": (_set("inputs.1.name", "x"), "two nodes are named 'x'"),
    "unknown operand": (_set("nodes.1.inputs", ["q"]), "node 'a' (exp) reads 'q', which is not"),
    "operand not text": (_set("nodes.1.inputs", [0]), "node 'a': reference 0"),
    "operand with a newline": (_set("nodes.1.inputs", ["q\nr"]), "reads 'q\\nr', which is not"),
    "operand of half a character": (_set("nodes.1.inputs", ["\ud800"]), "reads '\\ud800', which"),
    "label of half a character": (_set("nodes.1.label", "a\ud800"), "has the label 'a\\ud800'"),
    "output of half a character": (
        _set("outputs", [{"name": "\udfff", "value": "c"}]), "outputs[0] has the name '\\udfff'",
    ),
    "long attribute": (_set("nodes.2.attrs.start", [0] * 3000), "node 'b' (slice): "),
    "operand list": (_set("nodes.1.inputs", "x"), "'inputs' must be a list"),
    "no such output": (_set("nodes.1.inputs", ["x:1"]), "'x' has 1 output"),
    "bad output number": (_set("nodes.1.inputs", ["x:one"]), "reference 'x:one'"),
    "operand count": (_set("nodes.1.inputs", ["x", "x"]), "node 'a' (exp): expected 1 operands"),
    "wrong shapes": (_set("nodes.0.inputs", ["wide", "a"]), "node 'c' (add): operand shapes"),
    "wrong dtype": (_set("nodes.1.inputs", ["k"]), "node 'a' (exp): dtype i32"),
    "cycle": (_set("nodes.1.inputs", ["c"]), "the graph has a cycle through node '"),
    "self cycle": (_set("nodes.1.inputs", ["a"]), "cycle through node 'a' (exp)"),
    "missing attribute": (_set("nodes.3.attrs", {}), "node 'wide' (concat): attribute 'axis'"),
    "unknown attribute": (_set("nodes.1.attrs", {"foo": 1}), "op 'exp' has no attribute 'foo'"),
    "attribute kind": (_set("nodes.3.attrs.axis", "1"), "node 'wide' (concat): attribute 'axis'"),
    "attribute float": (_set("nodes.3.attrs.axis", 1.0), "must be an integer, got 1.0"),
    "attribute boolean": (_set("nodes.3.attrs.axis", True), "must be an integer, got True"),
    "attribute null": (_set("nodes.3.attrs.axis", None), "node 'wide': attribute value None"),
    "attribute object": (_set("nodes.3.attrs.axis", {"a": 1}), "is not understood"),
    "attribute huge": (_set("nodes.3.attrs.axis", 10**30), "node 'wide': the number"),
    "attributes list": (_set("nodes.3.attrs", [1]), "'attrs' must be an object"),
    "axis range": (_set("nodes.3.attrs.axis", 5), "node 'wide' (concat): attribute 'axis' is 5"),
    "slice list": (_set("nodes.2.attrs.start", [[0], 0]), "node 'b' (slice)"),
    "declared type": (_set("nodes.1.types", ["f32[4,3]"]), "declared as f32[4,3], but it computes"),
    "declared count": (_set("nodes.1.types", []), "node 'a' (exp): declared as"),
    "bad type": (_set("inputs.0.type", "f32(3)"), "input 'x': type 'f32(3)'"),
    "type not text": (_set("inputs.0.type", 32), "input 'x': type 32"),
    "bad dtype": (_set("inputs.0.type", "f31[3]"), "input 'x': unknown dtype 'f31'"),
    "negative extent": (_set("inputs.0.type", "f32[-3]"), "input 'x': type 'f32[-3]'"),
    "huge extent": (_set("inputs.0.type", "f32[99999999999]"), "is too large"),
    "huge size": (_set("inputs.0.type", "f32[999999999,999999999]"), "is too large"),
    "high rank": (_set("inputs.0.type", f"f32[{','.join('1' * 40)}]"), "is too large"),
    "bad bound": (_set("inputs.0.low", "zero"), "node 'x' (input)"),
    "huge iota": (
        _set("nodes.4", {"name": "i", "op": "iota",
                         "attrs": {"shape": [2**31, 2**20], "dtype": "i32", "axis": 0}}),
        "node 'i': type",
    ),
    "no outputs": (_set("outputs", []), "no outputs"),
    "unknown output": (_set("outputs.0", "q"), "outputs[0] is 'q'"),
    "mixed outputs": (_set("outputs.0", {"name": "o", "value": "c"}), "all outputs have names"),
    "output name": (_set("outputs.0", {"name": 1, "value": "c"}), "outputs[0] has the name 1"),
    "output reference": (_set("outputs.0", 3), "outputs[0]: reference 3"),
    "undeclared input": (_set("nodes.4", {"name": "z", "op": "input"}), "not one of the 'inputs'"),
    "input with attributes": (
        _set("nodes.4", {"name": "x", "op": "input", "attrs": {}}), "unknown key 'attrs'",
    ),
    "literal missing": (_literal({"type": "f32[]"}), "node 'lit': a literal must be"),
    "literal count": (_literal({"type": "f32[2]", "values": [1]}), "has 1 values, not 2"),
    "literal text": (_literal({"type": "f32[1]", "values": ["one"]}), "holds 'one'"),
    "literal overflow": (_literal({"type": "f32[1]", "values": [1e39]}), "too large for f32"),
    "literal range": (_literal({"type": "i8[1]", "values": [200]}), "that is not i8"),
    "literal kind": (_literal({"type": "i8[1]", "values": [1.5]}), "that is not i8"),
    "literal bool": (_literal({"type": "bool[1]", "values": [1]}), "that is not bool"),
    "literal huge": (_literal({"type": "f64[1]", "values": [10**400]}), "node 'lit': a literal"),
    "literal base64": (_literal({"type": "f32[1]", "base64": "!!"}), "not valid base64"),
    "literal bytes": (_literal({"type": "f32[1]", "base64": "AAAA"}), "has 3 bytes, not 4"),
    "literal absurd": (_literal({"type": "f32[9999999999999]", "base64": ""}), "is too large"),
    "body cycle": (
        _loop(nodes=[{"name": "t", "op": "neg", "inputs": ["t"]}]), "node 'loop': the graph has a",
    ),
    "body types": (_loop(outputs=["i"]), "node 'loop' (loop): state 0 enters"),
    "body key": (_loop(extra=1), "node 'loop': a loop body has an unknown key"),
    "body number": (_set("nodes.4", {"name": "l", "op": "loop", "attrs": {
        "trip": 1, "carries": 0, "body": 3}}), "node 'l' (loop): attribute 'body'"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_one_sentence(name: str, tmp_path: Path) -> None:
    change, message = BAD[name]
    data = copy.deepcopy(GOOD)
    change(data)
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(data))
    with pytest.raises(GraphError) as caught:
        load(path)
    text = str(caught.value)
    assert text.startswith(f"{path}: ") and message in text, text
    assert "\n" not in text and len(text) < MAX_MESSAGE + 10 + len(str(path))


def test_a_key_given_twice_is_found_among_many() -> None:
    """Counting every key anew would take minutes."""
    keys = ", ".join(f'"k{i}": 1' for i in range(200_000))
    with pytest.raises(GraphError, match="'k7' is given twice"):
        loads("{" + keys + ', "k7": 1}')


TEXTS = {
    "empty": ("", "not JSON"),
    "not json": ("graph {", "not JSON"),
    "a list": ("[1]", "must be an object"),
    "a number": ("1", "must be an object"),
    "nan": ('{"autofuse_graph": NaN}', "NaN is not JSON"),
    "overflow": ('{"autofuse_graph": 1e999}', "the number '1e999' is too large"),
    "digits": ('{"autofuse_graph": ' + "9" * 5000 + "}", "too many digits"),
    "twice": ('{"autofuse_graph": 1, "autofuse_graph": 1}', "'autofuse_graph' is given twice"),
    "deep": ("[" * 100_000, "nested too deeply"),
    "deep body": ('{"a":' * 50_000, "nested too deeply"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_bad_texts(name: str) -> None:
    text, message = TEXTS[name]
    with pytest.raises(GraphError, match=r"^<text>: ") as caught:
        loads(text)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match=r"cannot read .*missing.json"):
        load(tmp_path / "missing.json")
    with pytest.raises(GraphError, match="cannot read"):
        load(tmp_path)
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(GraphError, match=r"binary.json is not a graph file"):
        load(tmp_path / "binary.json")
    with pytest.raises(GraphError, match="cannot write"):
        save(full_graph(), tmp_path / "no" / "such" / "folder.json")


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_damage_is_a_graph_error_or_a_graph(data: st.DataObject) -> None:
    """Random values at random places of a good file never raise anything else."""
    tree = json.loads(dumps(full_graph()))
    junk = st.one_of(
        st.none(), st.booleans(), st.integers(-3, 2**70), st.floats(allow_nan=False),
        st.sampled_from(["", "x", "%1", "y:1", "NaN", "f32[2]", "add", "loop"]),
        st.lists(st.integers(-2, 5), max_size=3), st.just({}), st.just({"graph": {}}),
        st.just({"literal": {"type": "f32[]", "values": [1.0]}}),
    )  # fmt: skip
    at: Any = tree
    while True:
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        key = data.draw(st.sampled_from(keys))
        if isinstance(at[key], dict | list) and at[key] and data.draw(st.integers(0, 3)):
            at = at[key]
            continue
        at[key] = data.draw(junk)
        break
    try:
        graph = loads(json.dumps(tree))
    except GraphError as error:
        assert "\n" not in str(error)
    else:
        assert loads(dumps(graph)) == graph
