"""All kinds of soak in turn until the time is up, counted."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from autofuse.errors import AutofuseError
from benchmarks.soak import compilers, disks, kills, suites, writers
from benchmarks.soak.types import Kind

KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("kills", "kills", "kill -9 of a tuning process at random moments", kills.play),
        Kind("writers", "rows", "eight writers and an import during a tune", writers.play),
        Kind("fuzz", "tests", "the fuzzers of the tests with new seeds", suites.fuzz),
        Kind("compiler", "kills", "the compiler killed in the middle of a build", compilers.play),
        Kind("disk", "refusals", "a full disk under cache and database", disks.play),
        Kind("plans", "tests", "random plans of random graphs checked anew", suites.explore),
    )
}
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Tally:
    """What all rounds of one kind came to."""

    kind: Kind
    rounds: int = 0
    done: int = 0
    failures: int = 0

    def __str__(self) -> str:
        kind = self.kind
        counted = f"{self.done} {kind.unit} in {self.rounds} rounds, {self.failures} failures"
        return f"{kind.name:9} {counted} ({kind.doc})"


def soak(
    minutes: float, seed: int, folder: Path, names: Collection[str], say: Say
) -> tuple[Tally, ...]:
    """Play rounds of the named kinds (none: all) in turn, the last one begun before `minutes` are
    over; every kind at least once. Round k of the run has seed `seed` + k. The folder of a round
    that failed is kept in `folder`, with what it said. Raises AutofuseError for unknown names."""
    if unknown := sorted(set(names) - set(KINDS)):
        raise AutofuseError(f"unknown kind '{unknown[0]}' (known: {', '.join(KINDS)})")
    tallies = {name: Tally(kind) for name, kind in KINDS.items() if name in (names or KINDS)}
    end = time.monotonic() + 60.0 * minutes
    number = 0
    while number < len(tallies) or time.monotonic() < end:
        name = list(tallies)[number % len(tallies)]
        tallies[name] = _play(tallies[name], seed + number, folder, say)
        number += 1
    return tuple(tallies.values())


def _play(tally: Tally, seed: int, folder: Path, say: Say) -> Tally:
    own = folder / f"{tally.kind.name}-{seed}"
    own.mkdir(parents=True)
    found = tally.kind.play(own, seed)
    if found.problems:
        (own / "problems.txt").write_text("\n".join(found.problems) + "\n", encoding="utf-8")
        say(f"{tally.kind.name}, seed {seed}: {len(found.problems)} failures, kept in {own}")
        for problem in found.problems[:3]:
            say(f"  {problem}")
    else:
        shutil.rmtree(own)
    return Tally(
        tally.kind,
        tally.rounds + 1,
        tally.done + found.done,
        tally.failures + len(found.problems),
    )
