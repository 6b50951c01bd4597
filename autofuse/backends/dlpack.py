"""Arrays of other packages in host memory, read in place through DLPack.

NumPy has no bfloat16, so that such arrays come as words of 16 bits (dlpack.h: `DLTensor`).
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

_HOST = (1, 3)  # kDLCPU, kDLCUDAHost
_UINT, _BFLOAT = 1, 4  # kDLUInt, kDLBfloat


class _DLTensor(ctypes.Structure):
    """The beginning of a `DLManagedTensor`."""

    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
    )  # fmt: skip


class _Exported:
    """A capsule, as `np.from_dlpack` asks for one."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (_HOST[0], 0)


def host_array(value: Any) -> Any:
    """An array that shares memory with `value` if that is in host memory and knows DLPack, else
    `value` itself. Raises BufferError for what its package does not give away (PyTorch: tensors
    that gradients are taken of)."""
    if isinstance(value, np.ndarray) or not hasattr(value, "__dlpack_device__"):
        return value
    if int(value.__dlpack_device__()[0]) not in _HOST:
        return value
    if not str(value.dtype).endswith("bfloat16"):
        return np.from_dlpack(value)
    from ml_dtypes import bfloat16  # plans without it are loaded without it

    capsule = value.__dlpack__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    found = _DLTensor.from_address(pointer(capsule, b"dltensor"))
    assert found.code == _BFLOAT
    found.code = _UINT
    return np.from_dlpack(_Exported(capsule)).view(bfloat16)
