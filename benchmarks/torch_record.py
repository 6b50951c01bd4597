"""The record of torch's own cases: what became of each operator's, kept from run to run."""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from autofuse.frontends.torch.rules import RULES
from autofuse.interop.torch.device import CPU
from autofuse.peers.types import BenchError
from benchmarks.torch_conformance import (
    BROKEN,
    FOREIGN,
    PASSED,
    REFUSED,
    WRONG,
    TorchOutcome,
    group_of,
    run_operator,
)
from benchmarks.torch_devices import require

# After so many operators the record is written.
_BATCH = 10
Record = dict[str, Any]
Say = Callable[[str], None]


def record_of(
    outcomes: Sequence[TorchOutcome], most: int | None = None, device: str = CPU
) -> Record:
    """What the file holds: counts by operator with the reasons for what is not counted and, where
    not all cases were run, `most` of each dtype; the overloads that cases passed with, the rules
    that none did, and every counted case that did not pass by reason."""
    operators: dict[str, Counter[str]] = defaultdict(Counter)
    foreign: dict[str, Counter[str]] = defaultdict(Counter)
    gaps: dict[str, list[str]] = defaultdict(list)
    for each in outcomes:
        operators[each.group][each.status] += 1
        if each.status == FOREIGN:
            foreign[each.group][each.told] += 1
        elif each.status != PASSED:
            gaps[f"{each.status}: {each.told}"].append(each.name)
    told: Record = {name: dict(sorted(count.items())) for name, count in operators.items()}
    if most is not None:
        told = {name: {"most": most, **counts} for name, counts in told.items()}
    for name, reasons in foreign.items():
        told[name]["not counted"] = dict(sorted(reasons.items()))
    passed = set().union(*(o.overloads for o in outcomes if o.status == PASSED))
    return _record(told, passed, gaps, device)


def _record(operators: Record, passed: set[str], gaps: dict[str, list[str]], device: str) -> Record:
    passed = passed & set(RULES)
    # Records of the processor say nothing of it.
    return ({} if device == CPU else {"device": device}) | {
        "torch": import_module("torch").__version__,
        "summary": summary(operators),
        "complete": sum("most" not in counts for counts in operators.values()),
        "overloads": sorted(passed),
        "rules without a case": sorted(set(RULES) - passed),
        "operators": {name: operators[name] for name in sorted(operators)},
        "gaps": {reason: sorted(names) for reason, names in sorted(gaps.items())},
    }


def merged(old: Record, new: Record) -> Record:
    """A record of more operators; of those that both have, what `new` says."""
    again = new["operators"]
    gaps: dict[str, list[str]] = defaultdict(list)
    gaps |= {reason: list(names) for reason, names in new["gaps"].items()}
    for reason, names in old["gaps"].items():
        kept = [name for name in names if name.rsplit(":", 2)[0] not in again]
        if kept:
            gaps[reason] += kept
    passed = {*old["overloads"], *new["overloads"]}
    return _record({**old["operators"], **again}, passed, gaps, _device(new))


def _device(record: Record) -> str:
    return str(record.get("device", CPU))


def summary(operators: Record) -> str:
    """The counts in one line."""
    statuses = (PASSED, REFUSED, WRONG, BROKEN, FOREIGN)
    count = {s: sum(counts.get(s, 0) for counts in operators.values()) for s in statuses}
    counted = sum(count.values()) - count[FOREIGN]
    share = 100 * count[PASSED] / max(1, counted)
    rest = ", ".join(f"{count[s]} {s}" for s in (REFUSED, WRONG, BROKEN))
    return (
        f"{count[PASSED]} of {counted} pass ({share:.1f} %), {rest}; {count[FOREIGN]} not counted"
    )


def continued(
    path: Path | None, chosen: Sequence[Any], most: int | None, seconds: float, say: Say,
    device: str = CPU,
) -> Record:  # fmt: skip
    """The record of these operators, of which those at `path` were run before; begins no operator
    after so many seconds. Raises BenchError for a record of another torch or device, and where
    torch has no such device."""
    require(device)
    end, found = time.perf_counter() + seconds, _stored(path, device)
    left = [each for each in chosen if not _is_done(found["operators"].get(group_of(each)), most)]
    for first in range(0, len(left), _BATCH):
        batch = left[first : first + _BATCH]
        outcomes = [o for each in batch if time.perf_counter() < end
                    for o in run_operator(each, most, device)]  # fmt: skip
        if not outcomes:
            continue
        found = merged(found, record_of(outcomes, most, device))
        if path is not None:
            path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        say(f"{len(found['operators'])} operators: {found['summary']}")
    return found


def _is_done(counts: Record | None, most: int | None) -> bool:
    """Whether as many cases were run as are asked for."""
    if counts is None or "most" not in counts:
        return counts is not None
    return most is not None and most <= counts["most"]


def _stored(path: Path | None, device: str) -> Record:
    nothing = record_of((), device=device)
    if path is None or not path.exists():
        return nothing
    found: Record = json.loads(path.read_text(encoding="utf-8"))
    if found.get("torch") != nothing["torch"]:
        raise BenchError(f"{path} is a record of torch {found.get('torch')}: give another file")
    if _device(found) != device:
        raise BenchError(f"{path} is a record of device {_device(found)}: give another file")
    return found
