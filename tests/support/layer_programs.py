"""Layers as they are written in JAX, PyTorch, ONNX and `xp`, for tests that hold them together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

import autofuse
from autofuse import spec, trace, xp
from autofuse.frontends.onnx.read import OnnxFile, import_onnx
from autofuse.graph.types import Graph
from tests.support.onnx_models import FLOAT, model, node

F, jn = torch.nn.functional, jax.nn
MATRIX, IMAGE = (4, 8), (2, 4, 8, 8)
Written = Callable[..., Any]


@dataclass(frozen=True)
class Operator:
    """An ONNX operator with its attributes; `held` are constant operands after the inputs."""

    name: str
    attrs: dict[str, Any] = field(default_factory=dict)
    held: tuple[np.ndarray, ...] = ()
    opset: int = 21

    def graph(self, shapes: Sequence[Sequence[int]]) -> Graph:
        inputs = [(f"x{k}", FLOAT, shape) for k, shape in enumerate(shapes)]
        held = {f"c{k}": array for k, array in enumerate(self.held)}
        call = node(self.name, [*(name for name, *_ in inputs), *held], ["y"], **self.attrs)
        made = model([call], inputs, [("y", FLOAT, None)], held, self.opset)
        return import_onnx(OnnxFile(made), None, {}).graph


def op(name: str, *held: Any, opset: int = 21, **attrs: Any) -> Operator:
    arrays = (np.asarray(each, None if isinstance(each, list) else np.float32) for each in held)
    return Operator(name, attrs, tuple(arrays), opset)


@dataclass(frozen=True)
class Layer:
    """One layer, of inputs of `shapes`; None where a framework does not have it."""

    jax: Written | None
    torch: Written | None
    onnx: Operator | None
    xp: Written | None
    shapes: tuple[tuple[int, ...], ...] = (MATRIX,)

    def graphs(self) -> Iterator[tuple[str, Graph]]:
        """The graph of each framework that has it."""
        arrays = [np.linspace(0.5, 2.0, int(np.prod(s)), dtype=np.float32) for s in self.shapes]
        shaped = [a.reshape(s) for a, s in zip(arrays, self.shapes, strict=True)]
        if self.jax is not None:
            yield "jax", autofuse.from_jax(self.jax, *shaped)
        if self.torch is not None:
            called = self.torch
            tensors = map(torch.from_numpy, shaped)
            # torch.export takes no functions that are written in C.
            yield "torch", autofuse.from_torch(lambda *given: called(*given), *tensors)
        if self.onnx is not None:
            yield "onnx", self.onnx.graph(self.shapes)
        if self.xp is not None:
            traced = self.xp
            yield "xp", trace(lambda *given: traced(*given), *map(spec, self.shapes))


def _standardised(lib: Any, x: Any, root: Written) -> Any:
    """A layer norm as one writes it out."""
    centred = x - lib.mean(x, -1, keepdims=True)
    spread = lib.mean(centred * centred, -1, keepdims=True)
    return centred * root(spread + 1e-5)


def _windows(fold: Written, start: float) -> Written:
    ends = ((0, 0), (0, 0), (1, 1), (1, 1))
    return lambda x: jax.lax.reduce_window(x, start, fold, (1, 1, 3, 3), (1, 1, 2, 2), ends)


POOL = {"kernel_shape": [3, 3], "strides": [2, 2]}
PADDED = {**POOL, "pads": [1, 1, 1, 1]}
ROW, CHANNELS = MATRIX[-1:], IMAGE[1:2]
LAST = [-1]

ACTIVATIONS = {
    "relu": Layer(jn.relu, F.relu, op("Relu"), xp.relu),
    "relu6": Layer(jn.relu6, F.relu6, op("Clip", 0, 6), lambda x: xp.clip(x, 0, 6)),
    "leaky relu": Layer(
        partial(jn.leaky_relu, negative_slope=0.1), partial(F.leaky_relu, negative_slope=0.1),
        op("LeakyRelu", alpha=0.1), lambda x: xp.where(x >= 0, x, 0.1 * x),
    ),
    "elu": Layer(jn.elu, F.elu, op("Elu"), lambda x: xp.where(x > 0, x, xp.expm1(x))),
    "selu": Layer(jn.selu, F.selu, op("Selu"), None),
    "celu": Layer(
        partial(jn.celu, alpha=1.5), partial(F.celu, alpha=1.5), op("Celu", alpha=1.5), None
    ),
    "gelu": Layer(
        partial(jn.gelu, approximate=False), F.gelu, op("Gelu"), partial(xp.gelu, approximate=False)
    ),
    "gelu by tanh": Layer(
        jn.gelu, partial(F.gelu, approximate="tanh"), op("Gelu", approximate="tanh"), xp.gelu
    ),
    "silu": Layer(jn.silu, F.silu, op("Swish", opset=24), xp.silu),
    "mish": Layer(jn.mish, F.mish, op("Mish"), None),
    "hard sigmoid": Layer(
        jn.hard_sigmoid, F.hardsigmoid, op("HardSigmoid", alpha=1 / 6, beta=0.5), None
    ),
    "hard swish": Layer(jn.hard_silu, F.hardswish, op("HardSwish"), None),
    "hard tanh": Layer(jn.hard_tanh, F.hardtanh, op("Clip", -1, 1), lambda x: xp.clip(x, -1, 1)),
    "softplus": Layer(jn.softplus, F.softplus, op("Softplus"), None),
    "softsign": Layer(jn.soft_sign, F.softsign, op("Softsign"), lambda x: x / (1 + xp.abs(x))),
    "sigmoid": Layer(jn.sigmoid, torch.sigmoid, op("Sigmoid"), xp.sigmoid),
    "log sigmoid": Layer(jn.log_sigmoid, F.logsigmoid, None, None),
    "tanh": Layer(jnp.tanh, torch.tanh, op("Tanh"), xp.tanh),
    "tanh shrink": Layer(
        lambda x: x - jnp.tanh(x), F.tanhshrink, None, lambda x: x - xp.tanh(x)
    ),
    "glu": Layer(jn.glu, F.glu, None, lambda x: x[:, :4] * xp.sigmoid(x[:, 4:])),
    "prelu": Layer(
        lambda x, a: jnp.where(x >= 0, x, a * x), F.prelu, op("PRelu"), None, (MATRIX, ROW)
    ),
    "threshold": Layer(
        None, lambda x: F.threshold(x, 1.0, 0.0), op("ThresholdedRelu", alpha=1.0), None
    ),
    "hard shrink": Layer(None, F.hardshrink, op("Shrink", lambd=0.5, bias=0.0), None),
    "soft shrink": Layer(None, F.softshrink, op("Shrink", lambd=0.5, bias=0.5), None),
    "softmax": Layer(jn.softmax, partial(F.softmax, dim=-1), op("Softmax"), xp.softmax),
    "log softmax": Layer(
        jn.log_softmax, partial(F.log_softmax, dim=-1), op("LogSoftmax"), xp.log_softmax
    ),
}  # fmt: skip
NORMS = {
    "mean": Layer(
        partial(jnp.mean, axis=-1), partial(torch.mean, dim=-1),
        op("ReduceMean", LAST, keepdims=0), partial(xp.mean, axis=-1),
    ),
    "mean of seven": Layer(
        partial(jnp.mean, axis=-1), partial(torch.mean, dim=-1),
        op("ReduceMean", LAST, keepdims=0), partial(xp.mean, axis=-1), ((4, 7),),
    ),
    "log of a sum of powers": Layer(
        partial(jn.logsumexp, axis=-1), partial(torch.logsumexp, dim=-1),
        op("ReduceLogSumExp", LAST, keepdims=0), partial(xp.logsumexp, axis=-1),
    ),
    "standardised": Layer(
        lambda x: _standardised(jnp, x, jax.lax.rsqrt), lambda x: F.layer_norm(x, ROW), None,
        xp.layer_norm,
    ),
    "standardised by jax.nn": Layer(jn.standardize, lambda x: F.layer_norm(x, ROW), None, None),
    "layer norm": Layer(
        None, lambda x, g, b: F.layer_norm(x, ROW, g, b), op("LayerNormalization", axis=-1),
        xp.layer_norm, (MATRIX, ROW, ROW),
    ),
    "rms norm": Layer(
        None, lambda x, g: F.rms_norm(x, ROW, g, 1e-6),
        op("RMSNormalization", axis=-1, epsilon=1e-6, opset=23), xp.rms_norm, (MATRIX, ROW),
    ),
    "group norm": Layer(
        None, lambda x, g, b: F.group_norm(x, 2, g, b), op("GroupNormalization", num_groups=2),
        None, (IMAGE, CHANNELS, CHANNELS),
    ),
    "instance norm": Layer(
        None, lambda x, g, b: F.instance_norm(x, weight=g, bias=b), op("InstanceNormalization"),
        None, (IMAGE, CHANNELS, CHANNELS),
    ),
    "batch norm": Layer(
        None, lambda x, g, b, m, v: F.batch_norm(x, m, v, g, b), op("BatchNormalization"), None,
        (IMAGE, *(CHANNELS,) * 4),
    ),
}  # fmt: skip
POOLS = {
    "max pool": Layer(
        _windows(jax.lax.max, -jnp.inf), lambda x: F.max_pool2d(x, 3, 2, 1),
        op("MaxPool", **PADDED), lambda x: xp.max_pool(x, 3, stride=2, padding=1), (IMAGE,),
    ),
    "max pool over the end": Layer(
        None, lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True), op("MaxPool", **POOL, ceil_mode=1),
        None, (IMAGE,),
    ),
    "mean pool": Layer(
        None, lambda x: F.avg_pool2d(x, 3, 2, 1), op("AveragePool", **PADDED, count_include_pad=1),
        lambda x: xp.avg_pool(x, 3, stride=2, padding=1, count_padding=True), (IMAGE,),
    ),
    "mean pool of elements": Layer(
        None, lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
        op("AveragePool", **PADDED), lambda x: xp.avg_pool(x, 3, stride=2, padding=1), (IMAGE,),
    ),
    "mean pool over the end": Layer(
        None, lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
        op("AveragePool", **PADDED, count_include_pad=1, ceil_mode=1), None, (IMAGE,),
    ),
    "sum pool": Layer(
        _windows(jax.lax.add, 0.0), lambda x: F.avg_pool2d(x, 3, 2, 1, divisor_override=1), None,
        None, (IMAGE,),
    ),
    "global mean": Layer(
        partial(jnp.mean, axis=(2, 3), keepdims=True), lambda x: F.adaptive_avg_pool2d(x, 1),
        op("GlobalAveragePool"), partial(xp.mean, axis=(2, 3), keepdims=True), (IMAGE,),
    ),
    "global max": Layer(
        partial(jnp.max, axis=(2, 3), keepdims=True),
        lambda x: torch.amax(x, (2, 3), keepdim=True), op("GlobalMaxPool"),
        partial(xp.max, axis=(2, 3), keepdims=True), (IMAGE,),
    ),
}  # fmt: skip
PRODUCTS = {
    "product": Layer(jnp.matmul, torch.matmul, op("MatMul"), xp.matmul, (MATRIX, (8, 5))),
    "batched product": Layer(
        jnp.matmul, torch.matmul, op("MatMul"), xp.matmul, ((3, 4, 6), (3, 6, 5))
    ),
    "linear": Layer(
        lambda x, k, b: x @ k.T + b, F.linear, op("Gemm", transB=1), lambda x, k, b: x @ k.T + b,
        (MATRIX, (5, 8), (5,)),
    ),
    "convolution": Layer(
        lambda x, k: jax.lax.conv_general_dilated(x, k, (2, 2), ((1, 1), (1, 1))),
        lambda x, k: F.conv2d(x, k, None, 2, 1), op("Conv", strides=[2, 2], pads=[1] * 4),
        lambda x, k: xp.conv(x, k, stride=2, padding=1), (IMAGE, (6, 4, 3, 3)),
    ),
}  # fmt: skip
PAIR = (MATRIX, MATRIX)
LOSSES = {
    "squared error": Layer(
        lambda x, y: jnp.mean((x - y) ** 2), F.mse_loss, None, lambda x, y: xp.mean((x - y) ** 2),
        PAIR,
    ),
    "absolute error": Layer(
        lambda x, y: jnp.mean(jnp.abs(x - y)), F.l1_loss, None,
        lambda x, y: xp.mean(xp.abs(x - y)), PAIR,
    ),
    "hypotenuse": Layer(jnp.hypot, torch.hypot, None, xp.hypot, PAIR),
    "sum of powers": Layer(jnp.logaddexp, torch.logaddexp, None, xp.logaddexp, PAIR),
    "reciprocal": Layer(jnp.reciprocal, torch.reciprocal, op("Reciprocal"), lambda x: 1 / x),
    "cube": Layer(lambda x: x**3, lambda x: x**3, op("Pow", 3), lambda x: x**3),
}  # fmt: skip
LAYERS = {**ACTIVATIONS, **NORMS, **POOLS, **PRODUCTS, **LOSSES}
