"""Many graphs, batch by batch, each batch in a process of its own that a crash may take along."""

from __future__ import annotations

import multiprocessing as mp
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from autofuse.backends.cache import BuildCache
from benchmarks.fuzz.trial import Building, Found, trial

BATCH = 40
# Seconds without a word from a batch after which it hangs: compiling one takes the longest.
SILENCE_S = 300.0


@dataclass
class Total:
    """What a run found."""

    graphs: int = 0
    found: list[Found] = field(default_factory=list)
    seconds: Counter[str] = field(default_factory=Counter)

    def count(self, kind: str) -> int:
        """Graphs with a finding of a kind."""
        return len({f.seed for f in self.found if f.kind == kind})

    @property
    def line(self) -> str:
        kinds = ", ".join(f"{self.count(k)} {k}" for k in ("refused", "wrong", "crashed"))
        return f"{self.graphs} graphs: {kinds}"


_QUICKLY = Building("-O0")


@dataclass
class _Batch:
    seeds: Sequence[int]
    process: Any
    end: Connection
    at: tuple[int, str]
    since: float


def run_fuzz(
    seeds: Sequence[int], jobs: int = 1, how: Building = _QUICKLY,
    tell: Callable[[Found], None] = lambda found: None, until: float = float("inf"),
) -> Total:  # fmt: skip
    """Try graphs in `jobs` processes; none is begun after the moment `until` of
    `time.monotonic`."""
    total, queue = Total(), [seeds[k : k + BATCH] for k in range(0, len(seeds), BATCH)]
    running: list[_Batch] = []
    with tempfile.TemporaryDirectory() as folder:
        while running or (queue and time.monotonic() < until):
            while queue and len(running) < jobs and time.monotonic() < until:
                running.append(_begun(queue.pop(0), Path(folder), how))
            ready = wait([b.end for b in running], timeout=5.0)
            for batch in list(running):
                over = batch.end in ready and not _heard(batch, total, tell)
                late = time.monotonic() - batch.since > SILENCE_S
                if over or late:
                    running.remove(batch)
                    queue[:0] = _ended(batch, total, tell, late)
    return total


def _begun(seeds: Sequence[int], folder: Path, how: Building) -> _Batch:
    mine, theirs = mp.Pipe(duplex=False)
    process = mp.get_context("fork").Process(
        target=_batch, args=(theirs, tuple(seeds), folder, how), daemon=True
    )
    process.start()
    theirs.close()
    return _Batch(seeds, process, mine, (seeds[0], "begin"), time.monotonic())


def _batch(end: Connection, seeds: Sequence[int], folder: Path, how: Building) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as own:
        trial(seeds, lambda *said: end.send(said), how, BuildCache(Path(own)))
    end.send(("done", None))


def _heard(batch: _Batch, total: Total, tell: Callable[[Found], None]) -> bool:
    """Whether there is more to come."""
    try:
        what, said = batch.end.recv()
    except EOFError:
        return False
    batch.since = time.monotonic()
    if what == "found":
        total.found.append(said)
        tell(said)
    elif what == "at":
        batch.at = said
    elif what == "seconds":
        total.seconds.update(said)
    elif what == "done":
        total.graphs += len(batch.seeds)
        batch.seeds = ()
    return True


def _ended(
    batch: _Batch, total: Total, tell: Callable[[Found], None], late: bool
) -> list[Sequence[int]]:
    """What is left of a batch that a graph took along, one by one around the place."""
    if late:
        batch.process.kill()
    batch.process.join()
    if not batch.seeds:
        return []
    seed, stage = batch.at
    code = batch.process.exitcode or 0
    what = "hangs" if late else (signal.Signals(-code).name if code < 0 else f"exit {code}")
    found = Found(seed, "crashed", stage, f"{what} at {stage}")
    total.found.append(found)
    tell(found)
    total.graphs += 1
    rest = [s for s in batch.seeds if s != seed]
    return [rest] if rest else []
