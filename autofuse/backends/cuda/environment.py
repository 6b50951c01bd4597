"""The fingerprint of a CUDA device."""

from __future__ import annotations

from autofuse.backends.cuda.devices import Target
from autofuse.backends.cuda.driver import cupy_version, driver_version, running_target
from autofuse.backends.cuda.nvrtc import nvrtc_version
from autofuse.records import Environment


def cuda_environment() -> Environment:
    """The running device: times are its own, and stale under another driver or compiler.

    Raises CudaMissing without one."""
    must = _must(running_target())
    stale = {"cupy": cupy_version(), "driver": driver_version(), "nvrtc": nvrtc_version()}
    return Environment("cuda", must, tuple(sorted(stale.items())))


def target_environment(target: Target) -> Environment:
    """A device that need not be here: nothing is ever measured under this fingerprint."""
    return Environment("cuda-emulated", _must(target))


def _must(target: Target) -> tuple[tuple[str, str], ...]:
    must = {
        "arch": target.arch,
        "model": target.name,
        "sms": str(target.sms),
    }
    return tuple(sorted(must.items()))
