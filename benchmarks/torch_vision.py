"""Ten small convolutional networks, each with the parts of a well-known family."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as fn


def _conv(i: int, o: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> nn.Sequential:
    pad = kernel // 2
    return nn.Sequential(
        nn.Conv2d(i, o, kernel, stride, pad, groups=groups, bias=False), nn.BatchNorm2d(o)
    )


class Residual(nn.Module):
    """ResNet's block: two convolutions, and one beside where the sizes change."""

    def __init__(self, i: int, o: int, stride: int = 1) -> None:
        super().__init__()
        self.a, self.b = _conv(i, o, 3, stride), _conv(o, o)
        same = i == o and stride == 1
        self.side: nn.Module = nn.Identity() if same else _conv(i, o, 1, stride)

    def forward(self, x: Any) -> Any:
        return torch.relu(self.b(torch.relu(self.a(x))) + self.side(x))


class Bottleneck(nn.Module):
    """ResNet-50's block, or RegNet's where it has groups."""

    def __init__(self, i: int, middle: int, o: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__()
        self.a, self.b = _conv(i, middle, 1), _conv(middle, middle, 3, stride, groups)
        self.c, self.side = _conv(middle, o, 1), _conv(i, o, 1, stride)

    def forward(self, x: Any) -> Any:
        y = torch.relu(self.b(torch.relu(self.a(x))))
        return torch.relu(self.c(y) + self.side(x))


class Inverted(nn.Module):
    """MobileNet v2's block; EfficientNet's with `squeeze`."""

    def __init__(self, i: int, o: int, stride: int = 1, squeeze: bool = False) -> None:
        super().__init__()
        wide = 4 * i
        self.act: Callable[[Any], Any] = fn.silu if squeeze else fn.relu6
        self.up, self.depth = _conv(i, wide, 1), _conv(wide, wide, 3, stride, wide)
        self.down, self.is_same = _conv(wide, o, 1), i == o and stride == 1
        self.less = nn.Conv2d(wide, i, 1) if squeeze else None
        self.more = nn.Conv2d(i, wide, 1) if squeeze else None

    def forward(self, x: Any) -> Any:
        y = self.act(self.depth(self.act(self.up(x))))
        if self.less is not None and self.more is not None:
            y = y * torch.sigmoid(self.more(fn.silu(self.less(y.mean((2, 3), keepdim=True)))))
        y = self.down(y)
        return x + y if self.is_same else y


class Fire(nn.Module):
    """SqueezeNet's block."""

    def __init__(self, i: int, middle: int, o: int) -> None:
        super().__init__()
        self.a = nn.Conv2d(i, middle, 1)
        self.b, self.c = nn.Conv2d(middle, o, 1), nn.Conv2d(middle, o, 3, padding=1)

    def forward(self, x: Any) -> Any:
        x = torch.relu(self.a(x))
        return torch.cat([torch.relu(self.b(x)), torch.relu(self.c(x))], 1)


class Dense(nn.Module):
    """DenseNet's block: each layer reads all before it."""

    def __init__(self, i: int, growth: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm2d(i + k * growth), nn.ReLU(),
                nn.Conv2d(i + k * growth, growth, 3, padding=1, bias=False),
            )
            for k in range(layers)
        )  # fmt: skip

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = torch.cat([x, layer(x)], 1)
        return x


class Shuffle(nn.Module):
    """ShuffleNet v2's block: half of the channels pass, then halves are mixed."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        self.a, self.b, self.c = (
            _conv(half, half, 1),
            _conv(half, half, 3, 1, half),
            _conv(half, half, 1),
        )

    def forward(self, x: Any) -> Any:
        left, right = x.chunk(2, 1)
        right = torch.relu(self.c(self.b(torch.relu(self.a(right)))))
        n, c, h, w = x.shape
        both = torch.cat([left, right], 1)
        return both.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


class Next(nn.Module):
    """ConvNeXt's block: depthwise, then a row-wise MLP with channels last."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depth = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm, self.up = nn.LayerNorm(channels), nn.Linear(channels, 4 * channels)
        self.down, self.scale = (
            nn.Linear(4 * channels, channels),
            nn.Parameter(torch.ones(channels)),
        )

    def forward(self, x: Any) -> Any:
        y = self.norm(self.depth(x).permute(0, 2, 3, 1))
        return x + (self.down(fn.gelu(self.up(y))) * self.scale).permute(0, 3, 1, 2)


class UNet(nn.Module):
    """Down twice, up twice, joined at each size."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = _conv(3, 16), _conv(16, 32), _conv(32, 64)
        self.up_b, self.up_a = nn.ConvTranspose2d(64, 32, 2, 2), nn.ConvTranspose2d(32, 16, 2, 2)
        self.d, self.e, self.out = _conv(64, 32), _conv(32, 16), nn.Conv2d(16, 2, 1)

    def forward(self, x: Any) -> Any:
        a = torch.relu(self.a(x))
        b = torch.relu(self.b(fn.max_pool2d(a, 2)))
        c = torch.relu(self.c(fn.max_pool2d(b, 2)))
        y = torch.relu(self.d(torch.cat([self.up_b(c), b], 1)))
        y = torch.relu(self.e(torch.cat([self.up_a(y), a], 1)))
        return self.out(y)


class Classifier(nn.Module):
    """A stem, blocks, the mean over the image, and a linear layer."""

    def __init__(self, width: int, *blocks: nn.Module, last: int) -> None:
        super().__init__()
        self.stem, self.blocks = _conv(3, width, 3, 2), nn.Sequential(*blocks)
        self.out = nn.Linear(last, 10)

    def forward(self, x: Any) -> Any:
        return self.out(self.blocks(torch.relu(self.stem(x))).mean((2, 3)))


def _vgg() -> nn.Module:
    pairs = [(16, 16), (16, 32), (32, 64)]
    blocks = [nn.Sequential(_conv(i, o), nn.ReLU(), nn.MaxPool2d(2)) for i, o in pairs]
    return Classifier(16, *blocks, last=64)


VISION: dict[str, Callable[[], nn.Module]] = {
    "resnet": lambda: Classifier(16, Residual(16, 16), Residual(16, 32, 2), last=32),
    "resnet_bottleneck": lambda: Classifier(
        16, Bottleneck(16, 16, 64), Bottleneck(64, 32, 128, 2), last=128
    ),
    "regnet": lambda: Classifier(
        16, Bottleneck(16, 32, 32, 1, 4), Bottleneck(32, 64, 64, 2, 4), last=64
    ),
    "mobilenet": lambda: Classifier(
        16, Inverted(16, 16), Inverted(16, 24, 2), Inverted(24, 24), last=24
    ),
    "efficientnet": lambda: Classifier(
        16, Inverted(16, 16, 1, True), Inverted(16, 24, 2, True), last=24
    ),
    "vgg": _vgg,
    "squeezenet": lambda: Classifier(
        16, Fire(16, 8, 16), nn.MaxPool2d(2), Fire(32, 8, 32), last=64
    ),
    "densenet": lambda: Classifier(16, Dense(16, 8, 3), nn.AvgPool2d(2), Dense(40, 8, 2), last=56),
    "shufflenet": lambda: Classifier(16, Shuffle(16), Shuffle(16), last=16),
    "convnext": lambda: Classifier(32, Next(32), Next(32), last=32),
    "unet": UNet,
}
