"""`autofuse report` as a command: formats, peers, figures, and what it refuses."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from benchmarks.reports import MadeUp, fill
from tests.support.cli_tools import Call, call


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Call:
    return lambda *arguments: call(capsys, *arguments)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "made-up.db"
    fill(path, MadeUp(workloads=1, strategies=1, candidates=4, devices=("made-up",)))
    return path


def test_text_and_data_go_to_stdout(cli: Call, database: Path) -> None:
    found = cli("report", "--db", database, "--format", "json")
    assert found.code == 0 and "1 workload reported" in found.err
    assert json.loads(found.out)["workloads"][0]["name"] == "made-up:softmax"
    rows = list(csv.DictReader(io.StringIO(cli("report", "--db", database, "--format", "csv").out)))
    assert {"rules", "best"} <= {row["kind"] for row in rows}
    assert cli("report", "--db", database, "--format", "md").out.startswith("# autofuse report\n")


def test_the_file_says_the_same_every_time(cli: Call, database: Path, tmp_path: Path) -> None:
    pages = [tmp_path / "a.html", tmp_path / "b.html"]
    for page in pages:
        assert cli("report", "--db", database, "--out", page).code == 0
    assert pages[0].read_bytes() == pages[1].read_bytes()


@pytest.mark.parametrize("form", ["svg", "png"])
def test_figures_go_to_a_folder(cli: Call, database: Path, tmp_path: Path, form: str) -> None:
    folder = tmp_path / "new" / "figures"
    ended = cli("report", "--db", database, "--figures", folder, "--figure-format", form)
    assert ended.code == 0 and ended.out == "" and "figures drawn in" in ended.err
    names = sorted(path.name for path in folder.iterdir())
    assert f"01-made-up-softmax-made-up-envelope.{form}" in names and len(names) == 10
    start = {"svg": b"<svg ", "png": b"\x89PNG"}[form]
    assert all(path.read_bytes().startswith(start) for path in folder.iterdir())


def test_a_page_needs_a_file(cli: Call, database: Path) -> None:
    ended = cli("report", "--db", database)
    assert ended.code == 2 and "--out FILE.html" in ended.err


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "cannot read the peers"), (b"[]", "not what scripts/bench_peers writes"),
     (b"\xff\xfe", "not a text file"), (b"{", "not a JSON file")],
)  # fmt: skip
def test_bad_peers_are_one_sentence(
    cli: Call, database: Path, tmp_path: Path, content: bytes | None, words: str
) -> None:
    path = tmp_path / "peers.json"
    if content is not None:
        path.write_bytes(content)
    ended = cli("report", "--db", database, "--format", "json", "--peers", path)
    assert (ended.code, ended.out) == (2, "")
    assert words in ended.err and len(ended.err.splitlines()) == 1
