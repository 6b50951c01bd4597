"""Which dial is the cheapest for how many runs, over all programs.

What N runs cost with a dial: its seconds from empty caches to the end of the first call, and N - 1
times its run time. The data are those of `scripts/study A`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from benchmarks.kept import Row
from benchmarks.study.dials import OURS
from benchmarks.study.summary import drawn_interval, geometric_mean, interval_text, opening

# Numbers of runs that are told, and those between which a crossing is looked for.
TOLD = tuple(10**k for k in range(10))
_GRID = np.logspace(0, 9, 181)
MANY = 10**5


@dataclass(frozen=True, slots=True)
class DialTime:
    """One dial on one program: seconds to the end of the first call, and microseconds of a run with
    a 95 % interval."""

    dial: str
    system: str
    first_s: float
    us: float
    low_us: float
    high_us: float

    def cost_s(self, runs: Any) -> Any:
        """Seconds of so many runs, a number or an array of them, the first among them."""
        return self.first_s + (runs - 1) * 1e-6 * self.us


# The dials of each program.
Times = Mapping[str, Sequence[DialTime]]


def times_of(rows: Sequence[Row]) -> dict[str, list[DialTime]]:
    """By program, of every dial that ran; a plan of ours that is wrong is none."""
    found: dict[str, list[DialTime]] = {}
    for row in rows:
        if "error" in row:
            continue
        told = found.setdefault(row["program"], [])
        for name, dial in row["dials"].items():
            if "us" in dial and not (dial["system"] == OURS and "wrong" in dial):
                times = (float(dial[key]) for key in ("first_s", "us", "low_us", "high_us"))
                told.append(DialTime(name, dial["system"], *times))
    return {program: dials for program, dials in found.items() if dials}


def cheapest(dials: Sequence[DialTime], runs: float) -> DialTime:
    return min(dials, key=lambda dial: dial.cost_s(runs))


def group(dial: DialTime) -> str:
    """What its share is counted under: our dials alone, those of others by system."""
    return dial.dial if dial.system == OURS else dial.system


def shares(times: Times, runs: float) -> dict[str, tuple[float, float, float]]:
    """The share of programs for which each group has the cheapest dial, with a 95 % interval from
    programs drawn again."""
    won = {group(cheapest(dials, runs)) for dials in times.values()}
    return {name: share_of(times, runs, name.__eq__) for name in sorted(won)}


def share_of(times: Times, runs: float, is_of: Callable[[str], bool]) -> tuple[float, float, float]:
    """As `shares`, of the groups that are counted together."""
    hits = [is_of(group(cheapest(dials, runs))) for dials in times.values()]
    low, high = drawn_interval(np.asarray(hits, float))
    return float(np.mean(hits)), low, high


def cost_over(
    times: Times, runs: float, is_of: Callable[[str], bool]
) -> tuple[float, float, float]:
    """What the cheapest of the dials that are counted together costs over the cheapest of all: a
    geometric mean over the programs that have such a dial, with a 95 % interval."""
    logs = []
    for dials in times.values():
        own = [dial for dial in dials if is_of(group(dial))]
        if own:
            ratio = cheapest(own, runs).cost_s(runs) / cheapest(dials, runs).cost_s(runs)
            logs.append(np.log(ratio))
    return geometric_mean(np.array(logs))


def lost(times: Times, least: float = MANY) -> dict[str, list[str]]:
    """The programs for which ours are not the cheapest for some number of runs from `least` on, and
    the dials that are."""
    counts = [runs for runs in TOLD if runs >= least]
    found = {
        name: {each.dial for each in map(partial(cheapest, dials), counts) if each.system != OURS}
        for name, dials in times.items()
    }
    return {name: sorted(dials) for name, dials in found.items() if dials}


def crossing(dials: Sequence[DialTime], system: str, side: int = 0) -> float | None:
    """The number of runs from which on ours, with its best dial for it, cost no more than the other
    system with its own; 1 where they never do, None where they do not up to 10^9. `side` 1 takes
    times at the slow end of ours and the fast end of the other's interval, -1 the other way."""
    ours = _least(dials, OURS, side)
    others = _least(dials, system, -side)
    dearer = np.flatnonzero(ours > others)
    if not len(dearer):
        return 1.0
    last = int(dearer[-1])
    return None if last == len(_GRID) - 1 else float(_GRID[last + 1])


def _least(dials: Sequence[DialTime], system: str, side: int) -> np.ndarray:
    """The least seconds that a system takes, for each number of runs."""
    costs = [
        replace(dial, us={0: dial.us, 1: dial.high_us, -1: dial.low_us}[side]).cost_s(_GRID)
        for dial in dials
        if dial.system == system
    ]
    found: np.ndarray = np.min(costs, axis=0)
    return found


def cheapest_text(data: Mapping[str, Any]) -> str:
    """The tables of one run, in Markdown."""
    return "\n".join(_lines(data))


def _lines(data: Mapping[str, Any]) -> Iterator[str]:
    times = times_of(list(data["rows"].values()))
    yield from opening(
        data,
        f"{len(times)} programs ({data['size']} sizes), {data['cpu']}, {data['threads']} threads.",
    )
    yield from (
        "",
        "The share of programs for which a dial is the cheapest, by the number of runs:",
    )
    yield from _share_table(times)
    yield from (
        "",
        "From how many runs on ours cost less than another system's, each with its best dial:",
    )
    yield from _crossing_table(times)
    yield from ("", "Each dial where it was tried:")
    yield from _dial_table(times)
    yield from ("", *_beyond(times))


def _share_table(times: Times) -> Iterator[str]:
    found = [shares(times, runs) for runs in TOLD]
    names = _ordered({name for each in found for name in each})
    yield from ("", f"| runs | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|")
    for k, each in enumerate(found):
        cells = (_percent(each[name]) if name in each else "" for name in names)
        yield f"| 10^{k} | {' | '.join(cells)} |"


def _ordered(names: set[str]) -> list[str]:
    """Ours first, the more they take the later."""

    def key(name: str) -> tuple[bool, float, str]:
        ours, told = name.startswith(OURS), name.removeprefix(f"{OURS} ").removesuffix(" s")
        return not ours, float(told) if ours and told != "untuned" else 0.0, name

    return sorted(names, key=key)


def _percent(found: tuple[float, float, float]) -> str:
    share, low, high = found
    return f"{share:.0%} ({100 * low:.0f} to {100 * high:.0f})"


def _crossing_table(times: Times) -> Iterator[str]:
    systems = sorted({dial.system for dials in times.values() for dial in dials} - {OURS})
    head = (
        "| system | programs | from the first | by 10^3 | by 10^5 | by 10^7 | not by 10^9 "
        "| median, by the intervals of times |"
    )
    yield from ("", head, "|---" * 8 + "|")
    for system in systems:
        those = [d for d in times.values() if {OURS, system} <= {dial.system for dial in d}]
        found = [crossing(dials, system) for dials in those]
        counts = (
            sum(each is not None and each <= runs for each in found) for runs in (1, 1e3, 1e5, 1e7)
        )
        never = sum(each is None for each in found)
        ends = " to ".join(_runs(_middle(crossing(d, system, side) for d in those))
                           for side in (-1, 1))  # fmt: skip
        yield (
            f"| {system} | {len(those)} | {' | '.join(map(str, counts))} | {never} "
            f"| {_runs(_middle(found))} ({ends}) |"
        )


def _middle(crossings: Iterable[float | None]) -> float:
    return median(float("inf") if each is None else each for each in crossings)


def _runs(count: float) -> str:
    return f"{count:,.0f}" if count < 1e9 else "never"


def _dial_table(times: Times) -> Iterator[str]:
    head = (
        "| dial | programs | seconds to the first call, median | run time over the fastest dial's |"
    )
    yield from ("", head, "|---" * 4 + "|")
    names = {dial.dial for dials in times.values() for dial in dials}
    ours = {name for name in names if name.startswith(OURS)}
    for name in [*_ordered(ours), *sorted(names - ours)]:
        there = [(dial, dials) for dials in times.values() for dial in dials if dial.dial == name]
        over = np.log([dial.us / min(each.us for each in dials) for dial, dials in there])
        mean = interval_text(geometric_mean(over))
        first = median(dial.first_s for dial, _ in there)
        yield f"| {name} | {len(there)} | {first:.2f} | {mean} |"


def _beyond(times: Times) -> Iterator[str]:
    others = lost(times)
    yield (
        f"For 10^5 runs and any more a dial of ours is the cheapest for {len(times) - len(others)} "
        f"programs of {len(times)}."
    )
    if others:
        told = "; ".join(f"`{name}` ({', '.join(dials)})" for name, dials in others.items())
        yield f"The others: {told}."
