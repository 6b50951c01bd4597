"""The GPUs of this host as single things: their names for ever, and who else computes on them."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from uuid import UUID

from autofuse.backends.cuda.clocks import nvml
from autofuse.backends.cuda.driver import CudaMissing, require_cuda

VISIBLE = "CUDA_VISIBLE_DEVICES"
# NVML's code for a list that is longer than the memory it was given (NVML_ERROR_INSUFFICIENT_SIZE).
_MORE = 7


@lru_cache(maxsize=1)
def visible_gpus() -> tuple[tuple[str, str], ...]:
    """Of each GPU that this process may use, the current one first: "GPU-" and its UUID (of a GPU
    that is cut up, that of the part), and the value of VISIBLE that means it alone. Raises
    CudaMissing."""
    require_cuda()
    return list_gpus(ctypes.CDLL("libcuda.so.1"), os.environ)


def list_gpus(driver: Any, variables: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """As `visible_gpus`, asking a driver that is started. Raises CudaMissing where it refuses."""
    count = ctypes.c_int(0)
    _asked(driver.cuDeviceGetCount(ctypes.byref(count)))
    entries = [e.strip() for e in variables.get(VISIBLE, "").split(",") if e.strip()]
    found = []
    for k in range(count.value):
        device, words = ctypes.c_int(0), ctypes.create_string_buffer(16)
        _asked(driver.cuDeviceGet(ctypes.byref(device), k))
        _asked(driver.cuDeviceGetUuid_v2(words, device))
        name = f"GPU-{UUID(bytes=words.raw)}"
        found.append((name, entries[k] if k < len(entries) else str(k)))
    return tuple(found)


def _asked(code: int) -> None:
    if code != 0:
        raise CudaMissing(f"the CUDA driver does not name its devices (error {code})")


class _Process(ctypes.Structure):
    """`nvmlProcessInfo_t` of nvml.h, version 3."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("memory", ctypes.c_ulonglong),
        ("instance", ctypes.c_uint),
        ("compute", ctypes.c_uint),
    )


def gpu_processes(unit: str, library: Any = None) -> tuple[int, ...] | str:
    """Ids of the other processes that compute on a GPU, by its UUID, or why nobody can say.
    `library` is NVML; without one, the driver's own."""
    library = library or nvml()
    if library is None or library.nvmlInit_v2() != 0:
        return "NVML is not here, so nobody can say who else uses the GPU"
    device = ctypes.c_void_p()
    if library.nvmlDeviceGetHandleByUUID(unit.encode(), ctypes.byref(device)) != 0:
        return f"NVML does not know {unit}, so nobody can say who else uses it"
    count, code = ctypes.c_uint(0), _MORE
    rows = (_Process * 0)()
    # It tells how many there are where the list is too short; others may come meanwhile.
    while code == _MORE:
        rows = (_Process * (count.value + 1))()
        count = ctypes.c_uint(len(rows))
        code = library.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(count), rows)
    if code != 0:
        return f"NVML does not tell the processes of {unit} (error {code})"
    return tuple(sorted(row.pid for row in rows[: count.value] if row.pid != os.getpid()))
