"""Experiment B as figures: the logarithm of a speed-up divided between partition and launches.

Each gets the mean of what it gains when it is changed first and when it is changed last (the
Shapley value of two players: Shapley, 1953).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autofuse.baselines import BASELINES
from benchmarks.kept import Row
from benchmarks.study.split import DEFAULT, RULES_OF, SEARCHED, STATES, TUNED
from benchmarks.study.summary import Ratio, geometric_mean, interval_text, opening

# Of each program the rules whose plan is the fastest, under default launches and under tuned ones.
BEST_RULES = "the best of ten"


@dataclass(frozen=True, slots=True)
class Split:
    """Of `programs`: how many times as fast the searched plan under tuned launches is as a
    partition under default ones, and what the partition and the launches gave of it (`whole` is
    their product). Geometric means with 95 % intervals from programs drawn again."""

    planner: str
    programs: int
    whole: Ratio
    partition: Ratio
    launches: Ratio


@dataclass(frozen=True, slots=True)
class PeerSplit:
    """How many times as fast the searched plan is as a peer, both called from Python (`whole`), and
    what of it generator and runtime gave: our plan by the `rules` that stand for its own, under
    default launches, over the peer. `Split` of these rules has the rest."""

    peer: str
    rules: str
    programs: int
    whole: Ratio
    generator: Ratio


def splits(rows: Sequence[Row], state: str) -> list[Split]:
    """Of every rule set and of the best of ten, in one cache state, the farthest behind first."""
    found = [_split(rows, name, state) for name in (*BASELINES, BEST_RULES)]
    return sorted(
        (one for one in found if one.programs), key=lambda one: (-one.whole[0], one.planner)
    )


def _split(rows: Sequence[Row], planner: str, state: str) -> Split:
    told = np.array([one for row in rows if (one := shares(row, planner, state)) is not None])
    if not len(told):
        return Split(planner, 0, (1.0, 1.0, 1.0), (1.0, 1.0, 1.0), (1.0, 1.0, 1.0))
    whole, partition, launches = (
        geometric_mean(logs) for logs in (told.sum(axis=1), told[:, 0], told[:, 1])
    )
    return Split(planner, len(told), whole, partition, launches)


def shares(row: Row, planner: str, state: str) -> tuple[float, float] | None:
    """Logarithms of what partition and launches gave of one program; None where one of the four
    plans did not run."""
    names = tuple(BASELINES) if planner == BEST_RULES else (planner,)
    first, last = (_least(row, names, launches, state) for launches in (DEFAULT, TUNED))
    bare, best = (_least(row, (SEARCHED,), launches, state) for launches in (DEFAULT, TUNED))
    if first is None or last is None or bare is None or best is None:
        return None
    return divided(first, last, bare, best)


def divided(
    neither: float, launches: float, partition: float, both: float
) -> tuple[float, float]:  # fmt: skip
    """What partition and launches gave, as logarithms, by the times with neither, with one of them
    and with both."""
    by_partition = math.log(neither / partition) + math.log(launches / both)
    by_launches = math.log(neither / launches) + math.log(partition / both)
    return by_partition / 2, by_launches / 2


def _least(row: Row, names: Sequence[str], launches: str, state: str) -> float | None:
    us: Mapping[str, float] = row["us"][state]
    digests = (row["plans"][name][launches] for name in names if name in row["plans"])
    return min((us[digest] for digest in digests if digest in us), default=None)


def peer_splits(rows: Sequence[Row]) -> Iterator[PeerSplit]:
    """Of the peers that stand for rules, as far as they ran."""
    for peer, rules in RULES_OF.items():
        calls = [row["calls"][peer] for row in rows if "peer" in row["calls"].get(peer, {})]
        if calls:
            whole = np.log([each["peer"] / each[SEARCHED] for each in calls])
            generator = np.log([each["peer"] / each["rules"] for each in calls])
            yield PeerSplit(
                peer, rules, len(calls), geometric_mean(whole), geometric_mean(generator)
            )


HEAD = "| partition under default launches | programs | all | the partition | the launches |"


def shares_text(data: Mapping[str, Any]) -> str:
    """The tables of one run (`bench.study_split`), in Markdown."""
    return "\n".join(_lines(data))


def _lines(data: Mapping[str, Any]) -> Iterator[str]:
    rows = [row for row in data["rows"].values() if "error" not in row]
    yield from opening(
        data,
        f"{len(rows)} programs ({data['size']} sizes), {data['cpu']}, {data['threads']} threads; "
        f"two sessions of {data['seconds']:g} s each.",
    )
    for state in STATES:
        yield from ("", f"Caches {state}:", "", HEAD, "|---" * 5 + "|")
        for one in splits(rows, state):
            told = map(interval_text, (one.whole, one.partition, one.launches))
            yield f"| {one.planner} | {one.programs} | {' | '.join(told)} |"
    for peer in peer_splits(rows):
        yield ""
        yield (
            f"Called from Python, the searched plan is {interval_text(peer.whole)} times as fast "
            f"as {peer.peer} on {peer.programs} programs. Our generator and runtime give "
            f"{interval_text(peer.generator)} of that, with a plan by `{peer.rules}` under default "
            "launches."
        )
