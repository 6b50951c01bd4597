"""Planning for a GPU that is not here, and what a device that is never timed refuses."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from autofuse.backends.base import LaunchError
from autofuse.backends.cuda import driver
from autofuse.backends.cuda.devices import TARGETS
from autofuse.backends.cuda.emulated import EmulatedArtifact, EmulatedPlan
from autofuse.baselines import BASELINES
from autofuse.devices import DEVICES, chosen_device, device_named, targeted
from autofuse.errors import AutofuseError
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import canonical
from autofuse.graph.reference import random_inputs
from autofuse.measure.check.compare import check, reference_of
from autofuse.plan.types import candidate_from_json
from autofuse.tuning import TuneOptions, compare, compile, plan_named, tune
from autofuse.tuning.job.planned import plan_for
from autofuse.zoo import zoo_graph
from search_spaces import CudaLaunchSpace
from tests.support.cli_tools import Call, call, refused, toy_file


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Call:
    return partial(call, capsys)


def asked(target: str, name: str = "") -> TuneOptions:
    return TuneOptions(name=name, device="cuda-emulated", target=target)


def test_planning_gives_bounds_and_says_that_nothing_was_timed() -> None:
    graph = zoo_graph("layer_norm_gelu")
    found = plan_for(graph, asked("sm_90:H100", name="ln")).to_json()
    assert (found["timed"], found["target"]) == (False, "sm_90:H100")
    assert set(found["plans"]) == {*BASELINES, "fused", "planned"}
    bounds = {name: row["bound_us"] for name, row in found["plans"].items()}
    assert bounds["planned"] == min(bounds.values()) == found["best"]["bound_us"]
    # 64 MiB in, 64 MiB out at 3350 GB/s, but for the 50 MiB that may be in the second-level cache.
    assert 25.0 < bounds["planned"] < 41.0
    assert json.loads(json.dumps(found)) == found
    assert candidate_from_json(found["best"]["plan"]).digest == found["best"]["plan_digest"]


def test_a_faster_device_has_lower_bounds() -> None:
    graph = zoo_graph("softmax")
    bounds = [
        plan_for(graph, asked(name)).plans["fused"]["bound_us"]
        for name in ("RTX4090", "A100", "H100", "H200", "B200")
    ]
    assert bounds == sorted(bounds, reverse=True) and bounds[0] > bounds[-1]


def test_targets_are_for_devices_that_stand_for_others() -> None:
    with pytest.raises(AutofuseError, match="unknown target 'Z9'"):
        plan_for(zoo_graph("softmax", "small"), asked("Z9"))
    for device in ("cpu", "cuda"):
        with pytest.raises(AutofuseError, match="can be named for cuda-emulated only"):
            targeted(DEVICES[device], "H100")
    assert str(targeted(DEVICES["cuda-emulated"], "A100").backend.target) == "sm_80:A100"


@pytest.mark.parametrize("command", ["query", "compare"])
def test_what_cannot_be_timed_says_so(cli: Call, tmp_path: Path, command: str) -> None:
    source = toy_file(tmp_path)
    for device in ("cuda-emulated", "auto"):
        refused(cli(command, source, "--device", device, "--target", "A100"), "is never timed")


def test_kernels_are_shown_for_a_target(cli: Call, tmp_path: Path) -> None:
    source = toy_file(tmp_path)
    found = [
        cli("show", source, "--plan", "fused", "--source", "--target", target)
        for target in ("sm_90:H100", "sm_90")
    ]
    assert [ended.code for ended in found] == [0, 0] and found[0].out == found[1].out
    assert "__global__" in found[0].out, "the device's own dialect"
    spoken = cli("show", source, "--plan", "fused", "--source", "--device", "cpu")
    assert "restrict" in spoken.out
    other = cli("show", source, "--plan", "fused", "--source", "--dialect", "cuda")
    assert "__global__" in other.out
    refused(cli("show", source, "--dialect", "cobol"), "no device speaks 'cobol' (known: cuda, c)")
    refused(cli("show", source, "--device", "cpu", "--target", "H100"), "is what it is")


def test_a_plan_is_run_and_explained_for_a_target(cli: Call, tmp_path: Path) -> None:
    source = toy_file(tmp_path)
    ran = cli("run", source, "--plan", "fused", "--target", "A100", "--format", "json")
    assert ran.code == 0 and set(ran.json["outputs"]) == {"scaled", "top"}
    db = str(tmp_path / "t.db")
    told = cli("show", source, "--plan", "fused", "--why", "--target", "A100", "--db", db)
    assert told.code == 0
    graph = zoo_graph("softmax", "small")
    emulated = compile(graph, target="A100", plan="fused")
    assert emulated.device == "cuda-emulated"


def test_the_launch_space_is_that_of_the_target() -> None:
    b = GraphBuilder()
    x = b.input("x", (64, 40_000), "f32")
    top = b.add("reduce_max", x, axes=(1,))
    rest = b.add("sub", x, b.add("broadcast", top, shape=(64, 40_000), dims=(0,)))
    graph = canonical(b.build([rest]))
    kept = [
        plan_named(graph, "fused", device_named("cuda-emulated", name)).launches[0]["keep"]
        for name in ("RTX4090", "H100")
    ]
    assert kept == ["reread", "shared"]
    assert "error" not in plan_for(graph, asked("RTX4090")).plans["fused"]


def test_the_launch_space_is_that_of_the_running_device(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RTX4090", "H100"):
        monkeypatch.setattr(driver, "running_target", lambda name=name: TARGETS[name])
        space = DEVICES["cuda"].space
        assert isinstance(space, CudaLaunchSpace) and space.limits is TARGETS[name]


def test_the_command_says_what_its_figures_are(cli: Call, tmp_path: Path) -> None:
    source = toy_file(tmp_path)
    arguments = ("tune", source, "--device", "cuda-emulated", "--target", "sm_90:H100")
    ended = cli(*arguments)
    assert ended.code == 0 and "nothing was timed" in ended.out and "at least" in ended.out
    data = cli(*arguments, "--format", "json").json
    assert data["timed"] is False and data["device"] == "cuda-emulated"
    unnamed = cli("tune", source, "--device", "cuda-emulated", "--format", "json").json
    assert unnamed["target"] == "sm_90:H100"


def test_auto_falls_back_and_says_so(cli: Call, tmp_path: Path) -> None:
    assert [kind.name for kind in DEVICES.values() if kind.automatic] == ["cuda", "cpu"]
    kind, remark = chosen_device("auto")
    assert kind.name == "cpu" and device_named("auto") is kind
    assert remark == "device 'cuda' cannot be used: no CUDA driver was found; using device 'cpu'"
    ended = cli("run", toy_file(tmp_path), "--device", "auto")
    assert ended.code == 0 and remark in ended.err
    assert remark not in cli("run", toy_file(tmp_path), "--device", "cpu").err


def test_info_says_why_there_is_no_cuda(cli: Call) -> None:
    found = cli("info", "--format", "json").json["devices"]["cuda"]
    assert found == {
        "usable": False,
        "reason": "device 'cuda' cannot be used: no CUDA driver was found",
    }


@pytest.mark.parametrize("name", ["softmax", "attention", "cartpole_norng"])
def test_a_plan_runs_in_the_emulator(name: str) -> None:
    graph = canonical(zoo_graph(name, "small"))
    inputs = random_inputs(graph, 3)
    outputs = compile(graph, device="cuda-emulated", plan="xla-2022")(*inputs)
    result = check(outputs, reference_of(graph, inputs))
    assert result.ok, result.message


def test_the_emulated_device_is_never_timed() -> None:
    graph = zoo_graph("softmax", "small")
    with pytest.raises(AutofuseError, match="'cuda-emulated' is never timed"):
        compare(graph, device="cuda-emulated")
    with pytest.raises(AutofuseError, match="'cuda-emulated' is never timed"):
        tune(graph, device="cuda-emulated", budget_s=1.0)
    with pytest.raises(AutofuseError, match="has no mode 'graph'"):
        compile(graph, device="cuda-emulated", plan="fused", mode="graph")


def test_a_plan_that_was_let_go_says_so() -> None:
    graph = canonical(zoo_graph("softmax", "small"))
    candidate = plan_named(graph, "fused", device_named("cuda-emulated"))
    program = DEVICES["cuda-emulated"].backend.program(graph, candidate)
    plan = EmulatedPlan(EmulatedArtifact(program))
    inputs = random_inputs(graph, 1)
    (found,) = plan.run(inputs)
    given = np.empty_like(found)
    assert plan.run(inputs, [given])[0] is given and np.array_equal(given, found)
    plan.close()
    with pytest.raises(LaunchError, match="unloaded"):
        plan.run(inputs)
