"""The end of a session: finalists and baselines timed again, interleaved, and a winner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autofuse.backends.base import AnyArtifact
from autofuse.measure.compare import verdict
from autofuse.measure.protocol import Comparison
from autofuse.plan.types import candidate_from_json
from autofuse.records import Cost, Failure, Measurement, Verdict
from autofuse.tuning.evaluate import Evaluator, build
from autofuse.tuning.together import Together, time_together

BLOCKS = 5
# Plans of the search that were within this factor of its fastest are finalists, but never fewer or
# more than so many: medians taken minutes apart are not closer than that.
LIKELY, FEWEST, MOST = 1.1, 5, 12
# Baselines within this factor of the fastest plan are timed with it once more; finalists within a
# smaller one, because they were timed together.
FRONT, CLOSE = 1.25, 1.05
MAX_ROUNDS = 20


@dataclass(frozen=True, slots=True)
class Final:
    """The winner's record (stage "final"), its time and the baselines', and the verdicts."""

    record: Measurement
    best_us: float
    baseline_us: dict[str, float]
    verdicts: tuple[Verdict, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """`final` is None when no entry works any more; `failed` are records of those that failed."""

    final: Final | None
    failed: tuple[Measurement, ...]


def likely(ranked: Sequence[Measurement]) -> Sequence[Measurement]:
    """The finalists among what was measured, given fastest first."""
    us = [m.timing.median_us for m in ranked if m.timing is not None]
    near = sum(each <= LIKELY * us[0] for each in us) if us else 0
    return ranked[: min(max(near, FEWEST), MOST)]


def decide(
    evaluator: Evaluator,
    finalists: Sequence[Measurement],
    baselines: Mapping[str, Measurement],
    seconds: float,
    seed: int,
    limit_s: float,
) -> Decision:
    """Compare finalists with all baselines that work; a tie goes to the fastest baseline.

    Timing again guards against the winner's curse: the least of many noisy medians is too low. What
    is near the front is then timed once more without the slow ones, which take most of the time
    and leave few samples. `seconds` is what the samples of each of the two should take, `limit_s`
    the wall limit of one plan alone."""
    entries = {m.candidate_digest: m for m in (*finalists, *baselines.values()) if m.timing}
    together = _compare(evaluator, entries, seconds, seed, limit_s)
    failed = tuple(
        replace(entries[d], stage="final", timing=None, failure=failure, max_rel_error=None)
        for d, failure in together.failures.items()
    )
    left = {d: m for d, m in entries.items() if d not in together.failures}
    if not left:
        return Decision(None, failed)
    names = {n: m.candidate_digest for n, m in baselines.items() if m.candidate_digest in left}
    if together.comparison is None:  # each works alone: what was recorded has to do
        return Decision(_as_recorded(left, names), failed)
    final = _winner(left, together.names, names, together.comparison)
    front = _front(together.names, names, together.comparison)
    if not 1 < len(front) < len(left):
        return Decision(final, failed)
    again = _compare(evaluator, {d: left[d] for d in front}, seconds, seed, limit_s)
    if again.comparison is None or again.failures:  # the first comparison stands
        return Decision(final, failed)
    own = {n: d for n, d in names.items() if d in front}
    second = _winner(left, again.names, own, again.comparison)
    place = again.names.index(final.record.candidate_digest)
    return Decision(_merged(final, second, again.comparison.timings[place].median_us), failed)


def _front(
    digests: Sequence[str], names: Mapping[str, str], comparison: Comparison
) -> tuple[str, ...]:
    """Finalists and baselines that are not far behind the fastest of all."""
    us = dict(zip(digests, (t.median_us for t in comparison.timings), strict=True))
    least, rules = min(us.values()), set(names.values())
    return tuple(d for d in digests if us[d] <= least * (FRONT if d in rules else CLOSE))


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
    return Final(second.record, second.best_us, {v.other: us[v.other] for v in order}, order)


def _as_recorded(left: Mapping[str, Measurement], names: Mapping[str, str]) -> Final:
    us = {d: m.timing.median_us for d, m in left.items() if m.timing is not None}
    best = min(us, key=lambda d: us[d])
    baseline_us = {n: us[d] for n, d in names.items()}
    return Final(replace(left[best], stage="final"), us[best], baseline_us, ())


def _winner(
    entries: Mapping[str, Measurement], digests: Sequence[str], names: Mapping[str, str],
    comparison: Comparison,
) -> Final:  # fmt: skip
    """The least median; the fastest baseline if that is no worse. (A slower baseline that ties
    with the winner may still lose to the fastest one, so it is not asked.) `names`: the digests of
    the baselines among what was compared."""
    records = [entries[digest] for digest in digests]
    places = {n: list(digests).index(digest) for n, digest in names.items()}
    medians = [t.median_us for t in comparison.timings]
    winner = min(range(len(records)), key=lambda i: (medians[i], records[i].kernels))
    fastest = min(places.values(), key=lambda i: medians[i], default=winner)
    if _judge("", comparison, fastest, winner).outcome == "tie":
        winner = fastest
    verdicts = tuple(_judge(n, comparison, place, winner) for n, place in places.items())
    record = replace(
        records[winner],
        stage="final",
        timing=comparison.timings[winner],
        max_rel_error=comparison.max_rel_errors[winner],
    )
    us = {n: medians[place] for n, place in places.items()}
    return Final(record, medians[winner], us, verdicts)


def _judge(name: str, comparison: Comparison, other: int, best: int) -> Verdict:
    return verdict(name, comparison.samples[other], comparison.samples[best])


def _compare(
    evaluator: Evaluator, entries: Mapping[str, Measurement], seconds: float, seed: int,
    limit_s: float,
) -> Together:  # fmt: skip
    """Time all together; what it costs is added to what the evaluator has spent."""
    artifacts: dict[str, AnyArtifact] = {}
    failures: dict[str, Failure] = {}
    for digest, record in entries.items():
        candidate = candidate_from_json(record.candidate, record.origin)
        built = build(evaluator.backend, evaluator.graph, candidate)
        evaluator.spent += Cost(built.cost.codegen, built.cost.compile)
        if built.artifact is not None:
            artifacts[digest] = built.artifact
        elif built.failure is not None:
            failures[digest] = built.failure
    once_us = sum(m.timing.median_us for m in entries.values() if m.timing is not None)
    rounds = max(2, min(MAX_ROUNDS, int(seconds * 1e6 / (BLOCKS * max(once_us * 2, 1.0)))))
    expected_s = BLOCKS * (rounds + 2) * once_us * 1e-6
    found = time_together(
        evaluator.worker,
        artifacts,
        blocks=BLOCKS,
        rounds=rounds,
        sampling=evaluator.sampling,
        limit_s=60.0 + 4 * max(seconds, expected_s),
        single_limit_s=limit_s,
        seed=seed,
    )
    evaluator.spent += Cost(measure=found.seconds)
    return replace(found, failures=failures | dict(found.failures))
