"""Damaged databases and exports: one sentence, never a traceback, and nothing is written to them.

AUTOFUSE_FUZZ_SEED and AUTOFUSE_FUZZ_CASES make a longer or another run of the same tests.
"""

from __future__ import annotations

import json
import os
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.tuning_records import ENV, WORKLOAD, failed, filled, kernel, measurement
from tuning_db import DatabaseError, Store, lines
from tuning_db.models import Base
from tuning_db.salvage import Salvage
from tuning_db.schema import MAJOR, VERSION_TABLE
from tuning_db.transfer import export_lines, import_lines

SEED = int(os.environ.get("AUTOFUSE_FUZZ_SEED", "0"))
CASES = int(os.environ.get("AUTOFUSE_FUZZ_CASES", "200"))
GROUPS = ["g-good", "g-broken", "g-base"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A database with a row of every kind, in small pages, so that most bytes mean something."""
    folder = tmp_path_factory.mktemp("whole")
    with Store.open(folder / "wide.db") as store:
        filled(store)
        found = store.best(ENV, WORKLOAD)
        assert found is not None and store.promote(1, ENV, found.measurement, None)
        # More rows than schema: damage is to hit what is read, not only the way to it.
        for number in range(20):
            store.add_measurement(1, ENV, measurement(f"m{number % 10}", 20.0 + number))
            store.add_kernel(1, ENV, kernel("g-good", 5.0 + number, f"{{{number}}}"))
            store.add_measurement(1, ENV, failed(f"f{number % 10}"))
    with (
        closing(sqlite3.connect(folder / "wide.db")) as wide,
        closing(sqlite3.connect(folder / "dense.db")) as dense,
    ):
        dense.execute("PRAGMA page_size = 512")
        dense.executescript("\n".join(wide.iterdump()).replace(",Inf,", ",1e999,"))
    # Reading alone must not change a byte: the file is in the mode that we use.
    with Store.open(folder / "dense.db") as store:
        ask(store)
    return (folder / "dense.db").read_bytes()


def damaged(data: bytes, draw: random.Random) -> bytes:
    """Some bytes flipped, a stretch overwritten, or the end cut off."""
    found = bytearray(data)
    match draw.randrange(4):
        case 0 | 1:
            for _ in range(draw.choice((1, 1, 3, 20))):
                found[draw.randrange(len(found))] ^= 1 << draw.randrange(8)
        case 2:
            start, size = draw.randrange(len(found)), draw.choice((4, 40, 400))
            stretch = bytes(size) if draw.random() < 0.5 else draw.randbytes(size)
            found[start : start + size] = stretch[: len(found) - start]
        case _:
            del found[draw.randrange(len(found)) :]
    return bytes(found)


def ask(store: Store) -> None:
    """Every question there is."""
    store.counts()
    store.workloads()
    for session in store.sessions():
        store.events(session.id)
        store.verdicts(session.id)
    store.measured(ENV, WORKLOAD)
    store.measurements(WORKLOAD)
    for cache in (None, "cold", "warm"):
        store.best(ENV, WORKLOAD, cache)
    store.kernels(ENV, GROUPS)
    store.calibration(ENV)
    _, *exported = export_lines(store)
    for line in exported:
        lines.read_line(line, MAJOR)  # whatever is exported can be imported


def in_one_sentence(error: DatabaseError) -> bool:
    return bool(str(error)) and "\n" not in str(error) and str(error).isprintable()


def test_a_damaged_database_answers_or_says_what_is_wrong(whole: bytes, tmp_path: Path) -> None:
    draw, path = random.Random(SEED), tmp_path / "damaged.db"
    said = 0
    for case in range(CASES):
        for left in tmp_path.iterdir():
            left.unlink()
        data = damaged(whole, draw)
        path.write_bytes(data)
        try:
            store = Store.open(path)
        except DatabaseError as error:
            assert in_one_sentence(error), case
            assert path.read_bytes() == data, case
            said += 1
            continue
        with store:
            try:
                ask(store)
            except DatabaseError as error:
                assert in_one_sentence(error), case
                said += 1
    assert said > CASES / 20


def test_what_can_be_read_of_a_damaged_database_can_be_imported(
    whole: bytes, tmp_path: Path
) -> None:
    draw, path = random.Random(SEED + 1), tmp_path / "damaged.db"
    salvaged = 0
    for case in range(CASES // 4):
        for left in tmp_path.iterdir():
            left.unlink()
        path.write_bytes(damaged(whole, draw))
        try:
            store = Store.open(path)
        except DatabaseError:
            continue
        with store, Store.open("sqlite://") as fresh:
            salvage = Salvage(store)
            try:
                texts = list(salvage.texts())
            except DatabaseError as error:
                assert in_one_sentence(error), case
                continue
            assert all("\n" not in sentence for sentence in salvage.lost), case
            if salvage.lost:
                salvaged += len(texts) > 1
                import_lines(fresh, texts)
    assert salvaged > 0


def test_a_lost_table_costs_what_it_held_and_what_refers_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.db"
    with Store.open(path) as store:
        filled(store)
        everything = list(export_lines(store))
        salvage = Salvage(store)
        assert list(salvage.texts()) == everything and salvage.lost == []
    for table, column, lost in (
        ("candidate", "kernels", {"candidate", "session", "measurement"}),
        ("session", "budget_s", {"session"}),
        ("calibration", "value", {"calibration"}),
    ):
        copy = tmp_path / f"{table}.db"
        copy.write_bytes(path.read_bytes())
        with closing(sqlite3.connect(copy)) as raw, raw:
            raw.execute(f"UPDATE {table} SET {column} = x'00ff'")
        with Store.open(copy) as store, Store.open("sqlite://") as fresh:
            salvage = Salvage(store)
            texts = list(salvage.texts())
            kinds = [json.loads(line).get("kind") for line in texts]
            whole_kinds = {json.loads(line).get("kind") for line in everything}
            assert whole_kinds - set(kinds) == lost
            assert salvage.lost[0].startswith(f"table {table} could not be read to its end: ")
            assert len(salvage.lost) == (2 if table == "candidate" else 1)
            import_lines(fresh, texts)
            with pytest.raises(DatabaseError, match="a row is damaged"):
                list(export_lines(store))


def test_a_damaged_export_adds_nothing(tmp_path: Path) -> None:
    with Store.open(tmp_path / "x.db") as store:
        filled(store)
        data = "\n".join(export_lines(store)).encode()
    draw = random.Random(SEED + 2)
    refused = 0
    with Store.open(tmp_path / "fresh.db") as fresh:
        empty = fresh.counts()
        for case in range(CASES):
            texts = damaged(data, draw).decode("utf-8", "replace").split("\n")
            with fresh.writing() as t:
                for table in reversed(Base.metadata.sorted_tables):
                    t.execute(table.delete())
            try:
                import_lines(fresh, texts)
            except DatabaseError as error:
                assert in_one_sentence(error) and str(error).startswith("line "), case
                assert fresh.counts() == empty, case
                refused += 1
    assert refused > CASES / 4


@pytest.mark.parametrize("version", ["0006", "0005.", "0005.x", "9999", "", "x\x00y", "0" * 31])
def test_a_schema_that_is_not_ours_is_left_alone(
    version: str, whole: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "newer.db"
    path.write_bytes(whole)
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute(f"UPDATE {VERSION_TABLE} SET version_num = ?", (version,))
    before = path.read_bytes()
    with pytest.raises(DatabaseError, match="was written by a newer autofuse") as caught:
        Store.open(path)
    assert in_one_sentence(caught.value) and path.read_bytes() == before
    header = json.dumps({"format": "autofuse-tuning-db", "schema": version})
    with Store.open("sqlite://") as fresh, pytest.raises(DatabaseError, match=r"^line 1: ") as said:
        import_lines(fresh, [header])
    assert in_one_sentence(said.value)
