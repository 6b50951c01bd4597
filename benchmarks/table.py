"""Outcomes as JSON data and as the table people read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from autofuse.peers.systems import OURS
from autofuse.peers.types import PeerOutcome
from benchmarks.workloads import HEADLINE

BEST = OURS[0]
# What is no peer: our own plans, and a kernel written by hand for one workload.
HAND = "handwritten"
NO_PEERS = (*OURS, HAND)
Results = Mapping[str, Mapping[str, PeerOutcome]]


def best_peer(row: Mapping[str, PeerOutcome]) -> tuple[str, float] | None:
    """The fastest peer of a workload and its microseconds."""
    times = [(o.time_us, name) for name, o in row.items() if name not in NO_PEERS and o.time_us]
    return (min(times)[1], min(times)[0]) if times else None


def ratios(results: Results) -> dict[str, float]:
    """Best peer's time over ours, for the workloads that have both."""
    found = {}
    for name, row in results.items():
        ours, peer = row.get(BEST, PeerOutcome()).time_us, best_peer(row)
        if ours and peer:
            found[name] = peer[1] / ours
    return found


def geomean(values: Sequence[float]) -> float | None:
    """The geometric mean; None of nothing."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def summary(results: Results) -> dict[str, Any]:
    """The headline figures: the geometric mean over the headline workloads that were measured
    (named, so that a part is not taken for the whole), and the worst of all workloads."""
    found = ratios(results)
    counted = [name for name in HEADLINE if name in found]
    worst = min(found, key=lambda name: found[name], default=None)
    return {
        "geomean_best_peer_over_autofuse": geomean([found[name] for name in counted]),
        "geomean_over": counted,
        "geomean_missing": [name for name in HEADLINE if name not in found],
        "worst": None if worst is None else {"name": worst, "ratio": found[worst]},
    }


def as_data(results: Results, facts: Mapping[str, Any]) -> dict[str, Any]:
    """What --output writes."""
    found = ratios(results)
    workloads: dict[str, Any] = {}
    for name, row in results.items():
        cells = {impl: _cell(outcome) for impl, outcome in row.items()}
        workloads[name] = cells
    return {
        **summary(results),
        "ratio_best_peer_over_autofuse": found,
        "workloads": workloads,
        **facts,
    }


def _cell(outcome: PeerOutcome) -> dict[str, Any]:
    """The fields that say something; time_us and compile_s are always there."""
    data = asdict(outcome)
    kept = {k: v for k, v in data.items() if v not in (None, "", 0) or k in ("time_us",)}
    return {"compile_s": outcome.compile_s, **kept}


def text_table(results: Results, columns: Sequence[str], missing: Mapping[str, str]) -> str:
    """Times, ratios and compile seconds, and a sentence for everything that failed."""
    found = ratios(results)
    lines = [_line(["time", *columns, "best peer / autofuse"])]
    for name, row in results.items():
        ratio = f"{found[name]:.2f} ({best_peer(row)[0]})" if name in found else "-"  # type: ignore[index]  # a ratio has a best peer
        lines.append(_line([name, *(_time(row.get(c)) for c in columns), ratio]))
    tuned = [c for c in columns if any(c in row and row[c].tune_s for row in results.values())]
    lines += ["", _line(["compile s", *columns, *(f"{c} tuning s" for c in tuned)])]
    for name, row in results.items():
        cells = [_seconds(row[c].compile_s if c in row else None) for c in columns]
        cells += [_seconds(row[c].tune_s if c in row else None) for c in tuned]
        lines.append(_line([name, *cells]))
    lines += ["", *_sentences(results, missing), *_headline(results)]
    return "\n".join(lines)


def _sentences(results: Results, missing: Mapping[str, str]) -> list[str]:
    """Why cells are empty, and what else should be known about them."""
    said = [f"missing: {name}: {reason}" for name, reason in missing.items()]
    for name, row in results.items():
        said += [f"failed: {name} with {c}: {o.error}" for c, o in row.items() if o.error]
    said += [
        f"note: {name} with {c}: {o.note}"
        for name, row in results.items()
        for c, o in row.items()
        if o.note and c not in OURS
    ]
    return said


def _headline(results: Results) -> list[str]:
    found = ratios(results)
    if not found:
        return ["no workload has both a time of ours and one of a peer"]
    worst = summary(results)["worst"]
    counted = [found[name] for name in HEADLINE if name in found]
    return [
        *_mean(counted, f"{len(HEADLINE)} headline workloads"),
        *_mean(list(found.values()), f"the {len(results)} workloads here"),
        f"worst: {worst['name']} {worst['ratio']:.3f}",
    ]


def _mean(counted: Sequence[float], of: str) -> list[str]:
    mean = geomean(counted)
    if mean is None:
        return []
    return [f"geometric mean of best peer / autofuse over {len(counted)} of {of}: {mean:.3f}"]


def _line(cells: Sequence[str]) -> str:
    head, *rest = cells
    return f"{head:20}" + "".join(f" {cell:>20}" for cell in rest)


def _time(outcome: PeerOutcome | None) -> str:
    if outcome is None:
        return "-"
    if outcome.time_us is None:
        return "failed"
    us = outcome.time_us
    return f"{us / 1e3:.3g} ms" if us >= 1e3 else f"{us:.3g} us"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
