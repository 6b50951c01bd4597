"""Empty tuning databases for tests, of every kind that there is: SQLite files, and databases of a
PostgreSQL server that the test run starts for itself."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from benchmarks.postgres import Server, running
from tuning_db import Store

# A name, and the URL of the database that was made for it.
Databases = Callable[[str], str]
KINDS = ("sqlite", "postgresql")
_NUMBERS = count()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A server with the database "schema", which has the tables and no rows."""
    with running(durable=False) as server:
        Store.open(server.create("schema")).close()
        yield server


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the tables and no rows: making them anew takes half a second."""
    path = tmp_path_factory.mktemp("template") / "schema.db"
    Store.open(path).close()
    return path


@pytest.fixture(params=KINDS)
def databases(
    request: pytest.FixtureRequest, tmp_path: Path, sqlite_template: Path
) -> Iterator[Databases]:
    """Makes databases with tables and no rows, all of one kind."""
    made: list[str] = []

    def sqlite(name: str) -> str:
        return str(shutil.copy(sqlite_template, tmp_path / f"{name}.db"))

    def postgresql(name: str) -> str:
        server: Server = request.getfixturevalue("postgres")
        made.append(f"{name}-{next(_NUMBERS)}")
        return server.create(made[-1], "schema")

    yield {"sqlite": sqlite, "postgresql": postgresql}[request.param]
    for name in made:
        request.getfixturevalue("postgres").drop(name)


@pytest.fixture
def store(databases: Databases) -> Iterator[Store]:
    """An empty store on each kind of database."""
    with Store.open(databases("tuning")) as opened:
        yield opened


@pytest.fixture
def sqlite_store(tmp_path: Path, sqlite_template: Path) -> Iterator[Store]:
    """An empty store in a file."""
    with Store.open(shutil.copy(sqlite_template, tmp_path / "tuning.db")) as opened:
        yield opened
