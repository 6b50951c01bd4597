"""The machine code of zoo kernels on sm_90, in figures; NVRTC compiles it, no GPU is asked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from autofuse.backends.cuda.devices import target_named
from autofuse.backends.cuda.geometry import UnsupportedKernel
from autofuse.backends.cuda.nvrtc import compile_cubin
from autofuse.graph.canonical import canonical
from autofuse.peers.types import BenchError
from autofuse.plan.parameters import FAST_DIVISION
from autofuse.plan.types import LaunchConfig
from autofuse.zoo import zoo_graph
from benchmarks.sass import (
    LOAD,
    CodeFacts,
    Instruction,
    code_facts,
    kernel_code,
    most_in_flight,
)
from benchmarks.sass_model import LATENCY, SCHEDULERS, Round, moved_bytes, predicted_share
from benchmarks.sass_report import sass_report, text_table
from tests.support.cli_tools import call_script
from tests.support.emulation import one_kernel

ROOT = Path(__file__).parent.parent
GOLDEN = Path(__file__).parent / "goldens" / "sass_sm_90.json"
MEMORY_BOUND = ("softmax", "layer_norm_gelu", "rms_norm_residual", "swiglu", "black_scholes")
WORKLOADS = (*MEMORY_BOUND, "adam_16", "attention", "cartpole_norng")
# What every compiler makes of a text alike; the rest is compared under the golden's own NVRTC.
FIRM = ("groups", "threads", "spilled_bytes", "wide_loads", "wide_stores", "barriers", "calls")


@pytest.mark.slow
def test_machine_code_is_the_golden_one(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    # In a process and with a cache of its own: what NVRTC makes of a text depends on what it
    # compiled before.
    script = str(ROOT / "scripts" / "sass_report")
    asked = ["--workloads", ",".join(WORKLOADS), "--size", "default", "--format", "json"]
    own = os.environ | {"AUTOFUSE_CACHE": str(tmp_path)}
    made = subprocess.run([sys.executable, script, *asked], capture_output=True, text=True, env=own)
    found = json.loads(made.stdout)
    if request.config.getoption("--update-golden"):
        GOLDEN.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    kept = json.loads(GOLDEN.read_text(encoding="utf-8"))
    if found["nvrtc"] != kept["nvrtc"]:
        for report in (found, kept):
            report["nvrtc"] = "any"
            for rows in report["workloads"].values():
                rows[:] = [{key: row[key] for key in FIRM} for row in rows]
    assert found == kept, "see the difference, then run with --update-golden"


def test_memory_bound_kernels_keep_memory_busy() -> None:
    """Nothing is spilled, nothing calls a division, and a warp has 2 KB in flight."""
    found = sass_report(workloads=(*MEMORY_BOUND, "adam_16"), size="default")
    for name, rows in found["workloads"].items():
        for row in rows:
            assert row["spilled_bytes"] == row["calls"] == 0, name
            if name != "adam_16":  # whose tensors of odd sizes have a rest
                assert row["wide_stores"] == row["stores"], name
            if name not in ("black_scholes", "adam_16"):  # which read scalars as well
                assert row["wide_loads"] == row["loads"], name
            least = 1536 if name == "black_scholes" else 2048  # three inputs and many registers
            assert row["in_flight_bytes"] >= least, name
            if name != "adam_16":  # most of whose tensors are too small to fill the device
                assert row["predicted_share"] >= 0.9, name


def swiglu(math: str, items: int = 4) -> CodeFacts:
    launch = LaunchConfig.of(threads=64, items=items, vector=4, grid="one", math=math)
    source = one_kernel(canonical(zoo_graph("swiglu", "small")), launch).unit.source
    cubin, _ = compile_cubin(source.text, "sm_90", source.flags)
    return code_facts(kernel_code(cubin, source.name))


def test_loads_wait_for_no_division() -> None:
    """A vector of each half is in flight, in strict math only because loads come first in the text;
    with fast division those of all passes are."""
    strict, fast, more = swiglu("strict"), swiglu(FAST_DIVISION), swiglu(FAST_DIVISION, items=8)
    assert strict.calls > 0 and fast.calls == more.calls == 0
    assert strict.in_flight == fast.in_flight == 32
    assert more.in_flight == 64


def test_bytes_in_flight_are_those_asked_for_when_something_is_waited_for() -> None:
    def load(board: int, waits: int = 0, size: int = 16) -> Instruction:
        return Instruction(LOAD, True, size, board, waits)

    def use(*boards: int) -> Instruction:
        return Instruction(0x221, True, 1, 7, sum(1 << b for b in boards))

    leave, maybe = Instruction(0x94D, True, 1, 7, 0), Instruction(0x94D, False, 1, 7, 0)
    assert most_in_flight([load(0), load(1), use(0, 1)]) == 32
    assert most_in_flight([load(0), use(0), load(1), use(1)]) == 16
    assert most_in_flight([load(0), load(1), use(0), load(0, size=4), use(0)]) == 32
    assert most_in_flight([load(0), leave, load(1), use(1)]) == 16, "another path"
    assert most_in_flight([load(0), maybe, load(1), use(1)]) == 32
    assert most_in_flight([load(0)]) == 0, "nobody waits"


def test_the_predicted_share_follows_bytes_in_flight_and_instructions() -> None:
    target = target_named("H100")
    a_clock = target.bandwidth / (target.sms * target.clock_ghz)
    copy = Round(
        teams=64, warps=64, moved=4096, loaded=2048, in_flight=2048, instructions=20
    )  # fmt: skip
    assert predicted_share(target, copy) > 0.99
    # Little's law: two warps with 512 bytes each in flight, whatever they do in between.
    few = replace(copy, teams=2, warps=2, moved=2048, in_flight=512, instructions=0)
    bound = 2 * 512 / (a_clock * LATENCY)
    assert 0.9 * bound < predicted_share(target, few) < bound
    # Four instructions a clock: twice the time that memory takes.
    many = replace(copy, instructions=round(2 * SCHEDULERS * 4096 / a_clock))
    assert 0.49 < predicted_share(target, many) < 0.5
    one = replace(copy, teams=1)
    assert predicted_share(target, one) < predicted_share(target, replace(copy, teams=8))
    assert predicted_share(target, replace(copy, teams=0, warps=0)) == 0


def test_moved_bytes_are_those_of_arrays_however_often_they_are_read() -> None:
    assert moved_bytes(accessed=48, stored=16, arrays=300, results=100) == 48
    assert moved_bytes(accessed=64, stored=16, arrays=200, results=100) == 32, "shared rows"
    assert moved_bytes(accessed=68, stored=4, arrays=10**6, results=100) == 68, "a fold"


def test_barriers_and_calls_are_seen() -> None:
    text = """
    extern "C" __global__ void k(const double *x, double *y) {
      __shared__ double s[64];
      s[threadIdx.x] = x[threadIdx.x];
      __syncthreads();
      y[threadIdx.x] = s[63 - threadIdx.x] / x[64];
    }"""
    facts = code_facts(kernel_code(compile_cubin(text)[0], "k"))
    assert (facts.loads, facts.stores, facts.barriers) == (2, 1, 1)
    assert facts.wide_loads == facts.wide_stores == 0 and facts.calls >= 1
    with pytest.raises(BenchError, match="no kernel 'other'"):
        kernel_code(compile_cubin(text)[0], "other")
    with pytest.raises(BenchError, match="no cubin"):
        kernel_code(b"text", "k")


def test_a_plan_that_the_target_cannot_hold_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise UnsupportedKernel("a block needs too much")

    monkeypatch.setattr("benchmarks.sass_report.cuda_program", refuse)
    found = sass_report(workloads=("swiglu",), size="small")
    assert found["workloads"] == {} and found["refused"] == {"swiglu": "a block needs too much"}
    assert text_table(found).splitlines()[-1] == "swiglu: a block needs too much"


def test_the_script_prints_a_table_or_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    call, out = partial(call_script, capsys, monkeypatch, "sass_report"), tmp_path / "figures.json"
    made = call("--workloads", "swiglu", "--target", "A100", "--output", out)
    assert made.code == 0, made.err
    found = json.loads(out.read_text(encoding="utf-8"))
    assert found["target"] == "sm_80:A100" and made.out.strip() == text_table(found)
    for bad in (("--workloads", "nothing"), ("--target", "abacus"), ("--plan", "none")):
        refused = call(*bad)
        assert refused.code == 2 and len(refused.err.splitlines()[-1:]) == 1
