"""Damaged ONNX files: a graph or one sentence, never a traceback, a hang or a huge allocation; from
the command line a plan is looked for, or exit 2.

Every case is made from the seed and its number. AUTOFUSE_FUZZ_SEED and AUTOFUSE_FUZZ_CASES choose
others and more of them; a failure names both.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from autofuse.commands.app import app
from autofuse.commands.common import NOT_FOUND
from autofuse.errors import AutofuseError
from autofuse.frontends.onnx.read import load_onnx
from autofuse.graph.verify import verify
from benchmarks.hostile.damage import damaged_bytes, damaged_message
from tests.support.cli_tools import call, refused
from tests.support.damage import SEED, bounded
from tests.support.onnx_models import chosen, perceptron, read_back, shaped
from tests.support.seeds import examples

CASES = int(os.environ.get("AUTOFUSE_FUZZ_CASES", "400"))
# Those that go through the command line too, which takes twenty times as long.
LINES = int(os.environ.get("AUTOFUSE_FUZZ_CASES", examples(60)))
CHUNK = 200
# Made once: making it from its commands takes longer than most answers.
PROGRAM = get_command(app)
MAKERS = (perceptron, shaped, chosen)
SIZES = {"batch": [2], "n": [2], "x[2]": [4], "starts": [1], "ends": [3]}


def case(number: int, makers: Sequence[Callable[[], Any]] = MAKERS) -> bytes:
    rng = random.Random(f"{SEED}:onnx:{number}")
    raw = bytes(rng.choice(makers)().SerializeToString())
    if rng.random() < 0.25:
        return damaged_bytes(rng, raw)
    return damaged_message(rng, read_back(raw))


Sizes = Mapping[str, Sequence[int]]


def loaded(path: Path, sizes: Sizes) -> str:
    """The sentence that a file is refused with; nothing where it is a graph."""
    try:
        verify(load_onnx(str(path), sizes).graph)
    except AutofuseError as error:
        text = str(error)
        assert text.startswith(str(path)) and "\n" not in text, text
        assert len(text) < 600 + len(str(path)), text
        text.encode("utf-8")
        return text
    return ""


def queried(capsys: pytest.CaptureFixture[str], path: Path, sizes: Sizes) -> str:
    """As `loaded`, of `autofuse query`, which knows no plan of a graph."""
    dims = [f"--dim={name}={','.join(map(str, size))}" for name, size in sizes.items()]
    line = ["query", str(path), "--device=cpu", f"--db={path.with_name('t.db')}", *dims]
    ended = call(capsys, *line, program=PROGRAM)
    if ended.code != NOT_FOUND:
        refused(ended, str(path))
    return "" if ended.code == NOT_FOUND else ended.err


def outcome(path: Path, ask: Callable[[Path, Sizes], str]) -> str:
    """What became of a file: "graph" or "refused"; anything else is an error."""
    used: dict[str, list[int]] = {}
    for _ in SIZES:
        text = ask(path, used)
        if not text:
            return "graph"
        more = {k: v for k, v in SIZES.items() if k not in used and k in text}
        if not more:
            return "refused"
        used |= more
    return "refused"


def outcomes(numbers: range, path: Path, ask: Callable[[Path, Sizes], str] = loaded) -> set[str]:
    """What became of some cases, each written to `path`."""
    found = set()
    for number in numbers:
        path.write_bytes(case(number))
        try:
            with bounded():
                found.add(outcome(path, ask))
        except Exception as error:  # any other error is what is looked for
            error.add_note(f"AUTOFUSE_FUZZ_SEED={SEED}, case {number}: {path}")
            raise
    return found


@pytest.mark.parametrize("chunk", range(-(-CASES // CHUNK)))
def test_damaged_models_are_graphs_or_sentences(chunk: int, tmp_path: Path) -> None:
    numbers = range(chunk * CHUNK, min((chunk + 1) * CHUNK, CASES))
    assert outcomes(numbers, tmp_path / "m.onnx") == {"graph", "refused"}


@pytest.mark.parametrize("chunk", range(-(-LINES // CHUNK)))
def test_damaged_models_are_answered_by_the_command_line(
    chunk: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = range(chunk * CHUNK, min((chunk + 1) * CHUNK, LINES))
    path, ask = tmp_path / "m.onnx", partial(queried, capsys)
    # What is imported for a first query is not what a damaged file makes it allocate.
    path.write_bytes(perceptron().SerializeToString())
    assert ask(path, {"batch": [2]}) == ""
    assert "refused" in outcomes(numbers, path, ask)
