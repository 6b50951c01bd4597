"""What measuring knows of each kind of hardware."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autofuse.backends.machine import last_level_cache_bytes
from autofuse.cost.bounds import Calibration
from autofuse.measure.calibrate import calibrate_cpu
from autofuse.measure.device import Device


@dataclass(frozen=True)
class Hardware:
    """How one kind of hardware is measured and calibrated, and the bytes of its last-level cache.

    All raise AutofuseError where it cannot be used. `name` is that of its measuring lock. `device`
    is called in the worker process, so it must be a function of some module."""

    name: str
    device: Callable[[], Device]
    calibrate: Callable[[], Calibration]
    cache_bytes: Callable[[], int]


def _host() -> Device:
    from autofuse.measure.host import HostDevice

    return HostDevice()


def _cuda() -> Device:
    from autofuse.measure.cuda import CudaDevice

    return CudaDevice()


def _calibrate_cuda() -> Calibration:
    from autofuse.measure.calibrate_cuda import calibrate_cuda

    return calibrate_cuda()


def _cuda_cache() -> int:
    from autofuse.backends.cuda.driver import running_target

    return running_target().l2_bytes


# Imported when used: the worker of one kind has no use for the others.
HOST = Hardware("cpu", _host, calibrate_cpu, last_level_cache_bytes)
GPU = Hardware("cuda", _cuda, _calibrate_cuda, _cuda_cache)
