"""What measuring knows of each kind of hardware, by the device name in a fingerprint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autofuse.measure.calibrate import calibrate_cpu
from autofuse.measure.device import Device
from autofuse.ops.types import AutofuseError
from autofuse.plan.cost import Calibration


@dataclass(frozen=True)
class Hardware:
    """How one kind of hardware is measured and calibrated.

    Both raise AutofuseError where it cannot be used."""

    name: str
    device: Callable[[], Device]
    calibrate: Callable[[], Calibration]


def _host() -> Device:
    from autofuse.measure.host import HostDevice

    return HostDevice()


def _cuda() -> Device:
    from autofuse.measure.cuda import CudaDevice

    return CudaDevice()


def _calibrate_cuda() -> Calibration:
    from autofuse.measure.calibrate_cuda import calibrate_cuda

    return calibrate_cuda()


# Imported when used: the worker of one kind has no use for the others.
HARDWARE: dict[str, Hardware] = {
    "cpu": Hardware("cpu", _host, calibrate_cpu),
    "cuda": Hardware("cuda", _cuda, _calibrate_cuda),
}


def hardware_named(name: str) -> Hardware:
    """The hardware called `name`; raises AutofuseError listing what there is."""
    if name not in HARDWARE:
        known = ", ".join(sorted(HARDWARE))
        raise AutofuseError(f"nothing can be measured on hardware '{name}' (known: {known})")
    return HARDWARE[name]
