"""`autofuse db` tells what the tuning database holds, and carries it elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autofuse.commands.common import (
    BAD_INPUT,
    DbOption,
    FormatOption,
    example,
    output_path,
    reported,
    write_whole,
)
from autofuse.commands.output import Format, emit, note, say, table
from autofuse.errors import AutofuseError
from autofuse.units import bytes_text
from tuning_db import Store

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

STANDARD = Path("-")

app = typer.Typer(
    help="Look into the tuning database, or carry it elsewhere.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@contextmanager
def existing_store(db: str | None) -> Iterator[Store]:
    """The store of a database that is there: reading must not create one."""
    from tuning_db.engine import database_url

    _require(database_url(db))
    with Store.open(db) as store:
        yield store


def _require(url: URL) -> None:
    """Raises AutofuseError for a file that is not there."""
    from tuning_db.sqlite import sqlite_path

    path = sqlite_path(url)
    if path is not None and not path.exists():
        raise AutofuseError(f"no such database: {path} (autofuse tune makes it)")


@app.command("info", epilog=example("autofuse db info"))
@reported
def info(db: DbOption = None, form: FormatOption = Format.table) -> None:
    """Count what the database holds."""
    from tuning_db.schema import HEAD
    from tuning_db.sqlite import sqlite_path

    with existing_store(db) as store:
        path = sqlite_path(store.url)
        data: dict[str, Any] = {
            "database": store.name,
            "schema": HEAD,
            "bytes": None if path is None else path.stat().st_size,
            "rows": store.counts(),
            "workloads": [
                {"name": w.name, "digest": w.digest, "nodes": w.nodes} for w in store.workloads()
            ],
        }
    space = "" if data["bytes"] is None else f", {bytes_text(data['bytes'])}"
    lines = [f"{data['database']}: schema {data['schema']}{space}", ""]
    lines += table(["table", ">rows"], [[k, str(n)] for k, n in data["rows"].items()])
    if data["workloads"]:
        rows = [[w["name"], str(w["nodes"]), w["digest"]] for w in data["workloads"]]
        lines += ["", *table(["workload", ">nodes", "digest"], rows)]
    emit(form, data, lines)


@app.command("export", epilog=example("autofuse db export tuning.jsonl"))
@reported
def export(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Where to write; - is stdout.")
    ] = STANDARD,
    db: DbOption = None,
) -> None:
    """Write the whole database as JSON lines.

    Of a damaged database what can be read is written, and what is missing is said; exit 2.
    """
    lost: list[str] = []
    if file == STANDARD:
        for line in _exported(db, lost):
            say(line)
    else:
        output_path(file)
        written = 0

        def write(path: Path) -> None:
            nonlocal written
            with path.open("w", encoding="utf-8", newline="\n") as out:
                for line in _exported(db, lost):
                    out.write(f"{line}\n")
                    written += 1

        write_whole(file, write)
        note(f"{written} lines written to {file}")
    for sentence in lost:
        note(sentence)
    if lost:
        raise typer.Exit(BAD_INPUT)


def _exported(db: str | None, lost: list[str]) -> Iterator[str]:
    """The export; `lost` is filled with what could not be read."""
    from tuning_db.salvage import Salvage

    with existing_store(db) as store:
        yield from Salvage(store, lost).texts()


@app.command("import", epilog=example("autofuse db import tuning.jsonl"))
@reported
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An export; - is stdin.")],
    db: DbOption = None,
    form: FormatOption = Format.table,
) -> None:
    """Add what an export holds and is not here yet.

    All or nothing: a file with a bad line adds nothing.
    """
    from autofuse.tuning.serve.imported import vetted
    from tuning_db.transfer import import_lines

    # The file is read before a database is made for it.
    texts = _lines_of(file)
    with Store.open(db) as store:
        name, added = store.name, import_lines(store, texts, vetted)
    lines = table(["new", ">rows"], [[k, str(n)] for k, n in added.items()])
    emit(form, {"database": name, "added": added}, [f"{file} into {name}", *lines])


def _lines_of(file: Path) -> list[str]:
    try:
        if file == STANDARD:
            return sys.stdin.read().split("\n")
        if file.is_dir():
            raise AutofuseError(f"cannot read {file}: it is a directory")
        return file.read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        raise AutofuseError(f"no such file: {file}") from None
    except UnicodeDecodeError:
        raise AutofuseError(f"{file} is not an export: it is not UTF-8 text") from None


@app.command("upgrade", epilog=example("autofuse db upgrade"))
@reported
def upgrade(db: DbOption = None, form: FormatOption = Format.table) -> None:
    """Bring the database to the schema of this version.

    Older versions of autofuse then refuse it. Those who use it meanwhile wait.
    """
    from tuning_db.engine import database_url, url_name
    from tuning_db.engine import upgrade as upgrade_database

    url = database_url(db)
    _require(url)
    before, after = upgrade_database(url)
    data = {"database": url_name(url), "before": before, "after": after}
    said = f"has schema {after} already" if before == after else f"now has schema {after}"
    emit(form, data, [f"{data['database']} {said}"])


@app.command("merge", epilog=example("autofuse db merge ~/autofuse/tuning.db --db all.db"))
@reported
def merge(
    others: Annotated[list[str], typer.Argument(metavar="URL...", help="Databases to take from.")],
    db: DbOption = None,
    form: FormatOption = Format.table,
) -> None:
    """Add what other databases hold and this one does not.

    All or nothing for each of them. A plan that is the best here stays so.
    """
    from autofuse.tuning.serve.imported import vetted
    from tuning_db.transfer import merge as merge_one

    with Store.open(db) as store:
        data: dict[str, Any] = {"database": store.name, "added": {}}
        for other in others:
            with existing_store(other) as source:
                data["added"][source.name] = merge_one(store, source, vetted)
    rows = [[name, str(sum(n.values()))] for name, n in data["added"].items()]
    emit(form, data, [f"into {data['database']}", *table(["from", ">new rows"], rows)])


@app.command("compact", epilog=example("autofuse db compact"))
@reported
def compact(
    keep: Annotated[
        int, typer.Option("--keep", metavar="N", min=1, help="Latest times kept of each kernel.")
    ] = 5,
    db: DbOption = None,
    form: FormatOption = Format.table,
) -> None:
    """Remove old times and failures that no answer depends on.

    What is served stays, and so do final comparisons, baselines and sessions.
    """
    from tuning_db.compact import compact as compact_store

    with existing_store(db) as store:
        name, removed = store.name, compact_store(store, keep)
    lines = table(["table", ">removed"], [[k, str(n)] for k, n in removed.items()])
    emit(form, {"database": name, "removed": removed}, [name, *lines])
