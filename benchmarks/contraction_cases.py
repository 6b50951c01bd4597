"""What the comparison of contractions is over: products drawn from a seed, convolutions of four
networks, attention. All is float32."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from autofuse.peers.types import BenchError

# Products are drawn again above these: a call takes at most some tenths of a second.
MOST_FLOPS, MOST_BYTES = 1 << 33, 3 << 27
ROWS, WIDTHS, BATCHES = (1, 4096), (64, 8192), (2, 64)
PRODUCTS = 60
# Networks have such widths; the other half of the draws leaves every remainder.
ROUND = 16


@dataclass(frozen=True)
class Product:
    """[batch, m, n] = [batch, m, k] x [batch, k, n]; a transposed operand lies with its last two
    axes the other way round."""

    kind: ClassVar[str] = "product"
    batch: int
    m: int
    n: int
    k: int
    trans_a: bool
    trans_b: bool

    @property
    def name(self) -> str:
        sides = "".join("NT"[side] for side in (self.trans_a, self.trans_b))
        return f"b{self.batch} m{self.m} n{self.n} k{self.k} {sides}"

    @property
    def flops(self) -> int:
        return 2 * self.batch * self.m * self.n * self.k

    @property
    def nbytes(self) -> int:
        """Of both operands and the result."""
        return 4 * self.batch * (self.m * self.k + self.k * self.n + self.m * self.n)


@dataclass(frozen=True)
class Convolution:
    """One image of channels x size x size, square kernels, padding half a kernel.

    What follows is `activation((conv + bias[o]) * scale[y, x] + residual[y, x, o])`: a scale for
    each row of the implicit product, which oneDNN has in its reference code only."""

    kind: ClassVar[str] = "convolution"
    network: str
    channels: int
    size: int
    out_channels: int
    kernel: int
    stride: int = 1
    groups: int = 1
    activation: str = "silu"

    @property
    def name(self) -> str:
        ways = f"{self.channels}->{self.out_channels}"
        more = f"/{self.stride}" * (self.stride > 1) + " depthwise" * (self.groups > 1)
        return f"{self.network} {self.kernel}x{self.kernel} {ways} {self.size}^2{more}"

    @property
    def padding(self) -> int:
        return self.kernel // 2

    @property
    def out_size(self) -> int:
        return (self.size + 2 * self.padding - self.kernel) // self.stride + 1

    @property
    def flops(self) -> int:
        """Of the convolution alone."""
        taps = self.kernel**2 * self.channels // self.groups
        return 2 * taps * self.out_channels * self.out_size**2


@dataclass(frozen=True)
class Attention:
    """softmax(q k^T / sqrt(depth)) v for q, k, v [heads, length, depth]; heads hold the batch."""

    kind: ClassVar[str] = "attention"
    heads: int
    length: int
    depth: int
    causal: bool

    @property
    def name(self) -> str:
        return f"{self.heads} x {self.length} x {self.depth}" + " causal" * self.causal

    @property
    def flops(self) -> int:
        """Of both products; causal ones without what is masked."""
        pairs = self.length * (self.length + 1) // 2 if self.causal else self.length**2
        return 4 * self.heads * self.depth * pairs


Case = Product | Convolution | Attention


def products(seed: int, count: int) -> list[Product]:
    """The first `count` products of a seed, whose extents are spread evenly on a logarithmic scale
    and whose four ways of lying take turns."""
    rng = np.random.default_rng(seed)
    found: list[Product] = []
    while len(found) < count:
        drawn = _product(rng, len(found))
        if drawn.flops <= MOST_FLOPS and drawn.nbytes <= MOST_BYTES:
            found.append(drawn)
    return found


def _product(rng: np.random.Generator, turn: int) -> Product:
    m, (n, k) = _extent(rng, ROWS), (_extent(rng, WIDTHS) for _ in range(2))
    batch = _extent(rng, BATCHES) if rng.random() < 0.5 else 1
    if rng.random() < 0.5:
        n, k = (ROUND * math.ceil(extent / ROUND) for extent in (n, k))
    return Product(batch, m, n, k, bool(turn & 1), bool(turn & 2))


def _extent(rng: np.random.Generator, ends: tuple[int, int]) -> int:
    """An integer between both ends, which may be drawn too."""
    low, high = ends
    return min(high, int(low * (1 + (high + 1 - low) / low) ** rng.random()))


def convolutions() -> list[Convolution]:
    """Thirty layers, the two activations in turn."""
    layers = [
        Convolution(network, *shape)
        for network, shapes in _LAYERS.items() for shape in shapes
    ]  # fmt: skip
    depthwise = [
        Convolution(network, channels, size, channels, kernel, stride, channels)
        for network, shapes in _DEPTHWISE.items() for channels, size, kernel, stride in shapes
    ]  # fmt: skip
    return [_activated(layer, turn) for turn, layer in enumerate((*layers, *depthwise))]


def _activated(layer: Convolution, turn: int) -> Convolution:
    return Convolution(**{**vars(layer), "activation": ("silu", "gelu")[turn % 2]})


# (channels, size, out channels, kernel, stride)
_LAYERS: dict[str, tuple[tuple[int, int, int, int, int], ...]] = {
    "resnet50": (
        (3, 224, 64, 7, 2), (64, 56, 64, 1, 1), (64, 56, 64, 3, 1), (64, 56, 256, 1, 1),
        (512, 28, 128, 1, 1), (128, 28, 128, 3, 1), (128, 56, 128, 3, 2), (256, 14, 256, 3, 1),
        (1024, 14, 256, 1, 1), (256, 14, 1024, 1, 1), (512, 7, 512, 3, 1), (1024, 14, 2048, 1, 2),
    ),
    "mobilenetv2": ((3, 224, 32, 3, 2), (32, 28, 192, 1, 1), (96, 14, 576, 1, 1)),
    "efficientnetb0": ((40, 28, 240, 1, 1), (112, 14, 672, 1, 1)),
    "unet": (
        (64, 128, 64, 3, 1), (128, 128, 64, 3, 1), (128, 64, 128, 3, 1), (256, 32, 256, 3, 1),
        (512, 16, 512, 3, 1), (128, 64, 64, 1, 1),
    ),
}  # fmt: skip
# (channels, size, kernel, stride)
_DEPTHWISE: dict[str, tuple[tuple[int, int, int, int], ...]] = {
    "mobilenetv2": ((32, 112, 3, 1), (96, 112, 3, 2), (192, 28, 3, 1), (576, 14, 3, 1)),
    "efficientnetb0": ((144, 56, 5, 2), (240, 28, 5, 1), (672, 14, 5, 1)),
}


def attentions() -> list[Attention]:
    """Six shapes, each causal and not."""
    shapes = ((12, 197, 64), (16, 512, 64), (12, 1024, 64), (4, 2048, 64), (8, 1024, 128),
              (64, 128, 32))  # fmt: skip
    return [Attention(*shape, causal) for shape in shapes for causal in (True, False)]


def spread(listed: Sequence[Case], count: int) -> list[Case]:
    """So many of a list, from its whole length."""
    count = min(count, len(listed))
    return [listed[place * len(listed) // count] for place in range(count)]


_KINDS: dict[str, Callable[[int, int], Sequence[Case]]] = {
    Product.kind: products,
    Convolution.kind: lambda seed, count: spread(convolutions(), count),
    Attention.kind: lambda seed, count: spread(attentions(), count),
}
KINDS = tuple(_KINDS)


def cases(kinds: Sequence[str], seed: int, count: int | None) -> list[Case]:
    """The cases of `kinds` (none named: all), at most `count` of each (None: all).

    Raises BenchError for an unknown kind, a negative seed or a count below one."""
    for kind in kinds:
        if kind not in _KINDS:
            raise BenchError(f"unknown kind '{kind}' (known: {', '.join(KINDS)})")
    if seed < 0:
        raise BenchError(f"the seed must not be negative, as {seed} is")
    if count is not None and count < 1:
        raise BenchError(f"{count} cases are none to compare")
    wanted = PRODUCTS if count is None else count
    return [case for kind in dict.fromkeys(kinds or KINDS) for case in _KINDS[kind](seed, wanted)]
