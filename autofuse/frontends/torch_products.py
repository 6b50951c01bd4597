"""Rules for aten overloads that multiply and add up: matrix products, convolutions, attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autofuse.frontends.errors import FrontendError
from autofuse.frontends.torch_types import TorchCall, TorchRule, number_as
from autofuse.graph import composites
from autofuse.graph import composites_attention as attention
from autofuse.graph import composites_windows as windows
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter
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
            found = w.add(_scaled(w, c.value("self", kind), c["beta"]), found)
        return w.cast(found, c.out.dtype)

    return rule


# Convolutions


def _each(c: TorchCall, name: str, count: int) -> tuple[int, ...]:
    """One number for each spatial axis, of which torch may be given one for all."""
    found = tuple(map(int, c[name]))
    return found * count if len(found) == 1 else found


def _conv_attrs(c: TorchCall, spatial: int) -> dict[str, Any]:
    """The attributes of the convolution, or of the one that a transposed one is the gradient of."""
    padding = _each(c, "padding", spatial)
    return conv_attrs(
        spatial, stride=_each(c, "stride", spatial), low=padding, high=padding,
        rhs_dilation=_each(c, "dilation", spatial), groups=int(c["groups"]),
    )  # fmt: skip


def _conv(w: GraphWriter, x: Value, kernel: Value, attrs: dict[str, Any]) -> Value:
    return w.op("conv", x, kernel, **attrs)


def _convolution(c: TorchCall) -> Value:
    """A transposed one is the gradient, with respect to its image, of the other way round."""
    w, x, kernel = c.w, c.value("input"), c.value("weight")
    if len(w.shape(x)) < 3:
        raise FrontendError("a convolution needs spatial axes")
    attrs = _conv_attrs(c, len(w.shape(x)) - 2)
    if c["transposed"]:
        found = windows.conv_input_grad(w, x, kernel, c.out.shape, attrs)
    else:
        found = _conv(w, x, kernel, attrs)
    bias = c.optional("bias")
    if bias is None:
        return found
    return w.add(found, w.reshape(bias, (-1, *(1 for _ in c.out.shape[2:]))))


def _convolution_backward(c: TorchCall) -> tuple[Value | None, ...]:
    w = c.w
    g, x, kernel = (c.value(name) for name in ("grad_output", "input", "weight"))
    attrs = _conv_attrs(c, len(w.shape(x)) - 2)
    wanted = tuple(c["output_mask"])
    grads: list[Value | None] = [None, None, None]
    if c["transposed"]:
        grads[0] = _conv(w, g, kernel, attrs) if wanted[0] else None
        image, made = g, x
    else:
        found = windows.conv_input_grad(w, g, kernel, w.shape(x), attrs) if wanted[0] else None
        grads[0], image, made = found, x, g
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
    "aten.matmul.default": _product("self", "other"),
    "aten.mm.default": _product("self", "mat2"),
    "aten.mv.default": _product("self", "vec"),
    "aten.scaled_dot_product_attention.default": _attention,
}
