"""Bounds of launches with known blocks: true ones, and below what others measured."""

from __future__ import annotations

import heapq
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autofuse.backends.cuda.devices import TARGETS
from autofuse.cost.amounts import Work
from autofuse.cost.bounds import work_bound_us
from autofuse.cost.waves import CEILINGS, Ceiling, full_share, launch_bound_us, makespan_bound
from autofuse.cost.work import group_work
from autofuse.frontends.array_api.tracer import spec, trace
from autofuse.graph.canonical import canonical
from autofuse.measure.calibrate.cuda import target_calibration
from autofuse.plan.fusion.clusters import live

DTYPES = {"half": "bf16", "tf32": "f32"}


def product_work(size: int, dtype: str) -> Work:
    operand = spec((size, size), dtype)
    graph = canonical(trace(lambda a, b: a @ b, operand, operand))
    return group_work(graph, live(graph), graph.outputs)


@pytest.mark.parametrize("ceiling", CEILINGS, ids=str)
def test_no_bound_is_above_what_somebody_measured(ceiling: Ceiling) -> None:
    target = TARGETS[ceiling.device]
    assert target.peaks[ceiling.kind] >= ceiling.gflops
    work, peaks = product_work(ceiling.size, DTYPES[ceiling.kind]), target_calibration(target)
    assert work_bound_us(work, peaks) <= ceiling.us
    # Tiles of 128 x 256, as the fastest of them has, in whole waves.
    blocks = (ceiling.size // 128) * (ceiling.size // 256)
    assert launch_bound_us(work, [1.0] * blocks, target.sms, peaks) <= ceiling.us


@given(
    st.lists(st.floats(0.1, 10), min_size=1, max_size=60), st.integers(1, 20), st.integers(0, 99)
)
def test_no_order_of_blocks_is_faster_than_the_bound(
    work: list[float], places: int, seed: int
) -> None:
    """Blocks go to whoever is free first, in any order."""
    pieces = random.Random(seed).sample(work, len(work))
    ends = [0.0] * places
    for piece in pieces:
        heapq.heapreplace(ends, ends[0] + piece)
    assert makespan_bound(work, places) <= max(ends) * (1 + 1e-9)


@given(st.integers(1, 4000), st.integers(1, 200))
def test_equal_blocks_take_whole_waves(blocks: int, sms: int) -> None:
    work = [1.0] * blocks
    assert makespan_bound(work, sms) == math.ceil(blocks / sms)
    assert 0 < full_share(work, sms) <= 1


@given(st.integers(1, 4000))
def test_a_launch_is_bounded_by_no_less_than_its_group(blocks: int) -> None:
    target, work = TARGETS["A100"], product_work(512, "bf16")
    peaks = target_calibration(target)
    bound = launch_bound_us(work, [1.0] * blocks, target.sms, peaks)
    assert bound >= work_bound_us(work, peaks) * (1 - 1e-12)
    if blocks % target.sms == 0:
        assert bound == pytest.approx(work_bound_us(work, peaks))
