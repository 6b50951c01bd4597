"""What the first call of a program costs that was never tuned, with nothing in any cache."""

from __future__ import annotations

import multiprocessing
import os
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn

from autofuse.interop.torch.backend import reports
from autofuse.interop.torch.report import GraphReport
from benchmarks.torch_language import Program, plain
from benchmarks.torch_vision import Classifier, Inverted, Residual

# Channels of the stages of the network of inverted blocks, and blocks of a stage.
_WIDTHS, _DEPTH = (16, 24, 32, 48), 9


def _inverted() -> nn.Module:
    blocks, i = list[nn.Module](), _WIDTHS[0]
    for o in _WIDTHS:
        for _ in range(_DEPTH):
            blocks.append(Inverted(i, o, 1 if i == o else 2, squeeze=True))
            i = o
    return Classifier(_WIDTHS[0], *blocks, last=_WIDTHS[-1])


def _residual() -> nn.Module:
    return Classifier(16, *(Residual(16, 16) for _ in range(65)), last=16)


def _of_images(made: Callable[[], nn.Module]) -> Program:
    return made(), (torch.rand(2, 3, 32, 32),), {}


# Programs of about 600 nodes.
FIRST: dict[str, Callable[[], Program]] = {
    "bert": partial(plain, "Bert", num_hidden_layers=14),
    "llama": partial(plain, "Llama", num_key_value_heads=2, num_hidden_layers=7),
    "resnet": partial(_of_images, _residual),
    "inverted": partial(_of_images, _inverted),
}


@dataclass(frozen=True, slots=True)
class FirstCall:
    """Seconds until the first result of a program of so many nodes is there: of wall time, of
    processor time of the process itself (PyTorch's tracing included), and of the compilers that it
    starts. `load` is the machine's load average then."""

    model: str
    nodes: int
    kernels: int
    wall_s: float
    own_s: float
    compilers_s: float
    load: float

    def __str__(self) -> str:
        return (
            f"{self.model}: {self.nodes} nodes, {self.kernels} kernels: {self.wall_s:.1f} s "
            f"({self.own_s:.1f} s of processor, and {self.compilers_s:.1f} s of compilers; load "
            f"{self.load:.1f})"
        )


def first_call(name: str) -> FirstCall:
    """The first call of a program, in a process of its own that has empty caches."""
    with TemporaryDirectory() as folder, multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_measured, (name, Path(folder)))


def _measured(name: str, folder: Path) -> FirstCall:
    os.environ |= {"XDG_CACHE_HOME": str(folder / "cache"), "XDG_DATA_HOME": str(folder / "data")}
    torch.manual_seed(0)
    model, args, kwargs = FIRST[name]()
    model.eval()
    graphs: list[GraphReport] = []
    reports.set(graphs)
    with torch.no_grad():
        compiled: Any = torch.compile(model, backend="autofuse")
        begun, own, others = time.perf_counter(), time.process_time(), _children_s()
        compiled(*args, **kwargs)
        spent = time.perf_counter() - begun, time.process_time() - own, _children_s() - others
    nodes = sum(graph.nodes for graph in graphs)
    kernels = sum(island.kernels for graph in graphs for island in graph.islands)
    return FirstCall(name, nodes, kernels, *spent, os.getloadavg()[0])


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
