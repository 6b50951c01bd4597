"""cuFFT on NumPy memory, with its rules: a plan is made before it is executed, strides are those of
its advanced layout, complex numbers that become real ones are written over, and real numbers begin
where a complex one may."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

_INVALID_PLAN, _INVALID_VALUE = 1, 4
# By cufftType: what is read, what is written, and which of NumPy's functions it is.
_TYPES = {
    0x29: ("c8", "c8", ""), 0x69: ("c16", "c16", ""), 0x2A: ("f4", "c8", "rfft"),
    0x6A: ("f8", "c16", "rfft"), 0x2C: ("c8", "f4", "irfft"), 0x6C: ("c16", "f8", "irfft"),
}  # fmt: skip


class FakeCufft:
    """The library. `plans` are those that were not destroyed, `streams` what was executed on."""

    def __init__(self) -> None:
        self.plans: dict[int, list[Any]] = {}
        self.streams: list[int] = []
        self.made = self.stream = 0

    def cufftCreate(self, handle: Any) -> int:  # noqa: N802 - the library's name
        self.made += 1
        handle._obj.value = self.made
        self.plans[self.made] = []
        return 0

    def cufftDestroy(self, handle: int) -> int:  # noqa: N802 - as above
        return 0 if self.plans.pop(handle, None) is not None else _INVALID_PLAN

    def cufftSetStream(self, handle: int, stream: int) -> int:  # noqa: N802 - as above
        self.stream = stream
        return 0

    def cufftMakePlanMany64(self, handle: int, rank: int, n: Any, *layout: Any) -> int:  # noqa: N802 - as above
        if rank != 1 or n[0] < 1:
            return _INVALID_VALUE
        self.plans[handle] = [n[0], *layout]
        return 0

    def _execute(self, handle: int, source: int, target: int, direction: int = 0) -> int:
        if not self.plans.get(handle):
            return _INVALID_PLAN
        n, given, near, apart, made, to_near, to_apart, type_, count, _ = self.plans[handle]
        read, written, real = _TYPES[type_]
        floats = np.dtype(read if real == "rfft" else written).itemsize
        if real and (source if real == "rfft" else target) % (2 * floats):
            return _INVALID_VALUE  # real numbers are taken two at a time
        x = _array(source, read, (count, given[0]), (apart, near))
        y = _array(target, written, (count, made[0]), (to_apart, to_near))
        name = real or ("fft" if direction < 0 else "ifft")
        norm = "forward" if name[0] == "i" else "backward"
        length = {"n": n} if name == "irfft" else {}
        y[...] = getattr(np.fft, name)(x, axis=1, norm=norm, **length)
        if name == "irfft":
            x[...] = np.nan
        self.streams.append(self.stream)
        return 0

    cufftExecC2C = cufftExecZ2Z = cufftExecR2C = cufftExecD2Z = cufftExecC2R = _execute  # noqa: N815 - as above
    cufftExecZ2D = _execute  # noqa: N815 - as above


def _array(address: int, dtype: str, shape: tuple[int, int], steps: tuple[int, int]) -> Any:
    kind = np.dtype(dtype)
    size = (sum((n - 1) * by for n, by in zip(shape, steps, strict=True)) + 1) * kind.itemsize
    raw = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address)).view(kind)
    return as_strided(raw, shape, tuple(by * kind.itemsize for by in steps))
