"""Times plans together; one that fails is found and named, and the others are timed without it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autofuse.backends.base import AnyArtifact
from autofuse.measure.timing.sampling import Sampling
from autofuse.measure.worker.protocol import Comparison, ComparisonFailure
from autofuse.measure.worker.session import Worker
from autofuse.records import Failure


@dataclass(frozen=True, slots=True)
class Together:
    """`names` were compared, in the order of `comparison`; `failures` were left out.

    `comparison` is None when nothing was left, or when the comparison failed though every plan
    works alone: `unexplained` then says how. `seconds` is the wall time of it all."""

    names: tuple[str, ...]
    comparison: Comparison | None
    failures: Mapping[str, Failure]
    unexplained: Failure | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Interleaving:
    """Blocks of samples and rounds in each, in an order drawn with `seed`. `limit_s` bounds the
    wall seconds of comparing, `single_limit_s` those of one plan when it must be found out which of
    them failed."""

    blocks: int
    rounds: int
    limit_s: float
    single_limit_s: float
    seed: int = 0


def time_together(
    worker: Worker, artifacts: Mapping[str, AnyArtifact], sampling: Sampling, how: Interleaving
) -> Together:
    """Check and time all that work, interleaved."""
    left = dict(artifacts)
    failures: dict[str, Failure] = {}
    seconds = 0.0
    while left:
        reply = worker.compare(
            list(left.values()), how.blocks, how.rounds, sampling, how.limit_s, how.seed
        )
        seconds += reply.seconds
        if isinstance(reply, Comparison):
            return Together(tuple(left), reply, failures, None, seconds)
        lost, spent = _culprits(worker, left, reply, sampling, how.single_limit_s)
        seconds += spent
        if not lost:
            return Together((), None, failures, reply.failure, seconds)
        failures |= lost
        left = {name: artifact for name, artifact in left.items() if name not in lost}
    return Together((), None, failures, None, seconds)


def _culprits(
    worker: Worker, left: Mapping[str, AnyArtifact], lost: ComparisonFailure, sampling: Sampling,
    limit_s: float,
) -> tuple[dict[str, Failure], float]:  # fmt: skip
    """Who failed, and the seconds of finding out: a dead process does not say whom it was running,
    so each is then run alone."""
    if lost.index is not None:
        return {list(left)[lost.index]: lost.failure}, 0.0
    replies = {name: worker.measure(one, sampling, limit_s) for name, one in left.items()}
    failures = {name: reply.failure for name, reply in replies.items() if reply.failure is not None}
    return failures, sum(reply.seconds for reply in replies.values())
