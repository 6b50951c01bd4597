"""Kernels of each class under NVIDIA's compute-sanitizer: accesses, races, barriers."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from autofuse.peers.types import BenchError
from benchmarks.dry import DRY
from benchmarks.gpu_cases import RIGHT, child_command
from benchmarks.gpu_children import follow
from benchmarks.gpu_classes import is_class
from benchmarks.gpu_smoke import CASES
from benchmarks.gpu_steps import Context, require_all

TOOL = "compute-sanitizer"
CHECKS = ("memcheck", "racecheck", "synccheck")
_SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+) (?:error|hazard)")
_TAIL = 6000


def sanitize(context: Context, seconds: float) -> Iterator[Mapping[str, Any]]:
    """Each check on the classes that `smoke` found right: how much it found, and its words. A dry
    run does without the tool, which watches a device."""
    dry = context.kind.name == DRY
    if not dry and shutil.which(TOOL) is None:
        raise BenchError(f"{TOOL} is not on the path")
    right = [
        name
        for name, one in context.found("smoke", "cases").items()
        if one["state"] == RIGHT and is_class(name)
    ]
    found = context.found("sanitize", "checks")
    end, left = context.clock() + seconds, [check for check in CHECKS if check not in found]
    for at, check in enumerate(left):
        share = (end - context.clock()) / (len(left) - at)
        head = () if dry else (TOOL, "--tool", check, "--print-limit", "20")
        found[check] = _checked(context, check, head, right, share)
        yield {"checks": found}
    require_all(CHECKS, found)


def _checked(
    context: Context, check: str, head: Sequence[str], names: Sequence[str], seconds: float
) -> dict[str, Any]:
    files = [context.out / f"{check}{ending}" for ending in ("-asked.json", ".jsonl", ".log")]
    asked, told, log = files
    for old in (told, log):
        old.unlink(missing_ok=True)
    asked.write_text(json.dumps(list(names)), encoding="utf-8")
    command = [*head, *child_command(CASES.module, context, asked, told)]
    code: int | None = None
    for code in follow(command, log, seconds, context.clock, poll_s=0.5):  # noqa: B007 - the last is read below
        pass
    return verdict(code, told, log, len(names), bool(head))


def verdict(code: int | None, told: Path, log: Path, asked: int, watched: bool) -> dict[str, Any]:
    """What one check found; an error where it found something, or did not come to its end."""
    rows = (
        [json.loads(line) for line in told.read_text(encoding="utf-8").splitlines()]
        if told.exists()
        else []
    )
    tried = sum("found" in row for row in rows)
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    counts = [int(n) for n in _SUMMARY.findall(text)]
    known: dict[str, Any] = {"asked": asked, "tried": tried, "code": code}
    known["found"] = sum(counts) if counts else None
    if code is None:
        return known | {"error": f"cut off after {tried} of {asked} cases", "tail": text[-_TAIL:]}
    if code != 0 or any(counts) or (watched and not counts) or tried < asked:
        said = "nothing was counted" if not counts else f"{sum(counts)} found"
        return known | {"error": f"{said}, code {code}", "tail": text[:_TAIL]}
    return known
