"""The table of all programs, kept as its rows end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from autofuse.backends.machine import cpu_model
from autofuse.baselines.switches import SWITCHABLE
from autofuse.errors import AutofuseError
from autofuse.limits import usable_cores
from autofuse.peers.types import BenchError
from autofuse.zoo import ZOO, zoo_graph
from benchmarks.kept import Row, filled, kept_table
from benchmarks.run import sentence
from benchmarks.study.price import price_row

# What rows of one table have in common.
SAME = ("cpu", "size", "planners")


def chosen(names: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """`names` checked; all that are known when there are none. Raises BenchError."""
    for name in names:
        if name not in known:
            raise BenchError(f"unknown '{name}' (known: {', '.join(known)})")
    return tuple(dict.fromkeys(names)) or tuple(known)


def study_prices(
    programs: Sequence[str] = (), planners: Sequence[str] = (), size: str = "default",
    note: str = "", output: Path | None = None, say: Callable[[str], object] = lambda _: None,
) -> dict[str, Any]:  # fmt: skip
    """A row (`price.price_row`) for each zoo workload named, or for all; what `output` holds.

    Rows that `output` has are kept, those that failed are tried again. Raises BenchError for
    unknown names and for an output of something else."""
    planners = chosen(planners, tuple(SWITCHABLE))
    wanted = chosen(programs, tuple(ZOO))
    facts = {
        "cpu": cpu_model(), "threads": usable_cores(), "size": size, "planners": list(planners),
        "note": note,
    }  # fmt: skip
    found = kept_table(output, {name: facts[name] for name in SAME}, "study")
    rows: dict[str, Row] = found.get("rows", {})
    return filled(
        rows, ((name, partial(_row, name, planners, size)) for name in wanted),
        lambda row: bool(row) and "error" not in row, lambda: {**facts, "rows": dict(rows)},
        output, lambda name, row: say(f"{name}: {_said(row)}"),
    )  # fmt: skip


def _row(program: str, planners: Sequence[str], size: str) -> Row:
    try:
        return price_row(program, zoo_graph(program, size), planners)
    except AutofuseError as error:  # the other programs go on
        return {"program": program, "error": sentence(error)}


def _said(row: Mapping[str, Any]) -> str:
    if "error" in row:
        return str(row["error"])
    kernels, plans = row["kernels"], row["plans"]
    failed = sum("error" in plan for plan in plans.values())
    return (
        f"{len(plans)} plans ({failed} did not run), "
        f"{kernels['all'] - kernels['own']} kernels besides the {kernels['own']} of the planners"
    )
