"""Fourier transforms by cuFFT, by ctypes, as products by cuBLAS are.

A plan allocates what it works in when it is made, so its calls may be captured (cuFFT guide, "CUDA
Graphs Support"). Enumerators are those of cufft.h.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from autofuse.backends.cuda.vendor import cuda_major, vendor_library
from autofuse.ops.dtypes import DType
from autofuse.ops.library_forms import Transform
from autofuse.ops.types import AutofuseError

_FORWARD, _INVERSE = -1, 1
# By kind of transform: cufftType of f32 and of f64, and the functions that execute it.
_KINDS = {
    "fft": ((0x29, 0x69), ("cufftExecC2C", "cufftExecZ2Z"), _FORWARD),
    "ifft": ((0x29, 0x69), ("cufftExecC2C", "cufftExecZ2Z"), _INVERSE),
    "rfft": ((0x2A, 0x6A), ("cufftExecR2C", "cufftExecD2Z"), None),
    "irfft": ((0x2C, 0x6C), ("cufftExecC2R", "cufftExecZ2D"), None),
}
_INT, _LONG, _POINTER = ctypes.c_int, ctypes.c_longlong, ctypes.c_void_p
_LONGS, _EXECUTE = ctypes.POINTER(_LONG), (_INT, _POINTER, _POINTER)
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cufftCreate": (ctypes.POINTER(_INT),),
    "cufftDestroy": (_INT,),
    "cufftSetStream": (_INT, _POINTER),
    "cufftMakePlanMany64": (
        _INT, _INT, _LONGS, _LONGS, _LONG, _LONG, _LONGS, _LONG, _LONG, _INT, _LONG,
        ctypes.POINTER(ctypes.c_size_t),
    ),
    "cufftExecC2C": (*_EXECUTE, _INT), "cufftExecZ2Z": (*_EXECUTE, _INT),
    "cufftExecR2C": _EXECUTE, "cufftExecD2Z": _EXECUTE,
    "cufftExecC2R": _EXECUTE, "cufftExecZ2D": _EXECUTE,
}  # fmt: skip


class CufftMissing(AutofuseError):  # noqa: N818 - the name is what the user is told
    """There is no cuFFT that could be loaded."""


class CufftError(RuntimeError):
    """A call that cuFFT refused."""


@lru_cache(maxsize=1)
def cufft_library() -> Any:
    """cuFFT with its functions declared. Raises CufftMissing."""
    # Its own number is one less than CUDA's.
    file = f"libcufft.so.{cuda_major() - 1}"
    return vendor_library("cuFFT", "cufft", file, _SIGNATURES, CufftMissing)


class CufftPlan:
    """Transforms of one kind, for calls that do not overlap. `copied` bytes are first copied to
    `room`: those of complex numbers that become real ones, which cuFFT may overwrite. Where calls
    would begin at odd floats, `apart` bytes of each are read, or written, in a place for these."""

    def __init__(
        self, kind: Transform, dtype: DType, zeros: Callable[[int], Any], library: Any = None
    ) -> None:
        """`zeros` allocates bytes of the device. Raises CufftMissing, CufftError."""
        self._library = library or cufft_library()
        wide = dtype is DType.F64
        types, functions, self._direction = _KINDS[kind.kind]
        self._function, self._steps = functions[wide], _steps(kind, dtype.itemsize)
        self._nbytes = tuple(kind.count * n * parts * dtype.itemsize for n, parts in kind.sides)
        self.copied = self._nbytes[0] if kind.kind == "irfft" else 0
        self.room: Any = zeros(self.copied) if self.copied else None
        count, *steps = self._steps
        even = _begins_even(kind, _walks_before(kind)) or count == 1
        self._reads = kind.kind == "rfft"
        self.apart = 0 if even else steps[0] if self._reads else steps[1]
        self.place: Any = zeros(self.apart) if self.apart else None
        handle = _INT()
        self._check("cufftCreate", ctypes.byref(handle))
        self._handle = handle.value
        weakref.finalize(self, self._library.cufftDestroy, self._handle).atexit = False
        self._check("cufftMakePlanMany64", self._handle, *_layout(kind, types[wide]))

    def spans(self, source: int, target: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Where what is read and what is written begins and ends, in bytes."""
        read, written = self._nbytes
        return (source, source + read), (target, target + written)

    def execute(
        self, source: int, target: int, stream: int,
        copy: Callable[[int, int, int], object], place: int = 0,
    ) -> None:  # fmt: skip
        """On a stream, on which `copy` (to, from, bytes) works too; `place` is the address of the
        plan's. Raises CufftError."""
        self._check("cufftSetStream", self._handle, stream)
        own = () if self._direction is None else (self._direction,)
        count, read, written = self._steps
        for k in range(count):
            given, made = source + k * read, target + k * written
            if self.apart and self._reads:
                copy(place, given, self.apart)
                given = place
            addresses = (given, place if self.apart and not self._reads else made)
            self._check(self._function, self._handle, *addresses, *own)
            if self.apart and not self._reads:
                copy(made, place, self.apart)

    def _check(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            raise CufftError(f"cuFFT failed in {name} (status {code})")


def _walks_before(kind: Transform) -> bool:
    """Whether one call walks the axis before the one that is transformed; the other one takes a
    call for each place. Calls begin at an even float where either way has them do so: cuFFT takes
    real numbers two at a time."""
    fewer = kind.before >= kind.after
    return fewer if _begins_even(kind, fewer) else not fewer and _begins_even(kind, True)


def _begins_even(kind: Transform, walks_before: bool) -> bool:
    """Whether no call begins at an odd float of the side that has no imaginary parts."""
    if all(parts == 2 for _, parts in kind.sides):
        return True
    if walks_before:
        return kind.after == 1
    return kind.before == 1 or kind.n * kind.after % 2 == 0


def _layout(kind: Transform, type_: int) -> tuple[Any, ...]:
    """The arguments of a plan after its handle: neighbours along the axis, and then transforms, lie
    so many numbers apart."""
    ends = []
    for extent, _ in kind.sides:
        apart = extent * kind.after if _walks_before(kind) else 1
        ends += [(_LONG * 1)(extent), kind.after, apart]
    count = kind.before if _walks_before(kind) else kind.after
    return (1, (_LONG * 1)(kind.n), *ends, type_, count, ctypes.byref(ctypes.c_size_t()))


def _steps(kind: Transform, width: int) -> tuple[int, int, int]:
    """Calls, and bytes between what they read and between what they write."""
    (places, read), (made, written) = kind.sides
    if _walks_before(kind):
        return kind.after, read * width, written * width
    whole = kind.after * width
    return kind.before, places * read * whole, made * written * whole
