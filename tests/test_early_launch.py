"""Kernels that are launched before those they come after are over (programmatic dependent launch):
nothing of memory is touched before the wait, and loads are not those of what nobody writes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from autofuse.backends.cuda.devices import DEFAULT_TARGET, TARGETS
from autofuse.backends.cuda.geometry import geometry
from autofuse.backends.cuda.nvrtc import compile_cubin
from autofuse.backends.emulator.emulator import Emulated, EmulatorError
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.reference import random_inputs
from autofuse.graph.types import Graph
from autofuse.kernel.lower import lower
from autofuse.kernel.text.dialects import CUDA
from autofuse.measure.check.compare import check, reference_of
from autofuse.plan.fusion.groups import group_of, is_source
from autofuse.plan.types import LaunchConfig
from autofuse.zoo import zoo_graph
from benchmarks.sass import LOAD, STORE, decoded, kernel_code
from search_spaces.cuda import CudaLaunchSpace
from tests.support.emulation import OneKernel, library_of, one_kernel, run_kernel

# griddepcontrol.wait and .launch_dependents in machine code, as nvdisasm names them.
ACQBULK, PREEXIT = 0x82E, 0x82D
NAMES = ("softmax", "layer_norm_gelu", "rms_norm_residual", "swiglu", "black_scholes", "adam_16")
# What cp.async.bulk is in machine code.
BULK = 0x3BA
SETTINGS = LaunchConfig.of(threads=256, items=4, vector=4, keep="registers", early=True)
# Ways to load, and graphs whose kernels have them.
WAYS: dict[str, tuple[str, dict[str, int | str | bool]]] = {
    **{name: (name, {}) for name in NAMES},
    "hints": ("layer_norm_gelu", {"reduce": "warp", "hints": True}),
    "stages": ("softmax", {"reduce": "block", "stages": 2}),
    "cluster": ("softmax", {"reduce": "cluster", "parts": 2}),
}


def without(launch: LaunchConfig, **settings: int | str | bool) -> LaunchConfig:
    return LaunchConfig.of(**{**dict(launch.settings), **settings})


def operations(text: str, flags: Sequence[str], name: str, arch: str = "sm_90") -> list[int]:
    cubin, _ = compile_cubin(text, arch, tuple(flags))
    return [each.operation for each in decoded(kernel_code(cubin, name))]


def of_way(way: str, **more: int | str | bool) -> OneKernel:
    name, settings = WAYS[way]
    return one_kernel(zoo_graph(name), without(SETTINGS, **settings, **more))


@pytest.mark.parametrize("way", WAYS)
def test_machine_code_waits_before_it_touches_memory(way: str) -> None:
    source = of_way(way).unit.source
    found = operations(source.text, source.flags, source.name)
    assert (BULK in found) is (way == "stages")
    first = min(n for n, each in enumerate(found) if each in (LOAD, STORE, BULK))
    assert found.count(ACQBULK) == found.count(PREEXIT) == 1
    assert found.index(ACQBULK) < found.index(PREEXIT) < first


@pytest.mark.wide(3)
@pytest.mark.parametrize("way", [way for way in WAYS if way != "stages"])
def test_no_load_takes_memory_for_constant_while_others_write_it(way: str) -> None:
    """Else it might be served from before the wait: PTX wants what ld.global.nc reads to be left
    alone for as long as the kernel runs, and this one runs before others have ended."""
    constant = {}
    for early in (False, True):
        source = of_way(way, early=early).unit.source
        cubin, _ = compile_cubin(source.text, "sm_90", source.flags)
        loads = [e for e in decoded(kernel_code(cubin, source.name)) if e.operation == LOAD]
        constant[early] = sum(each.constant for each in loads)
        assert loads
    assert constant[False] and not constant[True]


def test_older_devices_know_nothing_of_it() -> None:
    source = one_kernel(zoo_graph("swiglu"), SETTINGS).unit.source
    found = operations(source.text, source.flags, source.name, "sm_80")
    assert ACQBULK not in found and PREEXIT not in found


def long_rows() -> Graph:
    b = GraphBuilder()
    x = b.input("x", (2, 1 << 15), "f32")
    top = b.add("reduce_max", x, axes=(1,))
    return b.build([b.add("sub", x, b.add("broadcast", top, shape=(2, 1 << 15), dims=(0,)))])


@pytest.mark.parametrize(
    ("reduce", "early"), [("block", True), ("split", True), ("cluster", True), ("barrier", False)]
)
def test_kernels_whose_blocks_wait_for_each_other_do_not_start_early(
    reduce: str, early: bool
) -> None:
    graph = long_rows()
    launch = LaunchConfig.of(threads=256, reduce=reduce, early=True)
    unit = one_kernel(graph, launch).unit
    assert unit.geometry.early is early and unit.geometry.cooperative is (reduce == "barrier")
    body = unit.source.text.removeprefix(CUDA.prelude)
    assert body.count("af_wait_for_earlier();") == body.count("AF_IN_LATER(float, ") == int(early)


def test_a_launch_says_whether_the_device_can() -> None:
    graph = zoo_graph("swiglu", "small")
    kernel = lower(graph, without(SETTINGS, tile=1024), "k")
    assert geometry(kernel, DEFAULT_TARGET).early
    assert not geometry(kernel, TARGETS["A100"]).early
    assert not geometry(lower(graph, LaunchConfig.of(tile=1024), "k"), DEFAULT_TARGET).early


def offered(graph: Graph, device: str, **fixed: str) -> tuple[object, ...]:
    """The settings of `early` that a space offers where other parameters are fixed."""
    found: list[tuple[object, ...]] = []

    def choose(question: str, options: Sequence[object]) -> object:
        name = question.split(".")[-2]
        if name == "early":
            found.append(tuple(options))
        return fixed[name] if fixed.get(name) in options else options[0]

    nodes = [n for n in range(len(graph.nodes)) if not is_source(graph, n)]
    CudaLaunchSpace(TARGETS[device]).choose(graph, group_of(graph, nodes), choose, "")
    return found[0] if found else ()


def test_the_space_offers_it_last_and_only_where_it_can_be() -> None:
    graph = long_rows()
    assert offered(graph, "H100") == offered(zoo_graph("swiglu"), "B200") == (False, True)
    assert offered(graph, "A100") == offered(graph, "H100", reduce="barrier") == ()


@pytest.mark.parametrize("way", ["softmax", "adam_16", "hints", "stages", "cluster"])
def test_such_a_kernel_computes_the_same(way: str) -> None:
    name, settings = WAYS[way]
    graph = zoo_graph(name, "small")
    inputs = random_inputs(graph, 0)
    made = one_kernel(graph, without(SETTINGS, **settings, threads=64))
    assert made.unit.geometry.early
    found = run_kernel(library_of([made]), made, inputs)
    assert check(tuple(found), reference_of(graph, inputs, runs=4)).ok


HEAD = 'extern "C" __global__ void k(AF_IN_LATER(float, in0), AF_OUT_LATER(float, out0))'
FAULTS = {
    "const float x = in0[0]; af_wait_for_earlier(); out0[0] = x;": (
        "waits for earlier kernels after it has accessed a buffer"
    ),
    "if (threadIdx.x % 2) af_wait_for_earlier(); out0[threadIdx.x] = 0;": (
        "ends without having waited for earlier kernels"
    ),
}


@pytest.mark.parametrize(("body", "words"), FAULTS.items())
def test_the_emulator_sees_what_comes_before_the_wait(body: str, words: str) -> None:
    emulated = Emulated(f"{CUDA.prelude}\n{HEAD} {{ {body} }}\n")
    arrays = [np.zeros(64, np.float32) for _ in range(2)]
    with pytest.raises(EmulatorError, match=words):
        emulated.launch("k", 1, 64, arrays)
