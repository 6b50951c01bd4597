"""The older JAX: an environment of its own, and a process in it that answers with samples."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from autofuse.peers.types import BenchError

ROOT = Path(__file__).resolve().parents[2]
OLD = "0.4.31"
# The last release with the runtime of before, and libraries of its time.
PACKAGES = (
    f"jax=={OLD}", f"jaxlib=={OLD}", "numpy<2.1", "scipy<1.14", "equinox==0.11.10",
    "diffrax==0.6.1", "blackjax==1.3", "optax==0.2.5", "flax==0.8.5",
)  # fmt: skip


def make_old(folder: Path) -> Path:
    """The Python of an environment in `folder` with the older JAX, made if it is not there. Raises
    BenchError where that cannot be done."""
    python = folder / "bin" / "python"
    if python.exists():
        return python
    try:
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise BenchError(f"no environment with jax {OLD} in {folder}: {error}") from error
    return python


@dataclass(frozen=True)
class OldJax:
    """A process that has run the program once: its JAX, seconds of that, and the results."""

    version: str
    first_s: float
    found: tuple[np.ndarray, ...]
    child: subprocess.Popen[str]

    def sample_us(self) -> float:
        """One sample, taken there while this process waits."""
        return float(_line(self.child, "\n"))


@contextmanager
def old_jax(python: Path, name: str, what: str) -> Iterator[OldJax]:
    """Raises BenchError where the program does not run there."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "found.npz"
        try:
            child = subprocess.Popen(
                [str(python), "-m", "benchmarks.jax_cpu.old", name, what, str(path)],
                env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True, cwd=folder,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )  # fmt: skip
        except OSError as error:
            raise BenchError(f"{python} does not start: {error}") from error
        with child:
            try:
                told = json.loads(_line(child))
                with np.load(path) as file:
                    found = tuple(file[each] for each in file.files)
                yield OldJax(told["version"], told["first_s"], found, child)
            finally:
                child.kill()


def _line(child: subprocess.Popen[str], ask: str = "") -> str:
    """What it says next. Raises BenchError where it has ended."""
    assert child.stdin is not None and child.stdout is not None and child.stderr is not None
    try:
        child.stdin.write(ask)
        child.stdin.flush()
        line = child.stdout.readline()
    except BrokenPipeError:
        line = ""
    if not line:
        last = (child.stderr.read().strip().splitlines() or ["it ended"])[-1]
        raise BenchError(f"the older JAX: {last[:300]}")
    return line
