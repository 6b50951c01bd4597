"""The envelope: for every number of runs the strategy that costs the least in total."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from autofuse.report.model import WorkloadReport
from autofuse.units import runs_text, seconds_text

MOST_RUNS = 1e9
ROLES = {"baseline": "rules", "peer": "peer", "search": "search", "best": "search"}


@dataclass(frozen=True, slots=True)
class SearchedOption:
    """Something one may do: spend `seconds` once, then `run_us` microseconds a run.

    `name` is the strategy; `label` says of a search also how long it went on."""

    name: str
    label: str
    role: str
    seconds: float
    run_us: float

    def total_s(self, runs: float) -> float:
        """Seconds of `runs` runs, everything before the first included."""
        return self.seconds + runs * self.run_us * 1e-6


@dataclass(frozen=True, slots=True)
class EnvelopeSegment:
    """From `first` to `last` runs (each may be fractional) `option` costs the least."""

    option: SearchedOption
    first: float
    last: float


def options(report: WorkloadReport) -> tuple[SearchedOption, ...]:
    """What could be done about a workload: each baseline, each comparable peer, and stopping each
    session at each of its incumbents."""
    sessions = [s.label for s in report.sessions]
    short = {label: label.split(" (")[0] for label in sessions}
    # Of two sessions of one strategy each keeps its whole label.
    unique = {label for label in sessions if list(short.values()).count(short[label]) == 1}
    found = {}
    for p in report.offers:
        if math.isfinite(p.seconds) and math.isfinite(p.run_us):
            role = ROLES[p.role]
            name = short.get(p.label, p.label) if p.label in unique else p.label
            label = f"{seconds_text(p.seconds)} of {name}" if role == "search" else name
            found[role, name, p.seconds, p.run_us] = SearchedOption(
                name, label, role, p.seconds, p.run_us
            )
    return tuple(found.values())


def together(reports: Sequence[WorkloadReport]) -> tuple[SearchedOption, ...]:
    """What could be done about several workloads alike, each run equally often: the baselines,
    peers and whole searches that all of them know. None of fewer than two workloads."""
    if len(reports) < 2:
        return ()
    rows = [_whole(report) for report in reports]
    shared = [key for key in rows[0] if all(key in row for row in rows)]
    return tuple(
        SearchedOption(
            key[1],
            key[1],
            key[0],
            sum(row[key][0] for row in rows),
            sum(row[key][1] for row in rows),
        )
        for key in shared
    )


def _whole(report: WorkloadReport) -> dict[tuple[str, str], tuple[float, float]]:
    """(seconds, microseconds) by role and name; of a strategy its fastest session to the end."""
    found = {}
    for p in report.offers:
        if p.role in ("baseline", "peer"):
            found[ROLES[p.role], p.label] = (p.seconds, p.run_us)
    for s in sorted(report.current, key=lambda s: -s.best.timing.median_us if s.best else 0.0):
        if s.best:
            cost = (s.carried_s + s.spent.total, s.best.timing.median_us)
            found["search", s.strategy] = cost
    return {key: cost for key, cost in found.items() if all(map(math.isfinite, cost))}


def envelope(
    found: Iterable[SearchedOption], most: float = MOST_RUNS
) -> tuple[EnvelopeSegment, ...]:
    """The cheapest option for every number of runs from 1 to `most`, in order; where two cost the
    same, the one that runs faster."""
    left = list(found)
    if not left:
        return ()
    now, at = min(left, key=lambda o: (o.total_s(1.0), o.run_us, o.label)), 1.0
    segments: list[EnvelopeSegment] = []
    while True:
        faster = [(_meet(now, o), o.run_us, o.label, o) for o in left if o.run_us < now.run_us]
        runs, _, _, following = min(faster, key=lambda f: f[:3], default=(math.inf, 0.0, "", now))
        if runs >= most:
            return (*segments, EnvelopeSegment(now, at, most))
        runs = max(runs, at)
        if runs > at:
            segments.append(EnvelopeSegment(now, at, runs))
        now, at = following, runs


def _meet(one: SearchedOption, faster: SearchedOption) -> float:
    """Runs from which the faster option is no dearer."""
    return (faster.seconds - one.seconds) / ((one.run_us - faster.run_us) * 1e-6)


def advice(segments: Sequence[EnvelopeSegment]) -> str:
    """The envelope as one sentence; the steps of one strategy are said together."""
    merged: list[tuple[EnvelopeSegment, EnvelopeSegment]] = []
    for one in segments:
        if merged and _same(merged[-1][1], one):
            merged[-1] = (merged[-1][0], one)
        else:
            merged.append((one, one))
    parts = []
    for i, (first, last) in enumerate(merged):
        name = _named(first.option, last.option)
        if len(merged) == 1:
            return f"Use {name} for any number of runs."
        if i == len(merged) - 1:
            parts.append(f"{name} beyond")
        else:
            parts.append(f"{name} {'below' if i == 0 else 'up to'} {runs_text(last.last)} runs")
    return f"Use {', '.join(parts)}." if parts else ""


def _same(one: EnvelopeSegment, other: EnvelopeSegment) -> bool:
    return (one.option.role, one.option.name) == (other.option.role, other.option.name)


def _named(first: SearchedOption, last: SearchedOption) -> str:
    if first.role != "search":
        return f"{first.label} ({first.role})"
    if first.seconds == last.seconds:
        return first.label
    return f"{seconds_text(first.seconds)} to {seconds_text(last.seconds)} of {first.name}"
