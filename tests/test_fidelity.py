"""Counting the kernels of real systems: of texts whose count is known, and of jax itself."""

from __future__ import annotations

import pytest

from autofuse.baselines import BASELINES
from autofuse.graph.canonical import canonical
from autofuse.peers.counts import Counts, hlo_counts, inductor_counts
from autofuse.peers.types import BenchError
from autofuse.zoo import zoo_graph
from benchmarks import fidelity
from benchmarks.fidelity import plan_counts
from benchmarks.workloads import bench_workload
from tests.support.cli_tools import call_script

# A loop of ten iterations: two fusions, a library call and an inner loop of five iterations of one
# fusion.
HLO = """HloModule jit_f, entry_computation_layout={(f32[4]{0})->f32[4]{0}}

%fused_computation (param_0: f32[4]) -> f32[4] {
  %param_0 = f32[4]{0} parameter(0)
  ROOT %sine.1 = f32[4]{0} sine(%param_0)
}

%inner_body (arg.1: (s32[], f32[4])) -> (s32[], f32[4]) {
  %arg.1 = (s32[], f32[4]{0}) parameter(0)
  %get-tuple-element.1 = f32[4]{0} get-tuple-element(%arg.1), index=1
  %fusion.3 = f32[4]{0} fusion(%get-tuple-element.1), kind=kLoop, calls=%fused_computation
  ROOT %tuple.1 = (s32[], f32[4]{0}) tuple(%arg.1, %fusion.3)
}

%condition (arg.2: (s32[], f32[4])) -> pred[] {
  %arg.2 = (s32[], f32[4]{0}) parameter(0)
  ROOT %compare.1 = pred[] compare(%arg.2, %arg.2), direction=LT
}

%outer_body (arg.3: (s32[], f32[4])) -> (s32[], f32[4]) {
  %arg.3 = (s32[], f32[4]{0}) parameter(0)
  %fusion.1 = f32[4]{0} fusion(%arg.3), kind=kLoop, calls=%fused_computation
  %while.1 = (s32[], f32[4]{0}) while(%arg.3), condition=%condition, body=%inner_body, \
backend_config={"known_trip_count":{"n":"5"}}
  %dot.1 = f32[4]{0} custom-call(%fusion.1), custom_call_target="__cublas$gemm"
  ROOT %fusion.2 = (s32[], f32[4]{0}) fusion(%dot.1), kind=kLoop, calls=%fused_computation
}

ENTRY %main.9 (x.1: f32[4]) -> f32[4] {
  %x.1 = f32[4]{0} parameter(0)
  %constant.1 = s32[] constant(0)
  %fusion = f32[4]{0} fusion(%x.1), kind=kLoop, calls=%fused_computation
  %tuple.2 = (s32[], f32[4]{0}) tuple(%constant.1, %fusion)
  %while.2 = (s32[], f32[4]{0}) while(%tuple.2), condition=%condition, body=%outer_body, \
backend_config={"known_trip_count":{"n":"10"}}
  ROOT %copy.1 = f32[4]{0} copy(%while.2)
}
"""
WRAPPER = """
from torch._inductor.select_algorithm import extern_kernels
cpp_fused_sin_0 = async_compile.cpp_pybinding(['const float*'], '''
def call(args):
    buf0 = empty_strided_cpu((4, ), (1, ), torch.float32)
    cpp_fused_sin_0(arg0_1, buf0)
    extern_kernels.mm(buf0, arg1_1, out=buf1)
    cpp_fused_add_1(buf1, buf2)
    return (buf2, )
"""


def test_fusions_calls_and_loops_of_hlo_are_counted() -> None:
    assert hlo_counts(HLO) == Counts(outside=2, per_trip=3 + 5, library=1)


def test_hlo_without_an_entry_is_refused() -> None:
    with pytest.raises(BenchError, match="no entry"):
        hlo_counts("HloModule jit_f")


def test_kernels_and_library_calls_of_inductor_s_wrapper_are_counted() -> None:
    assert inductor_counts([WRAPPER], loop=False) == Counts(3, None, 1)
    assert inductor_counts([WRAPPER, WRAPPER], loop=True) == Counts(0, 3, 1)
    nests = 4 * "for(int64_t x0=static_cast<int64_t>(0L); x0<8; x0+=1)\n"
    assert inductor_counts([nests + WRAPPER], loop=False) == Counts(5, None, 1)
    triton = "def call(args):\n        triton_poi_fused_0.run(arg0_1, buf0, 4, stream=s)\n"
    assert inductor_counts([triton], loop=False) == Counts(1)


def test_a_baseline_s_kernels_are_counted_by_trip() -> None:
    graph = canonical(zoo_graph("cartpole_noconcat", "small"))
    assert plan_counts(graph, BASELINES["xla-2022"](graph)) == Counts(1, 1)
    graph = canonical(zoo_graph("mlp", "small"))
    found = plan_counts(graph, BASELINES["xla-2022"](graph))
    assert found.per_trip is None and found.library == 2


def test_jax_itself_fuses_a_step_less_far_than_the_rules_of_its_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fidelity, "REAL", {"xla": fidelity.real_xla})
    workload = bench_workload("cartpole_norng", "small")
    found = fidelity.one(workload)
    real, ours = found["real"]["xla"], found["ours"]["xla-2026"]
    assert real["per_trip"] >= ours["per_trip"] >= 1


def test_what_is_missing_has_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(workload: object) -> Counts:
        raise BenchError("torch is not installed")

    def broken(workload: object) -> Counts:
        raise RuntimeError("internal\nand a long trace")

    monkeypatch.setattr(fidelity, "REAL", {"xla": broken, "inductor": absent})
    found = fidelity.fidelity(["softmax"], "small")
    real = found["workloads"]["softmax"]["real"]
    assert real["inductor"] == {"error": "torch is not installed"}
    assert real["xla"] == {"error": "RuntimeError: internal"}
    text = fidelity.text_table(found)
    assert "torch is not installed" in text and len(text.splitlines()) == 2


def test_an_unknown_workload_is_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = call_script(capsys, monkeypatch, "baseline_fidelity", "--workloads", "nothing")
    assert ended.code == 2 and ended.out == ""
    assert "unknown zoo workload 'nothing'" in ended.err.splitlines()[-1]
