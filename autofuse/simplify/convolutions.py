"""Convolutions: one order of axes, so that a layout costs transposes, which a plan may keep in a
kernel or do on their own."""

from __future__ import annotations

from autofuse.ops.convolution import conv_shape
from autofuse.simplify.draft import Draft
from autofuse.simplify.layouts import to_first, to_last
from autofuse.simplify.rules import Replacement, rule


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
        "lhs_axes": to_first(rank),
        "out_axes": to_first(rank),
        "rhs_axes": (rank - 1, rank - 2, *range(rank - 2)),
    }
    image = draft.transpose(image, to_last(rank))
    kernel = draft.transpose(kernel, (*taps, ins, outs))
    return draft.transpose(draft.add("conv", image, kernel, **attrs), to_first(rank))
