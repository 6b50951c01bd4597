"""Tensor maps by the driver's own functions: CuPy has none for them. Numbers are those of cuda.h.

A map is encoded for the address of a buffer, which a launch knows. What goes to a kernel is a copy
of its 128 bytes, so a map may be made for another address as soon as a launch has been asked for.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from autofuse.backends.cuda.geometry import Geometry
from autofuse.kernel.ir.tensor_map import MAP_ALIGNED, MAP_BYTES, TensorMap
from autofuse.ops.dtypes import DType
from autofuse.ops.types import AutofuseError
from autofuse.plan.parameters import MAPS
from autofuse.plan.types import Candidate

# What a kernel is given: an address, or the bytes of a map.
Given = int | bytes
_POINTER, _INT = ctypes.c_void_p, ctypes.c_int
_SIGNATURES = {
    "cuTensorMapEncodeTiled": (
        _POINTER, _INT, ctypes.c_uint32, _POINTER, _POINTER, _POINTER, _POINTER, _POINTER,
        _INT, _INT, _INT, _INT,
    ),
    "cuTensorMapReplaceAddress": (_POINTER, _POINTER),
    "cuLaunchKernel": (_POINTER, *[ctypes.c_uint] * 7, _POINTER, _POINTER, _POINTER),
}  # fmt: skip
# CUtensorMapDataType; bytes are copied as they are, whatever their sign.
TYPES = {DType.I8: 0, DType.U8: 0, DType.F16: 6, DType.BF16: 9}
# CUtensorMapInterleave, CUtensorMapSwizzle by bytes of a line, CUtensorMapL2promotion (128 bytes)
# and CUtensorMapFloatOOBfill.
_NO_INTERLEAVE, _SWIZZLES, _L2_PROMOTION, _FILLS = 0, {0: 0, 32: 1, 64: 2, 128: 3}, 2, {"zeros": 0}
MISSING = "tensor maps need a CUDA driver that makes them (12.0 or later)"


class TensorMapMissing(AutofuseError):  # noqa: N818 - the name is what the user is told
    """There is no driver that makes tensor maps."""


class TensorMapError(RuntimeError):
    """A tensor map that the driver refuses."""


@lru_cache(maxsize=1)
def map_library() -> Any:
    """The driver with its functions for tensor maps declared. Raises TensorMapMissing."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
        for name, arguments in _SIGNATURES.items():
            getattr(library, name).argtypes = arguments
    except (OSError, AttributeError) as error:
        raise TensorMapMissing(MISSING) from error
    return library


def has_tensor_maps() -> bool:
    """Whether the driver here makes them."""
    try:
        map_library()
    except TensorMapMissing:
        return False
    return True


def tensor_map_name() -> str:
    """Who makes them; raises TensorMapMissing."""
    map_library()
    return "cuTensorMapEncodeTiled of the driver"


def lacking(candidate: Candidate) -> str:
    """That a candidate has tensor maps, which no driver here makes, in a sentence; "" where all is
    there."""
    launches = candidate.all_launches
    if not any(MAPS.of(launch) for launch in launches) or has_tensor_maps():
        return ""
    return MISSING


class MapApi:
    """The driver's functions for tensor maps; `library` stands for it in tests."""

    def __init__(self, library: Any = None) -> None:
        """Raises TensorMapMissing."""
        self.library = library or map_library()

    def encoded(self, tensor: TensorMap, buffer: int) -> bytes:
        """The map of a buffer at this address, 128 bytes. Raises TensorMapError."""
        rank = tensor.rank
        room = aligned_room(MAP_BYTES)
        code = self.library.cuTensorMapEncodeTiled(
            ctypes.addressof(room), TYPES[tensor.dtype], rank, buffer + tensor.offset,
            (ctypes.c_uint64 * rank)(*tensor.sizes),
            (ctypes.c_uint64 * max(rank - 1, 1))(*tensor.strides),
            (ctypes.c_uint32 * rank)(*tensor.box),
            (ctypes.c_uint32 * rank)(*[1] * rank),
            _NO_INTERLEAVE, _SWIZZLES[tensor.swizzle], _L2_PROMOTION, _FILLS[tensor.fill],
        )  # fmt: skip
        if code:
            raise TensorMapError(f"cuTensorMapEncodeTiled failed (CUDA error {code})")
        return bytes(room)

    def launch(self, function: int, shape: Geometry, stream: int, given: Sequence[Given]) -> None:
        """Start a kernel that is given maps: CuPy knows no argument of 128 bytes."""
        assert not shape.cooperative, "no kernel with tensor maps has blocks that wait"
        places, _kept = packed(given)
        code = self.library.cuLaunchKernel(
            function, shape.grid, 1, 1, shape.block, 1, 1, shape.shared, stream, places, None
        )
        if code:
            raise TensorMapError(f"cuLaunchKernel failed (CUDA error {code})")

    @property
    def replace(self) -> int:
        """Address of cuTensorMapReplaceAddress, for callers in C."""
        function = self.library.cuTensorMapReplaceAddress
        return int(ctypes.cast(function, ctypes.c_void_p).value or 0)


def aligned_room(nbytes: int) -> Any:
    """So many bytes at an address that a map may lie at."""
    memory = (ctypes.c_char * (nbytes + MAP_ALIGNED))()
    start = -ctypes.addressof(memory) % MAP_ALIGNED
    # The part keeps the whole alive.
    return (ctypes.c_char * nbytes).from_buffer(memory, start)


def packed(arguments: Sequence[Given]) -> tuple[Any, Any]:
    """Arguments as the driver wants them: where each of them is, and what is there, which is to be
    kept until it has been read."""
    kept: list[Any] = []
    for given in arguments:
        if isinstance(given, bytes):
            kept.append(aligned_room(len(given)))
            kept[-1].raw = given
        else:
            kept.append(ctypes.c_int64(given))
    places = (_POINTER * len(kept))(*map(ctypes.addressof, kept))
    return places, kept
