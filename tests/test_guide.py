"""What the guide and the README show is run: blocks of Python in order, in one namespace a page."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

import autofuse
from autofuse.zoo import zoo_graph
from tests.support.cli_tools import call
from tests.support.onnx_models import perceptron

ROOT = Path(__file__).parent.parent
# What is long for readers is short for a test.
SHORT = {"budget_s=20": "budget_s=2", "tune=20": "tune=1", "zoo:softmax": "zoo:softmax:small"}


def shortened(text: str) -> str:
    for written, tried in SHORT.items():
        text = text.replace(written, tried)
    return text


def blocks(page: str, kind: str = "python") -> list[str]:
    """The blocks of a page, as a test runs them."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [shortened(block) for block in re.findall(rf"```{kind}\n(.*?)```", text, re.S)]


def run(page: str, known: dict[str, Any]) -> dict[str, Any]:
    """The names that a page's blocks define, beside those that are `known`."""
    found = blocks(page)
    assert found
    for number, block in enumerate(found):
        # It is our own text: that it runs is what is tested.
        exec(compile(block, f"{page}, block {number}", "exec"), known)
    return known


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that blocks name lie in a folder of the test, and so does the database."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


@pytest.mark.parametrize("page", ["README.md", "docs/guide/python.md"])
def test_what_is_shown_of_python_runs(page: str) -> None:
    found = run(page, {})
    assert np.allclose(np.asarray(found["y"]).sum(axis=-1), 1.0, atol=1e-4)


def test_what_is_shown_of_jax_runs() -> None:
    q = np.ones((4, 8), np.float32)
    assert np.allclose(run("docs/guide/jax.md", {})["attend"](q, q, q), 1.0, atol=1e-5)


def test_what_is_shown_of_pytorch_runs() -> None:
    model = torch.nn.Linear(4, 3)
    x = torch.ones(2, 4)
    fast = run("docs/guide/pytorch.md", {"model": model})["fast"]
    assert torch.allclose(fast(x), model(x), atol=1e-5)


def test_what_is_shown_of_onnx_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    onnx.save(perceptron(), "model.onnx")
    monkeypatch.setattr(autofuse, "tune", partial(autofuse.tune, budget_s=1))
    found = run("docs/guide/onnx.md", {"x": np.ones((8, 12), np.float32)})
    assert np.allclose(found["results"]["y"].sum(axis=-1), 1.0, atol=1e-5)


def test_what_is_shown_of_serving_runs(capsys: pytest.CaptureFixture[str]) -> None:
    graph = zoo_graph("softmax", "small")
    autofuse.tune(graph, name="zoo:softmax:small", budget_s=2)
    (commands,) = blocks("docs/guide/serving.md", "sh")
    for line in commands.splitlines():
        program, *arguments = line.partition("#")[0].split()
        assert program == "autofuse"
        assert call(capsys, *arguments).code == 0, line
    found = run("docs/guide/serving.md", {"graph": graph})
    assert found["fast"].origin.startswith("bundle")
    assert found["named"].origin.startswith("bundle")
