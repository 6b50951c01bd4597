"""Stopping rules, statistics and verdicts on synthetic samples and a synthetic clock."""

from __future__ import annotations

import numpy as np
import pytest

from autofuse.measure.timing.compare import verdict
from autofuse.measure.timing.sampling import (
    MeasureError,
    Sampling,
    Stopwatch,
    collect,
    collect_profile,
    median_error,
    summarise,
    warm_up,
)


class FakeClock:
    """Seconds that pass only when work is done."""

    def __init__(self, cost_us: list[float]) -> None:
        self.now, self.calls, self.flushes, self.cost_us = 0.0, 0, 0, cost_us

    def __call__(self) -> float:
        return self.now

    def work(self) -> None:
        self.now += self.cost_us[self.calls % len(self.cost_us)] * 1e-6
        self.calls += 1

    def flush(self) -> None:
        self.now += 1e-3
        self.flushes += 1


def watch(clock: FakeClock, cache: str = "cold", batch: int = 1) -> Stopwatch:
    return Stopwatch(clock.work, clock.flush, cache, batch, clock)


def test_summary_of_known_samples() -> None:
    timing = summarise([4.0, 1.0, 2.0, 3.0, 5.0], "warm", "samples")
    assert (timing.n, timing.min_us, timing.q1_us, timing.median_us, timing.q3_us) == (
        5,
        1,
        2,
        3,
        4,
    )
    assert timing.mean_us == 3.0 and timing.stdev_us == pytest.approx(1.5811388)
    assert summarise([7.0], "cold", "wall").stdev_us == 0.0
    with pytest.raises(MeasureError, match="no sample"):
        summarise([], "cold", "wall")


def test_a_warm_sample_after_another_program_follows_calls_that_are_not_timed() -> None:
    clock = FakeClock([2000.0] * 3 + [50.0])  # what ran before still holds a core for 6 ms
    warm = watch(clock, "warm")
    warm.settle()
    assert clock.calls == 3 and warm.sample() == pytest.approx(50.0)
    slow = FakeClock([9000.0])
    watch(slow, "warm").settle()
    assert slow.calls == 1, "one call is enough where it takes long"


def test_cold_samples_follow_no_call() -> None:
    clock = FakeClock([100.0])
    watch(clock, "cold").settle()
    assert clock.calls == 0 and clock.flushes == 0


def test_steady_work_stops_by_noise_at_the_minimum() -> None:
    clock = FakeClock([100.0])
    timing = collect(watch(clock), Sampling(minimum=12, maximum=100))
    assert (timing.n, timing.stopped) == (12, "noise")
    assert timing.median_us == pytest.approx(100.0)
    assert clock.flushes == 12


def test_noisy_work_stops_by_samples() -> None:
    clock = FakeClock([100.0, 200.0, 50.0, 400.0, 90.0])
    timing = collect(watch(clock), Sampling(minimum=4, maximum=30, noise=0.001))
    assert (timing.n, timing.stopped) == (30, "samples")


def test_slow_work_stops_by_wall_but_takes_three_samples() -> None:
    clock = FakeClock([0.9e6])
    timing = collect(watch(clock), Sampling(minimum=12, maximum=30, wall_s=1.0))
    assert (timing.n, timing.stopped) == (3, "wall")


def test_one_sample_is_enough_where_it_takes_longer_than_all_should() -> None:
    clock = FakeClock([2e6])
    timing = collect(watch(clock), Sampling(minimum=12, maximum=30, wall_s=1.0))
    assert (timing.n, timing.stopped) == (1, "wall")


@pytest.mark.parametrize(("us", "calls"), [(2e6, 2), (0.9e6, 4), (0.1e6, 11)])
def test_a_profile_takes_as_many_samples_as_anything_else(us: float, calls: int) -> None:
    clock, made = FakeClock([us]), list[float]()

    def call() -> np.ndarray:
        begun = clock()
        clock.work()
        made.append((clock() - begun) * 1e6)
        return np.array([0.25, 0.75]) * made[-1]

    sampling = Sampling(warmup_s=0.0, minimum=11, maximum=30, wall_s=1.0)
    samples = collect_profile(call, clock.flush, sampling, clock)
    assert len(made) == calls and samples.us.shape == (calls - 1, 2), "one call warms up"


def test_warm_samples_are_batches_without_flushes() -> None:
    clock = FakeClock([0.5])
    made = warm_up(clock.work, clock.flush, Sampling("warm", warmup_s=1e-4), clock)
    assert made.batch == 40 and clock.flushes == 0 and clock.now >= 1e-4
    assert made.sample() == pytest.approx(0.5)
    assert warm_up(clock.work, clock.flush, Sampling("cold"), clock).batch == 1


def test_one_stray_sample_does_not_unsettle_the_median() -> None:
    steady = [100.0, 101.0, 99.0, 100.5] * 5
    assert median_error([*steady, 5000.0]) < 0.01
    assert median_error([1.0, 2.0]) == float("inf")


def test_bad_settings_are_refused() -> None:
    with pytest.raises(MeasureError, match="lukewarm"):
        Sampling("lukewarm")
    with pytest.raises(MeasureError, match="5 to 4"):
        Sampling(minimum=5, maximum=4)


def blocks(seed: int, centre: float, spread: float = 0.02) -> list[list[float]]:
    draw = np.random.default_rng(seed)
    return [list(centre * (1 + spread * draw.normal(size=20))) for _ in range(5)]


def test_clear_difference_is_faster_or_slower() -> None:
    found = verdict("rules", blocks(1, 120.0), blocks(2, 100.0))
    assert found.outcome == "faster" and found.other == "rules"
    assert found.low < found.ratio < found.high
    assert found.ratio == pytest.approx(1.2, rel=0.02)
    assert verdict("rules", blocks(2, 100.0), blocks(1, 120.0)).outcome == "slower"


def test_equal_and_nearly_equal_are_ties() -> None:
    assert verdict("a", blocks(1, 100.0), blocks(2, 100.0)).outcome == "tie"
    assert verdict("a", blocks(1, 100.4, 0.001), blocks(2, 100.0, 0.001)).outcome == "tie"


def test_blocks_that_disagree_widen_the_interval() -> None:
    drifting = [[100.0 * f] * 20 for f in (1.0, 1.5, 0.8, 1.3, 0.7)]
    found = verdict("a", drifting, [[100.0] * 20] * 5)
    assert found.high - found.low > 0.3 and found.outcome == "tie"


def test_false_alarms_are_rare() -> None:
    outcomes = [
        verdict("a", blocks(2 * s, 100.0), blocks(2 * s + 1, 100.0), resamples=400).outcome
        for s in range(40)
    ]
    assert outcomes.count("tie") >= 38


def test_verdict_is_repeatable_and_needs_matching_blocks() -> None:
    a, b = blocks(1, 110.0), blocks(2, 100.0)
    assert verdict("a", a, b) == verdict("a", a, b)
    with pytest.raises(MeasureError, match="number of blocks"):
        verdict("a", a[:3], b)
    with pytest.raises(MeasureError, match="in every block"):
        verdict("a", [[1.0], []], [[1.0], [1.0]])
