"""What this process may use of its machine: processors by affinity and quota, and memory.

Quotas are those of its control group and of all around it, in either version (Linux,
Documentation/admin-guide/cgroup-v2.rst and cgroup-v1; OpenJDK's CgroupSubsystem walks alike).
"""

from __future__ import annotations

import math
import os
import resource
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path, PurePosixPath

# Where the system's files are; tests make some of their own.
ROOT = Path("/")


def usable_cores() -> int:
    """Processors that this process may keep busy, at least one."""
    return processors(len(os.sched_getaffinity(0)), _own_quota())


@lru_cache(maxsize=1)
def _own_quota() -> float:
    return processor_quota(ROOT)


def processors(allowed: int, quota: float) -> int:
    """Of the `allowed` ones, as many as a quota keeps running, rounded down: threads that use it up
    stand still for the rest of a period, and whoever waits for one of them is timed waiting."""
    return allowed if quota >= allowed else max(1, math.floor(quota))


def processor_quota(root: Path) -> float:
    """Seconds of processor time in a second; infinity without a quota. `root` is that of the
    files."""
    return min(map(_processors_of, _groups(root, "cpu")), default=math.inf)


def usable_memory_bytes(root: Path = ROOT) -> int | None:
    """The machine's memory, or less if a limit says so; None where neither is told."""
    limits = [_number(folder / name) for folder in _groups(root, "memory") for name in _MEMORY]
    for line in _lines(root / "proc/meminfo"):
        if line.startswith("MemTotal:"):
            limits.append(1024.0 * float(line.split()[1]))
    least = min(limits, default=math.inf)
    return None if math.isinf(least) else int(least)


def limit_own_memory() -> None:
    """Let this process map no more than what it has mapped already and the memory that it may use:
    a MemoryError comes before the system ends processes of others for room."""
    usable = usable_memory_bytes()
    if usable is None:
        return
    mapped = next((line.split()[0] for line in _lines(ROOT / "proc/self/statm")), "0")
    limit = usable + int(mapped) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    least = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(resource.RLIMIT_AS, (least, hard))


_MEMORY = ("memory.max", "memory.limit_in_bytes")


def _processors_of(group: Path) -> float:
    """The quota of one group alone; "max" or a negative number is none."""
    both = next(_lines(group / "cpu.max"), "").split()
    if len(both) == 2:
        quota, period = map(_parsed, both)
    else:
        quota, period = (_number(group / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
    return quota / period if 0 < quota < math.inf and 0 < period < math.inf else math.inf


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """The folders of this process's groups, outwards, that may limit what a controller gives."""
    own: dict[str, str] = {}
    for line in _lines(root / "proc/self/cgroup"):
        _, names, path = line.split(":", 2)
        own |= dict.fromkeys(names.split(","), path)
    for line in _lines(root / "proc/self/mountinfo"):
        where, _, what = line.partition(" - ")
        kind, _, options = what.split(" ", 2)
        name = {"cgroup": controller, "cgroup2": ""}.get(kind)
        if name in own and (kind == "cgroup2" or controller in options.split(",")):
            top, point = where.split(" ")[3:5]
            inner = _below(PurePosixPath(own[name]), PurePosixPath(top))
            mount = root / point.lstrip("/")
            yield from (mount / part for part in (inner, *inner.parents))


def _below(path: PurePosixPath, top: PurePosixPath) -> PurePosixPath:
    """A group's path inside the mount; a container may show one that is outside: the mount's."""
    if path.is_relative_to(top) and ".." not in path.parts:
        return path.relative_to(top)
    return PurePosixPath()


def _number(path: Path) -> float:
    return _parsed(next(_lines(path), ""))


def _parsed(text: str) -> float:
    try:
        return float(text)
    except ValueError:  # "max", or a file that is not there
        return math.inf


def _lines(path: Path) -> Iterator[str]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    yield from text.splitlines()
