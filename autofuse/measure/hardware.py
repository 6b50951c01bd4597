"""What measuring knows of each kind of hardware."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autofuse.backends.machine import host_identity, last_level_cache_bytes
from autofuse.measure.device import Device

if TYPE_CHECKING:  # a process that measures has no use for bounds
    from autofuse.cost.bounds import Calibration
    from autofuse.cost.latency import Latencies


@dataclass(frozen=True, slots=True)
class DeviceUnit:
    """One thing that is measured on: its `name` among all machines, and the environment variables
    of a process that is to use it and no other of its kind."""

    name: str
    variables: tuple[tuple[str, str], ...] = ()


def _nobody_asks(_: str) -> str:
    return "a processor is always shared: its canary tells whether others disturb"


def _not_measured(relaxed: bool) -> Latencies:
    return ()


@dataclass(frozen=True)
class Hardware:
    """How one kind of hardware is measured and calibrated, and the bytes of its last-level cache.

    All raise AutofuseError where it cannot be used. `units` are those of this host, the one that
    this process uses first. `device` is called in the worker process, so it must be a function of
    some module. `others` gives the ids of other processes that compute on a unit, by its name, or
    in a sentence why they cannot be known. `latencies` measures those of scalar operations, where
    arithmetic may be reassociated or not; () for hardware of which bounds know none.
    `hangs_are_final`: what hangs takes the hardware with it, so it is not tried again. Candidates
    are called for `warmup_s` seconds before they are timed, and timed for `least_s` at least."""

    units: Callable[[], tuple[DeviceUnit, ...]]
    device: Callable[[], Device]
    calibrate: Callable[[], Calibration]
    cache_bytes: Callable[[], int]
    others: Callable[[str], tuple[int, ...] | str] = _nobody_asks
    latencies: Callable[[bool], Latencies] = _not_measured
    hangs_are_final: bool = False
    warmup_s: float = 0.01
    least_s: float = 0.025

    @property
    def has_latencies(self) -> bool:
        """Whether bounds know latencies of this hardware."""
        return self.latencies is not _not_measured

    @property
    def unit(self) -> str:
        """The name of the unit that this process uses, and of its measuring lock."""
        return self.units()[0].name


def _processor() -> tuple[DeviceUnit, ...]:
    return (DeviceUnit(f"cpu-{host_identity()}"),)


def _gpus() -> tuple[DeviceUnit, ...]:
    from autofuse.backends.cuda.units import VISIBLE, visible_gpus

    return tuple(DeviceUnit(name, ((VISIBLE, entry),)) for name, entry in visible_gpus())


def _on_gpu(unit: str) -> tuple[int, ...] | str:
    from autofuse.backends.cuda.units import gpu_processes

    return gpu_processes(unit)


def _calibrate_host() -> Calibration:
    from autofuse.measure.calibrate.host import calibrate_cpu

    return calibrate_cpu()


def _host_latencies(relaxed: bool) -> Latencies:
    from autofuse.measure.calibrate.chains import calibrate_chains

    return calibrate_chains(relaxed)


def _host() -> Device:
    from autofuse.measure.host import HostDevice

    return HostDevice()


def _cuda() -> Device:
    from autofuse.measure.cuda import CudaDevice

    return CudaDevice()


def _calibrate_cuda() -> Calibration:
    from autofuse.measure.calibrate.cuda import calibrate_cuda

    return calibrate_cuda()


def _cuda_cache() -> int:
    from autofuse.backends.cuda.driver import running_target

    return running_target().l2_bytes


# Imported when used: the worker of one kind has no use for the others.
HOST = Hardware(
    _processor, _host, _calibrate_host, last_level_cache_bytes, latencies=_host_latencies
)
# Clocks of a GPU follow what it has to do, within tens of milliseconds.
GPU = Hardware(
    _gpus, _cuda, _calibrate_cuda, _cuda_cache, _on_gpu, hangs_are_final=True, warmup_s=0.02,
    least_s=0.05,
)  # fmt: skip
