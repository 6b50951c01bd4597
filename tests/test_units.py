"""GPUs by their names, who else is on them, and the locks of units."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from autofuse.backends.cuda.driver import CudaMissing
from autofuse.backends.cuda.units import gpu_processes, list_gpus
from autofuse.backends.machine import host_identity
from autofuse.measure.hardware import HOST, DeviceUnit
from autofuse.measure.worker.lock import DeviceBusy, measurement_lock

FIRST, SECOND = (f"GPU-{n * 4}-{n * 2}-{n * 2}-{n * 2}-{n * 6}" for n in ("00", "01"))


class FakeDriver:
    """A driver of so many GPUs, whose UUIDs are their number over and over."""

    def __init__(self, gpus: int) -> None:
        self.gpus = gpus

    def cuDeviceGetCount(self, count: Any) -> int:  # noqa: N802 - the driver's name
        count._obj.value = self.gpus
        return 0 if self.gpus else 100

    def cuDeviceGet(self, device: Any, number: int) -> int:  # noqa: N802 - the driver's name
        device._obj.value = number
        return 0

    def cuDeviceGetUuid_v2(self, words: Any, device: Any) -> int:  # noqa: N802 - the driver's name
        words.raw = bytes([device.value] * 16)
        return 0


def test_every_gpu_has_a_name_and_a_variable() -> None:
    assert list_gpus(FakeDriver(2), {}) == ((FIRST, "0"), (SECOND, "1"))
    hidden = {"CUDA_VISIBLE_DEVICES": " 5, GPU-7"}
    assert list_gpus(FakeDriver(2), hidden) == ((FIRST, "5"), (SECOND, "GPU-7"))
    with pytest.raises(CudaMissing, match="error 100"):
        list_gpus(FakeDriver(0), {})


class FakeNvml:
    """NVML of one GPU with these processes; `codes` are what it answers instead, by function."""

    def __init__(self, processes: Sequence[int], **codes: int) -> None:
        self.processes, self.codes, self.asked = processes, codes, 0

    def nvmlInit_v2(self) -> int:  # noqa: N802 - NVML's name
        return self.codes.get("init", 0)

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes, handle: Any) -> int:  # noqa: N802 - NVML's name
        return 0 if uuid == FIRST.encode() else 6

    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle: Any, count: Any, rows: Any) -> int:  # noqa: N802 - NVML's name
        self.asked += 1
        room, count._obj.value = count._obj.value, len(self.processes)
        if room < len(self.processes):
            return 7
        for row, pid in zip(rows, self.processes, strict=False):
            row.pid = pid
        return self.codes.get("told", 0)


def test_the_processes_of_others_are_told() -> None:
    library = FakeNvml([9, os.getpid(), 4])
    assert gpu_processes(FIRST, library) == (4, 9) and library.asked == 2
    assert gpu_processes(FIRST, FakeNvml([])) == ()


@pytest.mark.parametrize(
    ("unit", "library", "why"),
    [
        (FIRST, FakeNvml([], init=9), "NVML is not here"),
        (SECOND, FakeNvml([]), f"does not know {SECOND}"),
        (FIRST, FakeNvml([], told=3), "does not tell the processes"),
    ],
)
def test_where_nobody_knows_a_sentence_says_why(unit: str, library: FakeNvml, why: str) -> None:
    assert why in gpu_processes(unit, library)


def test_units_take_no_turns_with_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on two GPUs of a host, and on two hosts whose user has one home."""
    monkeypatch.setenv("AUTOFUSE_CACHE", str(tmp_path))
    with measurement_lock(FIRST, 0.0), measurement_lock(SECOND, 0.0), measurement_lock(HOST.unit):
        for held in (FIRST, SECOND, HOST.unit):
            with pytest.raises(DeviceBusy, match=held), measurement_lock(held, 0.0):
                pass
        elsewhere = HOST.unit.replace(host_identity(), "another-host")
        with measurement_lock(elsewhere, 0.0):
            pass
    assert HOST.units() == (DeviceUnit(f"cpu-{host_identity()}"),) and host_identity()
