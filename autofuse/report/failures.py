"""Failures of a workload by kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from autofuse.records import Measurement


@dataclass(frozen=True, slots=True)
class FailureCount:
    """Failures of one kind. `attempts` are those that sessions counted, kernels included (0 while
    a session is open), `candidates` the whole plans stored as failed; `example` is the most
    frequent message's first line, `sessions` say who counted how many."""

    kind: str
    attempts: int
    candidates: int
    example: str
    sessions: tuple[tuple[str, int], ...]


def count_failures(
    measurements: Iterable[Measurement],
    sessions: Sequence[tuple[str, tuple[tuple[str, int], ...]]],
) -> tuple[FailureCount, ...]:
    """By kind, the most frequent first; `sessions` are labels with the counts by kind."""
    stored: dict[str, dict[str, str]] = {}
    messages: dict[str, Counter[str]] = {}
    for one in measurements:
        if one.failure is not None:
            kind = one.failure.kind.value
            first = next((t for t in map(str.strip, one.failure.message.splitlines()) if t), "")
            stored.setdefault(kind, {})[one.candidate_digest] = first
            messages.setdefault(kind, Counter())[first] += 1
    told: dict[str, dict[str, int]] = {}
    for label, failed in sessions:
        for kind, count in failed:
            own = told.setdefault(kind, {})
            own[label] = own.get(label, 0) + count
    found = [
        FailureCount(
            kind,
            sum(told.get(kind, {}).values()),
            len(stored.get(kind, ())),
            _most_frequent(messages.get(kind, Counter())),
            tuple(told.get(kind, {}).items()),
        )
        for kind in {*stored, *told}
    ]
    return tuple(sorted(found, key=lambda f: (-max(f.attempts, f.candidates), f.kind)))


def _most_frequent(messages: Counter[str]) -> str:
    return min(messages, key=lambda text: (-messages[text], text), default="")
