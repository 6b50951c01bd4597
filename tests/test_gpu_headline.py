"""Large programs against libraries, and classes under a sanitizer: what is wrong or slow is named.
The device is the emulated one; what a sanitizer says is planted."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autofuse.backends.base import CompileError, LaunchError
from autofuse.errors import AutofuseError
from benchmarks import gpu_headline, gpu_sanitize
from benchmarks.dry import dry_run
from benchmarks.gpu_check import CheckOptions, gpu_check, prepare_check
from benchmarks.gpu_classes import is_class, smoke_cases
from benchmarks.gpu_headline import Compared, distance
from benchmarks.gpu_headlines import HEADLINES
from benchmarks.gpu_page import page
from benchmarks.gpu_prepare import VARIABLE, travelling_cache
from benchmarks.gpu_sanitize import verdict
from benchmarks.gpu_smoke import built_case

WANTED = (np.array([3.0, 4.0]),)


@pytest.mark.slow
def test_a_headline_on_the_emulator_from_end_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "product f32 2048"
    monkeypatch.setattr(gpu_headline, "HEADLINES", {name: HEADLINES[name]})
    options = CheckOptions(tmp_path, 300.0, ("headline",), device="cuda-emulated")
    found = gpu_check(options)
    own = found["steps"]["headline"]
    assert own["state"] == "done", own.get("error")
    case = own["cases"][name]
    assert {"default", "impl=loops", "impl=loops,mma=3xtf32"} <= set(case["times"])
    assert not any("mma=none" in label for label in case["times"])
    assert set(case["errors"]) == set(case["times"]) and case["failed"] == {}
    assert "impl=loops,mma=3xtf32" in page(found)


def test_results_are_held_against_the_norm_of_what_is_wanted() -> None:
    assert distance((np.array([3.0, 4.5]),), WANTED) == pytest.approx(0.1)


@pytest.mark.parametrize("value", [4.5, float("nan")])
def test_what_is_wrong_is_not_timed(value: float) -> None:
    compared = Compared()
    results = (np.array([3.0, value]),)
    compared.add("bad", lambda: (lambda: results, lambda r: r), WANTED, 1e-2)
    compared.add("good", lambda: (lambda: WANTED, lambda r: r), WANTED, 1e-2)
    assert list(compared.issues) == ["good"] and "wrong" in compared.failed["bad"]


def test_a_library_that_fails_is_named_and_a_broken_device_ends_the_case() -> None:
    compared = Compared()

    def fails() -> Any:
        raise ValueError("no such algorithm")

    def breaks() -> Any:
        raise LaunchError("an illegal address")

    compared.add("theirs", fails, WANTED, 1e-2)
    assert "no such algorithm" in compared.failed["theirs"]
    with pytest.raises(LaunchError):
        compared.add("ours", breaks, WANTED, 1e-2)


def test_every_headline_counts_its_operations() -> None:
    assert HEADLINES["product 4096"].flops(4096, 4096, 4096) == 2 * 4096**3
    for one in HEADLINES.values():
        assert one.flops(*one.program.at("small")) > 0


# --- sanitizer ------------------------------------------------------------------------------------

CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"


def said(
    tmp_path: Path, log: str, tried: int = 2, code: int | None = 0, watched: bool = True
) -> Any:
    told, text = tmp_path / "told", tmp_path / "log"
    rows = [{"name": str(k), "found": {"state": "right"}} for k in range(tried)]
    told.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    text.write_text(log)
    return verdict(code, told, text, 2, True)


def test_a_clean_check_is_one_that_counted_nothing_in_all_cases(tmp_path: Path) -> None:
    assert "error" not in said(tmp_path, CLEAN)
    races = "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"
    assert "error" not in said(tmp_path, races)


@pytest.mark.parametrize(
    ("log", "how"),
    [
        (CLEAN.replace("0 errors", "3 errors"), {}),
        ("========= RACECHECK SUMMARY: 2 hazards displayed (2 errors)\n", {}),
        ("", {}),  # it did not begin
        (CLEAN, {"tried": 1}),
        (CLEAN, {"code": 3}),
        (CLEAN, {"code": None}),
    ],
)
def test_anything_else_is_an_error(tmp_path: Path, log: str, how: Mapping[str, Any]) -> None:
    assert "error" in said(tmp_path, log, **how)


def test_classes_that_were_right_are_checked_and_none_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[list[str]]()

    def follow(command: Any, log: Path, *_: Any, **__: Any) -> Iterator[int]:
        names = json.loads(Path(command[command.index("--asked") + 1]).read_text())
        asked.append(names)
        rows = [{"name": name, "found": {"state": "right"}} for name in names]
        told = Path(command[command.index("--told") + 1])
        told.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        yield 0

    steps = {"smoke": {"state": "done", "cases": {
        "a/default": {"state": "right"}, "a/0/mma=half": {"state": "right"},
        "a/0/mma=none": {"state": "failed", "error": "it hung"},
        "a/0/stages=2": {"state": "right"}, "a/0/impl=loops,mma=half": {"state": "right"},
    }}}  # fmt: skip
    device = gpu_check(CheckOptions(tmp_path, 60.0, ("facts",), device="cuda-emulated"))["device"]
    result = tmp_path / "gpu-check.json"
    result.write_text(json.dumps({"device": device, "steps": steps}))
    monkeypatch.setattr(gpu_sanitize, "follow", follow)
    found = gpu_check(CheckOptions(tmp_path, 60.0, ("sanitize",), device="cuda-emulated"))
    assert asked == [["a/default", "a/0/mma=half", "a/0/impl=loops,mma=half"]] * 3
    assert found["steps"]["sanitize"]["state"] == "done"
    assert not is_class("a/0/mma=half,stages=2") and is_class("a/0/maps=False")


# --- compiled beforehand --------------------------------------------------------------------------


def test_what_was_compiled_beforehand_is_not_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = CheckOptions(tmp_path, 60.0, device="cuda-emulated", programs=("elements",))
    found = prepare_check(options, "H100")
    assert found["failed"] == {} and found["built"] == found["asked"] > 5 and found["bytes"] > 0
    before = os.environ.get(VARIABLE)

    def compiled(*_: Any, **__: Any) -> Any:
        raise AssertionError("it was compiled again")

    monkeypatch.setattr("autofuse.backends.cuda.build.compile_cubin", compiled)
    with travelling_cache(tmp_path), dry_run() as kind:
        for case in smoke_cases(kind, "small", ("elements",)):
            built_case(kind, case)
    assert os.environ.get(VARIABLE) == before


def test_a_case_that_cannot_be_compiled_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: Any, **__: Any) -> Any:
        raise CompileError("NVRTC refused the program")

    monkeypatch.setattr("benchmarks.gpu_prepare.build_cuda", refuses)
    options = CheckOptions(tmp_path, 60.0, device="cuda-emulated", programs=("loop",))
    found = prepare_check(options, "H100")
    assert found["built"] == 0 and "NVRTC refused" in found["failed"]["loop/default"]
    with pytest.raises(AutofuseError, match="unknown target"):
        prepare_check(CheckOptions(tmp_path), "sm_12:none")
