"""Programs of repositories: fetched at one commit, made from the files of their authors."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autofuse.ops.dtypes import DType
from autofuse.peers.types import BenchError
from benchmarks.fetched import kernelbench, npbench, repository
from benchmarks.fetched.repository import Repository, fetch
from benchmarks.fetched.table import FETCHED, REPOSITORIES


def _git(folder: Path, *arguments: str) -> str:
    about = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    done = subprocess.run(
        ["git", "-C", str(folder), *about, *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(repository, "PLACE", tmp_path / "fetched")
    return tmp_path / "fetched"


@pytest.fixture
def known(tmp_path: Path, place: Path) -> Repository:
    """A repository with one commit."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    _git(folder, "init", "--quiet")
    (folder / "program.py").write_text("SIZE = 3\n", encoding="utf-8")
    _git(folder, "add", ".")
    _git(folder, "commit", "--quiet", "-m", "one")
    return Repository("theirs", str(folder), _git(folder, "rev-parse", "HEAD"), "MIT")


def test_a_commit_is_fetched_once(known: Repository) -> None:
    assert fetch(known)
    assert repository.file_module(known.folder / "program.py").SIZE == 3
    assert not fetch(known)


def test_what_cannot_be_fetched_leaves_nothing(known: Repository, place: Path) -> None:
    with pytest.raises(BenchError, match="git"):
        fetch(replace(known, commit="0" * 40))
    assert list(place.iterdir()) == []


def test_programs_are_absent_until_they_are_fetched(place: Path) -> None:
    missing = replace(FETCHED["npbench:lu"], folder=place / "npbench").absent
    assert missing == ("npbench of scripts/fetch_programs",)


def test_names_and_commits_are_whole() -> None:
    assert len(FETCHED) == len(npbench.NAMES) + len(kernelbench.FILES)
    assert not set(npbench.NAMES) & npbench.EXCLUDED.keys()
    assert all(len(each.commit) == 40 and each.licence for each in REPOSITORIES)


def test_numbers_are_part_of_a_program_and_arrays_are_of_jaxs_types(place: Path) -> None:
    pytest.importorskip("jax")  # an extra of its own
    folder = npbench.NPBENCH.folder
    info = {
        "relative_path": "own/lu", "module_name": "lu", "func_name": "kernel",
        "parameters": {"S": {"N": 5, "T": 2}},
        "init": {"func_name": "initialize", "input_args": ["N"], "output_args": ["A", "s"]},
        "input_args": ["T", "A", "s"],
    }  # fmt: skip
    own = folder / "npbench/benchmarks/own/lu"
    own.mkdir(parents=True)
    (folder / "bench_info").mkdir()
    (folder / "bench_info/lu.json").write_text(json.dumps({"benchmark": info}), encoding="utf-8")
    (own / "lu.py").write_text(
        "import numpy as np\ndef initialize(N):\n    return np.ones((N, 2)), np.float64(3)\n",
        encoding="utf-8",
    )
    (own / "lu_jax.py").write_text(
        "def kernel(T, A, s):\n    for _ in range(T):\n        A = A * s\n    return A\n",
        encoding="utf-8",
    )
    made = FETCHED["npbench:lu"].make()
    assert [(t.dtype, t.shape) for t in made.graph.output_types] == [(DType.F32, (5, 2))]
    assert [array.dtype for array in made.arguments] == [np.float32, np.float32]
    np.testing.assert_allclose(made.peers["jax.jit"]()()[0], 9.0)


def test_sizes_of_a_module_are_cut(place: Path) -> None:
    pytest.importorskip("torch")  # an extra of its own
    name = "level1/89_cumsum"
    file = kernelbench.KERNELBENCH.folder / f"KernelBench/{name}.py"
    file.parent.mkdir(parents=True)
    text = """
import torch
class Model(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim
    def forward(self, x):
        return torch.cumsum(x, dim=self.dim)
batch_size, input_shape, dim = 32768, (32768,), 1
def get_inputs():
    return [torch.rand(batch_size, *input_shape)]
def get_init_inputs():
    return [dim]
"""
    file.write_text(text, encoding="utf-8")
    made = FETCHED["kernelbench:1-89"].make()
    assert made.graph.output_types[0].shape == (256, 4096)
    np.testing.assert_allclose(
        made.peers["eager"]()()[0], np.cumsum(made.arguments[0], axis=1), rtol=1e-4
    )
