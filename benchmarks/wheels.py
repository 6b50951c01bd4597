"""Downloading the packages of this project for a machine that has no access to any registry."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

from autofuse.peers.types import BenchError

# What a GPU machine brings itself, in versions that belong to its driver; and what NumPy decides.
THERE = ("cupy", "jax", "numpy", "scipy", "torch")
# Needed by the tests, beside pytest.
ALSO = ("hypothesis",)
PYTHON = "3.12"
GLIBC = (39, 36, 35, 34, 31, 28, 27, 24, 17)
_NAME = re.compile(r"[A-Za-z0-9._-]+")
Run = Callable[[Sequence[str]], int]


def wanted(pyproject: str) -> list[str]:
    """Requirements of the text of a pyproject.toml that the other machine has not."""
    listed = tomllib.loads(pyproject)["project"]["dependencies"]
    names = {r: _NAME.match(r) for r in (*listed, *ALSO)}
    return [r for r, name in names.items() if name is not None and name[0] not in THERE]


def command(folder: Path, requirements: Sequence[str], machine: str = "x86_64") -> list[str]:
    """pip's command line: binary packages for Linux and Python 3.12, with all they need."""
    platforms = [f"manylinux_2_{n}_{machine}" for n in GLIBC] + [f"manylinux2014_{machine}"]
    return [
        sys.executable, "-m", "pip", "download", "--only-binary=:all:", "--quiet",
        "--disable-pip-version-check", "--implementation", "cp", "--python-version", PYTHON,
        *(part for name in platforms for part in ("--platform", name)),
        "--dest", str(folder), *requirements,
    ]  # fmt: skip


def own_wheel(folder: Path, root: Path) -> list[str]:
    """The command line that makes the project's own wheel, whose entry points a checkout has not:
    by one of them PyTorch finds its backend."""
    return [
        sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet", "--disable-pip-version-check",
        "--wheel-dir", str(folder), str(root),
    ]  # fmt: skip


def download(folder: Path, pyproject: Path, run: Run = subprocess.call) -> list[Path]:
    """Fill `folder` and return its wheels, the project's own among them, without those that are
    there already on the other machine. Raises BenchError when pip fails, OSError for a folder or
    file that cannot be used."""
    requirements = wanted(pyproject.read_text(encoding="utf-8"))
    folder.mkdir(parents=True, exist_ok=True)
    if run(command(folder, requirements)) != 0:
        raise BenchError("pip could not download the wheels: see its words above")
    if run(own_wheel(folder, pyproject.parent)) != 0:
        raise BenchError("pip could not make the wheel of autofuse itself: see its words above")
    for wheel in folder.glob("*.whl"):
        if wheel.name.partition("-")[0].lower() in THERE:
            wheel.unlink()
    return sorted(folder.glob("*.whl"))
