"""scripts/fuzz_inputs in short: damaged inputs of every format, and that what is wrong is seen."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from benchmarks.hostile import damage
from benchmarks.hostile.kinds import KINDS
from benchmarks.hostile.run import material, run_kind, wrong_about

QUICK = [name for name in KINDS if name != "pt2"]


@pytest.mark.parametrize("name", QUICK)
def test_damaged_inputs_are_answered(name: str, tmp_path: Path) -> None:
    if name == "onnx":
        pytest.importorskip("onnx")  # an extra of its own
    sound = material(tmp_path, [name])[name]
    tally = run_kind(name, 20, 1, sound, tmp_path / "kept")
    assert tally.failures == [] and tally.answered + tally.refused == 20


@pytest.mark.parametrize(
    ("code", "err"),
    [(1, "autofuse: x"), (2, "Traceback (most recent"), (2, ""), (2, "autofuse: " + "x" * 9000)],
)
def test_what_is_wrong_is_seen(code: int, err: str) -> None:
    assert wrong_about(code, "", err)
    assert not wrong_about(2, "", "autofuse: no such file")


def test_a_case_follows_from_its_seed() -> None:
    raw = b'{"a": [1, 2, {"b": 3}]}'
    for change in (damage.damaged_bytes, damage.damaged_json, damage.damaged_pages):
        assert change(random.Random(3), raw) == change(random.Random(3), raw)
