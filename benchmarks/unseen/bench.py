"""The table over all programs: each row in a process of its own, kept as it ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from autofuse.backends.machine import cpu_model
from autofuse.limits import usable_cores
from benchmarks.apart import answer_apart
from benchmarks.kept import Row, calibrated_peaks, filled, kept_table
from benchmarks.unseen.row import Asked
from benchmarks.unseen.summary import line, summary
from benchmarks.unseen.types import Program

# What Python is started with for a row; a program's name and a file follow.
CHILD = ("-m", "benchmarks.unseen.one")
# What rows of one table have in common.
SAME = ("cpu",)
Say = Callable[[str], object]
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
    found = answer_apart([*CHILD, program.name], asdict(asked), limit_s)
    return {"stage": "tuning", **found} if "error" in found else found


def _absent(programs: Sequence[Program], say: Say) -> dict[str, str]:
    """The packages that each program lacks, said."""
    absent = {p.name: ", ".join(p.absent) for p in programs if p.absent}
    for name, missing in absent.items():
        say(f"absent: {name} ({missing})")
    return absent


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
    same = {name: facts[name] for name in SAME}
    found = kept_table(output, same, "bench_unseen")
    rows: dict[str, Row] = found.get("rows", {})
    absent = _absent(programs, say)
    peaks = found.get("peaks") or dict((calibrate or calibrated_peaks)())
    make = answer or (lambda program, asked: apart(program, asked, options.limit_s))

    def row(program: Program, seconds: float) -> Row:
        asked = Asked(seconds, options.timing_s, options.peers, options.rules, peaks)
        about = {"kind": program.kind, "package": program.package, "drawn": program.drawn}
        return {"program": program.name, "budget_s": seconds, **about, **make(program, asked)}

    here = ((p, seconds) for p in programs if p.name not in absent for seconds in options.budgets)
    wanted = ((f"{p.name}@{seconds:g}", partial(row, p, seconds)) for p, seconds in here)
    return filled(
        rows, wanted, lambda row: bool(row) and "error" not in row,
        lambda: _data(facts, peaks, rows, absent), output, lambda _, made: say(line(made)),
    )  # fmt: skip


def _facts(options: Options) -> dict[str, Any]:
    return {"cpu": cpu_model(), "threads": usable_cores(), "note": options.note}


def _data(
    facts: Mapping[str, Any], peaks: Mapping[str, float], rows: Mapping[str, Row],
    absent: Mapping[str, str],
) -> dict[str, Any]:  # fmt: skip
    return {**facts, "summary": summary(list(rows.values())), "absent": dict(absent),
            "rows": dict(rows), "peaks": dict(peaks)}  # fmt: skip
