"""`tune` measures what was served and what rules make, searches, compares the finalists, and keeps
everything."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from autofuse.backends.registry import Build
from autofuse.cost.bounds import candidate_bytes
from autofuse.cost.least import graph_bound_us
from autofuse.devices import timed_device
from autofuse.graph.canonical import digest, text
from autofuse.graph.types import Graph
from autofuse.measure.timing.sampling import Sampling, held_notes
from autofuse.measure.worker.session import LateReferenceError, Worker
from autofuse.measure.workload import Workload
from autofuse.ops.types import AutofuseError
from autofuse.patience import within
from autofuse.plan.arithmetic import DEFAULT_MATH
from autofuse.plan.types import candidate_from_json
from autofuse.records import CHECKED, Blame, FailureKind, Measurement, SessionResult, Trust
from autofuse.simplify import Forms
from autofuse.tuning.bench import Findings, Standing, Strategy
from autofuse.tuning.budget import MOMENT_S, UNTUNED_SHARE, Budget, check_seconds
from autofuse.tuning.cache_state import COLD, cache_state, check_state
from autofuse.tuning.evaluate import Evaluator
from autofuse.tuning.job.adopting import serving
from autofuse.tuning.job.calibrating import calibrated
from autofuse.tuning.job.finals import Final
from autofuse.tuning.job.heartbeat import Heartbeat
from autofuse.tuning.job.incumbent import final_comparison
from autofuse.tuning.job.job import LEAST_LIMIT_S, Job
from autofuse.tuning.job.rules import FAST, Ruled, RulesAsked, measure_rules
from autofuse.tuning.job.unmeasured import unmeasured
from autofuse.tuning.plans import EXPECTED
from autofuse.tuning.result import (
    BY_REFERENCE,
    SAMPLED,
    UNCHECKED,
    Progress,
    TuneResult,
    idle,
)
from autofuse.tuning.search.exact import Goal
from autofuse.tuning.search.strategies import strategy_named
from autofuse.tuning.serve.forms import as_written, keep_as_written, known_forms
from autofuse.tuning.serve.kept import kept_untuned
from autofuse.tuning.serve.served import keep_trust
from tuning_db import Store


class _NothingRightError(AutofuseError):
    """No plan works, and some compute something wrong."""


def tune(
    graph: Graph,
    *,
    name: str = "",
    device: str = "auto",
    target: str = "",
    db: str | None = None,
    budget_s: float = 60.0,
    strategy: str = "exact",
    search_gap: float = 0.0,
    runs: float | None = None,
    max_memory: int | None = None,
    cache: str = "auto",
    seed: int = 0,
    options: Mapping[str, str] | None = None,
    baselines: str | Sequence[str] = FAST,
    progress: Callable[[Progress], None] | None = None,
    stop: Callable[[], bool] | None = None,
    simplify: bool = True,
    math: str = DEFAULT_MATH,
    build: Build | None = None,
) -> TuneResult:
    """Find the best plan of `graph` within `budget_s` seconds, counting everything but what is
    done once for a machine: where the device's peaks are not known they are measured first.

    The budget is a cap: the end comes within a tenth of it and one call of the slowest plan.
    `baselines`: "fast" runs those that can still be the fastest by the kernels that they share with
    others and predicts the rest, "all" or names run every one; before the search, in at most a
    quarter of the budget, and none beats the result. What the database knows is not measured again,
    as long as the same code would be compiled. `strategy` "exact" stops early once no plan of its
    kernels at the launches tried can be better by more than the fraction `search_gap`, or, given
    `runs`, once so many runs could no longer gain what measuring would take. `max_memory` bounds
    the bytes of intermediates alive at once: a plan over it is never the result, be it a baseline.
    `cache`: the state that plans are timed in, "cold" or "warm"; "auto" is warm where the arrays of
    every plan fit the last-level cache. `progress` is told where the search stands at least
    once a second, not always from the same thread. `simplify` False keeps the program as it is
    written, which is then another workload. Plans are held to the program as it is written in any
    case. `math` "relaxed" lets kernels change arithmetic (see `autofuse.compile`), which is another
    workload too. `build` builds programs in place of the device's own way, be it on other hosts.

    It never fails for lack of time: where the reference was not computed within the budget, the
    result is what is known, else a plan that is expected to be fast, checked at drawn places.

    Raises AutofuseError for an unknown device, strategy or cache state, an unusable database, or a
    graph none of whose plans works and fits the memory."""
    stop = stop or (lambda: False)
    check_seconds(budget_s)
    check_state(cache)
    _check_wishes(search_gap, runs, max_memory, seed)
    rules = RulesAsked.of(baselines)
    kind = timed_device(device, target, math)
    if build is not None:
        kind = replace(kind, backend=replace(kind.backend, build=build))
    wanted = Goal(search_gap, runs)
    strategy_named(strategy, seed, wanted, options or {})  # before anything is opened
    tell = progress or (lambda _: None)
    with Store.open(db) as store:
        with Heartbeat(tell, lambda: budget_s) as waiting:
            waiting.tell(idle(budget_s, "starting"))
            peaks = calibrated(kind, store, lambda phase: waiting.tell(idle(budget_s, phase)), stop)
        budget = Budget(budget_s, time.perf_counter(), stop)
        forms = known_forms(graph, simplify)

        def tuned(forms: Forms) -> TuneResult:
            form = forms.graph
            search = strategy_named(strategy, seed, wanted, options or {})
            state = (
                within(budget.impatience(budget_s), lambda: cache_state(cache, form, kind)) or COLD
            )
            sampling = Sampling(state, wall_s=budget.samples_s)
            workload = Workload(form, seed, written=forms.written)
            with (
                Heartbeat(tell, lambda: budget.left_s) as heartbeat,
                Worker(workload, setup_s=budget.setup_s, hardware=kind.timer, stop=stop) as worker,
            ):
                worker.spawn()  # it starts while the first plan is made
                heartbeat.tell(idle(budget.left_s, "planning"))
                final = kind.timer.hangs_are_final
                evaluator = Evaluator(
                    kind.backend, form, digest(form), worker, sampling, budget, final
                )
                job = Job(form, name, kind, store, evaluator, heartbeat, seed, max_memory, peaks)
                with job.sharing:
                    return _run(job, strategy, search, rules, forms)

        try:
            return tuned(forms)
        except _NothingRightError as error:
            if forms.graph == forms.written:
                raise
            found = tuned(as_written(forms, str(error)))
            keep_as_written(forms, str(error))
            return found


def _check_wishes(
    search_gap: float,
    runs: float | None,
    max_memory: int | None,
    seed: int,
) -> None:
    if not search_gap >= 0 or (runs is not None and not runs > 0):
        raise AutofuseError("the gap must not be negative, and the number of runs must be positive")
    if max_memory is not None and max_memory < 0:
        raise AutofuseError(f"the memory cannot be bounded by {max_memory} bytes")
    if seed < 0:
        raise AutofuseError(f"the seed must not be negative, as {seed} is")


def _run(job: Job, strategy: str, search: Strategy, rules: RulesAsked, forms: Forms) -> TuneResult:
    """Baselines, search, final comparison, record; where there was no time to measure anything,
    what is expected to be fast."""
    job.store.add_workload(job.digest, text(job.graph), job.name, len(job.graph.nodes))
    job.session = job.store.start_session(
        job.environment, job.digest, strategy, job.seed, job.budget.seconds
    )
    job.recall()
    try:
        _measure_untuned(job)
        ruled = measure_rules(job, rules)
    except LateReferenceError as late:
        return _not_measured(job, strategy, forms, Ruled((), ()), str(late))
    findings = _searched(job, search)
    interrupted = job.budget.stop()
    job.show("final comparison")
    final, notes = final_comparison(job, interrupted)
    if final is None:
        if _had_no_time(job):
            return _not_measured(job, strategy, forms, ruled, _no_plan(job))
        _closed(job, strategy, None, finished=not interrupted)
        kinds = {m.failure.kind for m in job.stored.values() if m.failure is not None}
        wrong = FailureKind.WRONG_RESULT in kinds
        raise (_NothingRightError if wrong else AutofuseError)(_no_plan(job))
    proof, planned_us = findings.proof, findings.proof.planned_us
    if planned_us is not None and final.record.candidate_digest == findings.planned:
        proof = replace(proof, residual_us=final.best_us - planned_us)
    job.standing = Standing("done", findings.trials, proof)
    job.event(final.record)
    session = _closed(job, strategy, final, finished=not interrupted)
    job.sharing.end()  # only now the comparison can be adopted
    blind = job.evaluator.worker.blind
    if _is_verified(job, final.record):
        best = candidate_from_json(final.record.candidate, final.record.origin)
        keep_trust(job.kind, forms, best, Trust(CHECKED, "by tuning"))
    found = (*job.peaks.notes, *ruled.notes, *findings.notes, *notes, *held_notes(job.modes))
    said = (*forms.notes, *found, *filter(None, (blind,)))
    return _result(job, session, findings.counts, ruled, final, said)


def _searched(job: Job, search: Strategy) -> Findings:
    job.bound_us = _bound_us(job)
    findings = _nothing_searched(job) if job.is_over() else search(job)
    job.bound_us = _bound_us(job)
    job.sharing.end()
    job.standing = Standing("final comparison", findings.trials, findings.proof)
    return findings


def _had_no_time(job: Job) -> bool:
    """Whether nothing was measured although nothing is wrong with what was tried."""
    failures = [m.failure for m in job.stored.values() if m.failure is not None]
    blamed = {failure.blame for failure in failures}
    return blamed <= {Blame.MACHINE} and len(failures) == len(job.stored) and job.is_over()


def _not_measured(job: Job, strategy: str, forms: Forms, ruled: Ruled, why: str) -> TuneResult:
    """The session ends without a measurement, and with a plan."""
    finished, job.standing = not job.budget.stop(), Standing()
    if (known := _known(job)) is not None and known.timing is not None:
        session = _closed(job, strategy, None, finished)
        before = Final(known, known.timing.median_us, {}, ())
        return _result(job, session, {}, ruled, before, (*forms.notes, why))
    found = unmeasured(job, forms, why)
    session = _closed(job, strategy, None, finished)
    if found is None:
        if job.max_memory is not None:
            raise AutofuseError(f"{why}, and no plan at hand fits {job.max_memory} bytes")
        raise _NothingRightError("every plan that there was time to build computes something wrong")
    record, trust = found.record, found.trust
    final = Final(record, found.expected_us, {}, ())
    notes = (*forms.notes, *job.peaks.notes, *ruled.notes, *found.notes)
    checked = SAMPLED if trust.state == CHECKED else UNCHECKED
    told = _result(job, session, {}, ruled, final, notes)
    return replace(told, checked=checked, is_timed=False)


def _known(job: Job) -> Measurement | None:
    """What is served, else the fastest of what was measured before."""
    served = serving(job)
    if served is not None and job.record_fits(served) and not job.lacking(served):
        return served
    return next(iter(job.ranked(1)), None)


def _bound_us(job: Job) -> float | None:
    """What no plan can be below, as soon as the device's peaks are known."""
    peaks = job.peaks.found
    return None if peaks is None else graph_bound_us(job.graph, peaks)


def _measure_untuned(job: Job) -> None:
    """What was served before there was anything to know, so that tuning never makes it slower. It
    comes first: rules that cannot use a budget of a few seconds would leave nothing for it. It gets
    some seconds even where the reference took all of the budget, as the first baseline does: that
    one would be served alone."""
    if job.is_over():
        return
    found = within(
        job.budget.impatience(max(UNTUNED_SHARE * job.budget.seconds, MOMENT_S)),
        lambda: kept_untuned(job.graph, job.kind, job.peaks.before),
    )
    if found is not None and job.fits(found.plan):
        job.at_hand.append(found)
    wanted = job.at_hand and job.at_hand[0].origin == EXPECTED and not job.is_over()
    if found is not None and wanted and job.known(found) is None:
        job.evaluator.start(found)
        room_s = max(job.budget.room_s, LEAST_LIMIT_S)
        job.measure_now(found, "search", job.budget.elapsed_s + room_s)


def _nothing_searched(job: Job) -> Findings:
    """Where the search would begin by enumerating for nothing."""
    if job.budget.stop():
        return Findings()
    return Findings(notes=("the baselines took all of the budget: nothing was searched",))


def _closed(job: Job, strategy: str, final: Final | None, finished: bool) -> SessionResult:
    """How the session ended, which is kept."""
    ended = SessionResult(
        strategy=strategy,
        seed=job.seed,
        budget_s=job.budget.seconds,
        spent=job.spent,
        trials=job.standing.trials,
        measured=job.measured,
        failed=tuple(sorted(job.failed.items())),
        best_digest="" if final is None else final.record.candidate_digest,
        baselines=tuple((n, m.candidate_digest) for n, m in job.baselines.items()),
        verdicts=final.verdicts if final is not None else (),
        finished=finished,
        proof=job.proof,
    )
    job.store.finish_session(job.session, ended)
    return ended


def _result(
    job: Job, session: SessionResult, counts: Mapping[str, int], ruled: Ruled, final: Final,
    notes: tuple[str, ...],
) -> TuneResult:  # fmt: skip
    record = final.record
    best = candidate_from_json(record.candidate, record.origin)
    return TuneResult(
        name=job.name,
        digest=job.digest,
        nodes=len(job.graph.nodes),
        device=job.kind.name,
        session=session,
        best=best,
        best_record=record,
        best_us=final.best_us,
        baselines=dict(job.baselines),
        baseline_us=final.baseline_us,
        checked=BY_REFERENCE if _is_verified(job, record) else UNCHECKED,
        checked_on=job.evaluator.worker.checked_on,
        total_s=job.budget.elapsed_s,
        notes=notes,
        cache=job.cache,
        peak_bytes=candidate_bytes(job.graph, best),
        counts=dict(counts),
        left_out=ruled.left_out,
        predicted=ruled.predicted,
    )


def _is_verified(job: Job, record: Measurement) -> bool:
    return record.max_rel_error is not None and not job.evaluator.worker.blind


def _no_plan(job: Job) -> str:
    """Why no plan can be the result."""
    works = [m for m in job.stored.values() if m.timing is not None]
    if works:
        plans = (candidate_from_json(m.candidate) for m in works)
        least = min(candidate_bytes(job.graph, each) for each in plans)
        return (
            f"no plan was found that fits {job.max_memory} bytes of intermediates: "
            f"the least that was measured needs {least}"
        )
    failures = (m.failure for m in job.stored.values() if m.failure is not None)
    found = next(failures, None)
    text = "nothing was measured" if found is None else f"{found.kind.value}: {found.message}"
    machine = [m.failure.blame for m in job.stored.values() if m.failure is not None]
    if set(machine) <= {Blame.MACHINE} and job.is_over():
        return f"no plan could be measured in {job.budget.seconds:g} s: try a larger one ({text})"
    return f"no plan of this graph works: {text}"
