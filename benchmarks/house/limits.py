"""The ratchet: no number of a room rises unless its limit was raised, with a reason."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.house.rooms import Numbers

FILE = Path(__file__).with_name("limits.json")
# A limit that is further above its number than this is worth lowering.
SLACK = 0.02


@dataclass(frozen=True)
class Limits:
    """The most that each measure of each room may be; by "room: measure" why one was raised."""

    most: Numbers
    why: Mapping[str, str]


def read_limits(file: Path = FILE) -> Limits:
    data = json.loads(file.read_text(encoding="utf-8"))
    return Limits(data["most"], data["why"])


def write_limits(limits: Limits, file: Path = FILE) -> None:
    """Equal limits give equal bytes: one room a line."""
    rooms = ",\n".join(
        f"    {json.dumps(room)}: {json.dumps(own, sort_keys=True)}"
        for room, own in sorted(limits.most.items())
    )
    why = json.dumps(dict(sorted(limits.why.items())), indent=2).replace("\n", "\n  ")
    text = f'{{\n  "most": {{\n{rooms}\n  }},\n  "why": {why}\n}}\n'
    file.write_text(text, encoding="utf-8")


def raised(found: Numbers, limits: Limits) -> Iterator[str]:
    """Numbers above their limits, and rooms that have none."""
    for room, measure, number in _each(found):
        most = limits.most.get(room, {}).get(measure, 0)
        if number > most:
            yield f"{room}: {measure} rose from {most} to {number}"


def fallen(found: Numbers, limits: Limits) -> Iterator[str]:
    """Limits that are further above their numbers than `SLACK`."""
    for room, measure, most in _each(limits.most):
        number = found.get(room, {}).get(measure, 0)
        if number < most * (1 - SLACK):
            yield f"{room}: {measure} fell from {most} to {number}: lower the limit"


def _each(numbers: Numbers) -> Iterator[tuple[str, str, int]]:
    for room, own in sorted(numbers.items()):
        yield from ((room, measure, number) for measure, number in sorted(own.items()))


def rewritten(found: Numbers, old: Limits | None, why: str) -> Limits:
    """The numbers as limits. Beside each that rose stands `why`; reasons of limits that fell since
    are gone. Raises ValueError where a limit rises for no reason."""
    if old is None:
        return Limits(found, {})
    rose = [problem.partition(" rose ")[0] for problem in raised(found, old)]
    if rose and not why:
        raise ValueError(f"say --why these rise: {'; '.join(rose)}")
    same = {
        f"{room}: {measure}"
        for room, measure, number in _each(found)
        if number == old.most.get(room, {}).get(measure)
    }
    kept = {key: reason for key, reason in old.why.items() if key in same}
    return Limits(found, kept | dict.fromkeys(rose, why))
