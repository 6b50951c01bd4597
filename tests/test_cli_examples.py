"""Every command's help ends with a command line that works as pasted."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from autofuse.casestudy import study
from autofuse.casestudy.columns import TORCH, Column, peer
from autofuse.commands.app import app
from tests.support.cli_tools import call

# The first makes what others ask for.
FIRST = ("tune", "query", "db export")


def commands() -> list[str]:
    """The words of every command there is, those that others build on first."""
    tree = get_command(app)
    found: list[str] = []
    for name, command in tree.commands.items():
        inner = getattr(command, "commands", None)
        found += [name] if inner is None else [f"{name} {each}" for each in inner]
    return sorted(found, key=lambda name: (FIRST.index(name) if name in FIRST else 9, name))


def peer_compiling_once() -> Callable[..., Column | None]:
    """Of the columns of other libraries only the first by torch.compile: each takes it seconds."""
    first = iter((True,))

    def found(name: str, *more: Any) -> Column | None:
        return peer(name, *more) if name != TORCH or next(first, False) else None

    return found


def test_every_example_works(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("XDG_DATA_HOME", "HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    small = partial(
        study.casestudy, n_envs=32, steps=10, sizes=(1,), sizes_of_training=(4, 6, 5, 2)
    )
    monkeypatch.setattr(study, "casestudy", small)
    monkeypatch.setattr(study, "peer", peer_compiling_once())
    # A tenth of each example's budget: the case study shares its own out among many programs.
    for command in commands():
        told = call(capsys, *command.split(), "--help").out
        (example,) = re.findall(r"^ +Example: (autofuse .+)$", told, re.MULTILINE)
        words = shlex.split(re.sub(r"(--budget \d+)0", r"\1", example))
        assert words[0] == "autofuse" and " ".join(words[1:]).startswith(command)
        ended = call(capsys, *words[1:])
        assert ended.code == 0, f"{example}: {ended.err}"
