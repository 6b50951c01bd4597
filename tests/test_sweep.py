"""A short sample of `scripts/sweep`, whose whole is for nights, and that it finds its fault."""

from __future__ import annotations

from typing import Any

import pytest

from autofuse.backends.cpu import backend as cpu
from benchmarks.sweep.cases import EXTENTS, SUBJECTS, THREAD_COUNTS, drawn
from benchmarks.sweep.run import sweep
from tests.support.cli_tools import call_script
from tests.support.seeds import examples, seeds


def test_a_sample_is_right() -> None:
    count = examples(96)
    found = sweep(list(seeds(count)))
    assert found.cases > count // 2 and not found.faults, found.faults


def test_lost_work_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault that it was written for: threads share fewer pieces than a grid has."""
    count = cpu.c_iterations
    monkeypatch.setattr(cpu, "c_iterations", lambda kernel: max(1, count(kernel) * 3 // 4))
    cpu.rendered.cache_clear()
    found = sweep(range(48), "relu, turned")
    cpu.rendered.cache_clear()
    assert len(found.faults) > 10 and all("output 0" in fault.what for fault in found.faults)


def test_cases_are_drawn_again_by_their_seed() -> None:
    for seed in range(40):
        one, other = drawn(seed), drawn(seed)
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            assert (one.name, one.candidate) == (other.name, other.candidate)


def test_extents_and_threads_are_those_where_things_end() -> None:
    assert {1, 40, 63, 65, 127, 129, 1000, 1040} <= {*EXTENTS} and THREAD_COUNTS == (1, 2, 3, 8)
    assert {"op conv", "op dot_general", "softmax", "relu, turned"} & {*SUBJECTS}


def test_the_script_goes_on_where_it_stopped(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    told = ("--sample", 3, "--seed", 5, "--only", "relu, turned", "--state", tmp_path / "s.json")
    first = call_script(capsys, monkeypatch, "sweep", *told)
    assert (first.code, first.out) == (0, "3 seeds, 3 cases run now, 0 wrong\n")
    again = call_script(capsys, monkeypatch, "sweep", *told)
    assert (again.code, again.out) == (0, "3 seeds, 0 cases run now, 0 wrong\n")
