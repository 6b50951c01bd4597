"""The end of a session: finalists and baselines timed again, interleaved, and a winner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autofuse.measure.compare import verdict
from autofuse.measure.protocol import Comparison
from autofuse.plan.types import candidate_from_json
from autofuse.records import Measurement, Timing, Verdict
from autofuse.tuning.evaluate import Evaluator, build

BLOCKS = 5
MAX_ROUNDS = 20


@dataclass(frozen=True, slots=True)
class Final:
    """The winner's record (stage "final"), its time and the baselines', and the verdicts."""

    record: Measurement
    best_us: float
    baseline_us: dict[str, float]
    verdicts: tuple[Verdict, ...]


def decide(
    evaluator: Evaluator,
    finalists: Sequence[Measurement],
    baselines: Mapping[str, Measurement],
    seconds: float,
    seed: int,
) -> Final:
    """Compare finalists with all baselines that work; a tie goes to the baseline.

    Timing again guards against the winner's curse: the least of many noisy medians is too low."""
    entries = {m.candidate_digest: m for m in (*finalists, *baselines.values()) if m.timing}
    compared = _compare(evaluator, list(entries.values()), seconds, seed)
    if compared is None:  # nothing survived being timed together: fall back on what was recorded
        best = finalists[0]
        assert best.timing is not None
        us = {n: m.timing.median_us for n, m in baselines.items() if m.timing is not None}
        return Final(replace(best, stage="final"), best.timing.median_us, us, ())
    records, comparison = compared
    medians = [t.median_us for t in comparison.timings]
    winner = min(range(len(records)), key=lambda i: (medians[i], records[i].kernels))
    places = {m.candidate_digest: i for i, m in enumerate(records)}
    named = {n: places[m.candidate_digest] for n, m in baselines.items() if m.candidate_digest in places}  # fmt: skip
    for place in named.values():
        if place != winner and _judge("", comparison, place, winner).outcome == "tie":
            winner = place
            break
    verdicts = tuple(_judge(n, comparison, place, winner) for n, place in named.items())
    final = replace(
        records[winner],
        stage="final",
        timing=_timing(comparison, winner),
        max_rel_error=comparison.max_rel_errors[winner],
    )
    us = {n: medians[place] for n, place in named.items()}
    return Final(final, medians[winner], us, verdicts)


def _judge(name: str, comparison: Comparison, other: int, best: int) -> Verdict:
    return verdict(name, comparison.samples[other], comparison.samples[best])


def _timing(comparison: Comparison, at: int) -> Timing:
    return comparison.timings[at]


def _compare(
    evaluator: Evaluator, records: list[Measurement], seconds: float, seed: int
) -> tuple[list[Measurement], Comparison] | None:
    """Time all together; one that fails now is left out and the rest is tried again."""
    while records:
        artifacts = []
        kept: list[Measurement] = []
        for record in records:
            candidate = candidate_from_json(record.candidate, record.origin)
            built = build(evaluator.backend, evaluator.graph, candidate)
            if built.artifact is not None:
                artifacts.append(built.artifact)
                kept.append(record)
        if not artifacts:
            return None
        total_us = sum(r.timing.median_us for r in kept if r.timing is not None)
        rounds = int(seconds * 1e6 / (BLOCKS * max(total_us * 2, 1.0)))
        outcome = evaluator.worker.compare(
            artifacts,
            blocks=BLOCKS,
            rounds=max(2, min(MAX_ROUNDS, rounds)),
            sampling=evaluator.sampling,
            limit_s=60.0 + 4 * seconds,
            seed=seed,
        )
        if isinstance(outcome, Comparison):
            return kept, outcome
        if outcome.index is None:
            return None
        records = kept[: outcome.index] + kept[outcome.index + 1 :]
    return None
