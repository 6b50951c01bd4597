"""Rows that the blocks of a cluster share: right on the emulator, which catches who writes to a
block too soon, and compiled for architectures that have clusters."""

from __future__ import annotations

from collections import Counter

import pytest

from autofuse.backends.cuda.devices import TARGETS
from autofuse.backends.cuda.geometry import Geometry, UnsupportedKernel, geometry
from autofuse.backends.cuda.nvrtc import compile_cubin
from autofuse.backends.emulator.build import heads
from autofuse.backends.emulator.emulator import ORDERS, Emulated, EmulatorError
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import canonical
from autofuse.graph.reference import random_inputs
from autofuse.graph.types import Graph
from autofuse.measure.check.compare import check, reference_of
from autofuse.plan.types import LaunchConfig, Setting
from benchmarks.sass import code_facts, decoded, kernel_code
from search_spaces import CudaLaunchSpace
from tests.support.cuda_spaces import folded, offered, whole
from tests.support.device_kernels import kernel
from tests.support.one_kernel import OneKernel, launched, one_kernel

# What the assembler makes of the two halves of barrier.cluster, and of st.shared::cluster.
ARRIVE, WAIT, REMOTE = 0x9C7, 0xDC7, 0x385


def spread(rows: int, width: int) -> Graph:
    """The sum of (x - sum x)^2 over rows: the second fold uses the memory of the first."""
    b = GraphBuilder()
    x = b.input("x", (rows, width), "f32")
    total = b.add("reduce_sum", x, axes=(1,))
    left = b.add("sub", x, b.add("broadcast", total, shape=(rows, width), dims=(0,)))
    return b.build([left, b.add("reduce_sum", b.add("mul", left, left), axes=(1,))])


def clustered(parts: int = 4) -> OneKernel:
    launch = LaunchConfig.of(threads=64, vector=4, keep="registers", reduce="cluster", parts=parts)
    return one_kernel(canonical(spread(3, 1600)), "k", launch)


def run(made: OneKernel, text: str) -> None:
    inputs = random_inputs(made.graph, 3)
    found = launched(Emulated(text), made, inputs, orders=ORDERS)
    result = check(tuple(found), reference_of(made.graph, inputs))
    assert result.ok, result.message


def test_blocks_of_a_cluster_share_a_row() -> None:
    for parts in (2, 4, 8):
        made = clustered(parts)
        assert heads(made.text)[0].cluster == parts and "AF_WORK" not in made.text.split("k(")[-1]
        run(made, made.text)


BEGIN, LEAVE = "  af_cluster_begin();\n  {", "      af_cluster_wait();\n"
# What is wrong -> changes of the text, and what the emulator says.
FAULTS = {
    "too soon": ({BEGIN: "  {", LEAVE: ""}, "has not begun"),
    "no turns": ({"meeting ^= 1": "meeting"}, "depends on the order of threads"),
    "turns of blocks": ({"meeting ^= 1": "turn ^= 1"}, "depends on the order of threads"),
    "only arrives": ({LEAVE: ""}, "arrives twice"),
    "only waits": ({BEGIN: "  {"}, "before it has arrived"),
    "beyond": ({"x < BLOCKS)": "x < 5)"}, "block 4 of a cluster of 4"),
    "too late": ({LEAVE: LEAVE + "if (blockIdx.x == 3) return;"}, "has ended|that never come"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_caught(fault: str) -> None:
    changes, message = FAULTS[fault]
    made = clustered()
    text = made.text
    for right, wrong in changes.items():
        assert right in text
        text = text.replace(right, wrong)
    with pytest.raises(EmulatorError, match=message):
        run(made, text)


def test_a_grid_is_whole_clusters() -> None:
    made = clustered()
    with pytest.raises(EmulatorError, match="launched with 5 blocks, in clusters of 4"):
        Emulated(made.text).launch("k", 5, 64, [*random_inputs(made.graph, 3)] * 2)


@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
def test_machine_code_meets_once_in_a_fold(arch: str) -> None:
    cubin, log = compile_cubin(clustered().text, arch)
    assert log == ""
    code = kernel_code(cubin, "k")
    found = Counter(i.operation for i in decoded(code))
    assert found[ARRIVE] == found[WAIT] == 3, "at the beginning, and in each of two folds"
    assert found[REMOTE] == 2 and code_facts(code).barriers == 2


def test_clusters_are_for_devices_that_have_them() -> None:
    row = folded(4096, 1 << 15)
    assert "cluster" not in offered(row)["row.reduce"], "of an unknown device"

    def choose(_: str, options: tuple[Setting, ...]) -> Setting:
        return "cluster" if "cluster" in options else options[0]

    for name, there in (("A100", False), ("RTX4090", False), ("H100", True), ("B200", True)):
        launch = CudaLaunchSpace(TARGETS[name]).choose(row, whole(row), choose, "p")
        assert (launch["reduce"] == "cluster") == there
        if there:
            assert launch["grid"] == "one" and launch["keep"] == "registers"
    made = kernel(row, reduce="cluster", keep="registers")
    assert geometry(made, TARGETS["H100"]) == Geometry(4096 * 8, 256)
    with pytest.raises(UnsupportedKernel, match="sm_80:A100 has no clusters of 8 blocks"):
        geometry(made, TARGETS["A100"])
