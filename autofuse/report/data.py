"""The report as data: one JSON object, or one CSV row per plan and strategy."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from autofuse.records import Account, Event
from autofuse.report.envelope import EnvelopeSegment, advice, envelope, options, together
from autofuse.report.gains import gains
from autofuse.report.model import Contender, SessionReport, WorkloadReport
from autofuse.report.overview import headline
from autofuse.report.peers import Peer
from autofuse.report.svg import clean

_COLUMNS = (
    "workload", "device", "name", "kind", "seconds", "time_us", "q1_us", "q3_us", "front",
    "kernels", "launches", "read_bytes", "written_bytes", "flops", "recomputed",
    "recomputed_flops", "peak_bytes", "pays_after_runs_against_best_rules", "note",
)  # fmt: skip


def render_json(reports: Sequence[WorkloadReport], generated: str) -> str:
    """Everything the page says, numbers unrounded; infinities and NaN are null."""
    devices = sorted({r.device for r in reports})
    data = {
        "as_of": generated,
        "workloads": [_workload(r) for r in reports],
        "together": [
            {"device": device, "envelope": _envelope(segments)}
            for device in devices
            for segments in [envelope(together([r for r in reports if r.device == device]))]
            if segments
        ],
    }
    return json.dumps(_finite(data), indent=2, allow_nan=False) + "\n"


def _workload(report: WorkloadReport) -> dict[str, Any]:
    accounts, environment = dict(report.accounts), report.environment
    segments, incumbent = envelope(options(report)), report.incumbent
    return {
        "name": report.name,
        "digest": report.digest,
        "nodes": report.nodes,
        "device": report.device,
        "fingerprint": dict(environment.must + environment.stale) if environment else {},
        "headline": headline(report),
        "incumbent": _contender(incumbent, accounts) if incumbent else None,
        "baselines": [_contender(b, accounts) for b in report.baselines],
        "peers": [asdict(p) for p in report.peers],
        "sessions": [_session(s, accounts) for s in report.sessions],
        "tradeoff": [asdict(p) for p in dict.fromkeys(report.offers)],
        "envelope": _envelope(segments),
        "advice": advice(segments),
        **_gains(incumbent, report.rival, accounts),
        "implementations": [asdict(one) | {"times": dict(one.times)} for one in report.implemented],
        "failures": [asdict(f) | {"sessions": dict(f.sessions)} for f in report.failures],
    }


def _gains(
    best: Contender | None, rival: Contender | None, accounts: Mapping[str, Account]
) -> dict[str, Any]:
    own = accounts.get(best.digest) if best else None
    other = accounts.get(rival.digest) if rival else None
    if rival is None or own is None or other is None:
        return {"gains": [], "gains_against": None}
    return {"gains": [asdict(g) for g in gains(own, other)], "gains_against": rival.name}


def _contender(one: Contender, accounts: Mapping[str, Account]) -> dict[str, Any]:
    return {
        "name": one.name,
        "candidate": one.digest,
        "timing": asdict(one.timing),
        "kernels": one.kernels,
        "compile_s": one.compile_s,
        "max_rel_error": one.max_rel_error,
        "facts": _told(accounts.get(one.digest)),
    }


def _told(account: Account | None) -> dict[str, Any] | None:
    if account is None:
        return None
    data = asdict(account)
    del data["trips"]
    return data


def _session(one: SessionReport, accounts: Mapping[str, Account]) -> dict[str, Any]:
    return {
        "label": one.label,
        "id": one.id,
        "strategy": one.strategy,
        "seed": one.seed,
        "state": one.state,
        "started": one.started,
        "budget_s": one.budget_s,
        "spent": asdict(one.spent) | {"total": one.spent.total},
        "carried_s": one.carried_s,
        "trials": one.trials,
        "measured": one.measured,
        "best": _contender(one.best, accounts) if one.best else None,
        "best_is_sample": one.is_sample,
        "break_even": [asdict(b) for b in one.break_even],
        "verdicts": [asdict(v) for v in one.verdicts],
        "events": [_event(e) for e in one.events],
        "failed": dict(one.failed),
    }


def _event(one: Event) -> dict[str, Any]:
    """A sample of a search."""
    proof = one.proof
    data = {name: value for name, value in asdict(one).items() if name != "proof"}
    return data | {
        "search_floor_us": proof.search_floor_us,
        "search_gap": proof.search_gap,
        "residual_us": proof.residual_us,
        "bound_us": proof.bound_us,
        "seconds": one.spent.total,
        "bound_gap": one.bound_gap,
        "sample": True,
    }


def _envelope(segments: Sequence[EnvelopeSegment]) -> list[dict[str, Any]]:
    return [{"first_runs": s.first, "last_runs": s.last, **asdict(s.option)} for s in segments]


def _finite(value: Any) -> Any:
    """JSON has no infinities, no NaN and no lone surrogates."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {clean(str(key)): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def render_csv(reports: Sequence[WorkloadReport]) -> str:
    """A row per baseline, peer, incumbent of a search and best plan, in bytes, seconds and
    microseconds; empty where nothing is known."""
    out = io.StringIO()
    writer = csv.DictWriter(out, _COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for report in reports:
        for row in _rows(report):
            told = {"workload": report.name, "device": report.device, **row}
            writer.writerow({key: _field(value) for key, value in told.items()})
    return out.getvalue()


def _rows(report: WorkloadReport) -> Iterator[dict[str, Any]]:
    accounts = dict(report.accounts)
    front = {(p.role, p.label, p.seconds) for p in report.offers if p.front}
    for b in report.baselines:
        on = ("baseline", b.name, b.compile_s) in front
        yield _plan_row(b, accounts) | {"kind": "rules", "seconds": b.compile_s, "front": on}
    for p in report.peers:
        yield _peer_row(p) | {"front": ("peer", p.name, p.total_s) in front}
    for o in dict.fromkeys(p for p in report.offers if p.role == "search"):
        yield {"name": o.label, "kind": "search", "seconds": o.seconds, "time_us": o.run_us,
               "front": o.front}  # fmt: skip
    for s in report.current:
        if s.best:
            total = s.carried_s + s.spent.total
            on = ("best", s.label, total) in front
            told = {"name": s.label, "kind": "best", "seconds": total, "front": on}
            yield _plan_row(s.best, accounts) | told | _pays(s)


def _peer_row(one: Peer) -> dict[str, Any]:
    kind = "peer" if one.comparable else "peer elsewhere"
    return {"name": one.name, "kind": kind, "seconds": one.total_s, "time_us": one.time_us,
            "q1_us": one.q1_us, "q3_us": one.q3_us, "kernels": one.kernels,
            "note": one.error or one.note}  # fmt: skip


def _pays(session: SessionReport) -> dict[str, Any]:
    pays = session.pays(session.rival) if session.rival else None
    return {
        "pays_after_runs_against_best_rules": pays.runs if pays else None,
        "note": "" if pays is None or pays.runs is not None else "never pays",
    }


def _plan_row(one: Contender, accounts: Mapping[str, Account]) -> dict[str, Any]:
    told = _told(accounts.get(one.digest)) or {}
    timing = one.timing
    return {"name": one.name, "time_us": timing.median_us, "q1_us": timing.q1_us,
            "q3_us": timing.q3_us, **told, "kernels": one.kernels}  # fmt: skip


def _field(value: Any) -> Any:
    """What a spreadsheet takes for what it is: text that would be a formula is marked as text."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        text = clean(value)
        return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text
    return value
