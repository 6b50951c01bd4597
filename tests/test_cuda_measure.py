"""Measuring on CUDA with a fake driver: what is checked, what comes before each sample, and how
failures end."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from fake_cuda import US_PER_LAUNCH, FakeDriver, floats
from test_cuda_launch import SIMPLE, TYPE, N, X, add_one, artifact, launch

from autofuse.backends.base import LaunchError
from autofuse.backends.cuda.clocks import Clocks
from autofuse.backends.cuda.devices import DEFAULT_TARGET
from autofuse.backends.cuda.program import Action, LoopAction
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.types import Graph
from autofuse.measure import worker
from autofuse.measure.calibrate_cuda import calibrate_cuda, target_calibration
from autofuse.measure.cuda import RETRIES, CudaDevice
from autofuse.measure.protocol import CompareJob, Comparison, Last, MeasureJob, Open, ProfileJob
from autofuse.measure.timing import MeasureError, Sampling, collect
from autofuse.measure.worker import WorkloadRunner
from autofuse.measure.workload import Workload
from autofuse.ops.dtypes import DType
from autofuse.plan.schedule import Ref
from autofuse.records import FailureKind

SMALL = replace(DEFAULT_TARGET, l2_bytes=4096)
QUICK = Sampling(warmup_s=0.0, minimum=4, maximum=8, wall_s=10.0)
ARRAYS = (np.linspace(1, 2, N, dtype=np.float32),)


def one_more() -> Graph:
    b = GraphBuilder()
    x = b.input("x", (N,), "f32")
    return b.build([b.add("add", x, b.constant(np.ones(N), DType.F32))])


class NoClocks(Clocks):
    """A device that does not tell its clock."""

    def __init__(self) -> None:
        self._library, self._highest = None, 0


class FakeClocks(NoClocks):
    """Readings in MHz, in order; the last one lasts."""

    def __init__(self, *readings: int) -> None:
        super().__init__()
        self.readings = list(readings)

    def read(self) -> int | None:
        return self.readings.pop(0) if len(self.readings) > 1 else self.readings[0]


@pytest.fixture
def driver() -> FakeDriver:
    return FakeDriver({"k_add": add_one})


def device(driver: FakeDriver, clocks: Clocks | None = None) -> CudaDevice:
    ticks = count()
    made = CudaDevice(driver, SMALL, clocks or NoClocks(), lambda: next(ticks) * 1e-6)
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
            assert names == ["launch", "fill", "event", "graph", *["launch"] * 4, "event"]
            assert driver.log[0][1] == "af_stall" and ("fill", SMALL.l2_bytes) in driver.log
        warm = own.watch(loaded, replace(QUICK, cache="warm"))
        driver.log.clear()
        warm.sample()
        assert "fill" not in driver.names()


def test_short_plans_are_timed_many_at_once(driver: FakeDriver, tmp_path: Path) -> None:
    own = device(driver)
    with own.load(artifact(tmp_path)) as loaded:
        cold = own.watch(loaded, QUICK)
        driver.log.clear()
        assert cold.sample() == pytest.approx(US_PER_LAUNCH), "emptying is subtracted"
        launches = [e for e in driver.log if e[0] == "launch" and e[1] == "k_add"]
        assert len(launches) == cold.count == 64
        # Before the graphs, and in each of them as often as the plan.
        assert driver.names().count("fill") == 2 + 2 * 64
        warm = own.watch(loaded, replace(QUICK, cache="warm"))
        assert warm.sample() == pytest.approx(US_PER_LAUNCH)
        assert cold.mode == warm.mode == "graph,batch,noclk"
        assert len(cold.mode) <= 20, "what the database's column holds"


def test_eager_samples_begin_on_an_idle_device(driver: FakeDriver, tmp_path: Path) -> None:
    own = device(driver, FakeClocks(1980))
    with own.load(artifact(tmp_path, LONG)) as loaded:
        watch = own.watch(loaded, replace(QUICK, mode="eager"))
        driver.log.clear()
        watch.sample()
    assert driver.names()[:3] == ["fill", "synchronize", "event"]
    assert watch.mode == "eager" and "graph" not in driver.names()
    with pytest.raises(MeasureError, match="mode 'lazy'"):
        Sampling(mode="lazy")


def test_samples_of_a_throttled_device_are_discarded(
    driver: FakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rests: list[float] = []
    monkeypatch.setattr("autofuse.measure.cuda.time.sleep", rests.append)
    own = device(driver, FakeClocks(1980, 1000, 1200, 1900))
    with own.load(artifact(tmp_path, LONG)) as loaded:
        watch = own.watch(loaded, QUICK)
        watch.sample()
        assert rests == [] and watch.sample() > 0 and len(rests) >= 1
        own.clocks = FakeClocks(1980, 500)
        own.clocks.slow()
        with pytest.raises(LaunchError, match=f"no usable sample in {RETRIES}"):
            watch.sample()


def test_groups_are_timed_where_they_run(driver: FakeDriver, tmp_path: Path) -> None:
    loop = LoopAction(2, 0, SIMPLE, (launch("k_add", Ref("in"), Ref("out")),))
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
    assert sheet.gbytes_per_s == 3350.0 and sheet.cache_bytes == 50 << 20
    assert sheet.cheap == pytest.approx(66_900, rel=0.01), "10^9 operations a second"


def test_a_timing_names_its_mode(driver: FakeDriver, tmp_path: Path) -> None:
    own = device(driver, FakeClocks(1980))
    with own.load(artifact(tmp_path, LONG)) as loaded:
        assert collect(own.watch(loaded, QUICK), QUICK).mode == "graph"
    assert X.dtype == np.float32
