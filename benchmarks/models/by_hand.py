"""Networks written here after well-known families, at their real size."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as fn

from benchmarks.models.types import Built


def _conv(i: int, o: int, kernel: int = 3, stride: int = 1) -> nn.Sequential:
    """As the detector has it: convolution, norm, SiLU."""
    return nn.Sequential(
        nn.Conv2d(i, o, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(o), nn.SiLU()
    )


def _twice(i: int, o: int) -> nn.Sequential:
    """As the U-Net has it: two convolutions, each with norm and ReLU."""
    parts: list[nn.Module] = []
    for a in (i, o):
        parts += [nn.Conv2d(a, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU()]
    return nn.Sequential(*parts)


class UNet(nn.Module):
    """Ronneberger et al. 2015 (arXiv 1505.04597), padded, from 32 channels on."""

    def __init__(self, widths: tuple[int, ...] = (32, 64, 128, 256, 512)) -> None:
        super().__init__()
        steps = [*pairwise(widths)]
        self.down = nn.ModuleList([_twice(i, o) for i, o in [(3, widths[0]), *steps]])
        self.up = nn.ModuleList([nn.ConvTranspose2d(o, i, 2, 2) for i, o in reversed(steps)])
        self.join = nn.ModuleList([_twice(2 * i, i) for i, _ in reversed(steps)])
        self.last = nn.Conv2d(widths[0], 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept: list[Tensor] = []
        for block in self.down:
            x = block(fn.max_pool2d(x, 2) if kept else x)
            kept.append(x)
        for up, join, beside in zip(self.up, self.join, reversed(kept[:-1]), strict=True):
            x = join(torch.cat([up(x), beside], 1))
        y: Tensor = self.last(x)
        return y


class _Split(nn.Module):
    """A cross-stage block: half of the channels pass `depth` residual pairs, all parts are kept."""

    def __init__(self, i: int, o: int, depth: int, add: bool = True) -> None:
        super().__init__()
        self.half, self.add = o // 2, add
        self.first, self.last = _conv(i, o, 1), _conv((2 + depth) * self.half, o, 1)
        pair = [nn.Sequential(_conv(self.half, self.half), _conv(self.half, self.half))
                for _ in range(depth)]  # fmt: skip
        self.pairs = nn.ModuleList(pair)

    def forward(self, x: Tensor) -> Tensor:
        parts = [*self.first(x).split(self.half, 1)]
        for pair in self.pairs:
            y = pair(parts[-1])
            parts.append(parts[-1] + y if self.add else y)
        joined: Tensor = self.last(torch.cat(parts, 1))
        return joined


class Detector(nn.Module):
    """A one-stage detector after YOLOv8-n: backbone, pyramid up and down, three heads."""

    def __init__(self, classes: int = 80) -> None:
        super().__init__()
        self.stem = nn.Sequential(_conv(3, 16, 3, 2), _conv(16, 32, 3, 2), _Split(32, 32, 1))
        self.c3 = nn.Sequential(_conv(32, 64, 3, 2), _Split(64, 64, 2))
        self.c4 = nn.Sequential(_conv(64, 128, 3, 2), _Split(128, 128, 2))
        self.c5 = nn.Sequential(_conv(128, 256, 3, 2), _Split(256, 256, 1))
        self.squeeze, self.spread = _conv(256, 128, 1), _conv(512, 256, 1)
        self.up4, self.up3 = _Split(384, 128, 1, False), _Split(192, 64, 1, False)
        self.down3, self.down4 = _conv(64, 64, 3, 2), _conv(128, 128, 3, 2)
        self.out4, self.out5 = _Split(192, 128, 1, False), _Split(384, 256, 1, False)
        outputs = 64 + classes
        self.heads = nn.ModuleList(
            [nn.Sequential(_conv(c, 64), _conv(64, 64), nn.Conv2d(64, outputs, 1))
             for c in (64, 128, 256)]
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        p3 = self.c3(self.stem(x))
        p4 = self.c4(p3)
        p5 = self._pooled(self.c5(p4))
        up4 = self.up4(torch.cat([fn.interpolate(p5, scale_factor=2.0), p4], 1))
        n3 = self.up3(torch.cat([fn.interpolate(up4, scale_factor=2.0), p3], 1))
        n4 = self.out4(torch.cat([self.down3(n3), up4], 1))
        n5 = self.out5(torch.cat([self.down4(n4), p5], 1))
        levels = zip(self.heads, (n3, n4, n5), strict=True)
        return torch.cat([head(n).flatten(2) for head, n in levels], 2)

    def _pooled(self, x: Tensor) -> Tensor:
        """Maxima over 5, 9 and 13 places beside the centre."""
        parts = [self.squeeze(x)]
        for _ in range(3):
            parts.append(fn.max_pool2d(parts[-1], 5, 1, 2))
        joined: Tensor = self.spread(torch.cat(parts, 1))
        return joined


class DiffusionBlock(nn.Module):
    """One level of a latent diffusion U-Net (arXiv 2112.10752): a residual block that takes the
    time in, then attention over places and over a text of 77 tokens, and a gated layer."""

    def __init__(self, channels: int = 320, heads: int = 8, time: int = 1280) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.GroupNorm(32, channels) for _ in range(3)])
        self.convs = nn.ModuleList([nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2)])
        self.time = nn.Linear(time, channels)
        self.lns = nn.ModuleList([nn.LayerNorm(channels) for _ in range(3)])
        self.q = nn.ModuleList([nn.Linear(channels, channels, bias=False) for _ in range(2)])
        self.kv = nn.ModuleList(
            [nn.Linear(width, 2 * channels, bias=False) for width in (channels, 768)]
        )
        self.out = nn.ModuleList([nn.Linear(channels, channels) for _ in range(2)])
        self.gate, self.back = nn.Linear(channels, 8 * channels), nn.Linear(4 * channels, channels)

    def forward(self, x: Tensor, time: Tensor, text: Tensor) -> Tensor:
        y = self.convs[0](fn.silu(self.norms[0](x))) + self.time(fn.silu(time))[:, :, None, None]
        x = x + self.convs[1](fn.silu(self.norms[1](y)))
        b, c, h, w = x.shape
        y = self.norms[2](x).flatten(2).transpose(1, 2)
        for at, other in enumerate((None, text)):
            z = self.lns[at](y)
            y = y + self._attended(at, z, z if other is None else other)
        wide, gate = self.gate(self.lns[2](y)).chunk(2, -1)
        y = y + self.back(wide * fn.gelu(gate))
        return x + y.transpose(1, 2).reshape(b, c, h, w)

    def _attended(self, at: int, x: Tensor, other: Tensor) -> Tensor:
        b, n, c = x.shape
        q, (k, v) = self.q[at](x), self.kv[at](other).chunk(2, -1)
        q, k, v = (t.view(b, -1, self.heads, c // self.heads).transpose(1, 2) for t in (q, k, v))
        y = fn.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, c)
        found: Tensor = self.out[at](y)
        return found


def unet(batch: int) -> Built:
    return Built(UNet(), (torch.randn(batch, 3, 256, 256),))


def detector(batch: int) -> Built:
    return Built(Detector(), (torch.randn(batch, 3, 416, 416),))


def diffusion(batch: int) -> Built:
    args = (torch.randn(batch, 320, 32, 32), torch.randn(batch, 1280), torch.randn(batch, 77, 768))
    return Built(DiffusionBlock(), args)
