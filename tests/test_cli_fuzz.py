"""Random command lines: whatever is asked, the answer is a result, or one sentence and exit 2.

AUTOFUSE_FUZZ_SEED and AUTOFUSE_FUZZ_CASES choose other cases, and more of them."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest
from typer.main import get_command

from autofuse.baselines import BASELINES
from autofuse.casestudy import study
from autofuse.commands.app import app
from autofuse.devices import DEVICES
from autofuse.errors import AutofuseError
from autofuse.tuning import api
from autofuse.tuning.job import tuner
from tests.support.cli_tools import NOTES, Ended, call, toy_file

SEED = int(os.environ.get("AUTOFUSE_FUZZ_SEED", "0"))
CASES = int(os.environ.get("AUTOFUSE_FUZZ_CASES", "200"))
# A result, bad input, nothing known.
CODES = {0, 2, 4}
STRANGE = (
    "", " ", "-", "--", "\t", "\u00e9\u00df\u2603", "\U0001f9ea" * 40, "\u202egpj.exe", "\udcff",
    "a" * 5000, "../../..", "%s%n{}{0}", "'; drop table group_; --", "\x1b[31mred", "\x7f\x01",
    "nan", "inf", "-inf", "1e999", "-1", "0", "0x10", "1_000", "9" * 400, "1e-320", "true", "None",
    "zoo:", "zoo::", "zoo:softmax:", "zoo:softmax:small:x", "c", "sm_90:", ":", ",", ",,a", "$HOME",
    "cpu:0", "cuda:1", "sqlite:///", "sqlite://", "postgresql://nobody@localhost:1/x", "http://x",
    "://", "sqlite:///:memory:", "[", "sqlite:///a?b=c", "http://[", "random", "graph.json",
)  # fmt: skip
PLANS = (*BASELINES, "best", "fused")
# What an option is meant to be given.
MEANT: dict[str, tuple[str, ...]] = {
    "--device": (*DEVICES, "auto"), "--target": ("A100", "sm_90:H100", "sm_89"),
    "--budget": ("1", "0.5"), "--format": ("json", "table", "csv", "md", "html"),
    "--strategy": ("exact", "optuna", "random"), "--sampler": ("tpe", "nsga2"),
    "--db": ("t.db",), "--plan": PLANS, "--plans": ("unfused", "best,unfused"), "--runs": ("10",),
    "--dialect": ("c", "cuda"), "--cache": ("cold", "warm", "auto"), "--gap": ("0.1",),
    "--seed": ("1",), "--max-memory": ("1000000",), "--figure-format": ("svg", "png"),
}  # fmt: skip


def leaves(command: Any, words: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    """Every command with the words that call it."""
    inner = getattr(command, "commands", None)
    if inner is None:
        return [(words, command)]
    return [leaf for name, each in inner.items() for leaf in leaves(each, (*words, name))]


def stopped(*_: Any, **__: Any) -> NoReturn:
    """In place of work that takes seconds, behind every check of what was asked."""
    raise AutofuseError("stopped before anything is measured")


@pytest.fixture
def values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What options and arguments are drawn from besides what is strange; nothing is tuned."""
    monkeypatch.setattr(tuner, "_run", stopped)
    monkeypatch.setattr(api, "build", stopped)
    monkeypatch.setattr(study, "_search", stopped)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.json").write_bytes(b'{"autofuse_graph": 1, "nodes": \xff')
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    files = ("bad.json", "empty", "folder", "missing", "new.out", "folder/new.svg", "no/such/file")
    sources = ("toy.json", "zoo:softmax:small", "cartpole")
    toy_file(tmp_path)
    return [*files, *sources, *(value for meant in MEANT.values() for value in meant)]


def drawn_line(
    draw: random.Random, words: tuple[str, ...], command: Any, values: list[str]
) -> list[str]:
    """A command with its arguments, mostly given, and some of its options, mostly sensible."""

    def value(meant: Sequence[str] = ()) -> str:
        pool = meant if meant and draw.random() < 0.6 else values
        return draw.choice(pool if draw.random() < 0.7 else STRANGE)

    line = list(words)
    for parameter in command.params:
        options = [o for o in parameter.opts if o.startswith("--")]
        if not options:
            given = draw.random()
            line += [] if given < 0.05 else ["toy.json"] if given < 0.5 else [value()]
        elif draw.random() < 0.25 and "--help" not in options:
            line.append(draw.choice(options))
            line += [] if parameter.is_flag else [value(MEANT.get(line[-1], ()))]
    if draw.random() < 0.1:
        line.insert(draw.randrange(len(line) + 1), draw.choice(("--nothing", "--db", value())))
    return line


def sensible(ended: Ended) -> bool:
    """A documented exit code, and of what failed one sentence or the usage."""
    if ended.code not in CODES or "Traceback" in ended.err + ended.out:
        return False
    if ended.code != 2:
        return True
    if "Error: " in ended.err:  # from the parser, mostly after the usage
        return "Usage: autofuse" in ended.err or len(ended.err.splitlines()) == 1
    lines = [line for line in ended.err.splitlines() if not any(note in line for note in NOTES)]
    return len(lines) >= 1 and lines[-1].startswith("autofuse: ") and ended.out == ""


@pytest.mark.parametrize("part", range(5))
def test_random_command_lines_are_answered(
    capsys: pytest.CaptureFixture[str], values: list[str], part: int
) -> None:
    draw = random.Random(f"{SEED}/{part}")
    commands = leaves(get_command(app))
    for _ in range(-(-CASES // 5)):
        line = drawn_line(draw, *draw.choice(commands), values)
        ended = call(capsys, *line)
        assert sensible(ended), f"seed {SEED}, autofuse {line}: {ended}"


BAD = (
    Ended(1, "", "autofuse: x"), Ended(2, "", "Traceback (most"),
    Ended(2, "half a table", "autofuse: x"), Ended(2, "", ""),
)  # fmt: skip


@pytest.mark.parametrize("bad", BAD, ids=str)
def test_what_is_not_sensible_is_seen(bad: Ended) -> None:
    assert not sensible(bad)
