"""The last comparison: finalists and baselines timed again, interleaved, and a winner."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from autofuse.backends.base import AnyArtifact
from autofuse.measure.timing.compare import verdict
from autofuse.measure.timing.sampling import WARM_S
from autofuse.measure.worker.protocol import Comparison
from autofuse.plan.types import candidate_from_json
from autofuse.records import Cost, Failure, Measurement, Timing, Verdict
from autofuse.tuning.evaluate import Evaluator, build
from autofuse.tuning.together import Interleaving, Together, time_together

# Blocks of samples, and rounds of each, where there is time; the least there can be otherwise.
BLOCKS, MAX_ROUNDS = 5, 20
FEWEST_BLOCKS, FEWEST_ROUNDS = 3, 1
# Plans of the search that were within this factor of its fastest are finalists, but never fewer or
# more than so many: medians taken minutes apart are not closer than that.
LIKELY, FEWEST, MOST = 1.1, 5, 12
# Baselines within this factor of the fastest plan are timed with it once more; finalists within a
# smaller one, because they were timed together.
FRONT, CLOSE = 1.25, 1.05
# Seconds that building a finalist may take at least: it was built before, and is found again.
LEAST_BUILD_S = 1.0
# Calls of each plan in the least comparison: it is checked once, and each block warms it up.
LEAST_CALLS = 1 + FEWEST_BLOCKS * (1 + FEWEST_ROUNDS)


@dataclass(frozen=True, slots=True)
class Final:
    """The winner's record (stage "final"), its time and the baselines', the verdicts, the digests
    of all that were compared, and the records of those that were timed for it, the winner's too."""

    record: Measurement
    best_us: float
    baseline_us: dict[str, float]
    verdicts: tuple[Verdict, ...]
    compared: frozenset[str] = frozenset()
    timed: tuple[Measurement, ...] = ()


@dataclass(frozen=True, slots=True)
class FinalDecision:
    """`final` is None when no entry works any more; `failed` are records of those that failed;
    `untimed` are baselines that there was no time to compare: their recorded times had to do."""

    final: Final | None
    failed: tuple[Measurement, ...]
    untimed: tuple[str, ...] = ()


def likely(ranked: Sequence[Measurement]) -> Sequence[Measurement]:
    """The finalists among what was measured, given fastest first."""
    count = len(near(ranked, ranked[0])) if ranked else 0
    return ranked[: min(max(count, FEWEST), MOST)]


def near(them: Sequence[Measurement], fastest: Measurement) -> tuple[Measurement, ...]:
    """Those whose times are not far above the fastest's."""
    return tuple(m for m in them if _us(m) <= LIKELY * _us(fastest))


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a comparison takes: `seconds` is what the samples should take, `limit_s` the wall
    limit of one plan alone; `seed` is of the order that plans are sampled in."""

    seconds: float
    limit_s: float
    seed: int = 0


@dataclass(frozen=True, slots=True)
class _Field:
    """Who can win: records by digest, the digests of the baselines among them by name, and the
    digest of what is served now ("": nothing)."""

    records: Mapping[str, Measurement]
    baselines: Mapping[str, str]
    served: str


def decide(
    evaluator: Evaluator, finalists: Sequence[Measurement], baselines: Mapping[str, Measurement],
    pace: Pace, incumbent: Measurement | None = None,
) -> FinalDecision:  # fmt: skip
    """Compare finalists with all baselines that work, and with the `incumbent` that the database
    serves; a tie goes to the incumbent or to the fastest baseline, whichever took less.

    Timing again guards against the winner's curse: the least of many noisy medians is too low. What
    is near the front is then timed once more without the slow ones, which take most of the time
    and leave few samples; each of the two comparisons has its `pace`. What the budget has no time
    for keeps its recorded time. The winner is checked on all draws, whatever is known of its
    kernels."""
    present = () if incumbent is None else (incumbent,)
    every = {m.candidate_digest: m for m in (*finalists, *present, *baselines.values()) if m.timing}
    entries = affordable(every, evaluator.budget.final_room_s)
    together = _compare(evaluator, entries, pace)
    failed = tuple(
        replace(entries[d], stage="final", timing=None, failure=failure, max_rel_error=None)
        for d, failure in together.failures.items()
    )
    left = {d: m for d, m in every.items() if d not in together.failures}
    if not left:
        return FinalDecision(None, failed)
    names = {n: m.candidate_digest for n, m in baselines.items() if m.candidate_digest in left}
    field = _Field(left, names, "" if incumbent is None else incumbent.candidate_digest)
    if together.comparison is None:  # each works alone: what was recorded has to do
        final = _with_recorded(_as_recorded(left), field)
        return FinalDecision(final, failed, tuple(names))
    final = _again(evaluator, _winner(field, together), together, field, pace)
    if (wrong := evaluator.confirm(final.record, pace.limit_s)) is not None:
        return FinalDecision(None, (*failed, wrong))
    untimed = tuple(n for n, d in names.items() if d not in together.names)
    return FinalDecision(_with_recorded(final, field), failed, untimed)


def affordable(entries: Mapping[str, Measurement], room_s: float) -> dict[str, Measurement]:
    """The fastest entries that the least comparison has time for, in the order given."""
    spent = 0.0
    kept: set[str] = set()
    for digest in sorted(entries, key=lambda d: _us(entries[d])):
        spent += LEAST_CALLS * _us(entries[digest]) * 1e-6
        if spent > room_s:
            break
        kept.add(digest)
    return {d: m for d, m in entries.items() if d in kept}


def _us(record: Measurement) -> float:
    assert record.timing is not None
    return record.timing.median_us


def _again(evaluator: Evaluator, final: Final, first: Together, field: _Field, pace: Pace) -> Final:
    """The front of a comparison timed once more, if that is fewer plans and there is time."""
    winner = final.record.candidate_digest
    front = _front(first, field, winner)
    # Both are given as many seconds of samples, so the second takes as long as the first did.
    late = evaluator.budget.final_room_s < first.seconds
    if late or not 1 < len(front) < len(first.names):
        return final
    few = affordable({d: field.records[d] for d in front}, evaluator.budget.final_room_s)
    if len(few) < len(front):
        return final
    again = _compare(evaluator, few, pace)
    if again.comparison is None or again.failures:  # the first comparison stands
        return final
    place = again.names.index(winner)
    merged = _merged(final, _winner(field, again), again.comparison.timings[place].median_us)
    # Noise can make the two contradict each other: then the one that had all plans in it stands.
    contradicted = merged.best_us > min(merged.baseline_us.values(), default=merged.best_us)
    return final if contradicted else merged


def _front(together: Together, field: _Field, winner: str) -> tuple[str, ...]:
    """Finalists and baselines that are not far behind the fastest of all, and the winner, which may
    be: a tie is what is not told apart."""
    assert together.comparison is not None
    timings = together.comparison.timings
    us = dict(zip(together.names, (t.median_us for t in timings), strict=True))
    least, rules = min(us.values()), {*field.baselines.values(), field.served}
    near = {d for d in us if us[d] <= least * (FRONT if d in rules else CLOSE)}
    return tuple(d for d in us if d in near or d == winner)


def _merged(first: Final, second: Final, anchor_us: float) -> Final:
    """The second comparison's winner and figures. Who was in the first one only keeps its ratio to
    that one's winner, which took `anchor_us` in the second: times drift, ratios hold."""
    verdicts = {v.other: v for v in second.verdicts}
    us = dict(second.baseline_us)
    scale = anchor_us / second.best_us
    for v in first.verdicts:
        if v.other not in verdicts:
            us[v.other] = v.ratio * anchor_us
            verdicts[v.other] = Verdict(
                v.other, us[v.other], second.best_us, v.ratio * scale, v.low * scale,
                v.high * scale, v.outcome,
            )  # fmt: skip
    order = tuple(verdicts[v.other] for v in first.verdicts)
    us = {v.other: us[v.other] for v in order}
    own = {m.candidate_digest: m for m in (*first.timed, *second.timed)}
    compared = first.compared | second.compared
    return Final(second.record, second.best_us, us, order, compared, tuple(own.values()))


def joined(past: Final, new: Final, names: Iterable[str]) -> Final:
    """What was settled before, and what was then compared with its winner; with the verdicts of
    baselines in the order of `names`."""
    anchor = next(m for m in new.timed if m.candidate_digest == past.record.candidate_digest)
    both = _merged(past, new, _us(anchor))
    verdicts = {v.other: v for v in (*both.verdicts, *new.verdicts)}
    order = [name for name in names if name in verdicts]
    return replace(
        both,
        baseline_us={n: verdicts[n].other_us for n in order},
        verdicts=tuple(verdicts[n] for n in order),
    )


def _with_recorded(final: Final, field: _Field) -> Final:
    """With the baselines that were not compared, judged by their recorded quartiles."""
    names = field.baselines
    untimed = [n for n in names if n not in final.baseline_us]
    if not untimed or final.record.timing is None:
        return final
    us, verdicts = dict(final.baseline_us), {v.other: v for v in final.verdicts}
    for name in untimed:
        timing = field.records[names[name]].timing
        assert timing is not None
        us[name] = timing.median_us
        verdicts[name] = _by_quartiles(name, timing, final.record.timing)
    order = list(filter(verdicts.__contains__, names))
    return replace(
        final,
        baseline_us={n: us[n] for n in order},
        verdicts=tuple(verdicts[n] for n in order),
    )


def _by_quartiles(name: str, other: Timing, best: Timing) -> Verdict:
    low, high = other.q1_us / best.q3_us, other.q3_us / best.q1_us
    outcome = "faster" if low > 1 else "slower" if high < 1 else "tie"
    ratio = other.median_us / best.median_us
    return Verdict(name, other.median_us, best.median_us, ratio, low, high, outcome)


def _as_recorded(left: Mapping[str, Measurement]) -> Final:
    us = {d: _us(m) for d, m in left.items()}
    best = min(us, key=lambda d: us[d])
    return Final(replace(left[best], stage="final"), us[best], {}, ())


def _winner(field: _Field, together: Together) -> Final:
    """The least median; what is served now or the fastest baseline, whichever took less, if that
    is no worse. (The slower of the two may tie with the winner and still lose to the other, for
    ties are not transitive, so it is not asked.)"""
    digests, comparison = together.names, together.comparison
    assert comparison is not None
    records = [field.records[digest] for digest in digests]
    places = {n: digests.index(d) for n, d in field.baselines.items() if d in digests}
    medians = [t.median_us for t in comparison.timings]
    least = min(range(len(records)), key=lambda i: (medians[i], records[i].kernels))
    present = (digests.index(field.served),) if field.served in digests else ()
    settled = min((*places.values(), *present), key=lambda i: medians[i], default=least)
    winner = settled if _is_tie(records, comparison, settled, least) else least
    verdicts = tuple(_judge(n, comparison, place, winner) for n, place in places.items())
    told = zip(records, comparison.timings, comparison.max_rel_errors, strict=True)
    timed = tuple(
        replace(record, stage="final", timing=timing, max_rel_error=error)
        for record, timing, error in told
    )
    us = {n: medians[place] for n, place in places.items()}
    return Final(timed[winner], medians[winner], us, verdicts, frozenset(digests), timed)


def _is_tie(records: Sequence[Measurement], comparison: Comparison, other: int, least: int) -> bool:
    """Whether `other` may keep its place although `least` has the least median.

    One disturbed sample of three makes any interval hold 1. That is no tie where the medians are
    not close, nor were when each was measured alone: two weak signs are a strong one."""
    judged = _judge("", comparison, other, least)
    alone, fast = records[other].timing, records[least].timing
    assert alone is not None and fast is not None
    twice = judged.ratio > CLOSE and _by_quartiles("", alone, fast).low > CLOSE
    return judged.outcome == "tie" and not twice


def _judge(name: str, comparison: Comparison, other: int, best: int) -> Verdict:
    return verdict(name, comparison.samples[other], comparison.samples[best])


def _compare(evaluator: Evaluator, entries: Mapping[str, Measurement], pace: Pace) -> Together:
    """Time all together; what it costs is added to what the evaluator has spent."""
    artifacts: dict[str, AnyArtifact] = {}
    failures: dict[str, Failure] = {}
    evaluator.settle()
    for digest, record in entries.items():
        candidate = candidate_from_json(record.candidate, record.origin)
        room_s = max(evaluator.budget.final_room_s, LEAST_BUILD_S)
        built = build(evaluator.backend, evaluator.graph, candidate, room_s)
        evaluator.spent += Cost(built.cost.codegen, built.cost.compile)
        if built.artifact is not None:
            artifacts[digest] = built.artifact
        elif built.failure is not None:
            failures[digest] = built.failure
    once_us = once_all_us(entries.values(), evaluator.sampling.cache)
    blocks, rounds = samples_for(pace.seconds, once_us)
    expected_s = (1 + blocks * (rounds + 2)) * once_us * 1e-6
    limit_s = 60.0 + 4 * max(pace.seconds, expected_s)
    how = Interleaving(blocks, rounds, limit_s, pace.limit_s, pace.seed)
    together = time_together(evaluator.worker, artifacts, evaluator.sampling, how)
    evaluator.spent += Cost(measure=together.seconds)
    return replace(together, failures=failures | dict(together.failures))


def once_all_us(entries: Iterable[Measurement], cache: str) -> float:
    """Microseconds that one sample of each takes."""
    settling_us = WARM_S * 1e6 if cache == "warm" else 0.0
    return sum(max(_us(m), settling_us) for m in entries)


def samples_for(seconds: float, once_us: float) -> tuple[int, int]:
    """Blocks and rounds whose samples take about `seconds` where all plans together take `once_us`
    microseconds; the fewest there can be where one block more would take twice that."""
    call_s = max(once_us * 1e-6, 1e-6)
    if BLOCKS * (2 + 2) * call_s > 2 * seconds:
        return FEWEST_BLOCKS, FEWEST_ROUNDS
    return BLOCKS, max(2, min(MAX_ROUNDS, int(seconds / (BLOCKS * 2 * call_s))))
