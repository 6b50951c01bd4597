"""The cost model and the launch rules of XLA:GPU, against figures worked out by hand."""

from __future__ import annotations

import pytest

from autofuse.baselines import LAUNCH_RULES
from autofuse.baselines.priority.facts import cycles
from autofuse.baselines.priority.model import (
    LOOP_EMITTER,
    KernelEmitter,
    OperandTraffic,
    compute_ticks,
    read_ticks,
    together,
    write_ticks,
)
from autofuse.baselines.priority.state import PriorityState
from autofuse.baselines.xla.launch import H100, Launch, loop_launch_2022, loop_launch_2026
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph
from autofuse.tuning.plans import baseline_candidate
from autofuse.zoo import zoo_graph
from search_spaces import CpuLaunchSpace, CudaLaunchSpace
from tests.support.random_graphs import random_graph
from tests.support.seeds import seeds
from tests.support.xla_plans import F32, F64

MANY = Launch(1000, 128)
NS = 4  # ticks


def loop(launch: Launch = MANY, coalesced: bool = True) -> KernelEmitter:
    return KernelEmitter(LOOP_EMITTER, -1, False, False, False, coalesced, launch)


def chain(*ops: str, n: int) -> Graph:
    b = GraphBuilder()
    x = b.input("x", (n,), F32)
    for op in ops:
        x = b.add(op, x)
    return canonical(b.build([x]))


def nodes(graph: Graph) -> tuple[int, ...]:
    return tuple(n for n in range(len(graph.nodes)) if graph[n].op not in ("input", "constant"))


def test_arithmetic_takes_the_processors_the_launch_keeps_busy() -> None:
    # 2 * 1.98 operations a nanosecond on each of 2 * 64 and of 132 * 128 units.
    assert compute_ticks(H100, Launch(2, 64), 3.96 * 2 * 64 * 100) == 100 * NS
    assert compute_ticks(H100, Launch(500, 1024), 3.96 * 132 * 128 * 100) == 100 * NS


def test_bytes_move_at_bandwidth() -> None:
    assert write_ticks(H100, 335_232) == 100 * NS
    assert read_ticks(H100, loop(), OperandTraffic(335_232, 4), 1.0) == 100 * NS
    # A block issues 32 bytes a clock: 1.98 * 32 = 63.36 bytes a nanosecond.
    assert read_ticks(H100, loop(Launch(1, 128)), OperandTraffic(6336, 4), 1.0) == 100 * NS


def test_what_is_read_again_comes_from_a_cache() -> None:
    # 200 blocks may issue 12672 bytes a nanosecond; 20 times the bandwidth is more than that.
    emitter = loop(Launch(200, 128))
    assert read_ticks(H100, emitter, OperandTraffic(126_720, 4), 1.0) == 151
    assert read_ticks(H100, emitter, OperandTraffic(126_720, 4), 11.0) == 151 + 100 * NS
    # Above 2 KiB * 132 only the L2 factor of 2.5 applies: 8380.8 bytes a nanosecond.
    again = read_ticks(H100, emitter, OperandTraffic(838_080, 4), 2.0)
    assert again == read_ticks(H100, emitter, OperandTraffic(838_080, 4), 1.0) + 100 * NS


def test_scattered_reads_waste_most_of_a_transaction() -> None:
    straight = read_ticks(H100, loop(), OperandTraffic(335_232, 4), 1.0)
    scattered = read_ticks(H100, loop(coalesced=False), OperandTraffic(335_232, 4), 1.0)
    assert scattered == 16 * straight  # 4 of 64 bytes


def test_arithmetic_hides_95_percent_of_the_smaller() -> None:
    assert together(1000, 600) == 1000 + 600 - 570
    assert together(600, 1000) == together(1000, 600)


def test_cycles_are_those_measured() -> None:
    assert (cycles("tanh", F32), cycles("sin", F32), cycles("add", F32)) == (467, 958, 7)
    assert cycles("logistic", F32) == 3 + 79 + 7 + 19
    assert cycles("exp", F64) == 376
    assert cycles("abs", F32) == 3


def test_fusing_step_by_step_prices_as_the_whole() -> None:
    """Where nothing is duplicated, a kernel built by fusing is the kernel its nodes make."""
    compared = 0
    for seed in seeds(30):
        graph = canonical(random_graph(seed, 25))
        state, whole = PriorityState(graph, H100), PriorityState(graph, H100)
        for producer in [state.instrs[n] for n in reversed(state.live)]:
            users = state.users(producer)
            if len(users) == 1 and not state.is_output(producer):
                state.fuse(producer, users[0])
                state.drop_if_unread(producer)
                built, analysed = state.kernel(users[0]), whole._analysed(users[0])
                assert built.flops == pytest.approx(analysed.flops)
                assert built.emitted == analysed.emitted
                assert built.emitter == analysed.emitter
                assert built.time == pytest.approx(analysed.time, rel=0.01, abs=4)
                compared += 1
    assert compared > 100


def test_a_cartpole_step_of_2048_environments_is_two_blocks_in_2022() -> None:
    graph = chain("sin", "cos", "neg", n=2048)
    assert loop_launch_2022(graph, nodes(graph), 2048) == Launch(2, 1024)


@pytest.mark.parametrize(
    ("op", "n", "launch"),
    [
        ("neg", 100, Launch(1, 100)),
        ("neg", 270_332, Launch(264, 1024)),  # one element short of filling the device
        ("neg", 270_336, Launch(264, 256, 4)),
        ("sin", 270_336, Launch(264, 1024)),
        ("neg", 270_338, Launch(265, 512, 2)),
        ("neg", 1 << 24, Launch(132 * 16, 128, 4, strided=True)),
    ],
)
def test_loops_of_2022_are_launched_by_size_and_body(op: str, n: int, launch: Launch) -> None:
    graph = chain(op, n=n)
    assert loop_launch_2022(graph, nodes(graph), n) == launch


@pytest.mark.parametrize(
    ("n", "unrolls", "launch"),
    [
        (100, True, Launch(1, 100)),
        (2048, True, Launch(16, 128)),
        (270_336, True, Launch(528, 128, 4)),
        (270_336, False, Launch(2112, 128)),
        (270_337, True, Launch(2113, 128)),
    ],
)
def test_loops_of_2026_are_launched_in_blocks_of_128(n: int, unrolls: bool, launch: Launch) -> None:
    assert loop_launch_2026(n, H100, unrolls) == launch


@pytest.mark.parametrize(
    ("baseline", "op", "n", "launch"),
    [
        ("xla-2022", "sin", 2048, (1024, 1, 1, "one")),
        ("xla-2022", "neg", 100, (128, 1, 1, "one")),  # blocks are whole warps
        ("xla-2022", "neg", 1 << 24, (128, 4, 4, "stride")),
        ("xla-2026", "sin", 2048, (128, 1, 1, "one")),
        ("xla-2026", "sin", 1 << 24, (128, 4, 4, "one")),
    ],
)
def test_plans_for_a_gpu_are_launched_by_the_rule(
    baseline: str, op: str, n: int, launch: tuple[int, int, int, str]
) -> None:
    graph = chain(op, n=n)
    (found,) = baseline_candidate(graph, baseline, CudaLaunchSpace())[0].launches
    settings = {"vector": 1, **dict(found.settings)}
    assert tuple(settings[k] for k in ("threads", "items", "vector", "grid")) == launch


@pytest.mark.parametrize("baseline", list(LAUNCH_RULES))
def test_the_rule_is_for_loop_kernels_on_a_gpu_only(baseline: str) -> None:
    graph = canonical(zoo_graph("softmax", "small"))
    for space in (CpuLaunchSpace(), CudaLaunchSpace()):
        candidate = baseline_candidate(graph, baseline, space)[0]
        for group, launch in zip(candidate.plan.groups, candidate.launches, strict=True):
            if isinstance(space, CpuLaunchSpace) or space.kind(graph, group) != "item":
                assert launch == space.default(graph, group)
