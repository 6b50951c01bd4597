"""What of the package onnx is used: its schemas, its reference operators, its tensors as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from autofuse.errors import AutofuseError
from autofuse.frontends.errors import FrontendError
from autofuse.graph.known import MOST_WORKED_OUT

# Messages of the package: it is no dependency.
Proto = Any
# What the package and NumPy raise for a model that contradicts itself.
DAMAGE = (ArithmeticError, AttributeError, IndexError, KeyError, MemoryError, NotImplementedError,
          RuntimeError, TypeError, ValueError)  # fmt: skip
# Results of at most so many elements are computed while importing.
MOST_KNOWN = 4096
_OTHER_NAME = "ai.onnx"
# Operators whose work is bounded by what they read and write: nothing between the two is larger,
# whatever their attributes say. Padding that strides leave out, sizes of hidden states and patterns
# of text are no such thing.
_BOUNDED = frozenset(
    """
    Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot
    BitwiseOr BitwiseXor Cast CastLike Ceil Celu Clip Compress Concat Constant ConstantOfShape Cos
    Cosh CumSum DepthToSpace Det Div Elu Equal Erf Exp Expand EyeLike Flatten Floor Gather
    GatherElements GatherND Gelu Gemm Greater GreaterOrEqual HardSigmoid HardSwish Hardmax Identity
    IsInf IsNaN LeakyRelu Less LessOrEqual Log LogSoftmax MatMul Max Mean Min Mish Mod Mul Neg
    NonZero Not OneHot Or PRelu Pad Pow Range Reciprocal ReduceL1 ReduceL2 ReduceLogSum
    ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape
    ReverseSequence Round ScatterElements ScatterND Selu Shape Shrink Sigmoid Sign Sin Sinh Size
    Slice Softmax Softplus Softsign SpaceToDepth Split Sqrt Squeeze Sub Sum Tan Tanh ThresholdedRelu
    Tile TopK Transpose Trilu Unique Unsqueeze Where Xor
    """.split()
)


def onnx_package(part: str = "") -> Any:
    """onnx or one of its modules, imported when first needed; raises AutofuseError without it."""
    try:
        return import_module(f"onnx.{part}" if part else "onnx")
    except ImportError as error:
        raise AutofuseError("the ONNX front end needs onnx: pip install autofuse[onnx]") from error


def standard_name(domain: str) -> str:
    """A domain under the one name that it is looked up by."""
    return "" if domain == _OTHER_NAME else domain


@lru_cache(maxsize=4096)
def schema_of(domain: str, op: str, opset: int) -> Any:
    """The operator's schema in this version of its domain; None where the standard has none."""
    defs = onnx_package("defs")
    try:
        return defs.get_schema(op, max_inclusive_version=opset, domain=domain)
    except defs.SchemaError:
        return None


@lru_cache(maxsize=4096)
def defaults_of(domain: str, op: str, opset: int) -> Mapping[str, Any]:
    """The attributes that the schema has defaults for."""
    schema = schema_of(domain, op, opset)
    found = {} if schema is None else schema.attributes
    pairs = ((name, a.default_value) for name, a in found.items())
    return {name: plain_attribute(value) for name, value in pairs if value.type}


def plain_attribute(attribute: Proto) -> Any:
    """Numbers, strings and lists of these as Python's, tensors as arrays; other kinds as they are.
    Raises FrontendError for a tensor that contradicts itself."""
    onnx = onnx_package()
    kind = attribute.type
    if kind == onnx.AttributeProto.TENSOR:
        return array_of(attribute.t)
    if kind in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.SPARSE_TENSOR):
        return attribute
    found = onnx.helper.get_attribute_value(attribute)
    if isinstance(found, bytes):
        return found.decode("utf-8", "replace")
    if kind == onnx.AttributeProto.STRINGS:
        return [each.decode("utf-8", "replace") for each in found]
    return list(found) if hasattr(found, "__len__") and not isinstance(found, str) else found


def array_of(tensor: Proto, folder: Path | None = None) -> np.ndarray:
    """The elements of a tensor; those in another file of `folder` are mapped, not read.

    Raises FrontendError for one whose elements are not as many as it says, or lie elsewhere."""
    onnx = onnx_package()
    name = tensor.name or "without a name"
    try:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            return _mapped(tensor, folder)
        return np.asarray(onnx.numpy_helper.to_array(tensor))
    except FrontendError:
        raise
    except DAMAGE as error:
        raise FrontendError(f"tensor '{name}' cannot be read: {error}") from error


def _mapped(tensor: Proto, folder: Path | None) -> np.ndarray:
    """Elements in a file beside the model; what lies outside its folder is not looked at."""
    said = {entry.key: entry.value for entry in tensor.external_data}
    location = PurePosixPath(said.get("location", ""))
    if folder is None or location.is_absolute() or ".." in location.parts or not location.parts:
        raise FrontendError(f"the data of tensor '{tensor.name}' lies outside the model's folder")
    path = (folder / location).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise FrontendError(f"the data of tensor '{tensor.name}' lies outside the model's folder")
    dtype = numpy_dtype(tensor.data_type)
    shape = tuple(tensor.dims)
    if not path.is_file():
        raise FrontendError(f"the data of tensor '{tensor.name}' is missing: {location}")
    if 0 in shape:
        return np.zeros(shape, dtype)
    return np.memmap(path, dtype, "r", int(said.get("offset", 0)), shape)


def numpy_dtype(element: int) -> np.dtype:
    """The NumPy dtype of an element type; raises FrontendError for one that there is not."""
    try:
        found: np.dtype = np.dtype(onnx_package("helper").tensor_dtype_to_np_dtype(element))
    except (KeyError, ValueError, TypeError):
        raise FrontendError(f"element type {element} is not known") from None
    return found


def type_proto(shape: Sequence[int], dtype: np.dtype) -> Proto:
    """A tensor type as the package says it."""
    helper = onnx_package("helper")
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(dtype), tuple(shape))


def opset_list(opsets: Mapping[str, int]) -> list[Proto]:
    helper = onnx_package("helper")
    return [helper.make_opsetid(domain, version) for domain, version in opsets.items()]


def evaluated(
    node: Proto, schema: Any, opsets: Mapping[str, int], operands: Sequence[np.ndarray | None]
) -> list[np.ndarray] | None:
    """The results of a node of known operands, by the standard's reference operator.

    None where it has none, is random, or its results are large, no arrays, or of no known size."""
    if schema is None or schema.node_determinism != schema.NodeDeterminism.Deterministic:
        return None
    if standard_name(node.domain) or node.op_type not in _BOUNDED:
        return None
    if _too_large(operands) or not _small(node, schema, opsets, operands):
        return None
    try:
        op = onnx_package("reference.ops").load_op("", node.op_type, opsets[""])
        params = {"log": _silent, "opsets": dict(opsets), "verbose": 0, "new_ops": None}
        with np.errstate(all="ignore"):
            results = op(node, params).run(*operands)
    except DAMAGE:
        return None  # the node's rule says what is wrong with it, or does what the package cannot
    return _known_arrays(results)


def _too_large(operands: Sequence[np.ndarray | None]) -> bool:
    return max((a.size for a in operands if a is not None), default=0) > MOST_WORKED_OUT


def _known_arrays(results: Sequence[Any]) -> list[np.ndarray] | None:
    if not all(isinstance(each, np.ndarray | np.generic) for each in results):
        return None
    arrays = [np.asarray(each) for each in results]
    return arrays if all(each.size <= MOST_KNOWN for each in arrays) else None


def _silent(*_: Any) -> None:
    pass


def _small(
    node: Proto, schema: Any, opsets: Mapping[str, int], operands: Sequence[np.ndarray | None]
) -> bool:
    """Whether the results are known to be of at most MOST_KNOWN elements, before they are made: a
    few numbers may ask for any amount of memory."""
    inference, helper = onnx_package("shape_inference"), onnx_package("numpy_helper")
    types, data = {}, {}
    for name, array in zip(node.input, operands, strict=False):
        if array is not None:
            types[name] = type_proto(array.shape, array.dtype)
            data[name] = helper.from_array(array, name)
    try:
        found = inference.infer_node_outputs(
            schema, node, types, data, opset_imports=opset_list(opsets)
        )
    except Exception:  # whatever the package says of a damaged node: its rule says it better
        return False
    wanted = [name for name in node.output if name]
    return all(name in found and _size(found[name]) <= MOST_KNOWN for name in wanted)


def _size(type_: Proto) -> float:
    if not type_.HasField("tensor_type") or not type_.tensor_type.HasField("shape"):
        return float("inf")
    size = 1.0
    for dim in type_.tensor_type.shape.dim:
        size *= dim.dim_value if dim.HasField("dim_value") else float("inf")
    return size
