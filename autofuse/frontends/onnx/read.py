"""Graphs from ONNX models: what a model decides is computed while it is read, the rest written."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from autofuse.errors import AutofuseError
from autofuse.frontends.errors import FrontendError
from autofuse.frontends.leaves import range_of
from autofuse.frontends.onnx.dims import OpenDims, dims_from, input_shapes
from autofuse.frontends.onnx.package import (
    DAMAGE,
    Proto,
    array_of,
    numpy_dtype,
    onnx_package,
    standard_name,
)  # fmt: skip
from autofuse.frontends.onnx.scope import ModelFacts, ReadBudget, Scope
from autofuse.frontends.onnx.types import (
    OF_FOUR_BITS,
    Datum,
    UnknownValueError,
    Weight,
    stored_as,
)
from autofuse.graph.composites.narrow import packed, unpacked
from autofuse.graph.types import Graph, Value
from autofuse.graph.writer import GraphWriter
from autofuse.ops.dtypes import DType, from_numpy
from autofuse.ops.types import GraphError, TensorType
from autofuse.order import closure

# Run-time inputs whose values may decide shapes: rows of at most so many elements.
_MOST_DECIDING = 64
# Characters of a message about a file, its name aside.
_MOST_SAID = 400


@dataclass(frozen=True)
class OnnxFile:
    """A model, and the folder in which its tensors may lie (None: only within itself)."""

    proto: Proto
    folder: Path | None = None

    @property
    def inputs(self) -> list[Proto]:
        """The inputs that a call gives: those that no initialiser has a value for."""
        held = {tensor.name for tensor in self.proto.graph.initializer}
        return [each for each in self.proto.graph.input if each.name not in held]


@dataclass(frozen=True)
class Imported:
    """The graph of a model and what it reads: `weights` by the names of its constant inputs,
    `inputs` the model's names of the others, in order. `decided` are the run-time inputs that it
    was made for, and no longer has."""

    graph: Graph
    weights: Mapping[str, np.ndarray]
    inputs: tuple[str, ...]
    decided: tuple[str, ...] = ()


class DecidesShapesError(FrontendError):
    """Values of run-time inputs (`names`) decide shapes, so the graph depends on them."""

    def __init__(self, names: tuple[str, ...], reason: str) -> None:
        said = ", ".join(names)
        super().__init__(f"{reason}: the values of {said} decide shapes and have to be given")
        self.names, self.reason = names, reason


def read_onnx(path: str | Path) -> OnnxFile:
    """The model in a file; tensors that lie in other files stay there until they are read.
    Raises AutofuseError for a file that is none."""
    file = Path(path)
    try:
        data = file.read_bytes()
    except OSError as error:
        raise AutofuseError(f"cannot be read: {error.strerror}") from None
    return OnnxFile(parsed_onnx(data), file.parent)


def parsed_onnx(data: bytes) -> Proto:
    """The model that bytes hold; raises AutofuseError where they hold none."""
    model = onnx_package().ModelProto()
    try:
        model.ParseFromString(data)
    except Exception as error:  # protobuf's DecodeError, whose module is not onnx's to name
        raise AutofuseError(f"it is no ONNX model: {error}") from None
    if not model.graph.node and not model.graph.output:
        raise AutofuseError("it is no ONNX model: it has no graph")
    return model


@dataclass
class _Writing:
    """A model on its way to a graph."""

    file: OnnxFile
    w: GraphWriter = field(default_factory=GraphWriter)
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    bound: dict[int, Value] = field(default_factory=dict)

    def name(self, text: str) -> str:
        """A name in letters that graph files allow, of its own."""
        base = re.sub(r"[^A-Za-z0-9_]", "_", text) or "value"
        found, number = base, 2
        while found in self.names:
            found, number = f"{base}_{number}", number + 1
        self.names.add(found)
        return found

    def bind(self, weight: Weight) -> Value:
        """A constant input for a weight, whose elements are no part of the graph; only whole ones,
        which may be places in another array, keep their range. Of numbers of four bits it has two
        in a byte, as far as rows of them are whole bytes."""
        key = id(weight.array)
        if key not in self.bound:
            made, array = stored_as(weight.array.dtype), weight.array
            pairs = array.dtype.name in OF_FOUR_BITS and array.ndim > 0 and not array.shape[-1] % 2
            array = packed(array, 4) if pairs else array.astype(made.numpy, copy=False)
            dtype = from_numpy(array.dtype)
            whole = dtype in (DType.I64, DType.I32)
            low, high = range_of(array, dtype) if whole else (None, None)
            name = self.name(weight.name)
            self.weights[name] = array
            own = self.w.input(name, array.shape, dtype, low=low, high=high, constant=True)
            self.bound[key] = unpacked(self.w, own, 4, made.is_signed) if pairs else own
        return self.bound[key]


def import_onnx(
    file: OnnxFile, dims: OpenDims | None = None, values: Mapping[str, np.ndarray] | None = None
) -> Imported:
    """The graph of a model with static shapes.

    `dims` are the sizes that the model leaves open, `values` those of run-time inputs that are to
    be known (they are then no inputs of the graph). Raises FrontendError naming the node, its
    operator and the reason for what cannot be expressed, DecidesShapesError where values are
    missing, and AutofuseError for sizes that are.
    """
    model, given = file.proto, dict(values or {})
    writing = _Writing(file)
    opsets = {standard_name(each.domain): each.version for each in model.opset_import}
    functions = {(standard_name(f.domain), f.name): f for f in model.functions}
    read = partial(array_of, folder=file.folder)
    facts = ModelFacts(functions, read, writing.bind, ReadBudget.of(model))
    scope = Scope(writing.w, facts, opsets)
    kept = _inputs(writing, scope, input_shapes(file.inputs, dims or {}), given)
    for tensor in model.graph.initializer:
        scope.env[tensor.name] = scope.held(tensor.name, read(tensor))
    if model.graph.sparse_initializer:
        raise FrontendError("the model has sparse tensors, which are not supported")
    outputs = [each.name for each in model.graph.output]
    try:
        scope.write_nodes(model.graph.node, outputs)
        graph = _built(writing, scope, model.graph.output)
    except UnknownValueError as error:
        raise _deciding(error, writing.w, kept) from error
    return Imported(graph, writing.weights, tuple(kept), tuple(given))


def import_for(
    file: OnnxFile, arrays: Mapping[str, np.ndarray], decided: Sequence[str] = ()
) -> Imported:
    """As `import_onnx`, for the shapes of these inputs (by the model's names) and the values of
    those among them that decide shapes, at least `decided`."""
    dims = dims_from(file.inputs, {name: array.shape for name, array in arrays.items()})
    values = {name: arrays[name] for name in decided}
    while True:
        try:
            return import_onnx(file, dims, values)
        except DecidesShapesError as error:
            values |= {name: arrays[name] for name in error.names}


def _inputs(
    writing: _Writing,
    scope: Scope,
    shapes: Mapping[str, tuple[int, ...]],
    given: Mapping[str, np.ndarray],
) -> dict[str, int]:
    """Defines the model's inputs; returns the positions of those that are inputs of the graph."""
    kept: dict[str, int] = {}
    for each in writing.file.inputs:
        try:
            dtype = numpy_dtype(each.type.tensor_type.elem_type)
            if each.name in given:
                scope.env[each.name] = _fitting(given[each.name], dtype, shapes[each.name])
                continue
            kept[each.name] = len(kept)
            scope.env[each.name] = writing.w.input(
                writing.name(each.name), shapes[each.name], from_numpy(dtype)
            )
        except GraphError as error:
            raise FrontendError(f"input '{each.name}': {error}") from error
    return kept


def _fitting(array: Any, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    found = np.asarray(array)
    if found.dtype != dtype or found.shape != shape:
        wanted = f"{dtype}{list(shape)}"
        raise FrontendError(f"it is {wanted}, not {found.dtype}{list(found.shape)}")
    return found


def _built(writing: _Writing, scope: Scope, outputs: Sequence[Proto]) -> Graph:
    """The graph; its outputs have the dtypes that the model says."""
    if not outputs:
        raise FrontendError("the model has no output")
    found, names, taken = [], [], _Writing(writing.file)
    for each in outputs:
        datum = scope.lookup(each.name)
        if datum is None:
            raise FrontendError(f"output '{each.name}' is never computed")
        value = _output(scope, each, datum)
        found.append(value)
        names.append(taken.name(each.name))
    return writing.w.build(found, names)


def _output(scope: Scope, said: Proto, datum: Datum) -> Value:
    try:
        value = scope.value_of(datum)
    except GraphError as error:
        raise FrontendError(f"output '{said.name}': {error}") from error
    element = said.type.tensor_type.elem_type
    if element and numpy_dtype(element) != scope.w.dtype(value).numpy:
        raise FrontendError(
            f"output '{said.name}' is {scope.w.dtype(value)}, but the model says "
            f"{numpy_dtype(element)}"
        )
    return value


def _may_decide(kind: TensorType) -> bool:
    return kind.rank <= 1 and kind.size <= _MOST_DECIDING


def _deciding(error: UnknownValueError, w: GraphWriter, kept: Mapping[str, int]) -> FrontendError:
    """Which run-time inputs a value that had to be known depends on; where one of them is large,
    or data rather than a size, the model is refused."""
    if error.w is not w:
        return FrontendError(str(error), located=True)
    graph = w.build([error.value])
    ends = (v.node for v in graph.outputs)
    reached = closure(ends, lambda at: (v.node for v in graph[at].inputs))
    names = [name for name, position in kept.items() if graph.inputs[position] in reached]
    types = [graph[graph.inputs[kept[name]]].types[0] for name in names]
    constant = set(graph.inputs) - {graph.inputs[position] for position in kept.values()}
    if not names or not all(map(_may_decide, types)) or constant & reached:
        return FrontendError(str(error), located=True)
    return DecidesShapesError(tuple(names), str(error))


@contextmanager
def onnx_file(path: str | Path) -> Iterator[OnnxFile]:
    """The model in a file; errors about it are one sentence that begins with the file's name."""
    try:
        yield read_onnx(path)
    except DecidesShapesError as error:
        raise DecidesShapesError(error.names, _sentence(path, error.reason)) from error
    except FrontendError as error:
        raise FrontendError(_sentence(path, error)) from error
    except AutofuseError as error:
        raise AutofuseError(_sentence(path, error)) from error
    except (*DAMAGE, RecursionError) as error:
        raise AutofuseError(_sentence(path, f"it contradicts itself: {error}")) from error


def _sentence(path: str | Path, error: object) -> str:
    """One line, however much a name in the model or a message of the package holds."""
    text = " ".join(str(error).split())
    return f"{path}: {text if len(text) <= _MOST_SAID else text[: _MOST_SAID - 4] + ' ...'}"


def load_onnx(path: str, sizes: Mapping[str, Sequence[int]]) -> Imported:
    """The model in a file. `sizes` has a number for each size that the model leaves open, and the
    elements of inputs that are to be known, by name."""
    with onnx_file(path) as file:
        known = {each.name: each for each in file.inputs}
        values = {
            name: _row(known[name], numbers) for name, numbers in sizes.items() if name in known
        }
        several = [name for name, n in sizes.items() if name not in known and len(n) != 1]
        if several:
            raise FrontendError(f"'{several[0]}' is one size, not {len(sizes[several[0]])}")
        dims = {name: numbers[0] for name, numbers in sizes.items() if name not in known}
        return import_onnx(file, dims, values)


def _row(said: Proto, numbers: Sequence[int]) -> np.ndarray:
    """Numbers as the value of an input, which is one of them or a row."""
    dtype = numpy_dtype(said.type.tensor_type.elem_type)
    scalar = len(numbers) == 1 and not said.type.tensor_type.shape.dim
    return np.asarray(numbers[0] if scalar else list(numbers), dtype)
