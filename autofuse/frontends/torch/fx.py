"""Graphs from fx nodes that call aten overloads, and why one cannot be in a graph."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import FunctionType
from typing import Any

from autofuse.errors import GraphError
from autofuse.frontends.errors import FrontendError
from autofuse.frontends.torch.rules import RULES
from autofuse.frontends.torch.types import TorchCall, TorchTensor, dtype_of_torch, torch_module
from autofuse.graph.types import Graph, Value
from autofuse.graph.writer import GraphWriter
from autofuse.ops.types import TensorType

# Different calls whose verdict is remembered: more than models of several thousand nodes have.
_REMEMBERED = 1 << 14
# A torch.fx.Node: torch is no dependency.
FxNode = Any
# What a node gives: one value, several, or None for a result that was not asked for.
FxResult = Value | tuple[Value | None, ...] | None


def decompositions() -> dict[Any, Any]:
    """What torch rewrites by itself before rules are asked: the core table, norms and resampling.
    Attention, activations and what else our ops say better stays whole."""
    torch = torch_module()
    aten = torch.ops.aten
    decomp = torch._decomp
    table = dict(decomp.core_aten_decompositions().items())
    more = (
        aten.linalg_vector_norm, aten.upsample_bilinear2d, aten.upsample_bicubic2d,
        aten.upsample_linear1d, aten.upsample_trilinear3d, aten.grid_sampler_2d,
        # Else what it normalises could not be computed again, once its statistics have moved on.
        aten._native_batch_norm_legit_functional,
    )  # fmt: skip
    table.update(decomp.get_decompositions(more))
    whole = (
        aten._scaled_dot_product_flash_attention_for_cpu, aten.all, aten.baddbmm, aten.celu,
        aten.dot, aten.hardsigmoid, aten.hardswish, aten.instance_norm, aten.log_sigmoid_forward,
        aten.logaddexp, aten.logsumexp, aten.mish, aten.mv, aten.roll,
        aten.scaled_dot_product_attention, aten.silu, aten.softplus, aten.threshold, aten.tril,
        aten.triu,
    )  # fmt: skip
    for packet in whole:
        for overload in packet.overloads():
            table.pop(getattr(packet, overload), None)
    return table


@dataclass(frozen=True, slots=True)
class _Plain:
    """An argument that is no tensor, with its type: 1, 1.0 and True are different arguments."""

    kind: type
    value: Any


@dataclass(frozen=True, slots=True)
class _Asked:
    """A call without its operands, for which a rule does the same again: tensors are what torch
    knows of them, lists are tuples."""

    overload: str
    given: tuple[tuple[str, Any], ...]
    results: tuple[TensorType | None, ...]


@lru_cache(maxsize=1024)
def _parameters(target: Any) -> tuple[tuple[str, Any], ...]:
    """The names of an overload's arguments and their defaults (None: none)."""
    return tuple(
        (a.name, a.default_value if a.has_default_value() else None)
        for a in target._schema.arguments
    )


def tensor_type(value: Any) -> TensorType:
    """The type of a (fake) tensor; raises FrontendError for one that graphs do not have."""
    if str(value.layout) != "torch.strided":
        raise FrontendError(f"a tensor of layout {value.layout}")
    shape = tuple(value.shape)
    if not all(type(n) is int for n in shape):
        raise FrontendError(f"shape {list(shape)} is not static")
    return TensorType(shape, dtype_of_torch(value.dtype))


def _known(value: Any) -> TorchTensor:
    type_ = tensor_type(value)
    strides, offset = tuple(value.stride()), value.storage_offset()
    if not all(type(n) is int for n in (*strides, offset)):
        raise FrontendError(f"strides {list(strides)} are not static")
    return TorchTensor(type_, strides, offset)


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "layout") and hasattr(value, "stride")


def _frozen(argument: Any, operands: list[FxNode]) -> Any:
    """An argument for `_Asked`; nodes among it are appended to `operands`."""
    if isinstance(argument, list | tuple):
        return tuple(_frozen(each, operands) for each in argument)
    if hasattr(argument, "meta") and hasattr(argument, "op"):
        value = argument.meta.get("val")
        if not _is_tensor(value):
            raise FrontendError(f"operand {argument.name} is no tensor of a known size")
        operands.append(argument)
        return _known(value)
    return _Plain(type(argument), argument)


def _asked(node: FxNode) -> tuple[_Asked, list[FxNode]]:
    """What a node asks for, and the nodes that are its operands, in the order of the arguments."""
    overload = str(node.target)
    if overload not in RULES:
        raise FrontendError(f"{overload} has no rule")
    operands: list[FxNode] = []
    given = []
    for position, (name, default) in enumerate(_parameters(node.target)):
        plain = node.kwargs.get(name, default)
        argument = node.args[position] if position < len(node.args) else plain
        given.append((name, _frozen(argument, operands)))
    return _Asked(overload, tuple(given), _results(node)), operands


def _results(node: FxNode) -> tuple[TensorType | None, ...]:
    value = node.meta.get("val")
    found = value if isinstance(value, list | tuple) else (value,)
    if any(each is not None and not _is_tensor(each) for each in found):
        raise FrontendError("a result is no tensor of a known size")
    return tuple(None if each is None else tensor_type(each) for each in found)


def _thawed(frozen: Any, values: Iterator[Value]) -> Any:
    """The argument again, with the next of `values` for each tensor."""
    if isinstance(frozen, tuple):
        return [_thawed(each, values) for each in frozen]
    return next(values) if isinstance(frozen, TorchTensor) else frozen.value


def _write(w: GraphWriter, asked: _Asked, operands: Sequence[Value]) -> tuple[Value | None, ...]:
    """The results of a call; raises GraphError where its rule does not give what torch does."""
    values = iter(operands)
    given = {name: _thawed(frozen, values) for name, frozen in asked.given}
    tensors = {name: each for name, each in asked.given if isinstance(each, TorchTensor)}
    made = RULES[asked.overload](TorchCall(w, given, tensors, asked.results))
    found = (made,) if isinstance(made, Value) else tuple(made)
    for value, wanted in zip(found, asked.results, strict=True):
        if wanted is None:
            continue
        if value is None:
            raise FrontendError("its rule does not give all of its results")
        if w.type_of(value) != wanted:
            raise FrontendError(f"its rule gives {w.type_of(value)}, torch {wanted}")
    return found


def _tensors(frozen: Any) -> Iterator[TorchTensor]:
    if isinstance(frozen, TorchTensor):
        yield frozen
    elif isinstance(frozen, tuple):
        for each in frozen:
            yield from _tensors(each)


@lru_cache(maxsize=_REMEMBERED)
def _verdict(asked: _Asked) -> str | None:
    """Why a call cannot be written, found by writing it to a graph that is thrown away."""
    w = GraphWriter()
    inputs = [
        w.input(f"in{k}", each.type.shape, each.type.dtype)
        for k, each in enumerate(_tensors(tuple(frozen for _, frozen in asked.given)))
    ]
    try:
        _write(w, asked, inputs)
    except GraphError as error:
        return str(error)
    return None


def op_name(node: FxNode) -> str:
    """What a call_function node calls: an overload, or a function of Python."""
    target = node.target
    return target.__name__ if isinstance(target, FunctionType) else str(target)


def refusal(node: FxNode) -> str | None:
    """Why a call_function node cannot be in a graph, None where it can: it has no rule, a dtype
    that graphs do not have, sizes not known before it is run, or its rule refuses. Equal calls
    are tried once."""
    if node.target is operator.getitem:
        source = node.args[0]
        found = refusal(source) if source.op == "call_function" else None
        return None if found is None else f"a part of {source.name}, which is torch's"
    if str(node.target) not in RULES:
        return "it has no rule"
    try:
        return _verdict(_asked(node)[0])
    except FrontendError as error:
        return str(error)


def fx_graph(
    nodes: Sequence[FxNode], inputs: Sequence[FxNode], outputs: Sequence[FxNode], name: str
) -> Graph:
    """The graph of call_function nodes in an order in which they can run.

    `inputs` are the nodes that it reads and does not hold, `outputs` what is read of it; they are
    named in0, in1, ... and out0, out1, ..., and have the shapes that torch gives them, row-major.
    Raises FrontendError, with `name` and the node's, for what `refusal` tells.
    """
    w = GraphWriter()
    env: dict[FxNode, FxResult] = {}
    for k, node in enumerate(inputs):
        type_ = tensor_type(node.meta["val"])
        env[node] = w.input(f"in{k}", type_.shape, type_.dtype)
    write_nodes(w, nodes, env, name)
    found = [_single(env, node) for node in outputs]
    return w.build(found, [f"out{k}" for k in range(len(found))])


def write_nodes(
    w: GraphWriter, nodes: Sequence[FxNode], env: dict[FxNode, FxResult], name: str
) -> None:
    """Writes call_function nodes; `env` has the values of those they read, and gets theirs."""
    for node in nodes:
        try:
            env[node] = _of_node(w, node, env)
        except GraphError as error:
            raise FrontendError(f"{name}: {node.name}: {node.target}: {error}") from error


def _of_node(w: GraphWriter, node: FxNode, env: Mapping[FxNode, FxResult]) -> FxResult:
    if node.target is operator.getitem:
        source, place = node.args
        parts = env[source]
        assert isinstance(parts, tuple) and not isinstance(parts, Value)
        part: Value | None = parts[place]
        return part
    asked, operands = _asked(node)
    found = _write(w, asked, [_single(env, each) for each in operands])
    return found if isinstance(node.meta.get("val"), list | tuple) else found[0]


def _single(env: Mapping[FxNode, FxResult], node: FxNode) -> Value:
    found = env[node]
    if not isinstance(found, Value):
        raise FrontendError(f"{node.name} is not one value")
    return found
