"""ONNX models: what is computed on import, what becomes a weight, sizes, and what is refused."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import autofuse
from autofuse.errors import AutofuseError
from autofuse.frontends.array_api.tracer import spec, trace
from autofuse.frontends.errors import FrontendError
from autofuse.frontends.onnx.export import WRITERS, onnx_model
from autofuse.frontends.onnx.read import (
    DecidesShapesError,
    Imported,
    OnnxFile,
    import_onnx,
)
from autofuse.graph.canonical import digest
from autofuse.graph.reference import evaluate, random_inputs
from autofuse.graph.types import Graph
from autofuse.interop.onnx.backend import OnnxBackend
from autofuse.interop.onnx.model import OnnxModel
from autofuse.ops.dtypes import DType
from autofuse.ops.spec import spec_of
from autofuse.ops.types import GraphError
from autofuse.sources import read_source
from tests.support.onnx_models import FLOAT, INT64, chosen, model, node, perceptron, shaped
from tests.support.op_cases import one_op


def imported(made: Any, dims: dict[str, int] | None = None, **values: Any) -> Imported:
    arrays = {name: np.asarray(value) for name, value in values.items()}
    return import_onnx(OnnxFile(made), dims, arrays)


def ops(graph: Graph) -> set[str]:
    return {n.op for n in graph.nodes}


def test_shape_arithmetic_leaves_nothing_but_the_reshape() -> None:
    found = imported(shaped(), {"n": 5, "x[2]": 4})
    assert ops(found.graph) == {"input", "reshape", "mul"}
    assert found.graph.output_types[0].shape == (5, 12)
    assert found.weights == {}


def test_weights_are_constants_and_no_part_of_the_digest() -> None:
    one, other = (imported(perceptron(seed), {"batch": 3}) for seed in (0, 1))
    assert digest(one.graph) == digest(other.graph)
    assert list(one.weights) == ["fc_weight", "fc_bias", "v"]
    assert one.inputs == ("x",)


def test_sizes_are_named_where_they_are_missing() -> None:
    with pytest.raises(AutofuseError, match=r"open: n, x\[2\]"):
        imported(shaped())
    with pytest.raises(AutofuseError, match=r"no dimension 'batch' .it has: n, x"):
        imported(shaped(), {"n": 1, "x[2]": 1, "batch": 2})
    with pytest.raises(AutofuseError, match=r"x\[1\] is 3 in the model, not 4"):
        imported(shaped(), {"n": 1, "x[2]": 1, "x[1]": 4})
    assert imported(shaped(), {"x[0]": 2, "x[2]": 1}).graph.input_types[0].shape == (2, 3, 1)


def test_values_that_decide_shapes_are_asked_for() -> None:
    with pytest.raises(DecidesShapesError, match=r"starts.*the values of starts decide") as error:
        imported(chosen())
    assert error.value.names == ("starts",)
    found = imported(chosen(), starts=[1], ends=[4])
    assert found.inputs == ("x", "flag")
    assert found.graph.output_types[0].shape == (3, 4)


def test_run_makes_a_plan_for_each_such_value() -> None:
    loaded = OnnxModel(OnnxFile(chosen()), {})
    x = np.arange(24, dtype=np.float32).reshape(6, 4)
    for stop, flag in ((4, True), (4, False), (6, True)):
        given = {"x": x, "starts": np.asarray([1]), "ends": np.asarray([stop])}
        (found,) = loaded.run({**given, "flag": np.asarray(flag)}).values()
        np.testing.assert_array_equal(found, x[1:stop] * (2 if flag else 1))
    assert len(loaded._plans) == 2


def test_a_condition_that_decides_shapes_is_asked_for() -> None:
    """As of models that have a network for each of two rates."""
    branches = {}
    for name, size in (("then_branch", [2, 3]), ("else_branch", [3, 2])):
        nodes = [node("Constant", [], ["s"], value_ints=size), node("Reshape", ["x", "s"], ["r"])]
        info = helper.make_tensor_value_info("r", FLOAT, size)
        branches[name] = helper.make_graph(nodes, name, [], [info])
    nodes = [node("Equal", ["rate", "high"], ["c"]), node("If", ["c"], ["y"], **branches)]
    held = {"high": np.asarray(16)}
    inputs = [("x", FLOAT, [6]), ("rate", INT64, [])]
    made = model(nodes, inputs, [("y", FLOAT, ["a", "b"])], held)
    with pytest.raises(DecidesShapesError, match="different types: the values of rate decide"):
        imported(made)
    assert imported(made, rate=16).graph.output_types[0].shape == (2, 3)
    assert imported(made, rate=8).graph.output_types[0].shape == (3, 2)


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (model([node("Foo", ["x"], ["y"])], [("x", FLOAT, [2])], [("y", FLOAT, [2])]),
         "node of 'y': Foo: it is no operator of the standard"),
        (model([node("Det", ["x"], ["y"], name="d")], [("x", FLOAT, [2, 3])], [("y", FLOAT, [])]),
         "node 'd': Det:"),
        (model([node("Add", ["x", "z"], ["y"])], [("x", FLOAT, [2])], [("y", FLOAT, [2])]),
         "'z' is read before anything gives it"),
        (model([node("NonZero", ["x"], ["y"])], [("x", FLOAT, [2])], [("y", INT64, [1, "n"])]),
         "NonZero: how many elements are not zero"),
        (model([node("Abs", ["x"], ["y"])], [("x", TensorProto.COMPLEX64, [2])],
               [("y", TensorProto.COMPLEX64, [2])]), "input 'x': dtype complex64 is not supported"),
        (model([node("Abs", ["x"], ["y"])], [("x", FLOAT, [2])], [("y", INT64, [2])]),
         "output 'y' is f32, but the model says int64"),
    ],
)  # fmt: skip
def test_refusals_name_node_and_reason(made: Any, reason: str) -> None:
    with pytest.raises(FrontendError, match=reason.replace("(", r"\(")):
        imported(made)


def is_mapped(array: np.ndarray) -> bool:
    """Whether an array lies in a file, whose pages come when they are read."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base if not isinstance(base, memoryview) else base.obj, mmap.mmap)


def test_weights_in_another_file_are_mapped_within_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(
        perceptron(batch=2), path, save_as_external_data=True, location="w.bin", size_threshold=0
    )
    source = read_source(str(path))
    assert all(map(is_mapped, source.constants.values()))
    wanted = imported(perceptron(batch=2)).weights
    for name, array in source.constants.items():
        np.testing.assert_array_equal(array, wanted[name])
    raw = onnx.load(path, load_external_data=False)
    for entry in raw.graph.initializer[0].external_data:
        entry.value = "../w.bin" if entry.key == "location" else entry.value
    path.write_bytes(raw.SerializeToString())
    with pytest.raises(AutofuseError, match="outside the model's folder"):
        read_source(str(path))


def test_a_loaded_model_compiles_and_runs(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(perceptron(), path)
    loaded = autofuse.load(path, dims={"batch": 4})
    x = np.random.default_rng(3).standard_normal((4, 12)).astype(np.float32)
    h, b, v = loaded.constants.values()
    s = np.maximum(x @ h + b, 0) @ v
    wanted = np.exp(s) / np.exp(s).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(loaded.run([x])["y"], wanted, rtol=1e-5)
    np.testing.assert_allclose(loaded.compile()(x)[0], wanted, rtol=1e-5)
    with pytest.raises(AutofuseError, match="no input 'z'"):
        loaded.run({"z": x})
    with pytest.raises(AutofuseError, match="zoo:softmax:small leaves no sizes open"):
        read_source("zoo:softmax:small", {"batch": [1]})


def test_the_backend_runs_a_node() -> None:
    x = np.asarray([[1.0, -2.0]], np.float32)
    (found,) = OnnxBackend.run_node(helper.make_node("Relu", ["x"], ["y"]), [x])
    np.testing.assert_array_equal(found, np.maximum(x, 0))
    with pytest.raises(AutofuseError, match="device CUDA"):
        OnnxBackend.prepare(perceptron(), "CUDA")


# Writing models


def again(graph: Graph) -> Imported:
    """A graph that was written as a model and read again."""
    return import_onnx(OnnxFile(onnx_model(graph)))


@pytest.mark.parametrize("name", sorted(set(WRITERS) - {"constant"}))
def test_ops_come_back_from_onnx(name: str) -> None:
    plain = {DType.F32, DType.BOOL, DType.I64}
    samples = [s for s in spec_of(name).samples() if {t.dtype for t in s.ins} <= plain]
    for sample in [s for s in samples if s.attrs.get("dtype", "f32") == "f32"][:3]:
        graph = one_op(spec_of(name), sample)
        inputs = random_inputs(graph, 1, 0.1, 1.0)
        try:
            back = again(graph)
        except GraphError as error:
            assert {t.dtype for t in sample.ins} != {DType.F32}, error
            continue
        assert back.graph.output_types == graph.output_types
        held = tuple(back.weights.values())
        wanted, found = evaluate(graph, inputs), evaluate(back.graph, (*inputs, *held))
        np.testing.assert_allclose(found[0], wanted[0], rtol=1e-12, atol=1e-12)


def test_a_traced_program_is_written_with_its_names(tmp_path: Path) -> None:
    def score(x: Any, weight: Any) -> Any:
        return {"y": autofuse.xp.softmax(x @ weight, axis=-1)}

    graph = trace(score, spec((4, 8)), spec((8, 3)))
    path = tmp_path / "g.onnx"
    held = {"weight": np.ones((8, 3), np.float32)}
    autofuse.save_onnx(graph, path, held)
    loaded = autofuse.load(path)
    assert (loaded.inputs, loaded.outputs) == (("x",), ("y",))
    x = random_inputs(graph, 0)[0]
    wanted = evaluate(graph, [x, held["weight"]])[0]
    np.testing.assert_allclose(evaluate(loaded.graph, [x, held["weight"]])[0], wanted, rtol=1e-9)


def test_what_the_standard_lacks_is_named() -> None:
    graph = trace(lambda x: autofuse.xp.atan2(x, x), spec(3))
    with pytest.raises(AutofuseError, match=r"\(atan2\) is no operator of ONNX"):
        onnx_model(graph)
