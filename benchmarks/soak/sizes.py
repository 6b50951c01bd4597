"""A database of many rows: how long its best plans take, and how long an upgrade keeps writers
waiting. And one whose disk is full."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from statistics import median

from alembic import command

from autofuse.records import Cost, Measurement, Timing
from benchmarks.postgres import running
from benchmarks.scale.fill import Filling, fill
from benchmarks.soak.actors import REFUSED, Crowd
from benchmarks.soak.disks import remount, small_disk
from benchmarks.soak.place import Place
from benchmarks.soak.types import Round
from tuning_db import Store
from tuning_db.engine import upgrade
from tuning_db.schema import HEAD, MAJOR, migration_config
from tuning_db.sqlite import WRITES

# What may be asked of a database of any size: milliseconds of a best plan, seconds of a write
# during an upgrade.
BEST_MS, BLOCKED_S = 5.0, 1.0
LOOKUPS = 200
# KiB of a disk that an empty cluster fits on, with its log, and of one with room.
SMALL, ROOMY = 96 * 1024, 512 * 1024
# KiB that writers may fill.
LEFT = 4 * 1024
_PATIENCE_S = 300.0


def sizes(_folder: Path, seed: int, _kind: str, _crowd: int, count: int) -> Round:
    """`count` thousand measurements, half of them of kernels."""
    filling = Filling(500 * count)
    with running(durable=False) as server, Store.open(server.create("sizes")) as store:
        fill(store, filling)
        before = sum(server.processor_s().values()), time.process_time()
        times = _best_ms(store, filling, Random(seed))
        after = sum(server.processor_s().values()), time.process_time()
        theirs, ours = (1e3 * (b - a) / LOOKUPS for a, b in zip(before, after, strict=True))
        longest = _longest_write_s(store, filling)
        said = (
            f"best plan: median {median(times):.2f} ms, 99 % below {times[-LOOKUPS // 100]:.2f} ms",
            f"longest write during an upgrade: {longest:.3f} s",
            f"processor time of a best plan: {theirs:.2f} ms server, {ours:.2f} ms client",
        )
    problems = [said[0]] if median(times) > BEST_MS else []
    problems += [said[1]] if longest > BLOCKED_S else []
    return Round(1000 * count, tuple(problems), said)


def _best_ms(store: Store, filling: Filling, draw: Random) -> list[float]:
    """Milliseconds of best plans, in order."""
    environment, taken = filling.environments[0], []
    for _ in range(LOOKUPS):
        workload = filling.workload(draw.randrange(filling.workloads))
        begun = time.perf_counter()
        found = store.best(environment, workload)
        taken.append(1e3 * (time.perf_counter() - begun))
        assert found is not None
    return sorted(taken)


def _longest_write_s(store: Store, filling: Filling) -> float:
    """Seconds of the longest write while the database is brought from the major schema to ours."""
    config = migration_config()
    with store.engine.execution_options(**WRITES).begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, MAJOR)
    taken, over = list[float](), threading.Event()
    writer = threading.Thread(target=_write, args=(store, filling, over, taken))
    writer.start()
    try:
        assert upgrade(store.url) == (MAJOR, HEAD)
    finally:
        over.set()
        writer.join()
    return max(taken)


def _write(store: Store, filling: Filling, over: threading.Event, taken: list[float]) -> None:
    timing = Timing(30, 9.0, 9.5, 10.0, 10.5, 10.1, 0.25, "cold", "noise")
    environment, workload = filling.environments[0], filling.workload(0)
    while not over.is_set():
        one = Measurement(
            workload, "{}", f"during {len(taken)}", "", 1, ("g",), timing, None, 0.0, Cost()
        )
        begun = time.perf_counter()
        store.add_measurement(None, environment, one)
        taken.append(time.perf_counter() - begun)


def full(folder: Path, _seed: int, kind: str, crowd: int, count: int) -> Round:
    """Writers fill a disk: each is refused in one sentence, or waits for a server that its full
    disk has ended; nothing that was taken is lost, and with room again they go on. Nothing is done
    where this user may not mount a disk."""
    # Not in `folder`: the server's user may not be let into what is above that.
    with ExitStack() as stack:
        disk = Path(tempfile.mkdtemp(prefix="autofuse-disk-"))
        stack.callback(disk.rmdir)
        kib = SMALL if kind == "postgresql" else SMALL // 64
        if not stack.enter_context(small_disk(disk, kib)):
            return Round(0, (), ("this user may not mount a disk",))
        if kind == "sqlite":
            return _filled(Place(folder, str(disk / "tuning.db"), None), disk, crowd, count)
        server = stack.enter_context(running(folder=disk))
        place = Place(folder, server.create("soak"), server)
        Store.open(place.url).close()
        _fill_but(disk, LEFT)
        return _filled(place, disk, crowd, count)


def _fill_but(disk: Path, kib: int) -> None:
    """Leave no more than so much room on a disk, so that writers need not be many or quick."""
    found = os.statvfs(disk)
    free = found.f_bavail * found.f_frsize
    (disk / "ballast").write_bytes(bytes(max(0, free - 1024 * kib)))


def _filled(place: Place, disk: Path, crowd: int, count: int) -> Round:
    Store.open(place.url).close()
    stop = place.folder / "stop"
    with Crowd(place.folder) as actors:
        actors.start([{**j, "until": str(stop)} for j in place.jobs(crowd, 1_000_000, "full")])
        codes, fell = _until_full(place, actors)
        remount(disk, ROOMY)
        if place.server is not None:
            place.server.recover()
        stop.touch()
        codes = actors.ended(_PATIENCE_S) if codes is None else codes
        problems = list(_refused(codes, fell, actors))
        problems += place.problems(unsaid=crowd)
        actors.start(place.jobs(crowd, count, "room"))
        if (after := actors.ended(_PATIENCE_S)) != [0] * crowd:
            problems.append(f"with room again writers ended with {after}:\n{actors.words()}")
        problems += place.problems(unsaid=crowd)
    refused = (codes or []).count(REFUSED)
    said = f"{refused} writers were refused" + ", the server ended by itself" * fell
    return Round(crowd, tuple(problems), (said,))


def _until_full(place: Place, actors: Crowd) -> tuple[list[int] | None, bool]:
    """The writers' codes once all have ended, or None and whether the server has: PostgreSQL ends
    where it cannot write its log in the middle of a change, and to writers it is away then."""
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        if (codes := actors.ended(0.5)) is not None:
            return codes, False
        if place.server is not None and not place.server.answers():
            return None, True
    return None, False


def _refused(codes: list[int] | None, fell: bool, actors: Crowd) -> Iterator[str]:
    """`fell`: those that it had not refused may have gone on with the server."""
    well = (REFUSED, 0) if fell else (REFUSED,)
    if codes is None or any(code not in well for code in codes):
        yield f"on a full disk writers ended with {codes}:\n{actors.words()}"
