"""Small ONNX models, through the front end and our reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autofuse.frontends.onnx.package import onnx_package
from autofuse.frontends.onnx.read import Imported, OnnxFile, import_for
from autofuse.graph.reference import evaluate
from autofuse.graph.settled import constant_inputs

Arrays = Mapping[str, np.ndarray]


def graph_of(
    nodes: Sequence[Any], inputs: Arrays, outputs: Sequence[str], held: Arrays | None = None
) -> Any:
    """A graph of nodes, whose inputs have the types of these arrays."""
    helper, numpy = onnx_package("helper"), onnx_package("numpy_helper")
    given = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(np.asarray(a).dtype), np.asarray(a).shape
        )
        for name, a in inputs.items()
    ]
    made = [onnx_package().ValueInfoProto(name=name) for name in outputs]
    kept = [numpy.from_array(np.asarray(a), name) for name, a in (held or {}).items()]
    return helper.make_graph(list(nodes), "graph", given, made, kept)


def imported_model(graph: Any, inputs: Arrays, opset: int = 22) -> Imported:
    helper = onnx_package("helper")
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    return import_for(OnnxFile(model), inputs)


def run_model(graph: Any, inputs: Arrays, opset: int = 22) -> list[np.ndarray]:
    """The outputs of a graph by the float64 reference."""
    found = imported_model(graph, inputs, opset)
    weights, given = iter(found.weights.values()), iter(inputs[name] for name in found.inputs)
    fixed = constant_inputs(found.graph)
    count = len(found.graph.inputs)
    return list(
        evaluate(found.graph, [next(weights if k in fixed else given) for k in range(count)])
    )


def run_node(
    op: str, inputs: Arrays, outputs: int = 1, opset: int = 22, held: Arrays | None = None,
    **attrs: Any,
) -> list[np.ndarray]:  # fmt: skip
    """One node of all these operands, in order; of those that are `held` the model knows what they
    are."""
    names = [f"y{k}" for k in range(outputs)]
    node = onnx_package("helper").make_node(op, [*inputs, *(held or {})], names, **attrs)
    return run_model(graph_of([node], inputs, names, held), inputs, opset)
