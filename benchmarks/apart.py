"""A row made in a process of its own, which ends with all that it started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.run import write_json

ROOT = Path(__file__).resolve().parent.parent


def answer_apart(
    command: Sequence[str], asked: Mapping[str, Any], limit_s: float
) -> dict[str, Any]:
    """What Python started with `command` and a file made of the file, in which it found `asked`;
    under `error` why there is nothing."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "asked.json"
        write_json(path, asked)
        paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        child = subprocess.Popen(
            [sys.executable, *command, str(path)], cwd=folder,
            env={**os.environ, "PYTHONPATH": paths}, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            said = child.communicate(timeout=limit_s)[1]
        except subprocess.TimeoutExpired:
            return {"error": f"it did not end in {limit_s:g} s"}
        finally:
            _end(child)
        if child.returncode != 0:
            last = (said.strip().splitlines() or [""])[-1]
            return {"error": f"the process ended with {child.returncode}: {last}"}
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found


def _end(child: subprocess.Popen[str]) -> None:
    """The process, and what it may have left behind in its own session."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    child.wait()
