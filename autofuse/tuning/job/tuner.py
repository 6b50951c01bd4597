"""`tune` measures what was served and what rules make, searches, compares the finalists, and keeps
everything."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Unpack

from autofuse.collector import seldom_collecting
from autofuse.cost.bounds import candidate_bytes
from autofuse.cost.least import graph_bound_us
from autofuse.devices import DeviceKind, timed_device
from autofuse.graph.canonical import digest, text
from autofuse.graph.types import Graph
from autofuse.measure.timing.sampling import Sampling, held_notes
from autofuse.measure.worker.session import LateReferenceError, Worker
from autofuse.measure.workload import Workload
from autofuse.ops.types import AutofuseError
from autofuse.patience import within
from autofuse.plan.types import Candidate, candidate_from_json
from autofuse.records import CHECKED, Blame, FailureKind, Measurement, SessionResult, Trust
from autofuse.simplify import Forms
from autofuse.tuning.bench import Findings, Standing, Strategy
from autofuse.tuning.budget import MOMENT_S, UNTUNED_SHARE, Budget
from autofuse.tuning.cache_state import cache_state
from autofuse.tuning.evaluate import Evaluator
from autofuse.tuning.job.adopting import serving
from autofuse.tuning.job.calibrating import calibrated
from autofuse.tuning.job.finals import Final
from autofuse.tuning.job.heartbeat import Heartbeat
from autofuse.tuning.job.incumbent import final_comparison
from autofuse.tuning.job.job import LEAST_LIMIT_S, Job
from autofuse.tuning.job.rule_plans import RulePlans
from autofuse.tuning.job.rules import Ruled, RulesAsked, measure_rules
from autofuse.tuning.job.unmeasured import unmeasured
from autofuse.tuning.options import COLD, TuneKeywords, TuneOptions
from autofuse.tuning.plans import EXPECTED
from autofuse.tuning.result import (
    BY_REFERENCE,
    SAMPLED,
    UNCHECKED,
    TuneResult,
    idle,
)
from autofuse.tuning.search.strategies import strategy_of
from autofuse.tuning.serve.forms import as_written, keep_as_written, known_forms
from autofuse.tuning.serve.kept import kept_untuned
from autofuse.tuning.serve.served import keep_trust
from tuning_db import Store


class _NothingRightError(AutofuseError):
    """No plan works, and some compute something wrong."""


def tune(
    graph: Graph, options: TuneOptions | None = None, /, **given: Unpack[TuneKeywords]
) -> TuneResult:
    """Find the best plan of `graph`. `given` are fields of `options`, by their names, which
    `TuneOptions` (`autofuse/tuning/options.py`) explains: `tune(graph, budget_s=20)`.

    What the database knows is not measured again, as long as the same code would be compiled. Plans
    are held to the program as it is written in any case.

    It never fails for lack of time: where the reference was not computed within the budget, the
    result is what is known, else a plan that is expected to be fast, checked at drawn places.

    Raises AutofuseError for an unknown device, strategy or cache state, an unusable database, or a
    graph none of whose plans works and fits the memory."""
    asked = replace(options or TuneOptions(), **given)
    rules = RulesAsked.of(asked.baselines)
    kind = timed_device(asked.device, asked.target, asked.math)
    if asked.build is not None:
        kind = replace(kind, backend=replace(kind.backend, build=asked.build, ahead=None))
    strategy_of(asked)  # before anything is opened
    stop, tell = asked.stop or (lambda: False), asked.progress or (lambda _: None)
    with seldom_collecting(), Store.open(asked.db) as store:
        with Heartbeat(tell, lambda: asked.budget_s) as waiting:

            def say(phase: str) -> None:
                waiting.tell(idle(asked.budget_s, phase))

            say("starting")
            peaks = calibrated(kind, store, say, stop)
        budget = Budget(asked.budget_s, time.perf_counter(), stop)
        forms = known_forms(graph, asked.simplify)

        def tuned(forms: Forms) -> TuneResult:
            with (
                _measuring(kind, forms, asked, budget) as evaluator,
                Heartbeat(tell, lambda: budget.left_s) as heartbeat,
            ):
                heartbeat.tell(idle(budget.left_s, "planning"))
                job = Job(kind, store, evaluator, heartbeat, asked, peaks)
                with job.sharing:
                    return _run(job, strategy_of(asked), rules, forms)

        try:
            return tuned(forms)
        except _NothingRightError as error:
            if forms.graph == forms.written:
                raise
            result = tuned(as_written(forms, str(error)))
            keep_as_written(forms, str(error))
            return result


@contextmanager
def _measuring(
    kind: DeviceKind, forms: Forms, asked: TuneOptions, budget: Budget
) -> Iterator[Evaluator]:
    """What measures candidates in a process of its own, which starts, and works out what is right,
    while the first plan is made."""
    graph, patient = forms.graph, budget.impatience(budget.seconds)
    state = within(patient, lambda: cache_state(asked.cache, graph, kind)) or COLD
    setup_s, hardware = budget.setup_s, kind.timer
    sampling = Sampling(
        state, wall_s=budget.samples_s, warmup_s=hardware.warmup_s, least_s=hardware.least_s
    )
    workload = Workload(graph, asked.seed, written=forms.written)
    with Worker(workload, setup_s=setup_s, hardware=hardware, stop=budget.stop) as worker:
        worker.begin()
        evaluator = Evaluator(
            kind.backend, graph, digest(graph), worker, sampling, budget, hardware.hangs_are_final
        )
        try:
            yield evaluator
        finally:
            evaluator.settle()


def _run(job: Job, search: Strategy, rules: RulesAsked, forms: Forms) -> TuneResult:
    """Baselines, search, final comparison, record; where there was no time to measure anything,
    what is expected to be fast."""
    asked = job.options
    job.store.add_workload(job.digest, text(job.graph), asked.name, len(job.graph.nodes))
    job.session = job.store.start_session(
        job.environment, job.digest, asked.strategy, asked.seed, asked.budget_s
    )
    job.recall()
    try:
        planned = RulePlans(job, rules.names)
        untuned = _measure_untuned(job, planned)
        ruled = measure_rules(job, rules, planned)
        _offer_untuned(job)
    except LateReferenceError as late:
        return _not_measured(job, forms, Ruled((), ()), str(late))
    findings = _searched(job, search)
    interrupted = job.budget.stop()
    job.show("final comparison")
    final, notes = final_comparison(job, interrupted)
    if final is None:
        if _had_no_time(job):
            return _not_measured(job, forms, ruled, _no_plan(job))
        _closed(job, None, finished=not interrupted)
        kinds = {m.failure.kind for m in job.stored.values() if m.failure is not None}
        wrong = FailureKind.WRONG_RESULT in kinds
        raise (_NothingRightError if wrong else AutofuseError)(_no_plan(job))
    proof, planned_us = findings.proof, findings.proof.planned_us
    if planned_us is not None and final.record.candidate_digest == findings.planned:
        proof = replace(proof, residual_us=final.best_us - planned_us)
    job.standing = Standing("done", findings.trials, proof)
    job.event(final.record)
    session = _closed(job, final, finished=not interrupted)
    job.sharing.end()  # only now the comparison can be adopted
    blind = job.evaluator.worker.blind
    if _is_verified(job, final.record):
        best = candidate_from_json(final.record.candidate, final.record.origin)
        keep_trust(job.kind, forms, best, Trust(CHECKED, "by tuning"))
    notes = (*notes, *_came(job, untuned, final))
    found = (*job.peaks.notes, *ruled.notes, *findings.notes, *notes, *held_notes(job.modes))
    said = (*forms.notes, *found, *filter(None, (blind,)))
    return _result(job, session, findings.counts, ruled, final, said)


def _came(job: Job, untuned: Candidate | None, final: Final) -> tuple[str, ...]:
    """What came of the advice that the budget follows, where the untuned plan was timed."""
    advice, record = job.options.advice, None if untuned is None else job.known(untuned)
    if advice is None or record is None or record.timing is None:
        return ()
    return (advice.came(record.timing.median_us / final.best_us),)


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


def _not_measured(job: Job, forms: Forms, ruled: Ruled, why: str) -> TuneResult:
    """The session ends without a measurement, and with a plan."""
    finished, job.standing = not job.budget.stop(), Standing()
    if (known := _known(job)) is not None and known.timing is not None:
        session = _closed(job, None, finished)
        before = Final(known, known.timing.median_us, {}, ())
        return _result(job, session, {}, ruled, before, (*forms.notes, why))
    found = unmeasured(job, forms, why)
    session = _closed(job, None, finished)
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


def _measure_untuned(job: Job, planned: RulePlans) -> Candidate | None:
    """What was served before there was anything to know, so that tuning never makes it slower;
    None where there was no time to plan it. It comes first, be it a rule's plan: others that take
    long would leave nothing for it. It gets some seconds even where the reference took all of the
    budget, as the first baseline does: that one would be served alone. While it is compiled the
    rules plan."""
    if job.is_over():
        return None
    planned_s = max(UNTUNED_SHARE * job.budget.left_s, MOMENT_S)
    found = within(
        job.budget.impatience(job.budget.elapsed_s + planned_s),
        lambda: kept_untuned(job.graph, job.kind, job.peaks.before, job.space),
    )
    if found is None or not job.fits(found.plan):
        return None
    job.at_hand.append(found)
    if not job.is_over() and job.known(found) is None:
        job.evaluator.ahead([found])
        if job.evaluator.is_ahead:
            planned.plan(lambda: not job.evaluator.is_ahead)
        job.evaluator.start(found)
        room_s = max(job.budget.room_s, LEAST_LIMIT_S)  # the reference has taken its time
        job.measure_now(found, "search", job.budget.elapsed_s + room_s)
    return found


def _offer_untuned(job: Job) -> None:
    """What is served untuned is a plan to begin with, and its kernels are candidates."""
    served = next(iter(job.at_hand), None)
    if served is None or served.origin != EXPECTED:
        return  # it is a rule's plan
    records = (job.known(served), *job.baselines.values())
    own, *others = (math.inf if m is None or m.timing is None else m.timing.median_us
                    for m in records)  # fmt: skip
    plan = {EXPECTED: served.plan}
    job.plans = plan | job.plans if own < min(others, default=math.inf) else job.plans | plan


def _nothing_searched(job: Job) -> Findings:
    """Where the search would begin by enumerating for nothing."""
    if job.budget.stop():
        return Findings()
    return Findings(notes=("the baselines took all of the budget: nothing was searched",))


def _closed(job: Job, final: Final | None, finished: bool) -> SessionResult:
    """How the session ended, which is kept."""
    ended = SessionResult(
        strategy=job.options.strategy,
        seed=job.options.seed,
        budget_s=job.options.budget_s,
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
        name=job.options.name,
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


def _least_bytes(job: Job) -> int | None:
    """Of intermediates of a plan that works."""
    works = (m.candidate for m in job.stored.values() if m.timing is not None)
    return min((candidate_bytes(job.graph, candidate_from_json(c)) for c in works), default=None)


def _no_plan(job: Job) -> str:
    """Why no plan can be the result."""
    least = _least_bytes(job)
    if least is not None:
        return (
            f"no plan was found that fits {job.max_memory} bytes of intermediates: "
            f"the least that was measured needs {least}"
        )
    failures = [m.failure for m in job.stored.values() if m.failure is not None]
    text = (
        f"{failures[0].kind.value}: {failures[0].message}" if failures else "nothing was measured"
    )
    if {failure.blame for failure in failures} <= {Blame.MACHINE} and job.is_over():
        return f"no plan could be measured in {job.budget.seconds:g} s: try a larger one ({text})"
    return f"no plan of this graph works: {text}"
