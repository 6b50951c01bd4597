"""What the report says of a workload, derived from database records by pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from autofuse.records import (
    Account,
    Cost,
    Environment,
    Event,
    Measurement,
    SessionRow,
    Timing,
    Verdict,
    WorkloadRow,
)
from autofuse.report.errors import ReportError as ReportError
from autofuse.report.failures import FailureCount, count_failures
from autofuse.report.front import pareto as pareto
from autofuse.report.gains import Implemented
from autofuse.report.peers import Peer


@dataclass(frozen=True, slots=True)
class Contender:
    """A measured candidate under a name: a baseline's, or the origin of a best plan.

    `compile_s` is codegen plus compile seconds of this candidate alone, without any search."""

    name: str
    digest: str
    timing: Timing
    kernels: int
    compile_s: float
    max_rel_error: float | None


@dataclass(frozen=True, slots=True)
class BreakEven:
    """After how many runs a session has paid against one baseline; None means never.

    `extra_s`: seconds spent by the session, and carried by it, beyond compiling the baseline.
    `interval` is what the interval of the interleaved comparison makes of `runs`; None where none
    was made."""

    baseline: str
    extra_s: float
    saved_us: float
    runs: float | None
    interval: tuple[float | None, float | None] | None


@dataclass(frozen=True, slots=True)
class Point:
    """Seconds before the first run against microseconds per run; `role` is "search", "baseline",
    "peer" or "best"; `front`: nothing else is at least as good in both."""

    label: str
    role: str
    seconds: float
    run_us: float
    kernels: int | None = None
    front: bool = False


@dataclass(frozen=True, slots=True)
class SessionReport:
    """One tuning session. `state` is "finished", "stopped" (before its end, result kept) or
    "open" (still running, or killed). `best` is None if nothing works as far as is known.
    `carried_s`: seconds of the sessions before it, if it began from what they had measured."""

    id: int
    strategy: str
    seed: int
    state: str
    started: str
    budget_s: float
    spent: Cost
    carried_s: float
    trials: int | None
    measured: int | None
    baselines: tuple[Contender, ...]
    best: Contender | None
    verdicts: tuple[Verdict, ...]
    break_even: tuple[BreakEven, ...]
    events: tuple[Event, ...]
    failed: tuple[tuple[str, int], ...]

    @property
    def label(self) -> str:
        return f"{self.strategy} (seed {self.seed}, session {self.id})"

    @property
    def is_sample(self) -> bool:
        """Whether its best was never compared with others interleaved: a sample of a search."""
        return self.state == "open"

    def against(self, other: Contender) -> Verdict | None:
        """The interleaved comparison of the best plan with a baseline."""
        return next((v for v in self.verdicts if v.other == other.name), None)

    @property
    def rival(self) -> Contender | None:
        """The fastest baseline by the interleaved comparison, the one whose plan is the best among
        them; where nothing was compared, by the samples."""
        again = {v.other: v.other_us for v in self.verdicts}
        own = self.best.digest if self.best and again else ""
        compared = [b for b in self.baselines if b.name in again or b.digest == own]
        return min(
            compared or self.baselines,
            key=lambda b: (again.get(b.name, b.timing.median_us), b.name),
            default=None,
        )


@dataclass(frozen=True, slots=True)
class WorkloadReport:
    """A workload on one device.

    `points`: every candidate with a time, at its own compile seconds. `offers`: what could be had
    after so many seconds of compiling and searching: baselines, comparable peers, and the search's
    progress (what was measured again counts as measured last). `accounts` are by candidate digest.
    `plan_svg` is text that `plan_picture.plan_svg` made, or "". `served` is the incumbent: what the
    database serves; None where that is not known.
    """

    name: str
    digest: str
    nodes: int
    device: str
    environment: Environment | None
    sessions: tuple[SessionReport, ...]
    points: tuple[Point, ...]
    offers: tuple[Point, ...]
    plan_svg: str = ""
    peers: tuple[Peer, ...] = ()
    accounts: tuple[tuple[str, Account], ...] = ()
    failures: tuple[FailureCount, ...] = ()
    implemented: tuple[Implemented, ...] = ()
    served: Contender | None = None

    @property
    def baselines(self) -> tuple[Contender, ...]:
        """Baselines of all sessions by name, slowest first; the latest session's of each name."""
        found = {one.name: one for session in self.sessions for one in session.baselines}
        return tuple(sorted(found.values(), key=lambda b: (-b.timing.median_us, b.name)))

    @property
    def current(self) -> tuple[SessionReport, ...]:
        """The latest session of each strategy and seed that has a best plan, oldest first."""
        good = [s for s in self.sessions if s.best is not None]
        latest = {(s.strategy, s.seed): s.id for s in good}
        return tuple(s for s in good if latest[s.strategy, s.seed] == s.id)

    @property
    def leading(self) -> SessionReport | None:
        """The session whose verdicts are those of the incumbent: the latest that ended with the
        plan that is served. Where that is not known, the one that ended with the fastest plan, of
        equal ones the first. What has not ended knows nothing but samples."""
        ended = [s for s in self.current if not s.is_sample and s.best is not None]
        if self.served is not None:
            same = [s for s in ended if s.best and s.best.digest == self.served.digest]
            return max(same, key=lambda s: s.id, default=None)
        timed = [(s.best.timing.median_us, i) for i, s in enumerate(ended) if s.best]
        return ended[min(timed)[1]] if timed else None

    @property
    def incumbent(self) -> Contender | None:
        """The plan that headlines are about."""
        leading = self.leading
        return self.served if self.served is not None or leading is None else leading.best


def break_even_runs(extra_s: float, saved_us: float) -> float | None:
    """Runs after which `extra_s` seconds are won back; None if a run saves nothing."""
    if not saved_us > 0:
        return None
    return max(0.0, extra_s) / (saved_us * 1e-6)


def median_ratio(other: Timing, best: Timing) -> float:
    """How many times as fast `best` is as `other`; infinite or NaN if its median is no time."""
    if best.median_us > 0:
        return other.median_us / best.median_us
    return math.inf if other.median_us > 0 else math.nan


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
        named, digest = result.baselines, result.best_digest
        spent, state = result.spent, "finished" if result.finished else "stopped"
    else:
        named = tuple({m.origin: m.candidate_digest for m in measurements if _rules(m)}.items())
        digest = events[-1].candidate_digest if events else ""
        spent, state = events[-1].spent if events else Cost(), "open"
    baselines = tuple(replace(known[d], name=name) for name, d in named if d in known)
    best = known.get(digest)
    # Whatever a session measures costs seconds: an incumbent at no cost was known before.
    carried_s = before_s if any(e.spent.total <= 0 for e in events) else 0.0
    total_s = carried_s + spent.total
    verdicts = result.verdicts if result else ()
    return SessionReport(
        id=row.id,
        strategy=row.strategy,
        seed=row.seed,
        state=state,
        started=row.started,
        budget_s=row.budget_s,
        spent=spent,
        carried_s=carried_s,
        trials=result.trials if result else None,
        measured=result.measured if result else None,
        baselines=baselines,
        best=best,
        verdicts=verdicts,
        break_even=tuple(_break_even(b, best, total_s, verdicts) for b in baselines)
        if best
        else (),
        events=events,
        failed=result.failed if result else (),
    )


def _rules(one: Measurement) -> bool:
    return one.stage == "baseline"


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
    for s in (one for one in sessions if not one.is_sample):
        for e in s.events:
            if e.spent.total > 0:
                # The least of many noisy times flatters: the last time of the plan counts.
                again = known.get(e.candidate_digest)
                us = again.timing.median_us if again else e.best_us
                found.append(Point(s.label, "search", s.carried_s + e.spent.total, us))
        if s.best:
            end = (s.carried_s + s.spent.total, s.best.timing.median_us)
            found.append(Point(s.label, "best", *end, s.best.kernels))
    return found


def _with_front(points: Sequence[Point]) -> tuple[Point, ...]:
    front = set(pareto([(p.seconds, p.run_us) for p in points]))
    return tuple(replace(p, front=i in front) for i, p in enumerate(points))
