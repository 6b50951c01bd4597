"""Array functions that slide windows: convolution and pooling, channels first or last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autofuse.frontends.array_api.array import TracedArray
from autofuse.frontends.array_api.promotion import as_array, meet, to_float
from autofuse.frontends.array_api.recorder import current
from autofuse.frontends.errors import TraceError

# Only graphs with windows need what writes them.
if TYPE_CHECKING:
    from autofuse.graph.composites.windows import Padding, PerAxis


def conv(
    x: Any,
    kernel: Any,
    /,
    *,
    stride: PerAxis = 1,
    padding: Padding = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
    image_dilation: PerAxis = 1,
    channels_last: bool = False,
) -> TracedArray:
    """The convolution over 1 to 3 spatial axes of x[batch, channel, ...] and kernel[out channel,
    channel of a group, ...], or of x[batch, ..., channel] and kernel[..., channel, out channel].

    Numbers are one for all spatial axes or a sequence; padding also takes (low, high) pairs,
    "valid" and "same". `image_dilation` puts zeros between elements of x, which a transposed
    convolution needs. The kernel is not turned round. Raises TraceError for what does not fit."""
    from autofuse.graph.composites import windows as composites

    image, weights = meet(x, kernel)
    layout = None
    if channels_last and image.ndim > 2 and image.ndim == weights.ndim:
        last, spatial = image.ndim - 1, tuple(range(image.ndim - 2))
        images = (0, last, *range(1, last))
        layout = (images, (last, last - 1, *spatial), images)
    return current().write(
        composites.conv, image, weights, stride, padding, dilation, groups,
        image_dilation=image_dilation, layout=layout,
    )  # fmt: skip


def _spatial(array: TracedArray, channels_last: bool) -> tuple[int, ...]:
    if array.ndim < 3:
        raise TraceError("pooling takes an array of batch, channel and at least one spatial axis")
    return tuple(range(1, array.ndim - 1)) if channels_last else tuple(range(2, array.ndim))


def _pooled(which: str, array: TracedArray, channels_last: bool, **numbers: Any) -> TracedArray:
    from autofuse.graph.composites import pooling

    spec = pooling.PoolSpec(spatial=_spatial(array, channels_last), **numbers)
    if which == "mean":
        return current().write(pooling.mean_pool, array, spec)
    return current().write(lambda w, x: pooling.pool(w, which, x, spec), array)


def max_pool(
    x: Any,
    /,
    window: PerAxis,
    *,
    stride: PerAxis | None = None,
    padding: Padding = 0,
    dilation: PerAxis = 1,
    channels_last: bool = False,
) -> TracedArray:
    """The largest element of each window of x[batch, channel, ...] (or x[batch, ..., channel]);
    windows lie next to each other where `stride` is None, and padding is never the largest."""
    return _pooled(
        "max", as_array(x), channels_last, window=window, stride=stride, padding=padding,
        dilation=dilation,
    )  # fmt: skip


def avg_pool(
    x: Any,
    /,
    window: PerAxis,
    *,
    stride: PerAxis | None = None,
    padding: Padding = 0,
    count_padding: bool = False,
    channels_last: bool = False,
) -> TracedArray:
    """The mean of each window, as `max_pool`; padding counts as zeros with `count_padding`."""
    return _pooled(
        "mean", to_float(x), channels_last, window=window, stride=stride, padding=padding,
        count_padding=count_padding,
    )  # fmt: skip
