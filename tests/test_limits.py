"""Processors and memory that this process may use, of files that say so."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from autofuse.limits import processor_quota, processors, usable_cores, usable_memory_bytes

GIB = 1 << 30
MEMINFO = {"proc/meminfo": "MemTotal:       67108864 kB\nMemFree:        1 kB\n"}
V2 = {
    "proc/self/cgroup": "0::/jobs/one\n",
    "proc/self/mountinfo": "31 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n",
}
V1 = {
    "proc/self/cgroup": "5:memory:/jobs/one\n4:cpu,cpuacct:/jobs/one\n1:name=systemd:/jobs\n0::/\n",
    "proc/self/mountinfo": (
        "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
        "31 23 0:26 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
        "32 23 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
        "33 23 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
    ),
}
CPU, MEMORY = "sys/fs/cgroup/cpu,cpuacct/", "sys/fs/cgroup/memory/"


def files(folder: Path, texts: Mapping[str, str]) -> Path:
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_a_quota_is_rounded_down_and_never_to_nothing() -> None:
    assert [processors(8, quota) for quota in (math.inf, 8.0, 2.5, 0.3)] == [8, 8, 2, 1]
    assert processors(2, 64.0) == 2


def test_groups_of_version_2(tmp_path: Path) -> None:
    root = files(tmp_path, {
        **V2, **MEMINFO,
        "sys/fs/cgroup/jobs/one/cpu.max": "max 100000\n",
        "sys/fs/cgroup/jobs/one/memory.max": f"{8 * GIB}\n",
        "sys/fs/cgroup/jobs/cpu.max": "250000 100000\n",
        "sys/fs/cgroup/jobs/memory.max": "max\n",
    })  # fmt: skip
    assert processor_quota(root) == 2.5, "that of a group around it holds"
    assert usable_memory_bytes(root) == 8 * GIB


def test_groups_of_version_1(tmp_path: Path) -> None:
    root = files(tmp_path, {
        **V1, **MEMINFO,
        f"{CPU}jobs/one/cpu.cfs_quota_us": "400000\n",
        f"{CPU}jobs/one/cpu.cfs_period_us": "100000\n",
        f"{CPU}jobs/cpu.cfs_quota_us": "-1\n", f"{CPU}jobs/cpu.cfs_period_us": "100000\n",
        f"{MEMORY}jobs/one/memory.limit_in_bytes": "9223372036854771712\n",
        f"{MEMORY}memory.limit_in_bytes": f"{2 * GIB}\n",
    })  # fmt: skip
    assert processor_quota(root) == 4.0
    assert usable_memory_bytes(root) == 2 * GIB


@pytest.mark.parametrize(
    ("group", "top"),
    [("/docker/abc", "/docker/abc"), ("/../../elsewhere", "/"), ("/elsewhere", "/docker/abc")],
)
def test_a_container_shows_its_own_group_as_the_mount(tmp_path: Path, group: str, top: str) -> None:
    mount = f"31 23 0:26 {top} /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
    root = files(tmp_path, {
        "proc/self/cgroup": f"4:cpu:{group}\n", "proc/self/mountinfo": mount,
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "150000",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "50000",
    })  # fmt: skip
    assert processor_quota(root) == 3.0


def test_where_nothing_is_told_nothing_limits(tmp_path: Path) -> None:
    assert processor_quota(tmp_path) == math.inf and usable_memory_bytes(tmp_path) is None
    assert processor_quota(files(tmp_path, V2)) == math.inf
    assert usable_memory_bytes(files(tmp_path, MEMINFO)) == 64 * GIB
    broken = {**V2, "sys/fs/cgroup/jobs/one/cpu.max": "100000 0\n", "sys/fs/cgroup/cpu.max": ""}
    assert processor_quota(files(tmp_path, broken)) == math.inf


def test_this_machine_has_some_of_each() -> None:
    assert 1 <= usable_cores() <= len(os.sched_getaffinity(0))
    assert (usable_memory_bytes() or GIB) > 1 << 20
