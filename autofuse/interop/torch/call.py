"""Plans as functions of tensors: pointers in, memory of PyTorch's allocator out.

A call costs Python two to four microseconds; arrays of NumPy would cost more, and NumPy has no
bfloat16. Of the device only its row is asked (`torch_device`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from autofuse.backends.base import BoundEntry, Runnable
from autofuse.errors import AutofuseError
from autofuse.interop.torch.device import CPU, IslandPlace
from autofuse.interop.torch.exchange import filling
from autofuse.interop.torch.layout import Ints, TensorLayout, agrees, dense, layout_of

if TYPE_CHECKING:
    from torch import Tensor
else:
    Tensor = Any

TensorCall = Callable[..., tuple[Tensor, ...]]


@dataclass(frozen=True, slots=True)
class Port:
    """A tensor at the border of a plan: what PyTorch said of it when it was traced, and how the
    plan's array lies. Where the two differ, a tensor is copied on its way. A number on the CPU may
    be among tensors of another device. A `negated` tensor's memory has its numbers with the other
    sign: PyTorch negates them when it reads them."""

    shape: Ints
    strides: Ints
    dtype: Any
    layout: TensorLayout
    device: str = CPU
    negated: bool = False

    @property
    def is_copied(self) -> bool:
        """Whether the tensor's own memory is no array that a graph could have."""
        return not agrees(self.shape, self.layout.strides, self.strides)


def port_of(tensor: Tensor) -> Port:
    """The port for tensors like this one (a fake one will do)."""
    shape, strides = tuple(tensor.shape), tuple(tensor.stride())
    layout = layout_of(shape, strides) or dense(shape)
    return Port(shape, strides, tensor.dtype, layout, str(tensor.device), tensor.is_neg())


def array_of(tensor: Tensor, port: Port) -> np.ndarray:
    """The array that a graph has for a tensor, in memory of its own."""
    import torch

    layout = port.layout
    for axis in layout.repeated:
        tensor = tensor.narrow(axis, 0, 1)
    stored = (
        tensor.detach().permute(layout.order).clone(memory_format=torch.contiguous_format).cpu()
    )
    if stored.dtype != torch.bfloat16:
        array: np.ndarray = stored.numpy()
        return array
    words: np.ndarray = stored.view(torch.int16).numpy()
    return words.view(ml_dtypes.bfloat16)


def tensor_call(
    plan: Runnable, place: IslandPlace, inputs: Sequence[Port], outputs: Sequence[Port],
    eager: TensorCall | None = None,
) -> TensorCall:  # fmt: skip
    """A function of tensors at `place`, for the inputs of a plan that are no constants, to a tuple
    of them.

    Results are memory of PyTorch's allocator, and the plan is issued on the stream that PyTorch's
    own ops go to, so that it follows them and what comes after follows it. `eager` computes the
    same from tensors that do not lie as they did when they were traced and cannot be copied so
    (along an axis that was one element repeated)."""
    device = place.device
    entry = plan.bound_entry(device.stream(place.unit))
    fill = filling(entry, [(port.layout, port.dtype) for port in inputs], len(outputs), place)
    made = (*zip(*map(_allocation, outputs), strict=True),)
    finishing = any(port.is_copied or port.layout.repeated for port in outputs)
    empty, lock, issue = device.allocator(), entry.lock, entry.issue

    def call(*tensors: Tensor, _keep: BoundEntry = entry) -> tuple[Tensor, ...]:
        results = (*map(empty, *made),)
        with lock:
            fits = fill(tensors, results)
            code = issue() if fits else 0
        if not fits:
            given = [_lying(t, port, place) for t, port in zip(tensors, inputs, strict=True)]
            if any(tensor is None for tensor in given):
                assert eager is not None
                return eager(*tensors)
            if all(map(operator.is_, given, tensors)):
                raise AutofuseError("a plan was made for tensors that have memory of their own")
            return call(*given)
        if code != 0:
            raise AutofuseError(f"the plan failed on {place.torch} with code {code}")
        return tuple(map(_finished, results, outputs)) if finishing else results

    return _on_its_unit(_with_values(_with_numbers(call, place, inputs), inputs), place)


def _on_its_unit(call: TensorCall, place: IslandPlace) -> TensorCall:
    """The call with its unit as the current one, where it may be another."""
    guard = place.guard
    if guard is None:
        return call

    def guarded(*tensors: Tensor) -> tuple[Tensor, ...]:
        with guard():
            return call(*tensors)

    return guarded


def _with_numbers(call: TensorCall, place: IslandPlace, inputs: Sequence[Port]) -> TensorCall:
    """The call with numbers on the CPU brought to where its other tensors are: as arguments of a
    kernel that fills, so that nothing waits and a caller may capture it."""
    import torch

    numbers = [k for k, port in enumerate(inputs) if port.device != place.torch]
    if not numbers:
        return call

    def filled(*tensors: Tensor) -> tuple[Tensor, ...]:
        given = list(tensors)
        for k in numbers:
            value = given[k].item()
            given[k] = torch.full((), value, dtype=inputs[k].dtype, device=place.torch)
        return call(*given)

    return filled


def _with_values(call: TensorCall, inputs: Sequence[Port]) -> TensorCall:
    """The call with negated tensors as memory that has their numbers."""
    negated = [k for k, port in enumerate(inputs) if port.negated]
    if not negated:
        return call

    def resolved(*tensors: Tensor) -> tuple[Tensor, ...]:
        given = list(tensors)
        for k in negated:
            given[k] = given[k].resolve_neg()
        return call(*given)

    return resolved


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
        result: Tensor = torch.empty_strided(
            port.shape, port.strides, dtype=port.dtype, device=memory.device
        )
        result.copy_(memory)
        return result
    return memory.as_strided(port.shape, port.strides) if port.layout.repeated else memory


def _lying(tensor: Tensor, port: Port, place: IslandPlace) -> Tensor | None:
    """The tensor as the plan reads it: itself, or a copy; None where a copy cannot lie so. Raises
    AutofuseError for one of another shape or dtype, or on another device."""
    import torch

    if tuple(tensor.shape) != port.shape:
        given, wanted = list(tensor.shape), list(port.shape)
        raise AutofuseError(f"a plan was made for a tensor of shape {wanted}, not {given}")
    if tensor.dtype != port.dtype:
        raise AutofuseError(f"a plan was made for a tensor of {port.dtype}, not {tensor.dtype}")
    if str(tensor.device) != place.torch:
        text = f"a plan was made for tensors on {place.torch}, not {tensor.device}"
        raise AutofuseError(text)
    on_boundary = tensor.data_ptr() % place.device.alignment == 0
    if on_boundary and agrees(port.shape, port.layout.strides, tensor.stride()):
        return tensor
    if port.layout.repeated:
        return None
    copy: Tensor = torch.empty_strided(
        port.shape, port.layout.strides, dtype=port.dtype, device=tensor.device
    )
    copy.copy_(tensor)
    return copy
