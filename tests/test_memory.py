"""What a workload takes, and what a worker may take of its machine."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from autofuse import spec, trace, xp
from autofuse.measure.timing.sampling import MeasureError
from autofuse.measure.worker.folders import OwnFolder, sweep
from autofuse.measure.worker.session import Worker
from autofuse.measure.workload import Workload, check_room, needed_bytes


def test_what_cannot_fit_is_told_before_anything_is_drawn() -> None:
    graph = trace(xp.exp, spec((1 << 20, 1 << 20)))
    assert needed_bytes(graph) == (1 << 40) * (4 + 4 + 8)
    with pytest.raises(MeasureError, match=r"takes 1\.64e\+04 GiB or more, and this process may"):
        check_room(Workload(graph), 1 << 30)
    with pytest.raises(MeasureError, match="GiB or more"), Worker(Workload(graph)) as worker:
        worker.start()
    check_room(Workload(graph), None)


def test_a_limited_process_runs_out_of_memory_by_itself() -> None:
    code = (
        "import mmap\n"
        "from autofuse import limits\n"
        "limits.limit_own_memory()\n"
        "mmap.mmap(-1, 1 << 20).close()\n"
        "try: mmap.mmap(-1, limits.usable_memory_bytes() + (1 << 30))\n"
        "except OSError as error: print(error.strerror)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "Cannot allocate memory"


def test_what_killed_jobs_left_is_swept_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code = (
        "import os, signal\n"
        "from autofuse.measure.worker.folders import OwnFolder\n"
        "kept = OwnFolder()\n"
        "print(kept.path, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    left = Path(killed.stdout.strip())
    assert killed.returncode < 0 and left.is_dir()
    (tmp_path / "autofuse-unknown").mkdir()
    (tmp_path / "autofuse-link").symlink_to(left)
    alive, other = OwnFolder(), OwnFolder()
    assert not left.exists() and alive.path.is_dir() and other.path.is_dir()
    assert (tmp_path / "autofuse-unknown").is_dir()
    assert sweep(tmp_path) == 0
    for folder in (alive, other):
        folder.close()
        assert not folder.path.exists()
