"""Lower bounds against measured times: on random graphs under random plans, no kernel is faster
than its bound says it can be, beyond noise."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from autofuse.cost.bounds import Calibration, group_bound_us
from autofuse.devices import timed_device
from autofuse.graph.canonical import canonical
from autofuse.measure.calibrate.host import calibrate_cpu
from autofuse.measure.worker.session import Worker
from autofuse.measure.workload import Workload
from autofuse.tuning.evaluate import build
from benchmarks.fuzz.random_plans import random_candidate
from tests.support import random_graphs
from tests.support.seeds import seeds
from tests.support.toy_device import QUICK

GRAPHS, GRAPHS_IN_CI = 50, 4
NODES, STEPS = 10, 20
LIMIT_S = 60.0
# Long running sums cancel, so that their float32 result is far from the reference: left out.
MOVES = tuple(move for move in random_graphs.MOVES if move[0] is not random_graphs._running)
# Values of which a few fill the first-level cache, and a few pass it by far.
LARGE_SHAPES, LARGEST = ((1000, 64), (64, 40, 30), (70_000,), (512, 512)), 1 << 19
# What two measurements of one machine may differ by, as a fraction and in microseconds: clocks
# change between calibrating and timing.
NOISE, LEAST_US = 0.25, 1.0


@dataclass(frozen=True)
class Timed:
    """A kernel's lower bound and its measured median, microseconds."""

    label: str
    bound_us: float
    median_us: float

    @property
    def refutes(self) -> bool:
        return self.bound_us - self.median_us > max(LEAST_US, NOISE * self.bound_us)


@pytest.fixture(scope="module")
def peaks() -> Calibration:
    return calibrate_cpu()


def timed_kernels(seed: int, peaks: Calibration) -> list[Timed]:
    """Every kernel of a random plan of a random graph, timed inside that plan."""
    shapes = LARGE_SHAPES if seed % 2 else random_graphs.WIDE_SHAPES
    graph = canonical(random_graphs.random_graph(seed, NODES, shapes, MOVES))
    candidate = random_candidate(graph, seed, STEPS)
    kind = timed_device("cpu")
    built = build(kind.backend, graph, candidate)
    assert built.artifact is not None, built.failure
    groups = candidate.plan.groups
    with Worker(Workload(graph, seed), hardware=kind.timer) as worker:
        found = worker.profile(built.artifact, len(groups), QUICK, LIMIT_S)
    assert found.failure is None, found.failure
    return [
        Timed(f"seed {seed}: {group}", group_bound_us(graph, group, peaks), timing.median_us)
        for group, timing in zip(groups, found.groups, strict=True)
    ]


def check(count: int, peaks: Calibration, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_graphs, "MAX_SIZE", LARGEST)
    kernels = [kernel for seed in seeds(count) for kernel in timed_kernels(seed, peaks)]
    assert len(kernels) > count
    # A kernel with no work to speak of says nothing of bandwidth or arithmetic.
    assert any(kernel.bound_us > 10.0 for kernel in kernels)
    assert [kernel for kernel in kernels if kernel.refutes] == []


def test_bounds_are_below_what_is_measured(
    peaks: Calibration, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(GRAPHS_IN_CI, peaks, monkeypatch)


@pytest.mark.slow
def test_bounds_are_below_what_is_measured_on_many_graphs(
    peaks: Calibration, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(GRAPHS, peaks, monkeypatch)


def test_a_bound_that_is_too_high_is_seen() -> None:
    slow = Timed("", 100.0, 70.0), Timed("", 4.0, 2.5)
    fine = Timed("", 100.0, 80.0), Timed("", 2.0, 1.2), Timed("", 1.0, 50.0)
    assert all(kernel.refutes for kernel in slow)
    assert not any(kernel.refutes for kernel in fine)
