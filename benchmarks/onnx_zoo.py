"""Models to be timed: those inside packages of PyPI, networks of the standard's suite, and a few
where work element by element dominates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from autofuse.frontends.onnx.dims import input_shapes
from autofuse.frontends.onnx.package import numpy_dtype, onnx_package
from autofuse.frontends.onnx.read import OnnxFile, parsed_onnx, read_onnx
from autofuse.peers.types import BenchError

# Rows and columns of the models that compute element by element.
ROWS, COLUMNS = 1024, 1024
# Whole numbers that are drawn lie below this: they are bytes, or places in a table.
_BELOW = 200


@dataclass(frozen=True, slots=True)
class BenchModel:
    """A model and how it is called: `dims` for the sizes that it leaves open, `values` of inputs
    that are not drawn but known to the plan. `elementwise`: where most of its time goes."""

    name: str
    read: Callable[[], OnnxFile]
    dims: Mapping[str, int] = field(default_factory=dict)
    values: Mapping[str, int] = field(default_factory=dict)
    elementwise: bool = False

    def arrays(self, file: OnnxFile, seed: int = 0) -> dict[str, np.ndarray]:
        """Its inputs by name: floats of a normal distribution, small whole numbers."""
        rng, found = np.random.default_rng(seed), {}
        for each, shape in zip(file.inputs, input_shapes(file.inputs, self.dims).values(),
                               strict=True):  # fmt: skip
            dtype = numpy_dtype(each.type.tensor_type.elem_type)
            if each.name in self.values:
                made = np.full(shape, self.values[each.name])
            elif dtype.kind in "iu":
                made = rng.integers(0, _BELOW, shape)
            else:
                made = 0.3 * rng.standard_normal(shape)
            found[each.name] = made.astype(dtype)
        return found


def _packaged(package: str, pattern: str) -> OnnxFile:
    """The file of an installed package, the last of those that fit. Raises BenchError without."""
    spec = find_spec(package)
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    files = sorted(file for place in places for file in Path(place).glob(pattern))
    if not files:
        what = "is not installed" if spec is None else f"has no file {pattern}"
        raise BenchError(f"package {package} {what}")
    return read_onnx(files[-1])


def _light(name: str) -> OnnxFile:
    """A network of the suite, which computes its weights when it is loaded."""
    data = Path(onnx_package().__file__).parent / "backend" / "test" / "data" / "light"
    return read_onnx(data / f"{name}.onnx")


def _written(make: Callable[[], tuple[list[Any], list[str]]]) -> OnnxFile:
    """A model of nodes over inputs of ROWS x COLUMNS; those named after weights have one row."""
    helper, (nodes, names) = onnx_package("helper"), make()
    kind = onnx_package().TensorProto.FLOAT
    shapes = {name: [ROWS, COLUMNS] if len(name) == 1 else [COLUMNS] for name in names}
    inputs = [helper.make_tensor_value_info(name, kind, shapes[name]) for name in names]
    output = helper.make_tensor_value_info(nodes[-1].output[0], kind, [ROWS, COLUMNS])
    graph = helper.make_graph(nodes, "written", inputs, [output])
    opset = [helper.make_opsetid("", 20)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=9)
    return OnnxFile(parsed_onnx(model.SerializeToString()))


def _node(op: str, inputs: str, output: str, **attrs: Any) -> Any:
    return onnx_package("helper").make_node(op, inputs.split(), [output], **attrs)


def _softmax() -> tuple[list[Any], list[str]]:
    nodes = [_node("Add", "x y", "s"), _node("Softmax", "s", "o", axis=-1)]
    return nodes, ["x", "y"]


def _norm_gelu() -> tuple[list[Any], list[str]]:
    nodes = [_node("LayerNormalization", "x scale shift", "n"), _node("Gelu", "n", "o")]
    return nodes, ["x", "scale", "shift"]


def _gated() -> tuple[list[Any], list[str]]:
    nodes = [_node("Sigmoid", "x", "s"), _node("Mul", "x s", "g"), _node("Mul", "g y", "o")]
    return nodes, ["x", "y"]


def _residual_norm() -> tuple[list[Any], list[str]]:
    nodes = [_node("Add", "x y", "r"), _node("LayerNormalization", "r scale shift", "n"),
             _node("HardSwish", "n", "h"), _node("Add", "h r", "o")]  # fmt: skip
    return nodes, ["x", "y", "scale", "shift"]


_OCR, _VAD = "rapidocr_onnxruntime", "silero_vad"
# Name, package, file within it, sizes, known inputs.
_PACKAGED: tuple[tuple[str, str, str, dict[str, int], dict[str, int]], ...] = (
    ("magika", "magika", "models/*/model.onnx", {"bytes[0]": 1}, {}),
    ("silero_static", _VAD, "data/silero_vad_openvino_16k.onnx", {}, {}),
    ("silero", _VAD, "data/silero_vad.onnx", {"input[0]": 1, "input[1]": 576, "state[1]": 1},
     {"sr": 16000}),
    ("ocr_classify", _OCR, "models/*_cls_*.onnx", {"x[0]": 1, "x[2]": 48, "x[3]": 192}, {}),
    ("ocr_recognise", _OCR, "models/*_rec_*.onnx", {"x[0]": 1, "x[2]": 48, "x[3]": 320}, {}),
    ("ocr_detect", _OCR, "models/*_det_*.onnx", {"x[0]": 1, "x[2]": 320, "x[3]": 320}, {}),
)  # fmt: skip
_WRITTEN = {"softmax_of_sum": _softmax, "norm_gelu": _norm_gelu, "gated": _gated,
            "residual_norm": _residual_norm}  # fmt: skip
BENCH_MODELS: dict[str, BenchModel] = {
    model.name: model
    for model in (
        *(BenchModel(name, partial(_packaged, package, pattern), dims, values)
          for name, package, pattern, dims, values in _PACKAGED),
        *(BenchModel(name, partial(_light, name)) for name in ("light_squeezenet",
                                                               "light_shufflenet")),
        *(BenchModel(name, partial(_written, make), elementwise=True)
          for name, make in _WRITTEN.items()),
    )
}  # fmt: skip
