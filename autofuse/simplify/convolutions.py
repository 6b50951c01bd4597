"""Convolutions: one order of axes, so that a layout costs transposes, which a plan may keep in a
kernel or do on their own."""

from __future__ import annotations

from autofuse.graph.types import Value
from autofuse.ops.convolution import conv_shape
from autofuse.ops.spec import Family, OpSpec
from autofuse.ops.types import make_attrs
from autofuse.simplify.draft import Draft
from autofuse.simplify.rules import Replacement, rule


def _to_last(rank: int) -> tuple[int, ...]:
    """The permutation that makes channels the last axis instead of the second."""
    return (0, *range(2, rank), 1)


def _to_first(rank: int) -> tuple[int, ...]:
    return (0, rank - 1, *range(1, rank - 1))


@rule("convolution-channels-last", "XLA CPU ConvCanonicalization; Inductor layout_optimization",
      "conv")  # fmt: skip
def convolution_channels_last(draft: Draft, at: int) -> Replacement:
    """Channels-first image, kernel and result of a convolution are transposes of channels-last
    ones. (Gradients of weights, whose channels are no channels, stay.)"""
    node, shape = draft[at], conv_shape(draft.call(at))
    rank = len(node.types[0].shape)
    first = tuple(range(rank))
    if (shape.lhs_axes, shape.out_axes) != (first, first) or not node.types[0].dtype.is_float:
        return None
    image, kernel = node.inputs
    outs, ins, *taps = shape.rhs_axes
    # The places of batch, channels and spatial axes are where the way back finds them.
    attrs = dict(node.attrs) | {
        "lhs_axes": _to_first(rank),
        "out_axes": _to_first(rank),
        "rhs_axes": (rank - 1, rank - 2, *range(rank - 2)),
    }
    image = draft.transpose(image, _to_last(rank))
    kernel = draft.transpose(kernel, (*taps, ins, outs))
    return draft.transpose(draft.add("conv", image, kernel, **attrs), _to_first(rank))


def _elementwise(spec: OpSpec) -> bool:
    return spec.family is Family.ELEMENTWISE


@rule("channels-first-later", "XLA ReshapeMover", _elementwise)
def channels_first_later(draft: Draft, at: int) -> Replacement:
    """f(transpose(x), broadcast(y)) -> transpose(f(x, broadcast(y))) for transposes to channels
    first, which the next convolution may turn back; y may also be there channels last already."""
    node = draft[at]
    rank = len(node.types[0].shape)
    if rank < 4 or len(node.types) > 1:
        return None
    turned = [v for v in node.inputs if _is_first(draft, v)]
    kept = [v for v in node.inputs if v not in turned]
    if not turned or not all(map(draft.alone, turned)):
        return None
    if not all(draft.is_op(v, "broadcast") or _is_last_too(draft, v) for v in kept):
        return None
    sources = (
        draft.operand(v) if v in turned else draft.transpose(v, _to_last(rank)) for v in node.inputs
    )
    return draft.transpose(draft.add(node.op, *sources, **dict(node.attrs)), _to_first(rank))


def _is_first(draft: Draft, value: Value) -> bool:
    """Whether a value was turned to channels first."""
    rank = len(draft.shape(value))
    return draft.is_op(value, "transpose") and draft.attr(value, "perm") == _to_first(rank)


def _is_last_too(draft: Draft, value: Value) -> bool:
    """Whether a value is needed channels last anyway."""
    attrs = make_attrs({"perm": _to_last(len(draft.shape(value)))})
    return draft.existing("transpose", (value,), attrs) is not None
