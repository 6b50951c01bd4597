"""What the machine code of convolutions on tensor cores does, and what share of their peak they may
reach, as `sass_tensor` has it for a product: one of as many rows as there are pixels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import autofuse.frontends.array_api as xp
from autofuse import spec, trace
from autofuse.backends.cuda.devices import target_named
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph
from benchmarks.sass_tensor import tensor_row

IMAGES = 32


class Layer(NamedTuple):
    """A convolution of square images of so many pixels a side to `made` channels, by a square
    window of `window` pixels a side, `stride` pixels apart, padded so that a stride of 1 keeps the
    size."""

    side: int
    channels: int
    made: int
    window: int = 3
    stride: int = 1

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Rows, columns and terms of the product that it is."""
        out = (self.side + 2 * (self.window // 2) - self.window) // self.stride + 1
        return IMAGES * out**2, self.made, self.window**2 * self.channels


# Of ResNet-50, a stage in each row: the 3x3, what comes before and after it, and what enters the
# next stage, strided.
LAYERS = (
    Layer(56, 64, 64), Layer(56, 256, 64, 1), Layer(56, 64, 256, 1),
    Layer(56, 128, 128, 3, 2), Layer(56, 256, 512, 1, 2),
    Layer(28, 128, 128), Layer(28, 512, 128, 1), Layer(28, 128, 512, 1),
    Layer(28, 256, 256, 3, 2), Layer(28, 512, 1024, 1, 2),
    Layer(14, 256, 256), Layer(14, 1024, 256, 1), Layer(14, 256, 1024, 1),
    Layer(14, 512, 512, 3, 2), Layer(14, 1024, 2048, 1, 2),
    Layer(7, 512, 512), Layer(7, 2048, 512, 1), Layer(7, 512, 2048, 1),
)  # fmt: skip


def convolution_graph(layer: Layer) -> Graph:
    """The convolution of bf16[IMAGES, side, side, channels], and a relu."""

    def fn(x: Any, w: Any) -> Any:
        how = {"padding": layer.window // 2, "stride": layer.stride}
        return xp.maximum(xp.conv(x, w, channels_last=True, **how), 0.0)

    image = spec((IMAGES, layer.side, layer.side, layer.channels), "bf16")
    weight = spec((layer.window, layer.window, layer.channels, layer.made), "bf16")
    return canonical(trace(fn, image, weight))


def convolution_report(
    targets: Sequence[str], layers: Sequence[Layer] = LAYERS[:1]
) -> list[dict[str, Any]]:
    """A row for each layer on each device, by name. Raises AutofuseError for an unknown one,
    CompilerMissing without NVRTC."""
    return [
        {"layer": layer._asdict()}
        | tensor_row(target_named(name), convolution_graph(layer), layer.sizes)
        for layer in layers
        for name in targets
    ]
