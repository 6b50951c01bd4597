"""What the machine code of a convolution on tensor cores does, and what share of their peak it may
reach, as `sass_tensor` has it for a product: one of as many rows as there are pixels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import autofuse.frontends.array_api as xp
from autofuse import spec, trace
from autofuse.backends.cuda.devices import target_named
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph
from benchmarks.sass_tensor import tensor_row

# Images, side and channels of the 3x3 convolutions of a ResNet-50 stage, and pixels of a patch.
IMAGES, SIDE, CHANNELS, TAPS = 32, 56, 64, 9


def convolution_graph(images: int, side: int, channels: int) -> Graph:
    """A 3x3 convolution of bf16[images, side, side, channels] to as many channels, and a relu."""

    def fn(x: Any, w: Any) -> Any:
        return xp.maximum(xp.conv(x, w, padding=1, channels_last=True), 0.0)

    image = spec((images, side, side, channels), "bf16")
    return canonical(trace(fn, image, spec((3, 3, channels, channels), "bf16")))


def convolution_report(
    targets: Sequence[str], side: int = SIDE, channels: int = CHANNELS
) -> list[dict[str, Any]]:
    """A row for each device, by name. Raises AutofuseError for an unknown one, CompilerMissing
    without NVRTC."""
    graph, sizes = (
        convolution_graph(IMAGES, side, channels),
        (IMAGES * side**2, channels, TAPS * channels),
    )
    return [tensor_row(target_named(name), graph, sizes) for name in targets]
