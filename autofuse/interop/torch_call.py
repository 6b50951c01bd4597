"""Plans as functions of tensors: pointers in, memory of PyTorch's allocator out.

A call costs Python about two microseconds, most of them in making its results; arrays of NumPy
would cost more, and NumPy has no bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import addressof
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from autofuse.backends.library import CallFrame, LoadedLibrary
from autofuse.errors import AutofuseError
from autofuse.interop.torch_exchange import filling
from autofuse.interop.torch_layout import Ints, TensorLayout, agrees, dense, layout_of

if TYPE_CHECKING:
    from torch import Tensor
else:
    Tensor = Any

TensorCall = Callable[..., tuple[Tensor, ...]]


@dataclass(frozen=True, slots=True)
class Port:
    """A tensor at the border of a plan: what PyTorch said of it when it was traced, and how the
    plan's array lies. Where the two differ, a tensor is copied on its way."""

    shape: Ints
    strides: Ints
    dtype: Any
    layout: TensorLayout

    @property
    def is_copied(self) -> bool:
        """Whether the tensor's own memory is no array that a graph could have."""
        return not agrees(self.shape, self.layout.strides, self.strides)


def port_of(tensor: Tensor) -> Port:
    """The port for tensors like this one (a fake one will do)."""
    shape, strides = tuple(tensor.shape), tuple(tensor.stride())
    return Port(shape, strides, tensor.dtype, layout_of(shape, strides) or dense(shape))


def array_of(tensor: Tensor, port: Port) -> np.ndarray:
    """The array that a graph has for a tensor, in memory of its own."""
    import torch

    layout = port.layout
    for axis in layout.repeated:
        tensor = tensor.narrow(axis, 0, 1)
    stored = tensor.detach().permute(layout.order).clone(memory_format=torch.contiguous_format)
    if stored.dtype != torch.bfloat16:
        array: np.ndarray = stored.numpy()
        return array
    words: np.ndarray = stored.view(torch.int16).numpy()
    return words.view(ml_dtypes.bfloat16)


def tensor_call(
    library: LoadedLibrary, inputs: Sequence[Port], outputs: Sequence[Port],
    eager: TensorCall | None = None,
) -> TensorCall:  # fmt: skip
    """A function of tensors, for the inputs of a plan that are no constants, to a tuple of them.

    `eager` computes the same from tensors that do not lie as they did when they were traced and
    cannot be copied so (along an axis that was one element repeated)."""
    import torch

    frame, entry = library.frame(), library.entry
    lock, blas = frame.lock, addressof(frame.blas)
    run = partial(entry, addressof(frame.table), frame.workspace, blas)
    fill = filling(frame, [port.layout for port in inputs], len(outputs))
    made = (*zip(*map(_allocation, outputs), strict=True),)
    finishing = any(port.is_copied or port.layout.repeated for port in outputs)
    # As TorchInductor's code does: it takes half as long as torch.empty_strided.
    empty = torch._C._dynamo.guards._empty_strided_cpu

    kept = library, frame

    def call(*tensors: Tensor, _keep: tuple[LoadedLibrary, CallFrame] = kept) -> tuple[Tensor, ...]:
        results = (*map(empty, *made),)
        with lock:
            fits = fill(tensors, results)
            code = run() if fits else 0
        if not fits:
            given = [*map(_lying, tensors, inputs)]
            if any(tensor is None for tensor in given):
                assert eager is not None
                return eager(*tensors)
            return call(*given)
        if code != 0:
            raise AutofuseError(f"the plan failed with code {code}")
        return tuple(map(_finished, results, outputs)) if finishing else results

    return call


def _allocation(port: Port) -> tuple[Ints, Ints, Any]:
    """Shape, strides and dtype of the memory that a plan writes for an output."""
    layout = port.layout
    if port.is_copied:
        return port.shape, layout.strides, port.dtype
    if not layout.repeated:
        return port.shape, port.strides, port.dtype
    shape = tuple(1 if a in layout.repeated else n for a, n in enumerate(port.shape))
    return shape, tuple(s or 1 for s in layout.strides), port.dtype


def _finished(memory: Tensor, port: Port) -> Tensor:
    """The tensor as it was traced, from what a plan wrote."""
    import torch

    if port.is_copied:
        result: Tensor = torch.empty_strided(port.shape, port.strides, dtype=port.dtype)
        result.copy_(memory)
        return result
    return memory.as_strided(port.shape, port.strides) if port.layout.repeated else memory


def _lying(tensor: Tensor, port: Port) -> Tensor | None:
    """The tensor as the plan reads it: itself, or a copy; None where a copy cannot lie so. Raises
    AutofuseError for one of another shape."""
    import torch

    if tuple(tensor.shape) != port.shape:
        given, wanted = list(tensor.shape), list(port.shape)
        raise AutofuseError(f"a plan was made for a tensor of shape {wanted}, not {given}")
    if agrees(port.shape, port.layout.strides, tensor.stride()):
        return tensor
    if port.layout.repeated:
        return None
    copy: Tensor = torch.empty_strided(port.shape, port.layout.strides, dtype=port.dtype)
    copy.copy_(tensor)
    return copy
