"""Graphs as ONNX models, so that other tools can show and run them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from autofuse.frontends.names import NAMES, Kind
from autofuse.frontends.onnx.package import Proto, onnx_package
from autofuse.graph.keys import input_keys, unique_keys
from autofuse.graph.types import Graph, Node, Value
from autofuse.ops.contraction import dot_axes
from autofuse.ops.dtypes import DType
from autofuse.ops.types import GraphError, Literal, OpCall

# The version of the standard that models are written in, and of the format that came with it.
OPSET, FORMAT = 21, 10


@dataclass
class OnnxWriting:
    """Nodes of a model while they are written."""

    nodes: list[Proto] = field(default_factory=list)
    held: list[Proto] = field(default_factory=list)

    def node(self, op: str, *inputs: str, **attrs: Any) -> str:
        """A node of one output, which has a name of its own."""
        name = f"v{len(self.nodes)}"
        made = onnx_package("helper").make_node(op, list(inputs), [name], name=name, **attrs)
        self.nodes.append(made)
        return name

    def constant(self, array: np.ndarray) -> str:
        name = f"c{len(self.held)}"
        self.held.append(onnx_package("numpy_helper").from_array(array, name))
        return name

    def row(self, numbers: Sequence[int]) -> str:
        """Axes, a shape or the like."""
        return self.constant(np.asarray(list(numbers), np.int64))

    def reshape(self, x: str, shape: Sequence[int]) -> str:
        return self.node("Reshape", x, self.row(shape), allowzero=1)

    def transpose(self, x: str, perm: Sequence[int]) -> str:
        return self.node("Transpose", x, perm=list(perm)) if perm else x

    def cast(self, x: str, dtype: DType) -> str:
        return self.node("Cast", x, to=element_type(dtype))


# Writes an op of the table: its operands' names and the call; the name of the result.
OnnxWriter = Callable[[OnnxWriting, Sequence[str], OpCall], str]


def element_type(dtype: DType) -> int:
    """The standard's number for a dtype."""
    return int(onnx_package("helper").np_dtype_to_tensor_dtype(dtype.numpy))


def _plain(op: str, **attrs: Any) -> OnnxWriter:
    return lambda m, ins, _: m.node(op, *ins, **attrs)


def _by_kind(of_bools: str, of_ints: str) -> OnnxWriter:
    """Truth values and the bits of whole numbers have operators of their own."""
    return lambda m, ins, c: m.node(of_bools if c.ins[0].dtype is DType.BOOL else of_ints, *ins)


def _differs(m: OnnxWriting, ins: Sequence[str], _: OpCall) -> str:
    return m.node("Not", m.node("Equal", *ins))


def _rsqrt(m: OnnxWriting, ins: Sequence[str], _: OpCall) -> str:
    return m.node("Reciprocal", m.node("Sqrt", *ins))


def _is_finite(m: OnnxWriting, ins: Sequence[str], _: OpCall) -> str:
    return m.node("Not", m.node("Or", m.node("IsNaN", *ins), m.node("IsInf", *ins)))


def _clamp(m: OnnxWriting, ins: Sequence[str], _: OpCall) -> str:
    x, low, high = ins
    return m.node("Min", m.node("Max", x, low), high)


def _cast(m: OnnxWriting, ins: Sequence[str], c: OpCall) -> str:
    return m.cast(ins[0], c.out.dtype)


def _constant(m: OnnxWriting, ins: Sequence[str], c: OpCall) -> str:
    literal = c["value"]
    assert isinstance(literal, Literal)
    data = np.frombuffer(literal.data, literal.type.dtype.numpy)
    return m.constant(data.reshape(literal.type.shape))


def _iota(m: OnnxWriting, ins: Sequence[str], c: OpCall) -> str:
    axis, shape = c["axis"], c.out.shape
    steps = np.arange(shape[axis], dtype=np.int64).astype(c.out.dtype.numpy)
    steps = steps.reshape([-1 if a == axis else 1 for a in range(len(shape))])
    return m.node("Expand", m.constant(steps), m.row(shape))


# Moves


def _broadcast(m: OnnxWriting, ins: Sequence[str], c: OpCall) -> str:
    shape, dims = c.out.shape, c["dims"]
    own = dict(zip(dims, c.ins[0].shape, strict=True))
    aligned = m.reshape(ins[0], [own.get(a, 1) for a in range(len(shape))])
    return m.node("Expand", aligned, m.row(shape))


def _reshape(m: OnnxWriting, ins: Sequence[str], c: OpCall) -> str:
    return m.reshape(ins[0], c.out.shape)


def _transpose(m: OnnxWriting, ins: Sequence[str], c: OpCall) -> str:
    return m.transpose(ins[0], c["perm"])


def _slice(m: OnnxWriting, ins: Sequence[str], c: OpCall) -> str:
    axes = range(c.ins[0].rank)
    rows = (m.row(n) for n in (c["start"], c["stop"], axes, c["stride"]))
    return m.node("Slice", ins[0], *rows)


def _reverse(m: OnnxWriting, ins: Sequence[str], c: OpCall) -> str:
    axes = c["axes"]
    count = len(axes)
    rows = (m.row(n) for n in ([-1] * count, [-(2**62)] * count, axes, [-1] * count))
    return m.node("Slice", ins[0], *rows)


def _concat(m: OnnxWriting, ins: Sequence[str], c: OpCall) -> str:
    return m.node("Concat", *ins, axis=c["axis"])


def _pad(m: OnnxWriting, ins: Sequence[str], c: OpCall) -> str:
    return m.node("Pad", ins[0], m.row((*c["low"], *c["high"])), ins[1])


def _gather(m: OnnxWriting, ins: Sequence[str], c: OpCall) -> str:
    """Places are brought into the range, as the op takes them."""
    extent = c.ins[0].shape[c["axis"]]
    dtype = c.ins[1].dtype
    whole = dtype if dtype in (DType.I32, DType.I64) else DType.I64
    places = ins[1] if whole is dtype else m.cast(ins[1], whole)
    ends = (m.constant(np.asarray(n, whole.numpy)) for n in (0, extent - 1))
    return m.node("Gather", ins[0], m.node("Clip", places, *ends), axis=c["axis"])


# Folds and products


def _reduce(op: str) -> OnnxWriter:
    return lambda m, ins, c: m.node(op, ins[0], m.row(c["axes"]), keepdims=0)


def _position(op: str) -> OnnxWriter:
    def write(m: OnnxWriting, ins: Sequence[str], c: OpCall) -> str:
        return m.cast(m.node(op, ins[0], axis=c["axis"], keepdims=0), c.out.dtype)

    return write


def _running_sum(m: OnnxWriting, ins: Sequence[str], c: OpCall) -> str:
    return m.node("CumSum", ins[0], m.constant(np.asarray(c["axis"], np.int64)))


def _product(m: OnnxWriting, ins: Sequence[str], c: OpCall) -> str:
    """Batch, free and summed axes as one each around MatMul."""
    roles = dot_axes(c)
    left, right = (t.shape for t in c.ins)
    batch = [left[a] for a in roles.lhs_batch]
    rows = math.prod(left[a] for a in roles.lhs_free)
    columns = math.prod(right[a] for a in roles.rhs_free)
    summed = math.prod(left[a] for a in roles.lhs_contract)
    x = m.transpose(ins[0], [*roles.lhs_batch, *roles.lhs_free, *roles.lhs_contract])
    y = m.transpose(ins[1], [*roles.rhs_batch, *roles.rhs_contract, *roles.rhs_free])
    x, y = m.reshape(x, (*batch, rows, summed)), m.reshape(y, (*batch, summed, columns))
    return m.reshape(m.node("MatMul", x, y), c.out.shape)


_PLAIN = {
    **{row.function: row.onnx for row in NAMES if row.is_op and row.onnx},
    "pow": "Pow", "select": "Where",
}  # fmt: skip
# The bits of whole numbers have operators beside those of truth values.
_BITS, _LOGIC = (
    {row.function: row.onnx for row in NAMES if row.kind is kind}
    for kind in (Kind.BITS, Kind.LOGIC)
)
_REDUCTIONS = {
    "reduce_max": "ReduceMax", "reduce_min": "ReduceMin", "reduce_prod": "ReduceProd",
    "reduce_sum": "ReduceSum",
}  # fmt: skip
WRITERS: Mapping[str, OnnxWriter] = {
    **{name: _plain(op) for name, op in _PLAIN.items()},
    **{name: _by_kind(of_bools, _BITS[name]) for name, of_bools in _LOGIC.items()},
    **{name: _reduce(op) for name, op in _REDUCTIONS.items()},
    "argmax": _position("ArgMax"),
    "argmin": _position("ArgMin"),
    "broadcast": _broadcast,
    "cast": _cast,
    "clamp": _clamp,
    "concat": _concat,
    "constant": _constant,
    "cumsum": _running_sum,
    "dot_general": _product,
    "gather": _gather,
    "iota": _iota,
    "isfinite": _is_finite,
    "ne": _differs,
    "pad": _pad,
    "reduce_all": _reduce("ReduceMin"),
    "reduce_any": _reduce("ReduceMax"),
    "rem": _plain("Mod", fmod=1),
    "reshape": _reshape,
    "reverse": _reverse,
    "rsqrt": _rsqrt,
    "slice": _slice,
    "transpose": _transpose,
}  # fmt: skip


def save_onnx(
    graph: Graph, path: str | Path, constants: Mapping[str, np.ndarray] | None = None
) -> None:
    """Write `graph` as a model; inputs and outputs keep their names. Those of its inputs that
    `constants` has arrays for become the model's own.

    Raises GraphError naming the node whose op the standard does not have, and where the file cannot
    be written."""
    data = onnx_model(graph, constants).SerializeToString()
    try:
        Path(path).write_bytes(data)
    except OSError as error:
        raise GraphError(f"cannot write {path}: {error.strerror or error}") from error


def onnx_model(graph: Graph, constants: Mapping[str, np.ndarray] | None = None) -> Proto:
    """As `save_onnx`, the message itself."""
    helper = onnx_package("helper")
    m, held = OnnxWriting(), dict(constants or {})
    keys = input_keys(graph)
    names: dict[Value, str] = {}
    given = []
    for key, at, type_ in zip(keys, graph.inputs, graph.input_types, strict=True):
        names[Value(at)] = f"in.{key}" if _is_ours(key) else key
        name = names[Value(at)]
        if key in held:
            m.held.append(onnx_package("numpy_helper").from_array(np.asarray(held[key]), name))
        else:
            given.append(
                helper.make_tensor_value_info(name, element_type(type_.dtype), type_.shape)
            )
    for number, node in enumerate(graph.nodes):
        if node.op != "input":
            names[Value(number)] = _written(m, graph, number, node, names)
    made = []
    labels = unique_keys(graph.output_names or [""] * len(graph.outputs), "out")
    for key, value in zip(labels, graph.outputs, strict=True):
        type_, name = graph.type_of(value), f"out.{key}" if key in names.values() else key
        m.nodes.append(helper.make_node("Identity", [names[value]], [name]))
        made.append(helper.make_tensor_value_info(name, element_type(type_.dtype), type_.shape))
    body = helper.make_graph(m.nodes, "autofuse", given, made, m.held)
    opset = helper.make_opsetid("", OPSET)
    model = helper.make_model(
        body, opset_imports=[opset], ir_version=FORMAT, producer_name="autofuse"
    )
    return _checked(model)


def _checked(model: Proto) -> Proto:
    """The model, if its operators take these dtypes."""
    try:
        onnx_package("checker").check_model(model, full_check=True)
    except Exception as error:  # the package raises kinds of its own
        raise GraphError(f"ONNX does not take the graph: {str(error).split('==>')[0]}") from error
    return model


def _is_ours(key: str) -> bool:
    """Whether a name could be one of those that nodes and constants get."""
    return key[:1] in ("v", "c") and key[1:].isdigit()


def _written(
    m: OnnxWriting, graph: Graph, number: int, node: Node, names: Mapping[Value, str]
) -> str:
    write = WRITERS.get(node.op)
    if write is None or len(node.types) != 1:
        raise GraphError(f"node {number} ({node.op}) is no operator of ONNX")
    return write(m, [names[value] for value in node.inputs], graph.call(number))
