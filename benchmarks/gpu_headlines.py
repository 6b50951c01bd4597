"""The programs of `gpu_headline`, each with what PyTorch's users would write for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import autofuse.frontends.array_api as xp
from benchmarks.gpu_classes import Operands, Program, attention, causal_attention, convolution

# Given torch and tensors: the call that is timed, with whatever is laid out before it.
Peer = Callable[..., Callable[[], Any]]


@dataclass(frozen=True)
class Headline:
    """A program of ours, its floating-point operations by its sizes, what PyTorch computes by hand
    (`exact`, of torch and tensors), and peers by name. `compiled`: torch.compile is one of them."""

    program: Program
    flops: Callable[..., float]
    exact: Callable[..., Any]
    peers: Mapping[str, Peer] = field(default_factory=dict)
    compiled: bool = False

    def contestants(self) -> dict[str, Peer]:
        """Peers, with what is written by hand as it is and compiled by TorchInductor."""
        found: dict[str, Peer] = {"torch": lambda torch, *t: lambda: self.exact(torch, *t)}
        if self.compiled:
            found["torch.compile"] = self._compiled
        return found | dict(self.peers)

    def _compiled(self, torch: Any, *tensors: Any) -> Callable[[], Any]:
        torch._dynamo.reset()
        made = torch.compile(lambda *t: self.exact(torch, *t))
        return lambda: made(*tensors)


def _pair(dtype: str, turned: bool = False) -> Callable[[int, int, int], Operands]:
    return lambda m, n, k: (((m, k), dtype), ((n, k) if turned else (k, n), dtype))


def _product(m: int, n: int, k: int) -> float:
    return 2.0 * m * n * k


def _square(size: int, dtype: str = "bf16") -> Headline:
    sides = (size, size, size)
    program = Program(lambda a, b: a @ b, _pair(dtype), sides, (64, 64, 64))
    return Headline(program, _product, lambda torch, a, b: a @ b)


def _gelu(x: Any) -> Any:
    return 0.5 * x * (1.0 + xp.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


def _torch_gelu(torch: Any, a: Any, b: Any, bias: Any) -> Any:
    return torch.nn.functional.gelu(a @ b + bias, approximate="tanh")


def _sdpa(causal: bool, torch: Any, q: Any, k: Any, v: Any) -> Any:
    given = (x.unsqueeze(0) for x in (q, k, v))
    found = torch.nn.functional.scaled_dot_product_attention(*given, is_causal=causal)
    return found.squeeze(0)


def _by_backend(causal: bool, backend: str) -> Peer:
    """PyTorch's attention of one backend, where it would choose another one."""

    def make(torch: Any, *tensors: Any) -> Callable[[], Any]:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        def call() -> Any:
            with sdpa_kernel(getattr(SDPBackend, backend)):
                return _sdpa(causal, torch, *tensors)

        return call

    return make


def _heads(heads: int, rows: int, depth: int, causal: bool) -> Headline:
    share = 2.0 if causal else 4.0
    program = Program(
        causal_attention if causal else attention,
        lambda h, m, d: (((h, m, d), "bf16"),) * 3, (heads, rows, depth), (2, 32, 16),
    )  # fmt: skip
    backends = {"flash": "FLASH_ATTENTION", "cudnn": "CUDNN_ATTENTION"}
    return Headline(
        program, lambda h, m, d: share * h * m * m * d,
        lambda torch, *t: _sdpa(causal, torch, *t),
        {name: _by_backend(causal, backend) for name, backend in backends.items()},
    )  # fmt: skip


def _torch_convolution(torch: Any, x: Any, w: Any) -> Any:
    found = torch.nn.functional.conv2d(x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1), padding=1)
    return torch.relu(found).permute(0, 2, 3, 1)


def _laid_out(torch: Any, x: Any, w: Any) -> Callable[[], Any]:
    """cuDNN's best: weights channels last, its algorithms tried."""
    torch.backends.cudnn.benchmark = True
    weight = w.permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)
    image = x.permute(0, 3, 1, 2)

    def call() -> Any:
        found = torch.nn.functional.conv2d(image, weight, padding=1)
        return torch.relu_(found).permute(0, 2, 3, 1)

    return call


def _layer(images: int, side: int, channels: int) -> Headline:
    program = Program(
        convolution,
        lambda n, s, c: (((n, s, s, c), "bf16"), ((3, 3, c, c), "bf16")),
        (images, side, channels), (1, 6, 16),
    )  # fmt: skip
    return Headline(
        program, lambda n, s, c: 18.0 * n * s * s * c * c, _torch_convolution, {"cudnn": _laid_out}
    )


HEADLINES: Mapping[str, Headline] = {
    "product 4096": _square(4096),
    "product 8192": _square(8192),
    "product turned 4096": Headline(
        Program(
            lambda a, b: a @ xp.permute_dims(b, (1, 0)), _pair("bf16", turned=True),
            (4096, 4096, 4096), (64, 64, 64),
        ),
        _product, lambda torch, a, b: a @ b.T,
    ),
    "product gelu": Headline(
        Program(
            lambda a, b, bias: _gelu(a @ b + bias),
            lambda m, n, k: (*_pair("bf16")(m, n, k), ((n,), "bf16")),
            (8192, 4096, 1024), (64, 64, 64),
        ),
        _product, _torch_gelu, compiled=True,
    ),
    "product f32 2048": _square(2048, "f32"),
    "attention": _heads(16, 4096, 128, causal=False),
    "causal attention": _heads(16, 4096, 128, causal=True),
    "convolution 56": _layer(32, 56, 64),
    "convolution 14": _layer(32, 14, 256),
}  # fmt: skip
