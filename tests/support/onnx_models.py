"""Small ONNX models for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
# name, element type, shape
Said = tuple[str, int, Sequence[int | str]]


def model(
    nodes: Sequence[Any],
    inputs: Sequence[Said],
    outputs: Sequence[Said],
    held: dict[str, np.ndarray] | None = None,
    opset: int = 17,
    functions: Sequence[Any] = (),
) -> Any:
    infos = [[helper.make_tensor_value_info(*each) for each in said] for said in (inputs, outputs)]
    tensors = [numpy_helper.from_array(array, name) for name, array in (held or {}).items()]
    graph = helper.make_graph(list(nodes), "g", *infos, tensors)
    opsets = [helper.make_opsetid("", opset)]
    if functions:
        opsets.append(helper.make_opsetid("local", 1))
    return helper.make_model(graph, opset_imports=opsets, functions=list(functions), ir_version=9)


def node(op: str, inputs: Sequence[str], outputs: Sequence[str], **attrs: Any) -> Any:
    return helper.make_node(op, list(inputs), list(outputs), **attrs)


def perceptron(seed: int = 0, batch: int | str = "batch") -> Any:
    """softmax(relu(x w + b) v), with weights of a seed."""
    rng = np.random.default_rng(seed)
    held = {
        "fc.weight": rng.standard_normal((12, 8)).astype(np.float32),
        "fc.bias": rng.standard_normal(8).astype(np.float32),
        "v": rng.standard_normal((8, 4)).astype(np.float32),
    }
    nodes = [
        node("Gemm", ["x", "fc.weight", "fc.bias"], ["h"]),
        node("Relu", ["h"], ["r"]),
        node("MatMul", ["r", "v"], ["s"]),
        node("Softmax", ["s"], ["y"], axis=-1),
    ]
    return model(nodes, [("x", FLOAT, [batch, 12])], [("y", FLOAT, [batch, 4])], held)


def shaped() -> Any:
    """x flattened by shape arithmetic, as exporters write it, through a local function."""
    square = helper.make_function(
        "local", "Square", ["a"], ["b"], [node("Mul", ["a", "a"], ["b"])],
        [helper.make_opsetid("", 17)],
    )  # fmt: skip
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "zero"], ["n"], axis=0),
        node("Unsqueeze", ["n", "first"], ["row"]),
        node("Concat", ["row", "minus"], ["wanted"], axis=0),
        node("Reshape", ["x", "wanted"], ["flat"]),
        helper.make_node("Square", ["flat"], ["y"], domain="local"),
    ]
    held = {
        "zero": np.asarray(0), "first": np.asarray([0]), "minus": np.asarray([-1]),
    }  # fmt: skip
    return model(
        nodes, [("x", FLOAT, ["n", 3, "?"])], [("y", FLOAT, ["n", None])], held,
        functions=[square],
    )  # fmt: skip


def chosen() -> Any:
    """Part of x between places that are inputs, and twice it where a flag holds."""
    then = helper.make_graph(
        [node("Add", ["part", "part"], ["t"])], "then", [],
        [helper.make_tensor_value_info("t", FLOAT, None)],
    )  # fmt: skip
    other = helper.make_graph(
        [node("Identity", ["part"], ["e"])], "else", [],
        [helper.make_tensor_value_info("e", FLOAT, None)],
    )  # fmt: skip
    nodes = [
        node("Slice", ["x", "starts", "ends"], ["part"]),
        node("If", ["flag"], ["y"], then_branch=then, else_branch=other),
    ]
    inputs = [
        ("x", FLOAT, [6, 4]), ("starts", INT64, [1]), ("ends", INT64, [1]),
        ("flag", TensorProto.BOOL, []),
    ]  # fmt: skip
    return model(nodes, inputs, [("y", FLOAT, None)])


def read_back(data: bytes) -> Any:
    found = onnx.ModelProto()
    found.ParseFromString(data)
    return found
