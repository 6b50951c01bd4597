"""The table of all programs, kept as its rows end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from autofuse.backends.machine import cpu_model
from autofuse.baselines.switches import SWITCHABLE
from autofuse.limits import usable_cores
from benchmarks.apart import answer_apart
from benchmarks.kept import Row, filled, kept_table
from benchmarks.study.programs import StudyProgram, study_programs
from benchmarks.workloads import chosen

# What rows of one table have in common.
SAME = ("cpu", "size", "planners")
# What Python is started with for a row; a file follows. The most seconds that a row may take.
CHILD, LIMIT_S = ("-m", "benchmarks.study.one"), 300.0


def study_prices(
    programs: Sequence[str] = (), planners: Sequence[str] = (), size: str = "default",
    note: str = "", output: Path | None = None, say: Callable[[str], object] = lambda _: None,
) -> dict[str, Any]:  # fmt: skip
    """A row (`price.price_row`) for each program named, or for all; what `output` holds.

    Each row is made in a process of its own. Rows that `output` has are kept, those that failed are
    tried again; programs whose packages are not here are under `absent`. Raises BenchError for
    unknown names and for an output of something else."""
    known = study_programs()
    planners = chosen(planners, tuple(SWITCHABLE), "planner")
    asked = [known[name] for name in chosen(programs, tuple(known), "program")]
    absent = {p.name: ", ".join(p.absent) for p in asked if p.absent}
    facts = {
        "cpu": cpu_model(), "threads": usable_cores(), "size": size, "planners": list(planners),
        "note": note, "absent": absent,
    }  # fmt: skip
    found = kept_table(output, {name: facts[name] for name in SAME}, "study")
    rows: dict[str, Row] = found.get("rows", {})
    wanted = (
        (p.name, partial(_row, p, planners, size)) for p in asked if p.name not in absent
    )  # fmt: skip
    return filled(
        rows, wanted, lambda row: bool(row) and "error" not in row,
        lambda: {**facts, "rows": dict(rows)}, output,
        lambda name, row: say(f"{name}: {_said(row)}"),
    )  # fmt: skip


def _row(program: StudyProgram, planners: Sequence[str], size: str) -> Row:
    asked = {"program": program.name, "size": size, "planners": list(planners)}
    about = {"program": program.name, "package": program.package}
    return {**about, **answer_apart(CHILD, asked, LIMIT_S)}


def _said(row: Mapping[str, Any]) -> str:
    if "error" in row:
        return str(row["error"])
    kernels, plans = row["kernels"], row["plans"]
    failed = sum("error" in plan for plan in plans.values())
    return (
        f"{len(plans)} plans ({failed} did not run), "
        f"{kernels['all'] - kernels['own']} kernels besides the {kernels['own']} of the planners"
    )
