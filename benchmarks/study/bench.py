"""The tables over all programs, kept as their rows end."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from autofuse.backends.machine import cpu_model
from autofuse.baselines.switches import SWITCHABLE
from autofuse.limits import usable_cores
from benchmarks.apart import answer_apart
from benchmarks.kept import Row, calibrated_peaks, filled, kept_table
from benchmarks.study.dials import place_of
from benchmarks.study.journeys import losses
from benchmarks.study.programs import OURS, StudyProgram, study_programs
from benchmarks.study.shares import BEST_RULES, shares
from benchmarks.workloads import chosen

# What rows of one table have in common.
SAME = ("cpu", "size")
# What Python is started with for a part of a row (a file follows), and the most seconds of it.
CHILD, LIMIT_S = ("-m", "benchmarks.study.one"), 600.0
Say = Callable[[str], object]
# A program: its row.
Make = Callable[[StudyProgram], Row]


def study_prices(
    programs: Sequence[str] = (), planners: Sequence[str] = (), size: str = "default",
    note: str = "", output: Path | None = None, say: Say = lambda _: None,
) -> dict[str, Any]:  # fmt: skip
    """A row (`price_row` of autofuse.study) for each program named, or for all; what `output`
    holds.

    Each row is made in a process of its own. Rows that `output` has are kept, those that failed are
    tried again; programs whose packages are not here are under `absent`. Raises BenchError for
    unknown names and for an output of something else."""
    planners = chosen(planners, tuple(SWITCHABLE), "planner")
    asked = {"part": "prices", "size": size, "planners": list(planners)}
    own = {"planners": list(planners)}
    return _table(programs, size, note, own, output, _parted(asked), _saying(say, _priced))


def study_dials(
    programs: Sequence[str] = (), size: str = "default", note: str = "",
    output: Path | None = None, say: Say = lambda _: None,
) -> dict[str, Any]:  # fmt: skip
    """A row of dials (see `dials`) for each program named, or for all, as `study_prices` has it.
    The machine is calibrated once, outside of any dial."""
    peaks = dict(calibrated_peaks())

    def make(program: StudyProgram) -> Row:
        with TemporaryDirectory() as folder:
            return _dials_row(program, size, peaks, Path(folder))

    return _table(programs, size, note, {}, output, make, _saying(say, _dialled))


def study_split(
    programs: Sequence[str] = (), seconds: float = 15.0, size: str = "default", note: str = "",
    output: Path | None = None, say: Say = lambda _: None,
) -> dict[str, Any]:  # fmt: skip
    """A row (`split.split_row`) for each program named, or for all, each tuned twice for so many
    seconds, as `study_prices` has it. The machine is calibrated once, outside of any row."""
    asked = {"part": "split", "size": size, "seconds": seconds, "peaks": dict(calibrated_peaks())}
    own = {"seconds": seconds}
    return _table(programs, size, note, own, output, _parted(asked), _saying(say, _divided))


def study_travel(
    programs: Sequence[str] = (), seconds: float = 15.0, note: str = "",
    output: Path | None = None, say: Say = lambda _: None,
) -> dict[str, Any]:  # fmt: skip
    """A row (`travel.travel_row`) for each program of the zoo named, or for all that have sizes,
    each size tuned for so many seconds, as `study_prices` has it."""
    asked = {
        "part": "travel", "size": "small", "seconds": seconds, "peaks": dict(calibrated_peaks())
    }  # fmt: skip
    own = {"seconds": seconds}
    those = programs or [name for name, each in study_programs().items() if each.package == OURS]
    return _table(those, "five", note, own, output, _parted(asked), _saying(say, _moved))


def _dials_row(program: StudyProgram, size: str, peaks: Mapping[str, float], folder: Path) -> Row:
    """Each dial's seconds of a first call, and its times in turns with the others."""
    told = _apart(program, {"part": "dials", "size": size})
    if "error" in told:
        return told
    dials: dict[str, Row] = {}
    for name in told.pop("dials"):
        asked = {"part": "first", "size": size, "dial": name, "peaks": peaks}
        found = _apart(program, asked | {"folder": str(place_of(folder, name))})
        dials[name] = {key: found[key] for key in ("system", "first_s", "error") if key in found}
    there = [name for name, dial in dials.items() if "error" not in dial]
    asked = {"part": "turns", "size": size, "dials": there, "folder": str(folder)}
    turned = _apart(program, asked)
    if "error" in turned:
        return turned
    return told | {
        "dials": {name: dial | turned["turns"].get(name, {}) for name, dial in dials.items()}
    }


def _table(
    programs: Sequence[str], size: str, note: str, own: Mapping[str, Any], output: Path | None,
    make: Make, say: Callable[[Row], object],
) -> dict[str, Any]:  # fmt: skip
    known = study_programs()
    asked = [known[name] for name in chosen(programs, tuple(known), "program")]
    absent = {p.name: ", ".join(p.absent) for p in asked if p.absent}
    facts = {"cpu": cpu_model(), "threads": usable_cores(), "size": size, **own}
    found = kept_table(output, {name: facts[name] for name in (*SAME, *own)}, "study")
    rows: dict[str, Row] = found.get("rows", {})
    wanted = ((p.name, partial(make, p)) for p in asked if p.name not in absent)
    return filled(
        rows, wanted, lambda row: bool(row) and "error" not in row,
        lambda: {**facts, "note": note, "absent": absent, "rows": dict(rows)}, output,
        lambda _, row: say(row),
    )  # fmt: skip


def _saying(say: Say, text: Callable[[Row], str]) -> Callable[[Row], object]:
    """Says of each row its text, or why there is none."""
    return lambda row: say(f"{row['program']}: {row['error']}" if "error" in row else text(row))


def _parted(asked: Mapping[str, Any]) -> Make:
    """Makes the row of a program by asking one part of it."""
    return lambda program: _apart(program, asked)


def _apart(program: StudyProgram, asked: Mapping[str, Any]) -> Row:
    about = {"program": program.name, "package": program.package}
    return {**about, **answer_apart(CHILD, {"program": program.name, **asked}, LIMIT_S)}


def _priced(row: Mapping[str, Any]) -> str:
    kernels, plans = row["kernels"], row["plans"]
    failed = sum("error" in plan for plan in plans.values())
    return (
        f"{row['program']}: {len(plans)} plans ({failed} did not run), "
        f"{kernels['all'] - kernels['own']} kernels besides the {kernels['own']} of the planners"
    )


def _dialled(row: Mapping[str, Any]) -> str:
    told = (
        f"{name} {dial['error'] if 'error' in dial else _pair(dial)}"
        for name, dial in row["dials"].items()
    )
    return f"{row['program']}: {'; '.join(told)}"


def _divided(row: Mapping[str, Any]) -> str:
    told = shares(dict(row), BEST_RULES, row["state"])
    if told is None:
        return f"{row['program']}: not all plans ran"
    partition, launches = (math.exp(share) for share in told)
    trials = ", ".join(f"{name} {each['trials']}" for name, each in row["sessions"].items())
    return (
        f"{row['program']}: over the best of ten rules {partition:.2f} x {launches:.2f}, "
        f"trials {trials}"
    )


def _moved(row: Mapping[str, Any]) -> str:
    told = (f"{one.what} by {one.factor:g}: {one.mean[0]:.2f}" for one in losses([dict(row)]))
    return f"{row['program']}: {', '.join(told)}"


def _pair(dial: Mapping[str, Any]) -> str:
    return f"{dial['first_s']:.2f} s, {dial['us']:.0f} us{' (wrong)' if 'wrong' in dial else ''}"
