"""Bad input of every kind: one sentence, exit 2, nothing lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli_tools import Call, call, refused


@pytest.fixture(scope="module", autouse=True)
def _own_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test touches the user's database."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        yield


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Call:
    return lambda *arguments: call(capsys, *arguments)


def graph_text(op: str = "exp", reads: str = "x", type_: str = "f32[4]") -> str:
    nodes = [{"name": "a", "op": op, "inputs": [reads], "types": [type_]},
             {"name": "b", "op": "neg", "inputs": ["a"], "types": ["f32[4]"]}]  # fmt: skip
    head = {"autofuse_graph": 1, "inputs": [{"name": "x", "type": "f32[4]"}]}
    return json.dumps({**head, "nodes": nodes, "outputs": ["b"]})


@pytest.mark.parametrize("command", ["tune", "query", "run", "show", "compare"])
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON"),
        ("\udcff", "not UTF-8"),
        (graph_text(reads="b"), "cycle"),
        (graph_text(op="frob"), "unknown op 'frob'"),
        (graph_text(type_="f32[5]"), "declared as f32[5]"),
    ],
)
def test_a_bad_graph_is_one_sentence(
    cli: Call, tmp_path: Path, command: str, text: str, words: str
) -> None:
    path = tmp_path / "graph.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    refused(cli(command, path), words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("query nothing.json", "no such file: nothing.json"),
        ("query {tmp}", "directory"),
        ("query zoo:nothing", "unknown zoo workload 'nothing'"),
        ("query zoo:softmax:huge", "no size 'huge'"),
        ("query zoo:softmax:small --device tpu", "unknown device 'tpu'"),
        ("query zoo:softmax:small --db {tmp}/no/t.db", "its directory does not exist"),
        ("query zoo:softmax:small --db {tmp}", "is a directory"),
        ("query zoo:softmax:small --db nothing://x", "nothing"),
        ("tune zoo:softmax:small --device cuda", "cannot be used: no CUDA driver was found"),
        ("run zoo:softmax:small --device cuda", "cannot be used: no CUDA driver was found"),
        ("show zoo:softmax:small --device cuda", "cannot be used: no CUDA driver was found"),
        ("query zoo:softmax:small --device cuda", "cannot be used: no CUDA driver was found"),
        ("run zoo:softmax:small --device cuda:1", "CUDA_VISIBLE_DEVICES"),
        ("compare zoo:softmax:small --device cuda-emulated", "is never timed"),
        ("tune zoo:softmax:small --device cuda-emulated --target sm_70:V100", "known: sm_80:A100"),
        ("tune zoo:softmax:small --device cpu --target H100", "can be named for cuda-emulated"),
        ("tune zoo:softmax:small --db {tmp}/t.db --strategy magic", "unknown strategy 'magic'"),
        (
            "tune zoo:softmax:small --db {tmp}/t.db --strategy optuna --sampler magic",
            "no sampler 'magic'",
        ),
        ("tune zoo:softmax:small --budget nan", "budget"),
        ("tune zoo:softmax:small --budget 0", "budget"),
        ("run zoo:softmax:small --plan magic", "unknown plan 'magic'"),
        ("run zoo:softmax:small --plan best --db {tmp}/t.db", "no plan is known"),
        ("run zoo:softmax:small --inputs nothing.npz", "no such file: nothing.npz"),
        ("run zoo:softmax:small --inputs {tmp}", "directory"),
        ("run zoo:softmax:small --inputs {text}", "not an .npz file"),
        ("run zoo:softmax:small --output {tmp}", "it is a directory"),
        ("run zoo:softmax:small --output {tmp}/no/y.npz", "its directory does not exist"),
        ("show zoo:softmax:small --plan magic", "unknown plan 'magic'"),
        ("show zoo:softmax:small --plan fused --svg {tmp}", "it is a directory"),
        ("compare zoo:softmax:small --plans magic", "unknown plan 'magic'"),
        ("compare zoo:softmax:small --plans unfused,", "separated by commas"),
        ("report --out {tmp} --db {tmp}/t.db", "it is a directory"),
        ("report --out {tmp}/r.html --db {tmp}/no.db", "no such database"),
        ("db info --db {tmp}/no.db", "no such database"),
        ("db export --db {tmp}/no.db", "no such database"),
        ("db export {tmp} --db {tmp}/no.db", "it is a directory"),
        ("db import {tmp}/no.jsonl --db {tmp}/t.db", "no such file"),
        ("db import {tmp} --db {tmp}/t.db", "directory"),
        ("db import {text} --db {tmp}/t.db", "line 1"),
    ],
)
def test_bad_arguments_are_one_sentence(
    cli: Call, tmp_path: Path, arguments: str, words: str
) -> None:
    text = tmp_path / "some.txt"
    text.write_text("some text\n", encoding="utf-8")
    refused(cli(*arguments.format(tmp=tmp_path, text=text).split()), words)


@pytest.mark.parametrize(
    "arguments",
    ["nothing", "tune", "tune zoo:softmax --budget soon", "zoo --format xml", "tune a b",
     "tune zoo:softmax --seed -1", "report", "db nothing"],
)  # fmt: skip
def test_bad_usage_is_exit_2(cli: Call, arguments: str) -> None:
    ended = cli(*arguments.split())
    assert (ended.code, ended.out) == (2, "") and "Usage: autofuse" in ended.err


@pytest.mark.parametrize("command", ["tune zoo:softmax:small", "db info", "report --out {out}"])
def test_a_file_that_is_no_database_stays_as_it_is(cli: Call, tmp_path: Path, command: str) -> None:
    path = tmp_path / "notes.db"
    path.write_bytes(b"my notes, not a database\n" * 9)
    arguments = command.format(out=tmp_path / "r.html").split()
    refused(cli(*arguments, "--db", path), "is not a database")
    assert path.read_bytes() == b"my notes, not a database\n" * 9
    assert not (tmp_path / "r.html").exists()


@pytest.mark.parametrize(
    "command", ["", "tune", "query", "run", "show", "compare", "report", "zoo", "info", "db",
                "db info", "db export", "db import"],
)  # fmt: skip
def test_help_is_short(cli: Call, command: str) -> None:
    ended = cli(*command.split(), "--help")
    assert ended.code == 0 and "Usage: autofuse" in ended.out
    assert len(ended.out.splitlines()) <= 38
    assert not any(line.endswith("...") for line in ended.out.splitlines()[1:])
