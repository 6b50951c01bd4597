"""The graph of one contraction, as it is given to us."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from functools import singledispatch

import autofuse.frontends.array_api as xp
from autofuse.frontends.array_api.array import TracedArray
from autofuse.frontends.array_api.tracer import spec, trace
from autofuse.graph.composites.activations import gelu, silu
from autofuse.graph.composites.layers import dot
from autofuse.graph.types import Graph, Value
from autofuse.graph.writer import GraphWriter
from autofuse.ops.dtypes import DType
from autofuse.ops.spec import all_specs
from autofuse.ops.types import make_attrs
from autofuse.peers.types import BenchError
from autofuse.zoo.networks import attention
from benchmarks.contraction_cases import Attention, Convolution, Product

F32 = DType.F32
_ACTIVATIONS = {"silu": silu, "gelu": gelu}
# Axes by role: batch (or out feature), feature, rows, columns.
_CHANNELS_LAST, _KERNEL_LAST = (0, 3, 1, 2), (3, 2, 0, 1)


@singledispatch
def graph_of(case: object) -> Graph:
    """The graph of a case; raises BenchError for one that cannot be written."""
    raise BenchError(f"no graph is known of {case}")


@graph_of.register
def _product(case: Product) -> Graph:
    """Inputs a and b as they lie, without a batch axis where the batch is 1."""
    w = GraphWriter()
    lead = (case.batch,) * (case.batch > 1)
    a = w.input("a", (*lead, *_lying(case.m, case.k, case.trans_a)), F32)
    b = w.input("b", (*lead, *_lying(case.k, case.n, case.trans_b)), F32)
    row = len(lead)
    summed = (row + (not case.trans_a),), (row + case.trans_b,)
    batch = tuple(range(row))
    return w.build([dot(w, a, b, summed, (batch, batch))], ["y"])


def with_constants(graph: Graph, positions: Collection[int]) -> Graph:
    """`graph` with the inputs at some positions declared constant."""
    fixed = {graph.inputs[k] for k in positions}
    nodes = (
        replace(node, attrs=make_attrs({**dict(node.attrs), "constant": True}))
        if n in fixed
        else node
        for n, node in enumerate(graph.nodes)
    )
    return replace(graph, nodes=tuple(nodes))


def _lying(rows: int, columns: int, transposed: bool) -> tuple[int, int]:
    return (columns, rows) if transposed else (rows, columns)


@graph_of.register
def _convolution(case: Convolution) -> Graph:
    """Inputs image [1, y, x, c], kernel [y, x, c / groups, o], bias [o], scale [y, x, 1] and
    residual [y, x, o], all channels-last."""
    if "conv" not in {known.name for known in all_specs()}:
        raise BenchError("convolutions cannot be compared: this autofuse has no op 'conv'")
    w = GraphWriter()
    k, size, out = case.kernel, case.out_size, case.out_channels
    fan_in = case.channels // case.groups
    image = w.input("image", (1, case.size, case.size, case.channels), F32)
    bound = math.sqrt(3.0 / (k * k * fan_in))
    kernel = w.input("kernel", (k, k, fan_in, out), F32, low=-bound, high=bound)
    bias = w.input("bias", (out,), F32)
    made = w.op(
        "conv", image, kernel, lhs_axes=_CHANNELS_LAST, rhs_axes=_KERNEL_LAST,
        out_axes=_CHANNELS_LAST, stride=(case.stride,) * 2, low=(case.padding,) * 2,
        high=(case.padding,) * 2, lhs_dilation=(1, 1), rhs_dilation=(1, 1), groups=case.groups,
        batch_groups=1,
    )  # fmt: skip
    made = w.add(w.reshape(made, (size, size, out)), bias)
    scale = w.input("scale", (size, size, 1), F32)
    residual = w.input("residual", (size, size, out), F32)
    return w.build([_rest(w, case, made, scale, residual)], ["y"])


def _rest(w: GraphWriter, case: Convolution, made: Value, scale: Value, residual: Value) -> Value:
    return _ACTIVATIONS[case.activation](w, w.add(w.mul(made, scale), residual))


def rest_graph(case: Convolution, channels_last: bool) -> Graph:
    """What follows a convolution and its bias, as a graph of its own: made, scale and residual with
    the channels as the last axis or as the first."""
    w = GraphWriter()
    size = (case.out_size,) * 2
    many, one = (
        (*size, n) if channels_last else (n, *size) for n in (case.out_channels, 1)
    )  # fmt: skip
    inputs = [w.input(n, s, F32) for n, s in (("made", many), ("scale", one), ("residual", many))]
    return w.build([_rest(w, case, *inputs)], ["y"])


@graph_of.register
def _attention(case: Attention) -> Graph:
    if case.causal:
        return attention(case.heads, case.length, case.depth)
    scale = 1.0 / math.sqrt(case.depth)

    def attend(q: TracedArray, k: TracedArray, v: TracedArray) -> dict[str, TracedArray]:
        return {"y": xp.softmax((q @ k.mT) * scale) @ v}

    each = spec((case.heads, case.length, case.depth), low=-2, high=2)
    return trace(attend, each, each, each)
