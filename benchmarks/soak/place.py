"""Where soaks of a shared database take place."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from benchmarks.postgres import Server, running
from benchmarks.soak.actors import Job
from benchmarks.soak.ledger import acknowledged, damage, stored

WORKLOAD = "a" * 32
# Groups that candidates share with those of other writers.
SHARED = 10


KINDS = ("sqlite", "postgresql")


@dataclass(frozen=True, slots=True)
class Place:
    """An empty database, its server if it has one, and the log of what its store took."""

    folder: Path
    url: str
    server: Server | None

    def jobs(self, writers: int, count: int, name: str = "w") -> list[Job]:
        """Writers of so many measurements each, and a tenth as many of kernels."""
        own = {
            "do": "write", "db": self.url, "log": str(self.log), "workload": WORKLOAD,
            "count": count, "shared": SHARED, "kernels_every": 10,
            "variables": {"XDG_DATA_HOME": str(self.folder / "data")},
        }  # fmt: skip
        return [{**own, "writer": f"{name}{n}"} for n in range(writers)]

    @property
    def log(self) -> Path:
        return self.folder / "acknowledged.jsonl"

    def problems(self, unsaid: int = 0) -> Iterator[str]:
        """What was lost or doubled; `unsaid`: rows that may be there and were not acknowledged."""
        if self.server is None:
            yield from damage(Path(self.url))
        there, said = stored(self.url), acknowledged(self.log)
        if missing := said - there:
            yield f"{missing.total()} acknowledged rows are lost, such as {min(missing)}"
        if twice := [key for key, count in there.items() if count > 1]:
            yield f"{len(twice)} rows are there twice, such as {min(twice)}"
        if (more := (there - said).total()) > unsaid:
            yield f"{more} rows were not acknowledged, more than {unsaid}"


@contextmanager
def placed(folder: Path, kind: str) -> Iterator[Place]:
    """An empty database of a kind; a server ends with the block."""
    spool = os.environ.get("XDG_DATA_HOME")
    os.environ["XDG_DATA_HOME"] = str(folder / "data")
    try:
        with running() if kind == "postgresql" else nullcontext() as server:
            url = str(folder / "tuning.db") if server is None else server.create("soak")
            yield Place(folder, url, server)
    finally:
        del os.environ["XDG_DATA_HOME"]
        os.environ.update({} if spool is None else {"XDG_DATA_HOME": spool})
