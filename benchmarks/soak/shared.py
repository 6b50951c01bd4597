"""A tuning database that many processes share, on SQLite or on a PostgreSQL of its own: crowds of
writers, killed writers, a server that crashes or stays away, connections cut while they commit."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random

from benchmarks.postgres import Server
from benchmarks.soak.actors import Crowd, Job
from benchmarks.soak.ledger import acknowledged
from benchmarks.soak.place import Place, placed
from benchmarks.soak.planners import planners
from benchmarks.soak.sizes import full, sizes
from benchmarks.soak.types import Round
from tuning_db import Store
from tuning_db.transfer import export_lines, import_lines

PATIENCE_S = 3600.0
_COMMITTING = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE datname = 'soak' AND state = 'active' AND query = 'COMMIT'"
)


def writers(folder: Path, _seed: int, kind: str, crowd: int, count: int) -> Round:
    """Everybody writes to a database that is empty at first, on shared groups."""
    with placed(folder, kind) as place, Crowd(folder) as actors:
        return _round(place, actors, place.jobs(crowd, count), lambda: 0)


def kills(folder: Path, seed: int, kind: str, crowd: int, count: int) -> Round:
    """`count` times kill -9 of one of those who write, and another in its place."""
    draw, done = Random(seed), 0
    problems: list[str] = []
    with placed(folder, kind) as place, Crowd(folder) as actors:
        while done < count:
            before = _size(place.log)
            actors.start(place.jobs(crowd, 1_000_000, f"r{done}-"))
            _wait_until(partial(_has_grown, place.log, before))
            time.sleep(draw.uniform(0.0, 0.5))
            codes = actors.kill()
            done += crowd
            if codes != [-signal.SIGKILL] * crowd:
                problems.append(f"writers ended with {codes} before:\n{actors.words()}")
                break
        # One row of each kill may be stored and not yet said.
        problems += place.problems(unsaid=done)
        taken = f"{acknowledged(place.log).total()} rows acknowledged"
        return Round(done, tuple(problems), (taken,))


def crashes(folder: Path, seed: int, kind: str, crowd: int, count: int) -> Round:
    """`count` crashes of the server while everybody writes."""
    draw = Random(seed)

    def disturb(server: Server) -> None:
        time.sleep(draw.uniform(0.2, 1.0))
        server.crash()
        time.sleep(draw.uniform(0.0, 0.3))
        server.start()

    return _disturbed(folder, crowd, count, disturb)


def away(folder: Path, _seed: int, kind: str, crowd: int, count: int) -> Round:
    """`count` seconds without a server while everybody writes."""

    def disturb(server: Server) -> None:
        time.sleep(1.0)
        server.crash()
        time.sleep(count)
        server.start()

    return _disturbed(folder, crowd, 1, disturb)


def cuts(folder: Path, _seed: int, kind: str, crowd: int, count: int) -> Round:
    """`count` connections cut by the server while they commit."""
    with placed(folder, "postgresql") as place, Crowd(folder) as actors:
        server, done = _server(place), 0

        def until_enough() -> int:
            nonlocal done
            while done < count and actors.ended(0.0) is None:
                done += len(server.execute(_COMMITTING))
            return done

        return _round(place, actors, place.jobs(crowd, 20 * count), until_enough)


def exports(folder: Path, _seed: int, kind: str, crowd: int, count: int) -> Round:
    """`count` exports while everybody writes: each can be imported."""
    with placed(folder, kind) as place, Crowd(folder) as actors:
        Store.open(place.url).close()

        def import_them() -> int:
            for _ in range(count):
                with Store.open(place.url) as store, Store.open("sqlite://") as fresh:
                    import_lines(fresh, export_lines(store))
            return count

        return _round(place, actors, place.jobs(crowd, 4 * count), import_them)


PLAYS: dict[str, Callable[[Path, int, str, int, int], Round]] = {
    "writers": writers, "kills": kills, "crashes": crashes, "away": away, "cuts": cuts,
    "exports": exports, "full": full, "sizes": sizes, "planners": planners,
}  # fmt: skip
SERVER_ONLY = ("crashes", "away", "cuts", "sizes")


def _disturbed(folder: Path, crowd: int, count: int, disturb: Callable[[Server], None]) -> Round:
    """Writers go on while the server is disturbed so many times, then are told to end."""
    with placed(folder, "postgresql") as place, Crowd(folder) as actors:
        server, stop = _server(place), folder / "stop"
        jobs = [{**job, "until": str(stop)} for job in place.jobs(crowd, 1_000_000)]

        def disturb_all() -> int:
            for _ in range(count):
                disturb(server)
            stop.touch()
            return count

        return _round(place, actors, jobs, disturb_all)


def _round(place: Place, actors: Crowd, jobs: Sequence[Job], meanwhile: Callable[[], int]) -> Round:
    """Writers all end well, and all that they were told was taken is there, once."""
    actors.start(jobs)
    _wait_until_all_write(place, len(jobs))
    done = meanwhile()
    codes = actors.ended(PATIENCE_S)
    problems = list[str]()
    if codes != [0] * len(jobs):
        problems.append(f"writers ended with {codes}:\n{actors.words()}")
    if codes is None:  # what is written while it is counted would seem to be lost
        actors.kill()
    problems += place.problems(unsaid=len(jobs) if codes is None else 0)
    return Round(done or acknowledged(place.log).total(), tuple(problems))


def _wait_until_all_write(place: Place, writers: int) -> None:
    """What happens to a database that is being opened is another matter."""

    def all_write() -> bool:
        said = [key for key in acknowledged(place.log) if key[0] == "measurement"]
        return len({digest.split("-")[0] for _, _, digest, _ in said}) >= writers

    _wait_until(all_write)


def _wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and not holds():
        time.sleep(0.05)


def _has_grown(path: Path, before: int) -> bool:
    return _size(path) > before


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _server(place: Place) -> Server:
    assert place.server is not None
    return place.server
