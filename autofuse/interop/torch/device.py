"""What islands need of a device of PyTorch: one row for each of our devices that can serve one.

A graph's nodes say where their tensors are, and that decides which device's plans serve them. All
else (cutting, planning, calling, timing) asks the row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from autofuse.backends.cuda.runs import BOUNDARY
from autofuse.devices import DeviceKind, device_named
from autofuse.errors import AutofuseError

if TYPE_CHECKING:
    from torch import Tensor
    from torch.fx import Node
else:
    Node = Tensor = Any

AUTO = "auto"
CPU = "cpu"
# Of shape, strides and dtype: memory that nobody else has, from PyTorch's allocator.
Allocator = Callable[[tuple[int, ...], tuple[int, ...], Any], Tensor]
# Seconds that a call takes, until its results are there.
CallClock = Callable[[Callable[[], object]], float]


@dataclass(frozen=True)
class IslandDevice:
    """A device of ours as PyTorch sees it.

    `name` is ours, `serves` PyTorch's type of the tensors that it takes (also the name, in
    capitals, that PyTorch dispatches operators by). Arrays must start on multiples of `alignment`
    bytes. Of a unit (the number in "cuda:1"): `allocator` gives memory
    there, `stream` the handle of the stream that PyTorch's ops go to, and `on` makes it the current
    one. `units` says how many there are, `current` which one plans are loaded on. `automatic`: it
    serves without being asked for."""

    name: str
    serves: str
    allocator: Callable[[], Allocator]
    stream: Callable[[int], Callable[[], int]]
    on: Callable[[int], AbstractContextManager[object]]
    units: Callable[[], int]
    current: Callable[[], int]
    clock: CallClock
    alignment: int = 1
    automatic: bool = True

    @property
    def kind(self) -> DeviceKind:
        return device_named(self.name)


class IslandPlace(NamedTuple):
    """A device and its unit: where the tensors of an island are."""

    device: IslandDevice
    unit: int = 0

    @property
    def torch(self) -> str:
        """PyTorch's name of it."""
        return CPU if self.device.serves == CPU else f"{self.device.serves}:{self.unit}"

    @property
    def rank(self) -> int:
        """Smaller for what is computed first: numbers on the CPU may be read elsewhere."""
        return 0 if self.device.serves == CPU else 1 + self.unit

    @property
    def key(self) -> tuple[str, str]:
        """Equal for those that share plans."""
        return self.device.name, self.torch

    def on(self) -> AbstractContextManager[object]:
        """Makes the unit the current one, where there are several."""
        return self.device.on(self.unit)

    @property
    def guard(self) -> Callable[[], AbstractContextManager[object]] | None:
        """As `on`, for calls; None where there is but one unit."""
        return self.on if self.device.units() > 1 else None


def _only(_: int) -> AbstractContextManager[object]:
    return nullcontext()


def _one() -> int:
    return 1


def _first() -> int:
    return 0


def _no_stream(_: int) -> Callable[[], int]:
    """What is issued on the host is over when the call is."""
    return lambda: 0


def _host_allocator() -> Allocator:
    import torch

    # As TorchInductor's code does: it takes half as long as torch.empty_strided.
    found: Allocator = torch._C._dynamo.guards._empty_strided_cpu
    return found


def _host_seconds(program: Callable[[], object]) -> float:
    begun = time.perf_counter()
    program()
    return time.perf_counter() - begun


def _cuda_allocator() -> Allocator:
    import torch

    # Of the caching allocator, for the current stream, so that nothing else has to know of it.
    found: Allocator = torch._C._dynamo.guards._empty_strided_cuda
    return found


def _cuda_stream(unit: int) -> Callable[[], int]:
    import torch

    current: Callable[[int], int] = torch._C._cuda_getCurrentRawStream
    return lambda: current(unit)


def _on_cuda(unit: int) -> AbstractContextManager[object]:
    """The unit as the current one of PyTorch and of CuPy, each of which has its own idea of it."""
    import cupy
    import torch

    stack = ExitStack()
    stack.enter_context(torch.cuda.device(unit))
    stack.enter_context(cupy.cuda.Device(unit))
    return stack


def _current_cuda() -> int:
    import cupy

    return int(cupy.cuda.runtime.getDevice())


def _cuda_units() -> int:
    import torch

    return int(torch.cuda.device_count())


def _cuda_seconds(program: Callable[[], object]) -> float:
    import torch

    return event_seconds(program, torch.cuda)


def event_seconds(program: Callable[[], object], cuda: Any) -> float:
    """Seconds by events on the current stream of `cuda` (as torch.cuda), idle when the call
    begins, so that what the host takes counts where the device waits for it."""
    cuda.current_stream().synchronize()
    begun, ended = (cuda.Event(enable_timing=True) for _ in range(2))
    begun.record()
    program()
    ended.record()
    ended.synchronize()
    return 1e-3 * float(begun.elapsed_time(ended))


HOST = IslandDevice("cpu", CPU, _host_allocator, _no_stream, _only, _one, _first, _host_seconds)
# The first of those that serve a type, and do so by themselves, is what "auto" means for it.
ISLAND_DEVICES: dict[str, IslandDevice] = {
    row.name: row
    for row in (
        HOST,
        IslandDevice(
            "cuda", "cuda", _cuda_allocator, _cuda_stream, _on_cuda, _cuda_units, _current_cuda,
            _cuda_seconds, alignment=BOUNDARY,
        ),
        replace(HOST, name="cuda-emulated", automatic=False),
    )
}  # fmt: skip


def island_device(name: str) -> IslandDevice:
    """The row of a device of ours; raises AutofuseError for one that has none."""
    found = ISLAND_DEVICES.get(name)
    if found is None:
        known = ", ".join(ISLAND_DEVICES)
        raise AutofuseError(f"PyTorch has no tensors on device '{name}' (it has on: {known})")
    return found


@dataclass(frozen=True)
class Places:
    """Where the islands of a graph may be: on devices of these names, or of all that serve by
    themselves ("auto"). With `absent` it does not matter whether a device is here."""

    asked: str = AUTO
    absent: bool = False

    @cached_property
    def rows(self) -> dict[str, IslandDevice]:
        """By PyTorch's type."""
        if self.asked != AUTO:
            row = island_device(self.asked)
            return {row.serves: row}
        return {row.serves: row for row in ISLAND_DEVICES.values() if row.automatic}

    @cached_property
    def _missing(self) -> dict[str, str]:
        """Why nothing can be run on a device, in a sentence; nothing where it can."""
        return {row.name: why_absent(row) for row in self.rows.values()}

    def of(self, device: Any) -> IslandPlace | str:
        """The place of tensors on a torch.device; a reason where there can be no island."""
        row = self.rows.get(device.type)
        if row is None and self.absent and device.type == "meta":
            row = next(iter(self.rows.values()))
        if row is None:
            served = " and ".join(self.rows)
            return f"it is on {device.type}, and islands are on {served}"
        missing = "" if self.absent else self._missing[row.name]
        return missing or IslandPlace(row, device.index or 0)

    def of_node(self, node: Node) -> IslandPlace | str:
        """The place of a node's results. PyTorch takes numbers (tensors of rank 0) on the CPU among
        others anywhere; whatever else is between devices is left to it."""
        results = _tensors(node.meta.get("val"))
        devices = {tensor.device for tensor in results}
        if not devices:
            # What it is is told by the rules.
            return next((self.of(t.device) for t in _operands(node)), "it has no tensors")
        if len(devices) > 1:
            return f"its results are on {_listed(devices)}"
        (device,) = devices
        others = {t.device for t in _operands(node) if t.device != device and not is_number(t)}
        if others:
            return f"it reads {_listed(others)} and writes {device}"
        return self.of(device)


def why_absent(row: IslandDevice) -> str:
    """Why nothing can be run on a device, in a sentence; nothing where it can."""
    try:
        row.kind.backend.ready()
    except AutofuseError as error:
        return str(error)
    return ""


def is_number(tensor: Any) -> bool:
    """Whether a tensor may be among those of another device."""
    return bool(tensor.device.type == CPU and tensor.ndim == 0)


def _tensors(value: Any) -> list[Any]:
    found: Sequence[Any] = value if isinstance(value, list | tuple) else (value,)
    return [each for each in found if hasattr(each, "device") and hasattr(each, "stride")]


def _operands(node: Node) -> list[Any]:
    return [t for n in node.all_input_nodes for t in _tensors(n.meta.get("val"))]


def _listed(devices: Iterable[Any]) -> str:
    return " and ".join(sorted(map(str, devices)))
