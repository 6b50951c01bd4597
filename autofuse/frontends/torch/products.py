"""Rules for aten overloads that multiply and add up: matrix products, convolutions, attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autofuse.frontends.errors import FrontendError
from autofuse.frontends.torch.types import TorchCall, TorchRule, number_as
from autofuse.graph.composites import attention, windows
from autofuse.graph.composites import layers as composites
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter, Shape
from autofuse.ops.convolution import conv_attrs


def _product(first: str, second: str) -> TorchRule:
    return lambda c: composites.matmul(c.w, c.value(first), c.value(second))


def _scaled(w: GraphWriter, v: Value, factor: Any) -> Value:
    number = number_as(factor, w.dtype(v))
    return v if number == 1 else w.mul(v, number)


def _sum_with_product(first: str, second: str) -> TorchRule:
    """beta * self + alpha * product; what beta = 0 multiplies is not looked at."""

    def rule(c: TorchCall) -> Value:
        w, kind = c.w, c.out.dtype.compute
        found = composites.matmul(w, c.value(first), c.value(second))
        found = _scaled(w, w.cast(found, kind), c["alpha"])
        if number_as(c["beta"], kind) != 0:
            found = w.add(found, _scaled(w, c.value("self", kind), c["beta"]))
        return w.cast(found, c.out.dtype)

    return rule


# Convolutions


def _each(c: TorchCall, name: str, count: int) -> tuple[int, ...]:
    """One number for each spatial axis, of which torch may be given one for all."""
    found = tuple(map(int, c[name]))
    return found * count if len(found) == 1 else found


def _conv_attrs(c: TorchCall, image: Shape, kernel: Shape, made: Shape) -> dict[str, Any]:
    """The attributes of a convolution of `image` that gives `made`: of the one asked for, or of the
    one that a transposed one is the gradient of, whose last places no window may reach."""
    spatial = len(image) - 2
    low, stride, holes = (_each(c, k, spatial) for k in ("padding", "stride", "dilation"))
    high = low
    if c["transposed"]:
        axes = zip(image[2:], kernel[2:], made[2:], low, stride, holes, strict=True)
        high = tuple(
            (count - 1) * step + (size - 1) * apart + 1 - extent - before
            for extent, size, count, before, step, apart in axes
        )
    return conv_attrs(
        spatial, stride=stride, low=low, high=high, rhs_dilation=holes, groups=int(c["groups"])
    )


def _conv(w: GraphWriter, x: Value, kernel: Value, attrs: dict[str, Any]) -> Value:
    return w.op("conv", x, kernel, **attrs)


def _convolution(c: TorchCall) -> Value:
    """A transposed one is the gradient, with respect to its image, of the other way round."""
    w, x, kernel = c.w, c.value("input"), c.value("weight")
    if len(w.shape(x)) < 3:
        raise FrontendError("a convolution needs spatial axes")
    if c["transposed"]:
        attrs = _conv_attrs(c, c.out.shape, w.shape(kernel), w.shape(x))
        found = windows.conv_input_grad(w, x, kernel, c.out.shape, attrs)
    else:
        found = _conv(w, x, kernel, _conv_attrs(c, w.shape(x), w.shape(kernel), c.out.shape))
    bias = c.optional("bias")
    if bias is None:
        return found
    return w.add(found, w.reshape(bias, (-1, *(1 for _ in c.out.shape[2:]))))


def _convolution_backward(c: TorchCall) -> tuple[Value | None, ...]:
    w = c.w
    g, x, kernel = (c.value(name) for name in ("grad_output", "input", "weight"))
    image, made = (g, x) if c["transposed"] else (x, g)
    attrs = _conv_attrs(c, w.shape(image), w.shape(kernel), w.shape(made))
    wanted = tuple(c["output_mask"])
    grads: list[Value | None] = [None, None, None]
    if wanted[0] and c["transposed"]:
        grads[0] = _conv(w, g, kernel, attrs)
    elif wanted[0]:
        grads[0] = windows.conv_input_grad(w, g, kernel, w.shape(x), attrs)
    if wanted[1]:
        grads[1] = windows.conv_kernel_grad(w, image, made, w.shape(kernel), attrs)
    if wanted[2]:
        axes = [a for a in range(len(w.shape(g))) if a != 1]
        wide = w.cast(g, w.dtype(g).compute)
        grads[2] = w.cast(w.reduce("reduce_sum", wide, axes), w.dtype(g))
    return tuple(grads)


# Attention


def _heads(c: TorchCall, names: Sequence[str]) -> list[Value]:
    if float(c["dropout_p"]) != 0:
        raise FrontendError("dropout within attention stays with torch")
    return [c.value(name) for name in names]


def _mask(c: TorchCall) -> attention.AttentionMask:
    scale = None if c["scale"] is None else float(c["scale"])
    return attention.AttentionMask(c.optional("attn_mask"), bool(c["is_causal"]), scale)


def _attention(c: TorchCall) -> Value:
    q, k, v = _heads(c, ("query", "key", "value"))
    return attention.attention(c.w, q, k, v, _mask(c))[0]


def _attention_and_sums(c: TorchCall) -> tuple[Value, Value]:
    q, k, v = _heads(c, ("query", "key", "value"))
    found, total = attention.attention(c.w, q, k, v, _mask(c))
    assert c.results[1] is not None
    return found, c.w.cast(total, c.results[1].dtype)


def _attention_backward(c: TorchCall) -> tuple[Value, ...]:
    g, q, k, v = _heads(c, ("grad_out", "query", "key", "value"))
    return attention.attention_grads(
        c.w, g, q, k, v, c.value("out"), c.value("logsumexp"), _mask(c)
    )  # fmt: skip


_FLASH = "aten._scaled_dot_product_flash_attention_for_cpu"
TORCH_PRODUCTS: dict[str, TorchRule] = {
    f"{_FLASH}.default": _attention_and_sums,
    f"{_FLASH}_backward.default": _attention_backward,
    "aten.addmm.default": _sum_with_product("mat1", "mat2"),
    "aten.addmv.default": _sum_with_product("mat", "vec"),
    "aten.baddbmm.default": _sum_with_product("batch1", "batch2"),
    "aten.bmm.default": _product("self", "mat2"),
    "aten.convolution.default": _convolution,
    "aten.convolution_backward.default": _convolution_backward,
    "aten.dot.default": _product("self", "tensor"),
    "aten.mm.default": _product("self", "mat2"),
    "aten.mv.default": _product("self", "vec"),
    "aten.scaled_dot_product_attention.default": _attention,
}
