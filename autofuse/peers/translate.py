"""A graph as a function of NumPy arrays or torch tensors, one library call per node.

Used for programs that exist in JAX only. Covers elementwise ops, movement and plain reductions;
raises BenchError for the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from autofuse.graph.types import Graph, Value
from autofuse.ops.dtypes import DType
from autofuse.ops.types import Literal, OpCall
from autofuse.peers.types import BenchError, PeerProgram

TorchStep = Callable[..., Any]
# What both libraries call the same, where it is not our own name.
_SHARED = {
    "neg": "negative", "abs": "abs", "floor": "floor", "ceil": "ceil", "exp": "exp",
    "expm1": "expm1", "log": "log", "log1p": "log1p", "sqrt": "sqrt", "sin": "sin", "cos": "cos",
    "tan": "tan", "tanh": "tanh", "sinh": "sinh", "cosh": "cosh", "asin": "arcsin",
    "acos": "arccos", "atan": "arctan", "atan2": "arctan2", "sign": "sign", "add": "add",
    "sub": "subtract", "mul": "multiply", "div": "divide", "max": "maximum", "min": "minimum",
    "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "not": "bitwise_not",
    "isnan": "isnan", "isfinite": "isfinite", "reciprocal": "reciprocal", "ne": "not_equal",
    "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "select": "where",
}  # fmt: skip
_OWN = {
    "numpy": {"round": "rint", "eq": "equal", "pow": "power"},
    "torch": {"round": "round", "eq": "eq", "pow": "pow", "erf": "erf", "rsqrt": "rsqrt"},
}
_REDUCTIONS = {"reduce_sum": "sum", "reduce_max": "amax", "reduce_min": "amin"}


def translate(graph: Graph, library: Any) -> PeerProgram:
    """`graph` as a function of arrays of `library`, the module numpy or torch."""
    slots: dict[Value, int] = {Value(i): at for at, i in enumerate(graph.inputs)}
    steps: list[tuple[TorchStep, tuple[int, ...]]] = []
    count = len(graph.inputs)
    for i, node in enumerate(graph.nodes):
        if node.op == "input":
            continue
        step = _step(node.op, graph.call(i), library)
        steps.append((step, tuple(slots[v] for v in node.inputs)))
        slots[Value(i)] = count + len(steps) - 1
    results = tuple(slots[v] for v in graph.outputs)

    def program(*arrays: Any) -> Sequence[Any]:
        known = list(arrays)
        for step, operands in steps:
            known.append(step(*[known[at] for at in operands]))
        return [known[at] for at in results]

    return program


def _step(op: str, call: OpCall, library: Any) -> TorchStep:
    name = library.__name__
    spelling = _OWN[name].get(op) or _SHARED.get(op)
    if op == "div" and call.out.dtype.is_int:
        spelling = None  # truncating division has no common spelling
    if spelling:
        found: TorchStep = getattr(library, spelling)
        return found
    made = _movement(op, call, library) or _composite(op, library) or _typed(op, call, library)
    if made is None:
        raise BenchError(f"op '{op}' has no translation to {name}")
    return made


def _lined_up(shape: tuple[int, ...], dims: Collection[int]) -> tuple[int, ...]:
    return tuple(n if a in dims else 1 for a, n in enumerate(shape))


def _movement(op: str, call: OpCall, library: Any) -> TorchStep | None:
    shape = call.out.shape if call.outs else ()
    if op == "reshape":
        return lambda x: library.reshape(x, shape)
    if op == "broadcast":
        lined = _lined_up(shape, call["dims"])
        return lambda x: library.broadcast_to(library.reshape(x, lined), shape)
    if op == "transpose":
        permute = library.transpose if library is np else library.permute
        order = tuple(call["perm"])
        return lambda x: permute(x, order)
    if op == "slice":
        bounds = zip(call["start"], call["stop"], call["stride"], strict=True)
        window = tuple(slice(*each) for each in bounds)
        return lambda x: x[window]
    if op == "concat":
        axis = call["axis"]
        return lambda *parts: library.concatenate(parts, axis)
    if op in _REDUCTIONS:
        fold, axes = getattr(library, _REDUCTIONS[op]), tuple(call["axes"])
        return lambda x: fold(x, axes)
    return None


def _composite(op: str, library: Any) -> TorchStep | None:
    if op == "clamp":
        return lambda x, low, high: library.minimum(library.maximum(x, low), high)
    if op == "logistic":
        return lambda x: 1.0 / (1.0 + library.exp(-x))
    if op == "rsqrt":
        return lambda x: 1.0 / library.sqrt(x)
    if op == "erf" and library is np:
        from scipy import special

        return lambda x: special.erf(x)
    return None


def _typed(op: str, call: OpCall, library: Any) -> TorchStep | None:
    if op not in ("constant", "cast"):
        return None
    dtype = native_dtype(call.out.dtype, library)
    if op == "cast":
        return (lambda x: x.astype(dtype)) if library is np else (lambda x: x.to(dtype))
    literal: Literal = call["value"]
    if literal.type.size == 1:
        # A number stays visible to a compiler; an array would be one more input.
        value, shape = literal.scalar, literal.type.shape
        return lambda: library.full(shape, value, dtype=dtype)
    array = literal.array().copy()
    tensor = array if library is np else library.from_numpy(array)
    return lambda: tensor


def native_dtype(dtype: DType, library: Any) -> Any:
    """The dtype of `library`; raises BenchError where it has none."""
    if library is np:
        return dtype.numpy
    name = "bfloat16" if dtype is DType.BF16 else dtype.numpy.name
    if not hasattr(library, name):
        raise BenchError(f"{library.__name__} has no dtype {name}")
    return getattr(library, name)
