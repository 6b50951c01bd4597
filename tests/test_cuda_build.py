"""CUDA programs built by NVRTC: what the compiler says of kernels, keys, the cache, failures."""

from __future__ import annotations

import pickle
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from autofuse.backends.base import CompileError, CompilerMissing, Source
from autofuse.backends.cache import BuildCache
from autofuse.backends.cuda import build as building
from autofuse.backends.cuda import nvrtc
from autofuse.backends.cuda.build import build_cuda, build_flags, cubin_key
from autofuse.backends.cuda.devices import DEFAULT_TARGET, TARGETS
from autofuse.backends.cuda.facts import CubinFacts, complaints, parse_log
from autofuse.backends.cuda.geometry import Geometry
from autofuse.backends.cuda.program import (
    CudaProgram,
    Gemm,
    KernelLaunch,
    LoopAction,
    cuda_program,
    moved,
)
from autofuse.backends.cuda.runs import launch_settings
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph
from autofuse.plan.program.schedule import Ref, kernel_runs, schedule
from autofuse.plan.types import LaunchConfig
from autofuse.records import Blame
from autofuse.tuning.plans import baseline_candidate
from autofuse.zoo import zoo_graph
from search_spaces import CudaLaunchSpace

LOG = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'k_1' for 'sm_90'
ptxas info    : Function properties for k_1
ptxas         .     496 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers, 496 bytes cumulative stack size
ptxas info    : Compile time = 55.787 ms
ptxas info    : Function properties for _Z1gf
ptxas         .     16 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Compiling entry function 'k_2' for 'sm_90'
ptxas info    : Function properties for k_2
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 1 barriers, 256 bytes smem, 360 bytes cmem[0]
"""
WARNING = 'kernels.cu(3): warning #177-D: variable "i" was declared but never referenced'


@pytest.fixture
def cache(tmp_path: Path) -> BuildCache:
    return BuildCache(tmp_path / "cache")


def small(name: str) -> Graph:
    return canonical(zoo_graph(name, "small"))


def program(name: str, plan: str = "xla-2022") -> CudaProgram:
    graph = small(name)
    return cuda_program(graph, baseline_candidate(graph, plan, CudaLaunchSpace())[0])


def test_the_report_is_read_kernel_by_kernel() -> None:
    assert parse_log(LOG) == {"k_1": CubinFacts(32, 0, 496, 20), "k_2": CubinFacts(10, 256, 0, 0)}
    assert complaints(LOG) == ""
    assert complaints(f"{LOG}{WARNING}\n\n") == WARNING
    assert parse_log("") == {}


NOTE = (
    "ptxas info    : (C7515) Potential Performance Loss: wgmma.mma_async instructions are "
    "serialized due to non wgmma instructions defining accumulator registers of a wgmma in the "
    "function 'k_2' in line 1025\n"
)
IGNORED = "ptxas info    : (C7508) setmaxnreg ignored to maintain minimum register requirements\n"


def test_what_the_compiler_notes_is_no_report_and_is_kept() -> None:
    """That it orders products one after another, or leaves registers where they are."""
    assert complaints(NOTE + LOG + IGNORED) == (NOTE + IGNORED).strip()
    assert [said.notes for said in parse_log(NOTE + LOG).values()] == [0, 1]
    # Of which kernel it is where none is named, nobody knows.
    assert [said.notes for said in parse_log(IGNORED + LOG).values()] == [1, 1]
    named = dict(CubinFacts(notes=1).named(DEFAULT_TARGET, 256, 0))
    assert named["compiler_notes"] == 1


def test_facts_have_names_and_an_occupancy() -> None:
    named = dict(CubinFacts(64, 1024, 0, 8).named(DEFAULT_TARGET, 256, 2048))
    assert named["registers"] == 64 and named["spilled_bytes"] == 8
    assert named["shared_bytes"] == 3072 and named["blocks_per_sm"] == 4
    assert named["occupancy"] == 0.5


def test_a_program_is_built_once(cache: BuildCache) -> None:
    made = program("softmax")
    first, second = build_cuda(made, cache), build_cuda(made, cache)
    assert (first.cached_objects, second.cached_objects) == (0, len(made.sources))
    assert first.compile_s == pytest.approx(second.compile_s) and first.compile_s > 0
    assert first.log == second.log == "" and first.facts == second.facts
    assert all(path.read_bytes()[:4] == b"\x7fELF" for _, path in first.artifact.cubins)
    assert pickle.loads(pickle.dumps(first.artifact)) == first.artifact
    assert first.artifact.inputs == small("softmax").input_types


def test_every_group_of_one_kernel_has_facts(cache: BuildCache) -> None:
    made = program("attention")
    facts = build_cuda(made, cache).facts
    library = [isinstance(a, Gemm) for a in made.actions]
    assert len(facts) == made.groups and any(library)
    for position, owner in enumerate(made.owners):
        if owner >= 0:
            assert bool(facts[owner]) != library[position]
    assert all(dict(f)["registers"] > 0 for f in facts if f)


def test_a_damaged_note_is_a_miss(cache: BuildCache) -> None:
    made = program("swiglu")
    build_cuda(made, cache)
    for path in cache.root.glob("*.json"):
        path.write_text('{"facts": 3}')
    assert build_cuda(made, cache).cached_objects == 0


def test_a_cubin_that_was_changed_is_made_again(cache: BuildCache) -> None:
    made = program("swiglu")
    build_cuda(made, cache)
    for path in cache.root.glob("*.cubin"):
        path.write_bytes(path.read_bytes()[:-1] + b"\x55")
    again = build_cuda(made, cache)
    assert again.cached_objects == 0
    assert all(path.read_bytes()[-1:] != b"\x55" for _, path in again.artifact.cubins)


def test_the_key_holds_all_that_changes_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source("k", "text", ("--std=c++17",))
    keys = {
        cubin_key(source, DEFAULT_TARGET),
        cubin_key(replace(source, text="other"), DEFAULT_TARGET),
        cubin_key(replace(source, flags=("--std=c++17", "--use_fast_math")), DEFAULT_TARGET),
        cubin_key(source, TARGETS["A100"]),
    }
    assert cubin_key(source, TARGETS["H200"]) in keys, "the same architecture"
    monkeypatch.setattr(building, "nvrtc_version", lambda: "12.4")
    assert "--no-cache" not in build_flags(source), "unknown to NVRTC before 12.9"
    keys.add(cubin_key(source, DEFAULT_TARGET))
    assert len(keys) == 5


def test_flags_are_those_of_the_configuration() -> None:
    made = program("swiglu")
    assert all("--use_fast_math" not in s.flags for s in made.sources)
    assert all("--prec-div=false" in s.flags for s in made.sources), "swiglu divides in f32"
    assert set(build_flags(made.sources[0])) >= {"--ptxas-options=-v", "--no-cache"}
    graph = small("swiglu")
    base = baseline_candidate(graph, "xla-2022", CudaLaunchSpace())[0]
    relaxed = tuple(
        LaunchConfig.of(**{**dict(c.settings), "math": "relaxed"}) for c in base.launches
    )
    other = cuda_program(graph, replace(base, launches=relaxed))
    assert all("--use_fast_math" in s.flags for s in other.sources)
    assert {s.name for s in other.sources}.isdisjoint(s.name for s in made.sources)


def test_a_product_of_a_library_is_relaxed_where_it_is_asked_for() -> None:
    graph = small("attention")
    base = baseline_candidate(graph, "xla-2022", CudaLaunchSpace())[0]
    for math in ("strict", "relaxed"):
        launches = tuple(
            LaunchConfig.of(**{**dict(c.settings), "math": math}) for c in base.launches
        )
        made = cuda_program(graph, replace(base, launches=launches))
        products = [a for a in made.actions if isinstance(a, Gemm)]
        assert products and all(a.relaxed == (math == "relaxed") for a in products)


def test_a_refused_text_is_a_compile_failure(cache: BuildCache) -> None:
    made = program("swiglu")
    bad = replace(made.sources[0], text='extern "C" __global__ void k(int *p) { *p = nothing; }')
    with pytest.raises(CompileError, match='"nothing" is undefined'):
        build_cuda(replace(made, sources=(bad,)), cache)
    silent = replace(made.sources[0], text="__device__ int none;")
    with pytest.raises(CompileError, match="compiled no kernel"):
        build_cuda(replace(made, sources=(silent,)), cache)


def test_kernels_that_wait_for_each_other_must_fit_together(cache: BuildCache) -> None:
    made = program("swiglu")
    (launch,) = (a for a in made.actions if isinstance(a, KernelLaunch))
    crowd = replace(launch, geometry=Geometry(132 * 8 + 1, 256, cooperative=True))
    with pytest.raises(CompileError, match="does not hold them all"):
        build_cuda(replace(made, actions=(crowd,)), cache)


def test_static_shared_memory_counts_too(cache: BuildCache) -> None:
    made, limit = program("swiglu"), DEFAULT_TARGET.shared_per_block
    text = """extern "C" __global__ void k(float *x) {
      __shared__ float own[256];
      own[threadIdx.x] = x[threadIdx.x];
      __syncthreads();
      x[threadIdx.x] = own[threadIdx.x ^ 1];
    }"""

    def asking(dynamic: int) -> CudaProgram:
        launch = KernelLaunch("k", Geometry(1, 256, dynamic), ())
        return replace(made, sources=(Source("k", text),), actions=(launch,))

    build_cuda(asking(limit - 1024), cache)
    with pytest.raises(CompileError, match=f"a block needs {limit + 1} bytes of shared memory"):
        build_cuda(asking(limit - 1023), cache)


def test_without_nvrtc_there_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, cache: BuildCache
) -> None:
    def missing() -> None:
        raise CompilerMissing(nvrtc.MISSING)

    monkeypatch.setattr(nvrtc, "_nvrtc", missing)
    with pytest.raises(CompilerMissing, match="install the extra cuda13"):
        build_cuda(program("swiglu"), cache)


def test_a_loop_reads_its_trip_number_where_it_is() -> None:
    made = program("cartpole_naive", "unfused")
    loops = [a for a in made.actions if isinstance(a, LoopAction)]
    assert loops and made.trips == max(loop.trip for loop in loops)
    spaces = {
        argument.ref.space
        for loop in loops
        for action in chain(*loop.turns)
        if isinstance(action, KernelLaunch)
        for argument in action.arguments
    }
    assert "trip" in spaces
    assert moved(Ref("trip", offset=4, level=1, stride=8), {1: 3}) == Ref("trip", offset=28)


def test_arrays_off_the_boundary_are_read_one_by_one_and_not_ahead() -> None:
    graph = small("swiglu")
    candidate = baseline_candidate(graph, "xla-2022", CudaLaunchSpace())[0]
    (run,) = kernel_runs(schedule(graph, candidate).steps)
    wide = replace(run, launch=LaunchConfig.of(threads=128, items=8, vector=4, stages=2))
    assert launch_settings(wide)["vector"] == 4 and launch_settings(wide)["tile"] == 1024
    for ref in (Ref("out", offset=4), Ref("out", stride=12), Ref("work", offset=8)):
        found = launch_settings(replace(wide, writes=(ref,)))
        assert found["vector"] == 1 and found["stages"] == 0
    assert launch_settings(replace(wide, writes=(Ref("work", stride=48),)))["vector"] == 4


def test_equal_kernels_have_one_text_whatever_graph_they_are_in() -> None:
    graph = small("adam_16")
    found = cuda_program(graph, baseline_candidate(graph, "unfused", CudaLaunchSpace())[0])
    launches = [a for a in found.actions if isinstance(a, KernelLaunch)]
    assert len(found.sources) < len(launches)


def test_no_unit_is_begun_when_time_is_up(
    cache: BuildCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = program("attention")
    now, begun = [0.0], list[str]()
    compile_unit = building.compile_cubin

    def slow(text: str, *rest: Any) -> tuple[bytes, str]:
        begun.append(text)
        now[0] += 2.0
        return compile_unit(text, *rest)

    monkeypatch.setattr(building, "compile_cubin", slow)
    assert len(made.sources) > 2
    with pytest.raises(CompileError, match="took more than 3 s") as caught:
        build_cuda(made, cache, 1, timeout_s=3.0, clock=lambda: now[0])
    assert caught.value.blame is Blame.MACHINE and len(begun) == 2
