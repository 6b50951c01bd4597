"""What a tuning database must hold after whatever happened to those who wrote it."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

from sqlalchemy import text

from tuning_db import DatabaseError, Store

# Rows by the keys of `actors.key_of`, and only those with a time: what has failed may be tried
# again.
_ROWS = {
    "measurement": (
        "SELECT w.digest, c.digest, m.stage, m.median_us IS NOT NULL FROM measurement m "
        "JOIN candidate c ON c.id = m.candidate_id JOIN workload w ON w.id = c.workload_id"
    ),
    "kernel": (
        "SELECT g.digest, k.launch, k.cache, k.median_us IS NOT NULL FROM kernel_measurement k "
        "JOIN group_ g ON g.id = k.group_id"
    ),
}
Key = tuple[str, ...]


def damage(db: Path) -> Iterator[str]:
    """Why the database cannot be used; nothing if it is whole, or was never made."""
    if not db.exists():
        return
    try:
        Store.open(db).close()
    except DatabaseError as error:
        yield f"the database does not open: {error}"
        return
    with closing(sqlite3.connect(db)) as raw:
        for check in ("integrity_check", "foreign_key_check"):
            found = [row for row in raw.execute(f"PRAGMA {check}") if row != ("ok",)]
            if found:
                yield f"the database fails its {check}: {found[:3]}"


def acknowledged(log: Path) -> Counter[Key]:
    """What the store said it had taken. A killed process may leave half a line: not said."""
    if not log.exists():
        return Counter()
    lines = log.read_text(encoding="utf-8").splitlines(keepends=True)
    # A process that is killed while it writes joins its half line with the next one's.
    return Counter(key for line in lines for key in _keys(line))


def _keys(line: str) -> Iterable[Key]:
    text = line[line.rfind("[") :]
    return [tuple(json.loads(text))] if text.endswith("]\n") else []


def rows(db: Path, timed: bool = False) -> Counter[Key]:
    """How often each key is in the database; `timed`: only rows with a time."""
    found: Counter[Key] = Counter()
    if db.exists():
        with closing(sqlite3.connect(db)) as raw:
            for name, query in _ROWS.items():
                for *key, has_time in raw.execute(query):
                    found[name, *key] += 1 if has_time or not timed else 0
    return found


def stored(url: str) -> Counter[Key]:
    """How often each key is in a database of any kind."""
    with Store.open(url) as store, store.reading() as t:
        found = ((name, row) for name, query in _ROWS.items() for row in t.execute(text(query)))
        return Counter((name, *map(str, row[:-1])) for name, row in found)


def lost(db: Path, log: Path) -> Iterator[str]:
    """What was acknowledged and is not there."""
    missing = acknowledged(log) - rows(db)
    if missing:
        yield f"{missing.total()} acknowledged rows are lost, such as {min(missing)}"


def measured_twice(db: Path) -> Iterator[str]:
    """What has two times although one was known; finals are timed again on purpose."""
    for key, count in rows(db, timed=True).items():
        if count > 1 and key[-1] != "final":
            yield f"measured {count} times: {key}"
