"""The table over all programs: each row in a process of its own, kept as it ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from autofuse.backends.machine import cpu_model
from autofuse.limits import usable_cores
from benchmarks.apart import answer_apart
from benchmarks.jax_cpu.pages import line, summary
from benchmarks.jax_cpu.row import LoopAsked
from benchmarks.jax_cpu.table import Wanted, key
from benchmarks.jax_cpu.types import LoopProgram
from benchmarks.kept import Row, calibrated_peaks, filled, kept_table

# What Python is started with for a row; a program's name, what is asked of it and a file follow.
CHILD = ("-m", "benchmarks.jax_cpu.one")
# What rows of one table have in common.
SAME = ("cpu", "jax", "budget_s")
Say = Callable[[str], object]
Answer = Callable[[Wanted, LoopAsked], Mapping[str, Any]]
Calibrate = Callable[[], Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class LoopOptions:
    """Seconds of tuning a row (0: only untuned), of taking turns, and the most that a row may take
    in all; `old` is the Python with the older JAX ("": none)."""

    budget_s: float = 20.0
    timing_s: float = 5.0
    old: str = ""
    limit_s: float = 600.0
    note: str = ""


def _absent(wanted: Sequence[Wanted]) -> dict[str, str]:
    """The packages that each program lacks."""
    return {program.name: ", ".join(program.absent) for program, _ in wanted if program.absent}


def bench_jax_cpu(
    wanted: Sequence[Wanted], options: LoopOptions, output: Path | None = None,
    say: Say = lambda _: None, answer: Answer | None = None, calibrate: Calibrate | None = None,
) -> dict[str, Any]:  # fmt: skip
    """A row for each of `wanted`, and figures over them; what `output` holds.

    `output` is rewritten after each row; rows that it has are kept, those without figures are tried
    again. Programs whose packages are not here are under `absent`. The machine is calibrated once,
    outside of any budget. Raises BenchError for an output of something else."""
    facts = _facts(options)
    same = {name: facts[name] for name in SAME}
    found = kept_table(output, same, "bench_jax_cpu")
    rows: dict[str, Row] = found.get("rows", {})
    peaks = found.get("peaks") or dict((calibrate or calibrated_peaks)())
    asked = LoopAsked(options.budget_s, options.timing_s, options.old, peaks)
    make = answer or (lambda each, asked: _apart(each, asked, options.limit_s))
    absent = _absent(wanted)
    for name, missing in absent.items():
        say(f"{name:28} absent: {missing}")

    def row(program: LoopProgram, what: str) -> Row:
        about = {"program": program.name, "what": what, "thread": program.thread,
                 "dtype": str(program.dtype)}  # fmt: skip
        return {**about, **make((program, what), asked)}

    here = ((key(*each), partial(row, *each)) for each in wanted if each[0].name not in absent)
    return filled(
        rows, here, lambda row: "columns" in row, lambda: _data(facts, peaks, rows, absent), output,
        lambda name, made: say(line(name, made)),
    )  # fmt: skip


def _apart(each: Wanted, asked: LoopAsked, limit_s: float) -> Row:
    program, what = each
    return answer_apart([*CHILD, program.name, what], asdict(asked), limit_s)


def _facts(options: LoopOptions) -> dict[str, Any]:
    return {"cpu": cpu_model(), "threads": usable_cores(), "jax": metadata.version("jax"),
            "budget_s": options.budget_s, "note": options.note}  # fmt: skip


def _data(
    facts: Mapping[str, Any], peaks: Mapping[str, float], rows: Mapping[str, Row],
    absent: Mapping[str, str],
) -> dict[str, Any]:  # fmt: skip
    return {**facts, "summary": summary(rows), "absent": dict(absent), "rows": dict(rows),
            "peaks": dict(peaks)}  # fmt: skip
