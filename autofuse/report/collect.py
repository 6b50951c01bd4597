"""The report of a workload, from records of the database by pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from autofuse.records import (
    Account,
    Cost,
    Environment,
    Event,
    Measurement,
    SessionResult,
    SessionRow,
    Verdict,
    WorkloadRow,
)
from autofuse.report.errors import ReportError
from autofuse.report.failures import count_failures
from autofuse.report.front import pareto
from autofuse.report.gains import Implemented
from autofuse.report.model import (
    BreakEven,
    Contender,
    Point,
    SessionReport,
    WorkloadReport,
    break_even_runs,
)
from autofuse.report.peers import Peer


def by_device(
    sessions: Iterable[SessionRow],
) -> tuple[tuple[Environment, tuple[SessionRow, ...]], ...]:
    """Sessions by device fingerprint (device and `must` pairs), in order of first appearance, each
    with the environment of its latest session."""
    found: dict[tuple[object, ...], list[SessionRow]] = {}
    for one in sessions:
        found.setdefault(_fingerprint(one.environment), []).append(one)
    return tuple((rows[-1].environment, tuple(rows)) for rows in found.values())


def collect(
    workload: WorkloadRow,
    sessions: Sequence[SessionRow],
    events: Mapping[int, Sequence[Event]],
    measurements: Sequence[Measurement],
    *,
    plan_svg: str = "",
    peers: Sequence[Peer] = (),
    accounts: Mapping[str, Account] | None = None,
    implemented: Sequence[Implemented] = (),
    served: str = "",
) -> WorkloadReport:
    """The report of a workload on one device.

    `sessions` (oldest first) are of this workload and one device fingerprint (see `by_device`),
    `events` are by session id, `measurements` (oldest first) are of that device. Of each candidate
    the latest end-to-end time counts, else the latest; one that failed when last measured has no
    time. `served` is the digest of the candidate that the database serves, "" where that is not
    known. Raises ReportError if rows of other workloads or of several devices are passed.
    """
    _check(workload, sessions, measurements)
    known = _contenders(measurements)
    reports: tuple[SessionReport, ...] = ()
    for session in sessions:
        own = tuple(events.get(session.id, ()))
        before = sum(s.spent.total for s in reports)
        reports += (_session(session, own, known, measurements, before),)
    environment = sessions[-1].environment if sessions else None
    return WorkloadReport(
        name=workload.name or workload.digest,
        digest=workload.digest,
        nodes=workload.nodes,
        device=environment.device if environment else "unknown device",
        environment=environment,
        sessions=reports,
        points=_with_front(_points(known, reports)),
        offers=_with_front(_offers(reports, known, peers)),
        plan_svg=plan_svg,
        peers=tuple(peers),
        accounts=tuple(sorted((accounts or {}).items())),
        failures=count_failures(measurements, [(s.label, s.failed) for s in reports]),
        implemented=tuple(implemented),
        served=known.get(served),
    )


def _fingerprint(environment: Environment) -> tuple[object, ...]:
    return (environment.device, environment.must)


def _check(
    workload: WorkloadRow, sessions: Sequence[SessionRow], measurements: Sequence[Measurement]
) -> None:
    for session in sessions:
        if session.workload != workload.digest:
            raise ReportError(f"session {session.id} is not one of workload '{workload.name}'")
    for one in measurements:
        if one.workload != workload.digest:
            raise ReportError(
                f"candidate {one.candidate_digest} is not one of workload '{workload.name}'"
            )
    if len({_fingerprint(s.environment) for s in sessions}) > 1:
        raise ReportError(f"sessions of workload '{workload.name}' are of different devices")


def _contenders(measurements: Sequence[Measurement]) -> dict[str, Contender]:
    """The time that counts for each candidate digest, named by its origin."""
    rows: dict[str, list[Measurement]] = {}
    for one in measurements:
        rows.setdefault(one.candidate_digest, []).append(one)
    found = {digest: _contender(history) for digest, history in rows.items()}
    return {digest: one for digest, one in found.items() if one is not None}


def _contender(history: Sequence[Measurement]) -> Contender | None:
    timed = [one for one in history if one.timing is not None]
    if history[-1].failure is not None or not timed:
        return None
    chosen = [one for one in timed if one.stage == "final"] or timed
    last = chosen[-1]
    assert last.timing is not None
    # A later measurement may find the library in the cache: the dearest one really compiled.
    compile_s = max(one.cost.codegen + one.cost.compile for one in history)
    return Contender(
        last.origin, last.candidate_digest, last.timing, last.kernels, compile_s, last.max_rel_error
    )


def _session(
    row: SessionRow,
    events: tuple[Event, ...],
    known: Mapping[str, Contender],
    measurements: Sequence[Measurement],
    before_s: float,
) -> SessionReport:
    result = row.result
    if result is not None:
        named, digest, spent = result.baselines, result.best_digest, result.spent
    else:
        named, digest, spent = _sampled(events, measurements)
    baselines = tuple(replace(known[d], name=name) for name, d in named if d in known)
    best = known.get(digest)
    carried_s = before_s if _began_with_more(events) else 0.0
    total_s = carried_s + spent.total
    verdicts = result.verdicts if result else ()
    return SessionReport(
        id=row.id,
        strategy=row.strategy,
        seed=row.seed,
        state=_state(result),
        started=row.started,
        budget_s=row.budget_s,
        spent=spent,
        carried_s=carried_s,
        trials=result.trials if result else None,
        measured=result.measured if result else None,
        baselines=baselines,
        best=best,
        verdicts=verdicts,
        break_even=_break_evens(baselines, best, total_s, verdicts),
        events=events,
        failed=result.failed if result else (),
    )


def _sampled(
    events: Sequence[Event], measurements: Sequence[Measurement]
) -> tuple[tuple[tuple[str, str], ...], str, Cost]:
    """Baselines, best candidate and cost of a session without a result."""
    rules = {m.origin: m.candidate_digest for m in measurements if m.stage == "baseline"}
    last = events[-1] if events else None
    digest, spent = (last.candidate_digest, last.spent) if last else ("", Cost())
    return tuple(rules.items()), digest, spent


def _state(result: SessionResult | None) -> str:
    if result is None:
        return "open"
    return "finished" if result.finished else "stopped"


def _began_with_more(events: Sequence[Event]) -> bool:
    """Whether it knew a plan before it began: whatever a session measures costs seconds."""
    return any(e.spent.total <= 0 for e in events)


def _break_evens(
    baselines: Sequence[Contender],
    best: Contender | None,
    total_s: float,
    verdicts: Sequence[Verdict],
) -> tuple[BreakEven, ...]:
    if best is None:
        return ()
    return tuple(_break_even(b, best, total_s, verdicts) for b in baselines)


def _break_even(
    baseline: Contender, best: Contender, total_s: float, verdicts: Sequence[Verdict]
) -> BreakEven:
    """By the interleaved comparison where there is one, else by the two medians."""
    extra = total_s - baseline.compile_s
    found = next((v for v in verdicts if v.other == baseline.name), None)
    if found is None or baseline.digest == best.digest:
        saved = baseline.timing.median_us - best.timing.median_us
        return BreakEven(baseline.name, extra, saved, break_even_runs(extra, saved), None)
    saved = found.other_us - found.best_us
    # The greatest saving pays soonest.
    ends = tuple(found.best_us * (ratio - 1) for ratio in (found.high, found.low))
    interval = (break_even_runs(extra, ends[0]), break_even_runs(extra, ends[1]))
    return BreakEven(baseline.name, extra, saved, break_even_runs(extra, saved), interval)


def _points(known: Mapping[str, Contender], sessions: Sequence[SessionReport]) -> list[Point]:
    names = {b.digest: b.name for s in sessions for b in s.baselines}
    winners = {s.best.digest: s.label for s in sessions if s.best and not s.is_sample}
    found = []
    for digest, one in known.items():
        label, role = one.name, "search"
        if digest in names:
            label, role = names[digest], "baseline"
        elif digest in winners:
            label, role = f"best of {winners[digest]}", "best"
        found.append(Point(label, role, one.compile_s, one.timing.median_us, one.kernels))
    return found


def _offers(
    sessions: Sequence[SessionReport], known: Mapping[str, Contender], peers: Sequence[Peer]
) -> list[Point]:
    baselines = {b.name: b for s in sessions for b in s.baselines}
    found = [
        Point(b.name, "baseline", b.compile_s, b.timing.median_us, b.kernels)
        for b in baselines.values()
    ]
    found += [
        Point(p.name, "peer", p.total_s, p.time_us, p.kernels)
        for p in peers
        if p.comparable and p.time_us is not None
    ]
    # A session that was killed compared nothing in the end: its samples are nothing to go by.
    return found + [point for s in sessions if not s.is_sample for point in _found(s, known)]


def _found(session: SessionReport, known: Mapping[str, Contender]) -> Iterator[Point]:
    """What a session had as time went by, and in the end."""
    for e in session.events:
        if e.spent.total > 0:
            # The least of many noisy times flatters: the last time of the plan counts.
            again = known.get(e.candidate_digest)
            us = again.timing.median_us if again else e.best_us
            yield Point(session.label, "search", session.carried_s + e.spent.total, us)
    if session.best:
        end = (session.carried_s + session.spent.total, session.best.timing.median_us)
        yield Point(session.label, "best", *end, session.best.kernels)


def _with_front(points: Sequence[Point]) -> tuple[Point, ...]:
    front = set(pareto([(p.seconds, p.run_us) for p in points]))
    return tuple(replace(p, front=i in front) for i, p in enumerate(points))
