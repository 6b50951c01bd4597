"""The table over all programs: each row in a process of its own, kept as it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from autofuse.backends.machine import cpu_model
from autofuse.devices import timed_device
from autofuse.limits import usable_cores
from autofuse.peers.types import BenchError
from benchmarks.run import write_json
from benchmarks.unseen.row import Asked
from benchmarks.unseen.summary import line, summary
from benchmarks.unseen.types import Program

ROOT = Path(__file__).resolve().parents[2]
# What Python is started with for a row; a program's name and a file follow.
CHILD = ("-m", "benchmarks.unseen.one")
Say = Callable[[str], object]
Row = dict[str, Any]
# A program, and what is asked of it: its row.
Answer = Callable[[Program, Asked], Mapping[str, Any]]


Calibrate = Callable[[], Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Options:
    """Seconds of tuning (a row for each), of taking turns with the peers named, and the most that a
    row may take in all; `rules`: whether all ten are measured afterwards."""

    budgets: tuple[float, ...] = (20.0, 60.0)
    timing_s: float = 5.0
    peers: tuple[str, ...] = ("jax.jit", "onnxruntime")
    rules: bool = True
    limit_s: float = 900.0
    note: str = ""


def apart(program: Program, asked: Asked, limit_s: float = 900.0) -> Row:
    """A row made in a process of its own, which ends with all that it started after `limit_s`."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "asked.json"
        write_json(path, asdict(asked))
        command = [sys.executable, *CHILD, program.name, str(path)]
        paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        child = subprocess.Popen(
            command, cwd=folder, env={**os.environ, "PYTHONPATH": paths}, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            said = child.communicate(timeout=limit_s)[1]
        except subprocess.TimeoutExpired:
            return {"stage": "tuning", "error": f"it did not end in {limit_s:g} s"}
        finally:
            _end(child)
        if child.returncode != 0:
            last = (said.strip().splitlines() or [""])[-1]
            return {
                "stage": "tuning",
                "error": f"the process ended with {child.returncode}: {last}",
            }
        found: Row = json.loads(path.read_text(encoding="utf-8"))
        return found


def _end(child: subprocess.Popen[str]) -> None:
    """The process, and what it may have left behind in its own session."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    child.wait()


def bench_unseen(
    programs: Sequence[Program], options: Options, output: Path | None = None,
    say: Say = lambda _: None, answer: Answer | None = None,
    calibrate: Calibrate | None = None,
) -> dict[str, Any]:  # fmt: skip
    """A row for each program and budget, and figures over them; what `output` holds.

    `output` is rewritten after each row; rows that it has are kept, those that failed are tried
    again. Programs whose packages are not here are under `absent`. The machine is calibrated once,
    outside of any budget. Raises BenchError for an output of something else."""
    facts = _facts(options)
    found = _read(output, facts)
    rows: dict[str, Row] = found.get("rows", {})
    absent = {p.name: ", ".join(p.absent) for p in programs if p.absent}
    for name, missing in absent.items():
        say(f"absent: {name} ({missing})")
    peaks = found.get("peaks") or dict((calibrate or _calibrated)())
    make = answer or (lambda program, asked: apart(program, asked, options.limit_s))
    for program in programs:
        for seconds in () if program.name in absent else options.budgets:
            key = f"{program.name}@{seconds:g}"
            if "error" in rows.get(key, {"error": ""}):
                asked = Asked(seconds, options.timing_s, options.peers, options.rules, peaks)
                about = {"kind": program.kind, "package": program.package, "drawn": program.drawn}
                rows[key] = {"program": program.name, "budget_s": seconds, **about,
                             **make(program, asked)}  # fmt: skip
            say(line(rows[key]))
            if output is not None:
                write_json(output, _data(facts, peaks, rows, absent))
    return _data(facts, peaks, rows, absent)


def _calibrated() -> Mapping[str, float]:
    return timed_device("cpu").calibrate().to_mapping()


def _facts(options: Options) -> dict[str, Any]:
    return {"cpu": cpu_model(), "threads": usable_cores(), "note": options.note}


def _data(
    facts: Mapping[str, Any], peaks: Mapping[str, float], rows: Mapping[str, Row],
    absent: Mapping[str, str],
) -> dict[str, Any]:  # fmt: skip
    return {**facts, "summary": summary(list(rows.values())), "absent": dict(absent),
            "rows": dict(rows), "peaks": dict(peaks)}  # fmt: skip


def _read(output: Path | None, facts: Mapping[str, Any]) -> dict[str, Any]:
    """What a run that was cut off has left."""
    if output is None or not output.exists():
        return {}
    try:
        found = json.loads(output.read_text(encoding="utf-8"))
        same = found["cpu"] == facts["cpu"] and isinstance(found["rows"], dict)
    except (ValueError, KeyError, TypeError) as error:
        raise BenchError(f"{output} holds no rows of bench_unseen: {error}") from error
    if not same:
        raise BenchError(f"{output} holds rows of another machine: name another file")
    return dict(found)
