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
from gpu_contexts import context

from benchmarks import gpu_children
from benchmarks.gpu_children import follow, merged, read_tests


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
    text = (
        "tests/test_gpu_a.py::test_x[softmax 1] PASSED   [ 10%]\n"
        "tests/test_gpu_a.py::test_y FAILED   [ 20%]\ntests/test_gpu_a.py::test_z SKIPPED (no)\n"
    )
    found = read_tests(text, None)
    assert (found["passed"], found["skipped"]) == (1, 1)
    assert found["failed"] == ["tests/test_gpu_a.py::test_y"] and found["tail"] == text
    assert read_tests("", 4)["code"] == 4 and read_tests("", 0)["tail"] == ""
    again = read_tests(text, None, found["passed_tests"] + ["tests/test_gpu_a.py::test_w"])
    assert again["passed"] == 3


def test_the_gpu_tests_are_found_and_deselected(tmp_path: Path) -> None:
    # What runs them here has no GPU, or runs them all.
    found: dict[str, Any] = {}
    try:
        for more in gpu_children.tests(context(tmp_path), 120.0):
            found |= more
    except RuntimeError as error:
        assert "ended with code 5" in str(error)
        assert "deselected" in (tmp_path / "tests.log").read_text()
    assert found["failed"] == []
    assert [path.name for path in tmp_path.iterdir()] == ["tests.log"]


def test_tests_that_passed_before_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "test_own.py"
    own.write_text("def test_a(): pass\ndef test_ab(): assert 0\n")
    command = [sys.executable, "-m", "pytest", "-v", "-p", "benchmarks.gpu_passed", "--rootdir",
               str(tmp_path), "-p", "no:cacheprovider", str(own)]  # fmt: skip
    monkeypatch.setattr(gpu_children, "tests_command", lambda device: command)
    monkeypatch.setattr(gpu_children, "read_tests", lambda text, *_: {"text": text})
    before = context(tmp_path, tests={"passed_tests": ["test_own.py::test_a"]})
    found: dict[str, Any] = {}
    with pytest.raises(RuntimeError, match="the tests ended with code 1"):
        for more in gpu_children.tests(before, 60.0):
            found |= more
    assert "1 failed, 1 deselected" in found["text"]


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
