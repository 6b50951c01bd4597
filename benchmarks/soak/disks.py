"""A disk that fills up under the build cache and the database."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from random import Random

from benchmarks.soak.actors import REFUSED, Crowd, Job
from benchmarks.soak.kills import BUDGET_S, PATIENCE_S, SOURCES
from benchmarks.soak.ledger import damage, lost
from benchmarks.soak.types import Round

# KiB: from less than an empty database needs to nearly enough for a whole tune.
SMALLEST, LARGEST = 64, 1536
# From <linux/sched.h>: mounts of one's own.
_CLONE_NEWNS = 0x20000


def play(folder: Path, seed: int, disks: int = 4, largest: int = LARGEST) -> Round:
    """A tune on a full disk ends well or is refused in one sentence; nothing acknowledged is lost,
    and with room again the same command ends well. Without the right to mount a disk, files are
    limited in size instead. `largest`: KiB of the largest disk. Counts what was refused."""
    draw = Random(seed)
    refused, problems = 0, list[str]()
    own_mounts()  # before there is a crowd: it has to see the disks
    with Crowd(folder) as crowd:
        for n in range(disks):
            size = draw.randint(SMALLEST, largest)
            own = folder / f"disk{n}"
            own.mkdir()
            job = {
                "do": "tune", "db": str(own / "tuning.db"), "log": str(folder / f"log{n}.jsonl"),
                "source": draw.choice(SOURCES), "budget_s": BUDGET_S, "seed": seed + n,
                "variables": {"AUTOFUSE_CACHE": str(own / "cache"), "TMPDIR": str(own)},
            }  # fmt: skip
            with small_disk(own, size) as mounted:
                limit = None if mounted else size * 1024
                crowd.start([{**job, "limit": limit}])
                codes = crowd.ended(PATIENCE_S)
                refused += codes == [REFUSED]
                problems += _after(crowd, own, job, codes)
    return Round(refused, tuple(problems))


def _after(crowd: Crowd, disk: Path, job: Job, codes: list[int] | None) -> Iterator[str]:
    """What is wrong once a tune has ended with these codes, and after another one with room."""
    db, log = Path(job["db"]), Path(job["log"])
    if codes not in ([0], [REFUSED]):
        yield f"a tune on a full disk ended with {codes}:\n{crowd.words()}"
    if disk.is_mount():
        remount(disk, 64 * 1024)
    yield from damage(db)
    yield from lost(db, log)
    crowd.start([job])
    if (codes := crowd.ended(PATIENCE_S)) != [0]:
        yield f"with room again a tune ended with {codes}:\n{crowd.words()}"
    yield from damage(db)
    yield from lost(db, log)


@contextmanager
def small_disk(folder: Path, kib: int) -> Iterator[bool]:
    """A disk of so many KiB at `folder`, or False where this user may not mount one. It is seen by
    this thread and by processes that it starts, and goes with the last of them, even if killed."""
    options = f"size={kib}k,mode=700"
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    mounted = os.geteuid() == 0 and own_mounts() and _worked(command)
    try:
        yield mounted
    finally:
        if mounted:
            # Lazily: a compiler that outlives its tune may still hold a file.
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


@lru_cache(maxsize=1)
def own_mounts() -> bool:
    """From now on what is mounted here is mounted nowhere else; whether that could be done."""
    alone = ctypes.CDLL(None).unshare(_CLONE_NEWNS) == 0
    return alone and _worked(["mount", "--make-rprivate", "/"])


def remount(folder: Path, kib: int) -> None:
    """Make room on a disk that was mounted small."""
    subprocess.run(["mount", "-o", f"remount,size={kib}k", str(folder)], check=True)


def _worked(command: list[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False
