"""Figures over rows, and a row in a line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.table import geomean

Row = Mapping[str, Any]
# Within so much of what the longest budget found, a shorter one has come near.
NEAR = 1.05
# Plans that lose to the best rule by more than this are counted.
LOST = 0.98
CLOSED = 0.05


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """By budget: medians, geometric means and counts (`of_budget`); and of programs that have rows
    of two budgets, in how many seconds the longest one's best came near (`near`)."""
    budgets = sorted({row["budget_s"] for row in rows})
    found = {f"{b:g}": of_budget([r for r in rows if r["budget_s"] == b]) for b in budgets}
    return {"budgets": found, "near": _near(rows)}


def of_budget(rows: Sequence[Row]) -> dict[str, Any]:
    """Figures over the rows of one budget; a gap that nobody knows counts as 1."""
    had = [row for row in rows if "error" not in row]
    errors = {row["program"]: row["error"] for row in rows if "error" in row}
    gaps = [1.0 if row["search_gap"] is None else row["search_gap"] for row in had]
    gains = [row["over_rules"] for row in had if "over_rules" in row]
    peers = sorted({name for row in had for name in row.get("peer_over", {})})
    return {
        "programs": len(rows),
        "without_a_plan": errors,
        "not_timed": [row["program"] for row in had if not row.get("timed", True)],
        "without_a_trial": [row["program"] for row in had if row["trials"] == 0],
        "wrong": [row["program"] for row in had if not row["right"]],
        "not_verifiable": [row["program"] for row in had if row["blind"]],
        "trials": _median(row["trials"] for row in had),
        "kernels_kept": _median(row["kernels_kept"] for row in had),
        "plans_kept": _median(row["plans_kept"] for row in had),
        "first_plan_s": _median(row["first_plan_s"] for row in had),
        "took_over_budget": _median(row["took_s"] / row["budget_s"] for row in had),
        "slowest_over_budget": max((row["took_s"] / row["budget_s"] for row in had), default=None),
        "over_rules": geomean(gains),
        "least_over_rules": min(gains, default=None),
        "lost_to_a_rule": [r["program"] for r in had if r.get("over_rules", 1.0) < LOST],
        "closed": sum(gap <= CLOSED for gap in gaps) / len(gaps) if gaps else None,
        "search_gap": _median(gaps),
        "bound_gap": _median(row["bound_gap"] for row in had),
        "peer_over": {n: geomean([r["peer_over"][n] for r in had if n in r.get("peer_over", {})])
                      for n in peers},
        "spent_s": {kind: _median(row["spent_s"][kind] for row in had)
                    for kind in ("codegen", "compile", "measure", "sampler")},
        "starting_s": _median(row["phases_s"].get("starting", 0.0) for row in had),
    }  # fmt: skip


def _near(rows: Sequence[Row]) -> dict[str, float]:
    """Seconds, by program, after which the longest of several budgets had come near its end."""
    found: dict[str, float] = {}
    for name in {row["program"] for row in rows}:
        own = [row for row in rows if row["program"] == name and row.get("better")]
        if len({row["budget_s"] for row in own}) < 2:
            continue
        better = max(own, key=lambda row: float(row["budget_s"]))["better"]
        found[name] = next(s for s, us in better if us <= NEAR * better[-1][1])
    return found


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def line(row: Row) -> str:
    """One row in a line of text."""
    name = f"{row['program']}@{row['budget_s']:g}"
    if "error" in row:
        return f"{name:34} {row['stage']}: {row['error']}"
    gain = row.get("over_rules")
    peers = " ".join(f"{peer} {ratio:.2f}" for peer, ratio in row.get("peer_over", {}).items())
    told = (
        f"{name:34} {row['best_us']:10.1f} us  first {_number(row['first_plan_s'], 's')}  "
        f"{row['trials']:3} trials {row['kernels_kept']:4} kernels {row['plans_kept']:3} plans  "
        f"rules {_number(gain, '')}  gap {_share(row['search_gap'])} {_share(row['bound_gap'])}  "
        f"took {row['took_s']:5.1f} s  {_spent(row)}  {'right' if row['right'] else 'WRONG'}"
        f"{' (not verifiable)' if row['blind'] else ''}  {peers}"
    )
    loose = row.get("loose")
    return told if loose is None else f"{told}\n{'':34} {_loose(loose)}"


def _spent(row: Row) -> str:
    """Where the time went, in seconds."""
    spent = " ".join(f"{kind} {seconds:.1f}" for kind, seconds in row["spent_s"].items())
    return f"starting {row['phases_s'].get('starting', 0.0):.1f} {spent}"


def _loose(kernel: Mapping[str, Any]) -> str:
    ops = ", ".join(f"{count} {op}" for op, count in kernel["ops"].items())
    return f"loosest bound: {kernel['us']:.1f} us over {kernel['bound_us']:.1f} ({ops})"


def _number(value: float | None, unit: str) -> str:
    return "none" if value is None else f"{value:.2f}{unit}"


def _share(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1%}"
