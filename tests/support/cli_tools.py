"""Calling the command line in this process, and a small graph for it to work on."""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import autofuse
from autofuse.commands.app import app

ROWS, COLUMNS = 32, 48
SCRIPTS = Path(__file__).parents[2] / "scripts"
Call = Callable[..., "Ended"]
# What a command says of its defaults before it fails.
NOTES = ("no --inputs given", "using device 'cpu'")


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found


def call(
    capsys: pytest.CaptureFixture[str], *arguments: object, program: Callable[..., Any] = app
) -> Ended:
    """Run `autofuse ARGUMENTS` here."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        program([str(a) for a in arguments], prog_name="autofuse")
    out, err = capsys.readouterr()
    return Ended(int(ended.value.code or 0), out, err)


def call_script(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *command: object
) -> Ended:
    """Run a file of scripts/ here: a process of its own would import everything anew."""
    monkeypatch.setattr(sys, "argv", [str(word) for word in command])
    monkeypatch.setattr(sys, "path", [*sys.path])
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(SCRIPTS / str(command[0])), run_name="__main__")
    out, err = capsys.readouterr()
    return Ended(int(ended.value.code or 0), out, err)


def refused(ended: Ended, words: str) -> None:
    """One sentence on stderr, nothing on stdout, exit 2."""
    lines = [line for line in ended.err.splitlines() if not any(n in line for n in NOTES)]
    assert (ended.code, ended.out) == (2, "")
    assert len(lines) == 1 and lines[0].startswith("autofuse: ") and words in lines[0], ended.err


def toy() -> autofuse.Graph:
    """Two inputs, two outputs, a reduction; XLA's rules leave it in more than one kernel."""

    def fn(x: Any, bias: Any) -> dict[str, Any]:
        shifted = autofuse.xp.exp(x) + bias
        return {"scaled": shifted / shifted.sum(axis=1, keepdims=True), "top": x.max(axis=1)}

    return autofuse.trace(fn, autofuse.spec((ROWS, COLUMNS)), autofuse.spec((COLUMNS,)))


def toy_file(folder: Path) -> Path:
    path = folder / "toy.json"
    autofuse.save(toy(), path)
    return path
