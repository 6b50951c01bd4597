"""Plans as functions of tensors: pointers in, memory of PyTorch's allocator out.

A call costs Python a few microseconds, nearly all of them in making its results; arrays of NumPy
and DLPack would cost more, and NumPy has no bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from autofuse.backends.library import LoadedLibrary
from autofuse.errors import AutofuseError
from autofuse.interop.torch_layout import Ints, Layout, agrees, dense, layout_of

if TYPE_CHECKING:
    from torch import Tensor
else:
    Tensor = Any

Call = Callable[..., tuple[Tensor, ...]]


@dataclass(frozen=True, slots=True)
class Port:
    """A tensor at the border of a plan: what PyTorch said of it when it was traced, and how the
    plan's array lies. Where the two differ, a tensor is copied on its way."""

    shape: Ints
    strides: Ints
    dtype: Any
    layout: Layout

    @property
    def is_copied(self) -> bool:
        """Whether the tensor's own memory is no array that a graph could have."""
        return not agrees(self.shape, self.layout.strides, self.strides)

    @property
    def passed(self) -> Ints | None:
        """Strides of tensors whose memory is the plan's array; None: that of none."""
        return None if self.is_copied else self.strides


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
    library: LoadedLibrary, inputs: Sequence[Port], outputs: Sequence[Port], eager: Call
) -> Call:
    """A function of tensors, for the inputs of a plan that are no constants, to a tuple of them.

    `eager` computes the same from tensors that do not lie as they did when they were traced and
    cannot be copied so (along an axis that was one element repeated)."""
    import torch

    frame, entry = library.frame(), library.entry
    table, workspace, blas, first = frame.table, frame.workspace, frame.blas, frame.first_output
    ports = [(place, port.passed, port) for place, port in zip(frame.inputs, inputs, strict=True)]
    made = [_allocation(port) for port in outputs]
    finishing = any(port.is_copied or port.layout.repeated for port in outputs)

    def call(*tensors: Tensor) -> tuple[Tensor, ...]:
        results = [torch.empty_strided(shape, strides, dtype=kind) for shape, strides, kind in made]
        copies = []
        with frame.lock:
            for (place, strides, port), tensor in zip(ports, tensors):  # noqa: B905 - as traced
                if tensor.stride() != strides:
                    copies.append(_lying(tensor, port))
                    if copies[-1] is None:
                        return eager(*tensors)
                    table[place] = copies[-1].data_ptr()
                else:
                    table[place] = tensor.data_ptr()
            for place, result in enumerate(results, first):
                table[place] = result.data_ptr()
            code = entry(table, workspace, blas)
        if code != 0:
            raise AutofuseError(f"the plan failed with code {code}")
        return tuple(map(_finished, results, outputs)) if finishing else tuple(results)

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
    """The tensor as the plan reads it: itself, or a copy; None where a copy cannot lie so."""
    import torch

    if agrees(port.shape, port.layout.strides, tensor.stride()):
        return tensor
    if port.layout.repeated:
        return None
    copy: Tensor = torch.empty_strided(port.shape, port.layout.strides, dtype=port.dtype)
    copy.copy_(tensor)
    return copy
