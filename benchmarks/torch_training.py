"""Training under a bound of memory: losses against eager PyTorch, what is kept for the backward
graph, and time against PyTorch's own minimum cut at the same memory."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch import config as functorch_config
from torch._functorch.aot_autograd import make_boxed_func
from torch._functorch.partitioners import (
    default_partition,
    min_cut_rematerialization_partition,
)
from torch.autograd.graph import saved_tensors_hooks

from autofuse.frontends.torch.fx import decompositions
from autofuse.interop.torch.backend import backend, compiled_with
from autofuse.interop.torch.device import CPU
from autofuse.interop.torch.options import TorchOptions
from benchmarks.torch_devices import placed

STEPS, SHARE = 20, 0.6
# Shares of memory that the minimum cut is asked for, until what it keeps is within the bound.
_BUDGETS = tuple(k / 10 for k in range(10, -1, -1))
Backend = Callable[..., Any]


class Attending(nn.Module):
    """A language model of some blocks: a loss of tokens and those that follow them."""

    def __init__(self, words: int = 64, width: int = 64, blocks: int = 2) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(_Block(width) for _ in range(blocks))
        self.out = nn.Linear(width, words)

    def forward(self, tokens: Any, wanted: Any) -> Any:
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x)
        return nn.functional.cross_entropy(self.out(x).flatten(0, 1), wanted.flatten())


class _Block(nn.Module):
    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.together, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )  # fmt: skip

    def forward(self, x: Any) -> Any:
        parts = self.together(self.first(x)).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        found = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(found.transpose(1, 2).flatten(2))
        return x + self.wide(self.second(x))


class Convolving(nn.Module):
    """A classifier of images with statistics over the batch: a loss of images and classes."""

    def __init__(self, channels: Sequence[int] = (3, 16, 32), classes: int = 10) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, after in pairwise(channels):
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
            layers += [nn.MaxPool2d(2)]
        self.layers, self.out = nn.Sequential(*layers), nn.Linear(channels[-1], classes)

    def forward(self, images: Any, wanted: Any) -> Any:
        return nn.functional.cross_entropy(self.out(self.layers(images).mean((2, 3))), wanted)


@dataclass(frozen=True, slots=True)
class Training:
    """A model whose results are losses of these arguments."""

    model: nn.Module
    given: tuple[Any, ...]


def transformer(batch: int = 8, length: int = 64) -> Training:
    """Two blocks of 64 channels and 4 heads."""
    torch.manual_seed(0)
    tokens = torch.randint(0, 64, (batch, length + 1))
    return Training(Attending(), (tokens[:, :-1], tokens[:, 1:].contiguous()))


def convolutional(batch: int = 8, extent: int = 32) -> Training:
    """Two convolutions."""
    torch.manual_seed(0)
    images = torch.rand(batch, 3, extent, extent)
    return Training(Convolving(), (images, torch.randint(0, 10, (batch,))))


TRAININGS: dict[str, Callable[[], Training]] = {
    "transformer": transformer, "convolutional": convolutional
}  # fmt: skip


def bounded(max_memory: int | None = None) -> Backend:
    """Ours, which keeps at most so many bytes."""

    def made(gm: Any, inputs: Any) -> Any:
        return backend(gm, inputs, options={"max_memory": max_memory})

    return made


def cut_by_torch(gm: Any, inputs: Any) -> Any:
    """Our plans for the graphs that PyTorch's minimum cut makes."""
    return compiled_with(min_cut_rematerialization_partition, TorchOptions(), gm, inputs)


def _uncompiled(partition: Callable[..., Any]) -> Backend:
    """PyTorch runs what a partition makes."""

    def as_it_is(gm: Any, inputs: Any) -> Any:
        return make_boxed_func(gm.forward)

    found: Backend = aot_autograd(
        fw_compiler=as_it_is, bw_compiler=as_it_is, partition_fn=partition,
        decompositions=decompositions(),
    )  # fmt: skip
    return found


def _compiled(model: nn.Module, made_by: Backend | None) -> Callable[..., Any]:
    found: Callable[..., Any] = (
        model if made_by is None else torch.compile(model, backend=made_by)
    )  # fmt: skip
    return found


def losses(training: Training, made_by: Backend | None = None, steps: int = STEPS) -> list[float]:
    """The losses of so many steps of a copy of the model; without a backend, those of eager."""
    torch._dynamo.reset()
    model = copy.deepcopy(training.model)
    function, found = _compiled(model, made_by), []
    optimiser = torch.optim.AdamW(model.parameters(), 1e-3)
    for _ in range(steps):
        loss = function(*training.given)
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        found.append(loss.item())
    return found


def kept_bytes(training: Training, made_by: Backend | None = None) -> int:
    """Bytes that are alive after the forward graph for the backward graph, without the model's
    tensors and the arguments."""
    torch._dynamo.reset()
    model = copy.deepcopy(training.model)
    function = _compiled(model, made_by)
    function(*training.given)  # compiled before what is kept is looked at
    own = {_memory(t)[0] for t in (*model.parameters(), *model.buffers(), *training.given)}
    found: dict[int, int] = {}

    def pack(tensor: Any) -> Any:
        found.update([_memory(tensor)])
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = function(*training.given)
    del loss
    return sum(nbytes for address, nbytes in found.items() if address not in own)


def _memory(tensor: Any) -> tuple[int, int]:
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.nbytes()


@contextmanager
def _budget(share: float) -> Iterator[None]:
    """The minimum cut may keep this share of what it would."""
    with functorch_config.patch(activation_memory_budget=share):
        yield


def fitting_share(training: Training, max_memory: int) -> tuple[float, int]:
    """The largest share with which the minimum cut keeps at most so many bytes (else the least that
    there is), and what it keeps then."""
    cut = _uncompiled(min_cut_rematerialization_partition)
    for share in _BUDGETS:
        with _budget(share):
            kept = kept_bytes(training, cut)
        if kept <= max_memory:
            break
    return share, kept


def _step(training: Training, made_by: Backend | None) -> Callable[[], None]:
    """Loss and gradients, compiled and run once."""
    model = copy.deepcopy(training.model)
    function = _compiled(model, made_by)

    def step() -> None:
        function(*training.given).backward()
        model.zero_grad()

    step()
    return step


def training_row(
    name: str, times: Callable[[dict[str, Any]], dict[str, Any]], device: str = CPU
) -> dict[str, Any]:
    """One model: the largest differences of losses, bytes, and what `times` takes of functions."""
    made = TRAININGS[name]()
    training = Training(*placed((made.model, made.given), device))
    stored = kept_bytes(training, _uncompiled(default_partition))
    limit = int(SHARE * stored)
    ours, (share, cut_kept) = bounded(limit), fitting_share(training, limit)
    eager = losses(training)
    row = {
        "model": name,
        "error": _apart(losses(training, bounded()), eager),
        "bounded_error": _apart(losses(training, ours), eager),
        "stored": stored,
        "max_memory": limit,
        "kept": kept_bytes(training, ours),
        "min_cut": {"share": share, "kept": cut_kept},
    }
    torch._dynamo.reset()
    steps = {"eager": _step(training, None), "ours": _step(training, ours)}
    with _budget(share):
        steps["min_cut"] = _step(training, cut_by_torch)
    us = times(steps)
    return {**row, "us": us, "over_min_cut": us["ours"][1] / us["min_cut"][1]}


def _apart(found: Sequence[float], wanted: Sequence[float]) -> float:
    return max(abs(x - y) / abs(y) for x, y in zip(found, wanted, strict=True))
