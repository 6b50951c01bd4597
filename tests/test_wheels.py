"""What is carried to a machine that reaches no registry."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from autofuse.peers.types import BenchError
from benchmarks import wheels

ROOT = Path(__file__).parent.parent


def test_wheels_are_those_of_the_project(tmp_path: Path) -> None:
    text = (ROOT / "pyproject.toml").read_text()
    names = {requirement.split(">")[0] for requirement in wheels.wanted(text)}
    assert {"optuna", "sqlalchemy", "highspy", "typer", "hypothesis"} <= names
    assert names.isdisjoint(wheels.THERE)
    seen: list[list[str]] = []

    def run(command: Any) -> int:
        seen.append(list(command))
        for name in ("numpy-2-x.whl", "optuna-5-x.whl"):
            (tmp_path / "w" / name).write_text("")
        return 0

    found = wheels.download(tmp_path / "w", ROOT / "pyproject.toml", run)
    assert [w.name for w in found] == ["optuna-5-x.whl"], "what is there already is left out"
    assert "--python-version" in seen[0] and "manylinux_2_28_x86_64" in seen[0]
    # The project itself, with its entry points: a checkout has none.
    assert seen[1][2:5] == ["pip", "wheel", "--no-deps"] and seen[1][-1] == str(ROOT)
    with pytest.raises(BenchError, match="could not download"):
        wheels.download(tmp_path / "w", ROOT / "pyproject.toml", lambda _: 1)


def test_the_script_says_what_it_would_ask_for(tmp_path: Path) -> None:
    script = [sys.executable, str(ROOT / "scripts/gpu_wheels")]
    result = subprocess.run([*script, "--list"], cwd=tmp_path, capture_output=True, text=True)
    names = {line.split(">")[0] for line in result.stdout.splitlines()}
    assert result.returncode == 0 and {"alembic", "platformdirs", "hypothesis"} <= names
    result = subprocess.run(script, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 2 and "which folder" in result.stderr
