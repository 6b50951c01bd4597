"""Where models of PyTorch are run and what their times are, by `--device`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from autofuse.backends.machine import cpu_model
from autofuse.interop.torch.device import CPU, ISLAND_DEVICES, CallClock
from autofuse.peers.types import BenchError

CUDA = "cuda"
DEVICES = (CPU, CUDA)


def require(device: str) -> None:
    """Raises BenchError with one sentence where PyTorch has no such device."""
    if device not in DEVICES:
        raise BenchError(f"device is one of {', '.join(DEVICES)}, not '{device}'")
    if device == CUDA and not torch.cuda.is_available():
        raise BenchError(f"torch {torch.__version__} has no CUDA device here")


def model_of(device: str) -> str:
    """What the hardware calls itself."""
    return torch.cuda.get_device_name() if device == CUDA else cpu_model()


def clock_of(device: str, one_core: bool) -> CallClock:
    """What takes the time of a call: events on a GPU; with `one_core` processor time. Raises
    BenchError for processor time of a GPU."""
    if not one_core:
        return ISLAND_DEVICES[device].clock
    if device == CUDA:
        raise BenchError("times on a GPU are those of its events, not of one core")
    return _processor_seconds


def _processor_seconds(program: Callable[[], object]) -> float:
    begun = time.process_time()
    program()
    return time.process_time() - begun


def placed(given: Any, device: str) -> Any:
    """Modules, tensors, and what has them in it (tuples, dicts), on a device."""
    from torch.utils._pytree import tree_map

    def moved(leaf: Any) -> Any:
        return leaf.to(device) if isinstance(leaf, torch.Tensor | torch.nn.Module) else leaf

    return tree_map(moved, given)
