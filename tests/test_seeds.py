"""Random cases: the same in every run unless asked for, and the same again by their seed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.seeds import ANEW, FUZZ_VARIABLE, VARIABLE, choose, drawn

HERE = Path(__file__).parent
# A property test that shows what it was given, and a loop over seeds.
CASES = """
from hypothesis import given, settings, strategies as st
from tests.support.seeds import seeds

@settings(max_examples=5)
@given(st.integers(0, 2**40))
def test_drawn(number):
    print("drew", number)

def test_loop():
    print("drew", *seeds(4))
"""


def run(folder: Path, *arguments: str, **variables: str) -> list[str]:
    """The lines in which a run of the cases above says what it drew, and how to repeat it."""
    (folder / "conftest.py").write_text((HERE / "conftest.py").read_text())
    (folder / "test_cases.py").write_text(CASES)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = gpu\n slow\n wide(count)\n")
    kept = {k: v for k, v in os.environ.items() if k not in (VARIABLE, FUZZ_VARIABLE)}
    path = str(HERE.parent)
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(
        command,
        cwd=folder,
        env={**kept, **variables, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.lstrip(".") for line in done.stdout.splitlines()]
    return [line for line in lines if line.startswith(("drew", "exploring"))]


def test_by_default_every_run_tries_the_same(tmp_path: Path) -> None:
    first = run(tmp_path)
    assert first[-1] == "drew 0 1 2 3" and len(first) == 6
    assert run(tmp_path) == first


@pytest.mark.slow
def test_exploring_draws_anew_and_says_how_to_repeat_it(tmp_path: Path) -> None:
    first = run(tmp_path, "--explore")
    assert first[-1].startswith("exploring: repeat it with pytest --explore ")
    again = run(tmp_path, "--explore", first[-1].rpartition(" ")[2])
    assert again == first
    other = run(tmp_path, **{VARIABLE: "1"})
    # Small numbers may be drawn twice, whole runs of them are not.
    assert len(other) == len(first) and other != first


def test_the_seed_is_handed_to_fuzzers_and_other_processes() -> None:
    found: dict[str, str] = {}
    choose(None, found)
    assert found == {}
    choose("77", found)
    assert found == {VARIABLE: "77", FUZZ_VARIABLE: "77"}
    found = {VARIABLE: ANEW, FUZZ_VARIABLE: "5"}
    choose(None, found)
    assert int(found[VARIABLE]) > 1 and found[FUZZ_VARIABLE] == "5"
    kept = dict(found)
    choose(None, found)
    assert found == kept, "a process that is started by this one explores the same"


@pytest.mark.parametrize("bad", ["-3", "x", str(2**31)])
def test_a_seed_is_a_number(bad: str) -> None:
    with pytest.raises(ValueError, match="take a whole number below 2\\^31"):
        choose(bad, {})


def test_seeds_are_different_and_follow_from_one() -> None:
    assert list(drawn(3, None)) == [0, 1, 2]
    assert list(drawn(50, 9)) == list(drawn(50, 9)) != list(drawn(50, 10))
    assert len(set(drawn(500, 9))) == 500
