"""Measuring on CUDA with a fake driver: what is checked, what comes before each sample, and how
failures end."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from autofuse.backends.base import LaunchError
from autofuse.backends.cuda.clocks import Clocks
from autofuse.backends.cuda.devices import DEFAULT_TARGET, Target
from autofuse.backends.cuda.nvrtc import compile_cubin
from autofuse.backends.cuda.program import Action, LoopAction
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.types import Graph
from autofuse.measure.calibrate.cuda import RUNS, calibrate_cuda, copy_us, target_calibration
from autofuse.measure.cuda import _KERNELS, REST_US, RETRIES, CudaDevice
from autofuse.measure.timing.sampling import MeasureError, Sampling, collect, held_by
from autofuse.measure.worker import process as worker
from autofuse.measure.worker.process import WorkloadRunner
from autofuse.measure.worker.protocol import (
    CompareJob,
    Comparison,
    Last,
    MeasureJob,
    Open,
    ProfileJob,
)
from autofuse.measure.workload import Workload
from autofuse.ops.dtypes import DType
from autofuse.plan.program.schedule import Ref
from autofuse.records import FailureKind
from benchmarks.sass import code_facts, kernel_code
from tests.support.artifacts import SIMPLE, TYPE, N, X, add_one, artifact, launch
from tests.support.cuda_clocks import clocks, kernels
from tests.support.fake_cuda import US_PER_LAUNCH, FakeDriver, floats

# So slow a memory that a workload of these arrays takes long; and one that is fast.
SMALL = replace(DEFAULT_TARGET, l2_bytes=4096, bandwidth=1e-3)
FAST = replace(SMALL, bandwidth=1e3)
READ = 2 * 4096 // 16  # 16 bytes at a time
QUICK = Sampling(warmup_s=0.0, minimum=4, maximum=8, wall_s=10.0)
ARRAYS = (np.linspace(1, 2, N, dtype=np.float32),)


def one_more() -> Graph:
    b = GraphBuilder()
    x = b.input("x", (N,), "f32")
    return b.build([b.add("add", x, b.constant(np.ones(N), DType.F32))])


POWER, HEAT, SETTING = 0x4, 0x20, 0x2


@pytest.fixture
def driver() -> FakeDriver:
    return FakeDriver({"k_add": add_one})


def device(driver: FakeDriver, told: Clocks | None = None, target: Target = SMALL) -> CudaDevice:
    ticks = count()
    made = CudaDevice(driver, target, told or clocks(), lambda: next(ticks) * 1e-6)
    made.open(ARRAYS, (TYPE,))
    return made


def bench(driver: FakeDriver, folder: Path) -> WorkloadRunner:
    return WorkloadRunner(Workload(one_more(), arrays=ARRAYS), folder / "r.npz", device(driver))


LONG: tuple[Action, ...] = SIMPLE * 4


def test_a_plan_is_checked_then_timed(driver: FakeDriver, tmp_path: Path) -> None:
    reply = bench(driver, tmp_path).measure(MeasureJob(artifact(tmp_path, LONG), QUICK))
    assert reply.failure is None
    assert reply.max_rel_error is not None and reply.max_rel_error < 1e-6
    assert reply.timing is not None
    assert (reply.timing.mode, reply.timing.cache) == ("graph,noclk", "cold")
    assert reply.timing.median_us == pytest.approx(4 * US_PER_LAUNCH)


def test_the_cache_is_emptied_before_each_cold_sample(driver: FakeDriver, tmp_path: Path) -> None:
    own = device(driver)
    with own.load(artifact(tmp_path, LONG)) as loaded:
        watch = own.watch(loaded, QUICK)
        for _ in range(2):
            driver.log.clear()
            watch.sample()
            names = [n for n in driver.names() if n != "synchronize"]
            assert names == ["launch", "launch", "event", "graph", *["launch"] * 4, "event"]
            stall, read = driver.log[:2]
            assert stall[1] == "af_stall"
            assert read[1] == "af_read" and read[3][1] == READ, "nothing dirty is left by writing"
        warm = own.watch(loaded, replace(QUICK, cache="warm"))
        driver.log.clear()
        warm.sample()
        assert kernels(driver).count("af_read") == 0


def test_emptying_the_cache_reads_in_wide_accesses() -> None:
    """And has one store, for what it never finds."""
    cubin, _ = compile_cubin(_KERNELS, DEFAULT_TARGET.arch)
    facts = code_facts(kernel_code(cubin, "af_read"))
    assert facts.wide_loads == facts.loads >= 4 and facts.in_flight >= 64 and facts.stores == 1


def test_short_plans_are_timed_many_at_once(driver: FakeDriver, tmp_path: Path) -> None:
    own = device(driver, target=FAST)
    with own.load(artifact(tmp_path)) as loaded:
        cold = own.watch(loaded, QUICK)
        driver.log.clear()
        assert cold.sample() == pytest.approx(US_PER_LAUNCH), "emptying is subtracted"
        assert kernels(driver).count("k_add") == cold.count == 64
        # Before the graphs, and in each of them as often as the plan.
        assert kernels(driver).count("af_read") == 2 + 2 * 64
        warm = own.watch(loaded, replace(QUICK, cache="warm"))
        assert warm.sample() == pytest.approx(US_PER_LAUNCH)
        assert cold.mode == warm.mode == "graph,batch,noclk"
        assert len(cold.mode) <= 20, "what the database's column holds"


@pytest.mark.parametrize(("target", "mode"), [(FAST, "graph,batch"), (SMALL, "graph")])
def test_plans_of_one_workload_are_timed_in_one_way(
    driver: FakeDriver, tmp_path: Path, target: Target, mode: str
) -> None:
    """Be they short or long: times of different ways do not compare."""
    own = device(driver, clocks(1980), target)
    for times in (1, 4, 100):
        with own.load(artifact(tmp_path, SIMPLE * times)) as loaded:
            watch = own.watch(loaded, QUICK)
            assert watch.mode == mode and watch.sample() == pytest.approx(times * US_PER_LAUNCH)


def test_eager_samples_begin_on_an_idle_device(driver: FakeDriver, tmp_path: Path) -> None:
    own = device(driver, clocks(1980))
    with own.load(artifact(tmp_path, LONG)) as loaded:
        watch = own.watch(loaded, replace(QUICK, mode="eager"))
        driver.log.clear()
        watch.sample()
    assert driver.names()[:3] == ["launch", "synchronize", "event"]
    assert kernels(driver)[0] == "af_read"
    assert watch.mode == "eager" and "graph" not in driver.names()
    with pytest.raises(MeasureError, match="mode 'lazy'"):
        Sampling(mode="lazy")


def test_samples_on_a_low_clock_are_taken_again(driver: FakeDriver, tmp_path: Path) -> None:
    """The first one too: how fast the device can be is asked, not learned."""
    own = device(driver, clocks(1000, 1000, 1200, 1900))
    with own.load(artifact(tmp_path, LONG)) as loaded:
        watch = own.watch(loaded, QUICK)
        driver.log.clear()
        assert watch.sample() > 0 and kernels(driver).count("k_add") == 4 * 4
        rests = [e[3] for e in driver.log if e[0] == "launch" and e[3] == (int(1e3 * REST_US),)]
        assert len(rests) == 3
        own.clocks = clocks(500)
        with pytest.raises(LaunchError, match=f"no usable sample in {RETRIES}"):
            watch.sample()
        own.clocks = clocks((500, SETTING))
        assert watch.sample() > 0, "its owner wants it so"


def test_samples_at_full_power_are_kept_whatever_the_clock(
    driver: FakeDriver, tmp_path: Path
) -> None:
    """Products on tensor cores run at 1.4 of 1.98 GHz for as long as they run, and say why."""
    for reason, kept in ((POWER, True), (HEAT, False), (0, False)):
        own = device(driver, clocks((1400, reason)))
        with own.load(artifact(tmp_path, LONG)) as loaded:
            watch = own.watch(loaded, QUICK)
            if not kept:
                with pytest.raises(LaunchError, match="no usable sample"):
                    watch.sample()
                continue
            assert watch.sample() > 0 and held_by(collect(watch, QUICK).mode) == "power"


@pytest.mark.parametrize(("reason", "word"), [(POWER, "power"), (HEAT, "heat"), (0, "")])
def test_samples_that_power_or_heat_held_back_are_told(
    driver: FakeDriver, tmp_path: Path, reason: int, word: str
) -> None:
    for target, way in ((SMALL, "graph"), (FAST, "graph,batch")):
        own = device(driver, clocks((1700, 0), (1700, reason), (1700, 0)), target)
        with own.load(artifact(tmp_path, LONG)) as loaded:
            timing = collect(own.watch(loaded, QUICK), QUICK)
        assert timing.mode == (f"{way},{word}" if word else way)
        assert held_by(timing.mode) == word and len(timing.mode) <= 20


def test_groups_are_timed_where_they_run(driver: FakeDriver, tmp_path: Path) -> None:
    loop = LoopAction(2, 0, (SIMPLE, (launch("k_add", Ref("in"), Ref("out")),)))
    found = artifact(tmp_path, (*SIMPLE, loop))
    job = ProfileJob(found, 2, QUICK)
    profile = bench(driver, tmp_path).profile(job)
    assert profile.failure is None
    assert [t.median_us for t in profile.groups] == pytest.approx([US_PER_LAUNCH, 6.0])
    assert profile.total is not None and profile.total.mode == "events,noclk"


def test_plans_are_compared_in_turns(driver: FakeDriver, tmp_path: Path) -> None:
    pair = tuple(artifact(tmp_path, actions) for actions in (LONG, LONG * 2))
    found = bench(driver, tmp_path).compare(CompareJob(pair, 3, 4, QUICK, 0))
    assert isinstance(found, Comparison)
    assert [t.median_us for t in found.timings] == pytest.approx([12.0, 24.0])
    assert [len(block) for block in found.samples[0]] == [4, 4, 4]


def spoil_input(source: int, target: int) -> None:
    add_one(source, target)
    floats(source, N)[3] = 0


def overrun(source: int, target: int) -> None:
    add_one(source, target)
    floats(target + 4 * N, 1)[0] = 0


def leave_one(source: int, target: int) -> None:
    floats(target, N - 1)[...] = floats(source, N - 1) + 1


@pytest.mark.parametrize(
    ("kernel", "words"),
    [(spoil_input, "changed its inputs"), (overrun, "outside its outputs"), (leave_one, "nan")],
)
def test_wrong_programs_are_found_out(
    driver: FakeDriver, tmp_path: Path, kernel: object, words: str
) -> None:
    made = bench(driver, tmp_path)
    driver.kernels["k_add"] = kernel
    reply = made.measure(MeasureJob(artifact(tmp_path), None))
    assert reply.failure is not None and reply.failure.kind is FailureKind.WRONG_RESULT
    assert words in reply.failure.message
    driver.kernels["k_add"] = add_one
    assert made.measure(MeasureJob(artifact(tmp_path), None)).failure is None


def illegal(driver: FakeDriver) -> None:
    driver.broken = True


def test_an_illegal_address_is_a_launch_failure_and_the_last_answer(
    driver: FakeDriver, tmp_path: Path
) -> None:
    made = device(driver)
    workload = Workload(one_more(), arrays=ARRAYS)
    asked = [
        Open(workload, tmp_path / "r.npz", lambda: made),
        MeasureJob(artifact(tmp_path), None),
        MeasureJob(artifact(tmp_path), None),
    ]

    class Requests:
        def recv(self) -> object:
            if len(asked) == 1:
                driver.kernels["k_add"] = lambda *_: illegal(driver)
            if not asked:
                raise EOFError
            return asked.pop(0)

    answers: list[object] = []

    class Replies:
        def send(self, answer: object) -> None:
            answers.append(answer)

    with pytest.raises(EOFError):
        worker.serve(Requests(), Replies())
    _, good, last = answers
    assert getattr(good, "failure", "") is None
    assert isinstance(last, Last) and last.answer.failure is not None
    assert last.answer.failure.kind is FailureKind.LAUNCH


def test_calibration_measures_bandwidth_and_launches(driver: FakeDriver) -> None:
    found = calibrate_cuda(driver, replace(SMALL, l2_bytes=1 << 20))
    assert found.launch_us == pytest.approx(US_PER_LAUNCH)
    assert found.gbytes_per_s == pytest.approx((1 << 28) / (US_PER_LAUNCH * 1e3))
    sheet = target_calibration(DEFAULT_TARGET)
    assert (found.cheap, found.special) == (sheet.cheap, sheet.special)
    timed, queued = timed_regions(driver), {"graph", "copy", "launch"}
    assert len(timed) == 4 * (RUNS + 1) and all(set(each) <= queued for each in timed)
    assert all(each[0] == "graph" for each in timed), "the host's time would be in it"


def timed_regions(driver: FakeDriver) -> list[list[str]]:
    """What was done between the two events of each timing."""
    parts = " ".join(driver.names()).split("event")
    return [part.split() for part in parts[1::2]]


def test_a_copy_is_sampled_as_plans_are(driver: FakeDriver) -> None:
    own = device(driver)
    driver.log.clear()
    assert copy_us(own, 4096) == pytest.approx(US_PER_LAUNCH)
    assert timed_regions(driver) == [["graph", "copy"]] * RUNS
    assert kernels(driver) == ["af_stall", "af_read"] * RUNS


def test_the_peaks_of_a_data_sheet() -> None:
    sheet = target_calibration(DEFAULT_TARGET)
    assert sheet.gbytes_per_s == 3350.0 and sheet.cache_bytes == 50 << 20
    assert sheet.cheap == pytest.approx(66_900, rel=0.01), "10^9 operations a second"


def test_a_timing_names_its_mode(driver: FakeDriver, tmp_path: Path) -> None:
    own = device(driver, clocks(1980))
    with own.load(artifact(tmp_path, LONG)) as loaded:
        assert collect(own.watch(loaded, QUICK), QUICK).mode == "graph"
    assert X.dtype == np.float32
