"""The steps of gpu_check that are programs of their own: read while they run, ended in time, and
not asked again for what they have done."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import gpu_children
from benchmarks.gpu_children import (
    ALONE,
    NONE_RAN,
    ROOT,
    follow,
    merged,
    pytest_commands,
    read_tests,
)
from tests.support.gpu_contexts import context


def python(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def test_a_child_is_followed_to_its_end(tmp_path: Path) -> None:
    log, ticks = tmp_path / "log", itertools.count()
    states = list(follow(python("print('hello'); raise SystemExit(3)"), log, 60, lambda: 0.0))
    assert states[-1] == 3 and set(states[:-1]) <= {None} and log.read_text() == "hello\n"
    slow = python("import time; print('begun'); time.sleep(60)")
    states = list(follow(slow, log, 4.0, lambda: float(next(ticks)), None, 0.05))
    assert set(states) == {None}, "it was killed, and nothing more came"


def test_pytest_is_read_while_it_runs() -> None:
    x, y, z = (f"tests/test_gpu_a.py::test_{name}" for name in ("x[softmax 1]", "y", "z"))
    verdicts = f"{x} passed\n{y} passed\n{z} skipped\n{y} failed\n"
    found = read_tests(verdicts, "words", [0, None])
    assert (found["passed"], found["skipped"], found["code"]) == (1, 1, None)
    assert found["failed"] == [y] and found["passed_tests"] == [x] and found["tail"] == "words"
    assert read_tests("", "words", [4, 0])["code"] == 4
    assert read_tests("", "words", [0, NONE_RAN])["tail"] == ""


def test_tests_that_take_times_are_alone() -> None:
    alone, together = pytest_commands("cuda")
    assert set(ALONE) < set(alone) and not set(ALONE) & set(together) and "-n" not in alone
    assert together[together.index("-n") + 1].isdigit()
    files = {str(path.relative_to(ROOT)) for path in (ROOT / "tests").glob("test_gpu_*.py")}
    assert files == {part for part in (*alone, *together) if part.startswith("tests/")}


@pytest.mark.slow
def test_the_gpu_tests_are_found_and_deselected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What runs them here has no GPU, or runs them all. More processes would only take longer.
    monkeypatch.setattr(gpu_children, "find_spec", lambda name: None)
    found: dict[str, Any] = {}
    try:
        for more in gpu_children.tests(context(tmp_path), 120.0):
            found |= more
    except RuntimeError as error:
        assert "ended with code 5" in str(error)
        assert "deselected" in (tmp_path / "tests.log").read_text()
    assert found["failed"] == []
    assert [path.name for path in tmp_path.iterdir()] == ["tests.log"]


@pytest.mark.slow
def test_tests_that_passed_before_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "test_own.py"
    own.write_text("def test_a(): pass\ndef test_ab(): assert 0\ndef test_b(): pass\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "benchmarks.gpu_passed", "--rootdir",
               str(tmp_path), "-p", "no:cacheprovider", str(own)]  # fmt: skip
    monkeypatch.setattr(
        gpu_children, "pytest_commands", lambda device: [command, [*command, "-n1"]]
    )
    before = context(tmp_path, tests={"passed_tests": ["test_own.py::test_a"]})
    found: dict[str, Any] = {}
    with pytest.raises(RuntimeError, match="the tests ended with code 1"):
        for more in gpu_children.tests(before, 60.0):
            found |= more
    assert found["passed_tests"] == ["test_own.py::test_a", "test_own.py::test_b"]
    assert found["failed"] == ["test_own.py::test_ab"]
    log = (tmp_path / "tests.log").read_text()
    assert "1 failed, 1 passed, 1 deselected" in log, "alone, what had passed before left out"
    assert log.count("1 failed in") == 1, "and then by a process that is told what has passed"


def peers_of(*names: str) -> dict[str, Any]:
    """Of workloads that a peer takes 2, 3, ... times as long for."""
    rows = {name: {"autofuse": {"time_us": 1.0}} for name in names}
    ratios = {name: 2.0 + at for at, name in enumerate(names)}
    mode = {"workloads": rows, "ratio_best_peer_over_autofuse": ratios}
    return {"modes": {"graph": mode, "eager": mode}}


def test_peers_that_end_early_leave_what_they_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def fake(command: list[str], log: Path, *_: object) -> Iterator[int | None]:
        asked.append(command[command.index("--workloads") + 1])
        log.write_text("first\nbench_peers: no such thing\n")
        yield None
        data = json.dumps(peers_of("softmax"))
        Path(command[command.index("--output") + 1]).write_text(data)
        yield 2

    monkeypatch.setattr(gpu_children, "follow", fake)
    own = context(tmp_path, "softmax", "swiglu")
    seen: list[Mapping[str, Any]] = []
    with pytest.raises(RuntimeError, match="ended with code 2: bench_peers: no such thing"):
        seen.extend(gpu_children.peers(own, 10.0))
    seen = []
    monkeypatch.setattr(gpu_children, "follow", lambda *a: itertools.islice(fake(*a), 2))
    with pytest.raises(RuntimeError):
        for found in gpu_children.peers(own, 10.0):
            seen.append(found)
    assert seen[0] == {} and seen[-1]["modes"]["graph"]["geomean_over"] == ["softmax"]
    later = replace(own, steps={"peers": seen[-1], "tune": {"workloads": {
        "softmax": {"best": 1}, "swiglu": {"best": 1}, "mlp": {"error": "lost"},
    }}})  # fmt: skip
    with pytest.raises(RuntimeError):
        list(gpu_children.peers(later, 10.0))
    assert asked == ["softmax,swiglu", "softmax,swiglu", "swiglu"], "what was tuned and is not done"
    done = replace(own, steps={"peers": peers_of("softmax", "swiglu")})
    assert list(gpu_children.peers(done, 10.0)) == [] and len(asked) == 3


def test_comparisons_of_two_calls_are_one() -> None:
    both = merged(peers_of("softmax"), peers_of("black_scholes", "swiglu"))["modes"]["graph"]
    assert set(both["workloads"]) == {"softmax", "black_scholes", "swiglu"}
    assert both["geomean_best_peer_over_autofuse"] == pytest.approx((2 * 2 * 3) ** (1 / 3))
    assert merged(peers_of("softmax"), {}) == {}, "nothing yet"
