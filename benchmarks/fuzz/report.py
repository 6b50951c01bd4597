"""What a run of the fuzzer says in the end."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.fuzz.run import Total
from benchmarks.fuzz.shrink import shrunk
from benchmarks.fuzz.trial import Found


def tell(found: Found) -> None:
    """One line of progress."""
    line = f"seed {found.seed}: {found.kind} at {found.stage}: {found.cause}"
    print(line, file=sys.stderr, flush=True)


def summary(total: Total, checked: Total | None, took_s: float, shrink: bool) -> Iterator[str]:
    """The counts, the causes, with `shrink` the smallest graph of each, and where time went."""
    yield total.line
    if checked is not None:
        yield f"{checked.line} (under sanitizers)"
    found = everything(total, checked)
    causes = Counter((f.kind, f.cause) for f in found)
    for (kind, cause), times in causes.most_common():
        yield f"{times:6} {kind}: {cause}"
        if shrink:
            yield shrunk(next(f for f in found if (f.kind, f.cause) == (kind, cause)))
    parts = ", ".join(f"{what} {s:.0f}" for what, s in total.seconds.most_common())
    yield f"{took_s:.0f} s, {took_s / max(total.graphs, 1):.3f} s a graph ({parts})"


def everything(total: Total, checked: Total | None) -> list[Found]:
    return [*total.found, *(() if checked is None else checked.found)]


def write(found: Sequence[Found], path: Path) -> None:
    """The findings as JSON."""
    path.write_text(json.dumps([f.to_json() for f in found], indent=1) + "\n", encoding="utf-8")
