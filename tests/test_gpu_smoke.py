"""The first step on a GPU: a kernel of every class is tried, and what hangs, dies or is wrong is
named and takes nothing along. The faults are planted; the device is the emulated one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autofuse.backends.base import LaunchError
from autofuse.plan.parameters import MMA
from autofuse.records import WRONG
from benchmarks import gpu_cases, gpu_smoke
from benchmarks.dry import dry_run
from benchmarks.gpu_cases import BROKEN
from benchmarks.gpu_check import CheckOptions, gpu_check
from benchmarks.gpu_classes import PROGRAMS, SmokeCase, smoke_cases
from benchmarks.gpu_page import page
from benchmarks.gpu_smoke import LIMIT_S, built_case, run_case

PROGRAM = "elements"


def cases(*programs: str) -> list[SmokeCase]:
    with dry_run() as kind:
        return list(smoke_cases(kind, "small", programs))


def tried(kind: Any, case: SmokeCase) -> dict[str, Any]:
    return run_case(kind, case, lambda: built_case(kind, case))


@pytest.mark.slow
def test_every_program_has_its_default_first_and_every_setting_is_another_launch() -> None:
    found = cases()
    names = [one.name for one in found]
    assert len(set(names)) == len(names)
    assert names[: len(PROGRAMS)] == [f"{name}/default" for name in PROGRAMS]
    own = [one for one in found if one.name.startswith("product bf16/")]
    assert len({one.candidate for one in own}) == len(own) > 5
    for name in ("elements", "rows", "sum", "attention", "convolution"):
        assert sum(one.name.startswith(f"{name}/") for one in found) > 2, name


def test_every_kind_of_instruction_is_tried() -> None:
    settings = {
        MMA.of(launch)
        for one in cases("product f32", "product bf16", "product f16")
        for launch in one.candidate.launches
    }
    assert {"none", "wgmma"} <= {str(one) for one in settings} and len(settings) > 3


def test_what_is_right_and_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    with dry_run() as kind:
        (case, *_) = smoke_cases(kind, "small", (PROGRAM,))
        assert tried(kind, case)["state"] == gpu_smoke.RIGHT
        build = kind.backend.build

        def spoilt(program: Any, **how: Any) -> Any:
            built = build(program, **how)
            for _, path in built.artifact.cubins:
                text = path.read_text()
                assert "+ 1.0f" in text
                path.write_text(text.replace("+ 1.0f", "+ 1.5f"))
            return built

        bad = replace(kind, backend=replace(kind.backend, build=spoilt))
        found = tried(bad, case)
        assert found["state"] == "wrong" and "instead of" in found["error"]
        for path in (path for _, path in build(kind.backend.program(
            case.graph, case.candidate)).artifact.cubins):  # fmt: skip
            path.write_text(path.read_text().replace("+ 1.5f", "+ 1.0f"))


@pytest.mark.parametrize("told", ["raised", "a verdict"])
def test_a_fault_of_the_device_ends_the_process_that_had_it(
    told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is blamed for an illegal address, the context is of no use any more."""
    said = "an illegal address was accessed"

    def breaks(kind: Any, case: SmokeCase, build: Any) -> dict[str, Any]:
        if told == "raised":
            raise LaunchError(said)
        return {"state": WRONG, "error": said}

    monkeypatch.setattr(gpu_smoke, "run_case", breaks)
    names = [one.name for one in cases(PROGRAM)]
    asked, verdicts = tmp_path / "asked", tmp_path / "told"
    asked.write_text(json.dumps(names))
    given = {"device": "cuda-emulated", "size": "small", "asked": asked, "told": verdicts}
    code = gpu_smoke.main([text for n, v in given.items() for text in (f"--{n}", str(v))])
    rows = [json.loads(line) for line in verdicts.read_text().splitlines()]
    assert code == BROKEN and [row["name"] for row in rows] == [names[0]] * 2
    assert rows[1]["found"]["error"].endswith(said)


class Children:
    """In the place of processes: what each says of the cases that it is asked about, and ends
    with."""

    def __init__(self, out: Path, faults: dict[int, Any]) -> None:
        self.out, self.faults, self.asked = out, faults, list[list[str]]()
        self.now = 0.0

    def clock(self) -> float:
        return self.now

    def follow(self, command: Any, log: Path, *_: Any, **__: Any) -> Iterator[int | None]:
        names = json.loads((self.out / "smoke-asked.json").read_text())
        self.asked.append(names)
        rows = list[dict[str, Any]]()
        for name in names:
            rows.append({"name": name, "state": "begun"})
            fault = self.faults.pop(self.number(name), None)
            if fault == "hang":
                self.tell(rows)
                yield None
                self.now += LIMIT_S + 1
                yield None
                raise AssertionError("a child that hangs is killed")
            if isinstance(fault, int) and fault != BROKEN:
                self.tell(rows)
                yield fault
                return
            error = {"state": "failed", "error": "planted"} if fault else {"state": "right"}
            rows.append({"name": name, "found": error})
            self.tell(rows)
            yield None
            if fault == BROKEN:
                yield BROKEN
                return
        yield 0

    def number(self, name: str) -> int:
        return [one.name for one in cases(PROGRAM)].index(name)

    def tell(self, rows: list[dict[str, Any]]) -> None:
        (self.out / "smoke.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faults: dict[int, Any]) -> Any:
    children = Children(tmp_path, faults)
    monkeypatch.setattr(gpu_cases, "follow", children.follow)
    monkeypatch.setattr(gpu_cases.Watch, "__init__", _on(children))
    options = CheckOptions(
        tmp_path, 300.0, ("smoke", "facts"), device="cuda-emulated", programs=(PROGRAM,)
    )
    return gpu_check(options), children


def _on(children: Children) -> Any:
    begin = gpu_cases.Watch.__init__

    def begun(self: Any, step: Any, context: Any) -> None:
        begin(self, step, replace(context, clock=children.clock))

    return begun


def test_what_hangs_and_what_dies_is_named_and_the_others_are_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_smoke, "FEW", 1.0)
    found, children = checked(tmp_path, monkeypatch, {0: "hang", 1: -11, 2: BROKEN})
    names = [one.name for one in cases(PROGRAM)]
    own = found["steps"]["smoke"]
    errors = [own["cases"][name].get("error", "") for name in names]
    assert "hung" in errors[0] and "code -11" in errors[1] and errors[2] == "planted"
    assert not any(errors[3:]) and own["right"] == len(names) - 3 and not own["stop"]
    assert [len(asked) for asked in children.asked] == [len(names) - k for k in range(4)]
    assert own["state"] == "failed" and "failed: " in own["error"]
    text = page(found)
    assert "hung" in text and "code -11" in text and f"{len(names) - 3} of {len(names)}" in text
    again, later = checked(tmp_path, monkeypatch, {})
    assert again["steps"]["smoke"]["state"] == "done" and len(later.asked[0]) == 3


def test_where_many_classes_fail_no_other_step_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.gpu_check.chosen_steps", lambda names: ("smoke", "facts"))
    found, _ = checked(tmp_path, monkeypatch, {0: -11, 1: "hang"})
    assert found["steps"]["smoke"]["stop"] and found["steps"]["facts"]["state"] == "not begun"


@pytest.mark.slow
def test_classes_on_the_emulator_from_end_to_end(tmp_path: Path) -> None:
    """In the form for CI: defaults of two programs, and what differs from them."""
    options = CheckOptions(
        tmp_path, 400.0, ("smoke",), device="cuda-emulated", programs=(PROGRAM, "rows")
    )
    own = gpu_check(options)["steps"]["smoke"]
    assert own["state"] == "done", own.get("error")
    assert own["right"] == own["asked"] > 6
