"""Devices as data, and how kernels are launched on them."""

from __future__ import annotations

import pytest

from autofuse.backends.cuda.devices import (
    DEFAULT_TARGET,
    TARGETS,
    Target,
    TargetError,
    blocks_resident,
    occupancy,
    target_named,
    target_of,
)
from autofuse.backends.cuda.driver import CudaMissing, query_target, require_cuda
from autofuse.backends.cuda.geometry import Geometry, UnsupportedKernel, geometry
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph
from autofuse.measure.calibrate.cuda import target_calibration
from autofuse.plan.types import Setting
from tests.support.device_kernels import kernel

A100, H100 = TARGETS["A100"], TARGETS["H100"]
ATTRIBUTES = {
    "GlobalMemoryBusWidth": 5120, "MultiProcessorCount": 132, "MaxThreadsPerMultiProcessor": 2048,
    "MaxBlocksPerMultiprocessor": 32, "MaxRegistersPerMultiprocessor": 65536,
    "MaxSharedMemoryPerBlockOptin": 232448, "MaxSharedMemoryPerMultiprocessor": 233472,
    "L2CacheSize": 52428800, "MemoryClockRate": 2619000, "ClockRate": 1980000,
}  # fmt: skip


@pytest.mark.parametrize("text", ["sm_90:H100", "H100", "h100", "sm_90", "sm_90:"])
def test_a_target_has_several_names(text: str) -> None:
    assert target_named(text) == H100


@pytest.mark.parametrize("text", ["", "sm_80:H100", "sm_70:V100", "sm_75", ":"])
def test_an_unknown_target_is_one_sentence(text: str) -> None:
    with pytest.raises(TargetError, match=r"unknown target .* \(known: sm_80:A100"):
        target_named(text)


@pytest.mark.parametrize("target", TARGETS.values(), ids=str)
def test_the_table_is_of_a_piece(target: Target) -> None:
    assert target_named(str(target)) == target
    assert target.shared_per_block + 1024 == target.shared_per_sm
    assert target.threads_per_sm <= target.blocks_per_sm * target.threads_per_block
    assert target.peaks["f32"] >= target.peaks["f64"] > 0


@pytest.mark.parametrize(
    ("name", "f32", "f64"), [("A100", 19.5, 9.7), ("H100", 67, 34), ("RTX4090", 82.6, 1.29)]
)
def test_peaks_are_those_of_the_data_sheets(name: str, f32: float, f64: float) -> None:
    peaks = TARGETS[name].peaks
    assert peaks["f32"] / 1e3 == pytest.approx(f32, rel=0.02)
    assert peaks["f64"] / 1e3 == pytest.approx(f64, rel=0.02)


@pytest.mark.parametrize(("name", "f16"), [("A100", 312), ("H100", 989), ("B200", 2250)])
def test_no_product_is_faster_than_its_bound(name: str, f16: float) -> None:
    """Tensor cores on 16 bits, as the data sheets have them at a clock that may be lower."""
    target = TARGETS[name]
    assert f16 <= 1.01 * target.peaks["half"] / 1e3 <= 1.1 * f16
    sheet = target_calibration(target)
    assert sheet.narrow >= target.peaks["half"] == 2 * sheet.contraction
    assert sheet.contraction > target.peaks["f32"] and sheet.wide >= target.peaks["f64"]


def test_what_others_have_measured_is_within_the_bounds() -> None:
    """TFLOP/s on an H100, 8192^3: tf32 and f16 (waynehacking8/blackwell-tensorcore-kernels,
    results/bench.csv), bf16 (pranjalssh/fast.cu, README)."""
    sheet = target_calibration(H100)
    assert sheet.contraction / 1e3 >= 418
    assert sheet.narrow / 1e3 >= max(762, 808)


def test_a_device_describes_itself() -> None:
    found = target_of("NVIDIA H100 80GB HBM3", (9, 0), ATTRIBUTES)
    assert found.bandwidth == pytest.approx(H100.bandwidth, rel=0.01)
    for name in ("arch", "sms", "threads_per_sm", "shared_per_block", "shared_per_sm", "l2_bytes"):
        assert getattr(found, name) == getattr(H100, name)
    assert found.peaks["f32"] == pytest.approx(H100.peaks["f32"])


def test_a_driver_that_hides_its_clocks_leaves_the_table() -> None:
    hidden = {k: v for k, v in ATTRIBUTES.items() if not k.endswith("ClockRate")}
    assert target_of("NVIDIA A100-SXM4-80GB", (8, 0), hidden).bandwidth == A100.bandwidth
    with pytest.raises(TargetError, match="sm_75: the CUDA backend needs sm_80"):
        target_of("Tesla T4", (7, 5), ATTRIBUTES)


def test_without_a_driver_there_is_one_sentence() -> None:
    for ask in (require_cuda, query_target):
        with pytest.raises(CudaMissing, match="device 'cuda' cannot be used: no CUDA driver"):
            ask()


@pytest.mark.parametrize(
    ("target", "threads", "registers", "shared", "blocks", "share"),
    [
        (H100, 256, 32, 0, 8, 1.0),
        (H100, 256, 33, 0, 6, 0.75),  # registers come in units of eight a thread
        (H100, 1024, 64, 0, 1, 0.5),
        (H100, 1024, 65, 0, 0, 0.0),
        (H100, 128, 255, 0, 2, 0.125),
        # Four parts of 16,384 registers hold six warps of 2,560 each, not 25 together.
        (H100, 32, 73, 0, 24, 0.375),
        # Nine warps of 7,168 registers would fit, but are let in as if they were twelve.
        (H100, 288, 224, 0, 0, 0.0),
        (H100, 256, 32, 48 << 10, 4, 0.5),
        (H100, 32, 16, 0, 32, 0.5),
        (A100, 256, 32, 163 << 10, 1, 0.125),
        (A100, 256, 32, 164 << 10, 0, 0.0),
        (TARGETS["RTX4090"], 256, 32, 0, 6, 1.0),
    ],
)
def test_occupancy(
    target: Target, threads: int, registers: int, shared: int, blocks: int, share: float
) -> None:
    assert blocks_resident(target, threads, registers, shared) == blocks
    assert occupancy(target, threads, registers, shared) == pytest.approx(share)


def rows(count: int, length: int) -> Graph:
    """Two folds over each row, the second over what depends on the first."""
    b = GraphBuilder()
    x = b.input("x", (count, length), "f32")
    top = b.add("reduce_max", x, axes=(1,))
    rest = b.add("sub", x, b.add("broadcast", top, shape=(count, length), dims=(0,)))
    return canonical(b.build([b.add("reduce_sum", b.add("exp", rest), axes=(1,))]))


def items(count: int) -> Graph:
    b = GraphBuilder()
    return canonical(b.build([b.add("exp", b.input("x", (count,), "f32"))]))


@pytest.mark.parametrize(
    ("graph", "settings", "wanted"),
    [
        (items(1 << 20), {"grid": "one"}, Geometry(1024, 256)),
        (items(1 << 20), {"grid": "one", "threads": 128, "items": 8}, Geometry(1024, 128)),
        (items(1 << 24), {"grid": "stride"}, Geometry(132 * 8, 256)),
        (items(1 << 24), {"grid": "stride", "blocks": 2}, Geometry(132 * 2, 256)),
        (items(1000), {"grid": "stride"}, Geometry(1, 256)),
        (rows(64, 4096), {"grid": "one", "reduce": "block"}, Geometry(64, 256)),
        # Two rows of 16 KiB each in static shared memory, of which there are 228 KiB.
        (rows(4096, 4096), {"keep": "registers", "stages": 2}, Geometry(132 * 6, 256)),
        (rows(64, 128), {"grid": "one", "reduce": "warp"}, Geometry(8, 256)),
    ],
)
def test_launches(graph: Graph, settings: dict[str, Setting], wanted: Geometry) -> None:
    found = geometry(kernel(graph, **settings), H100)
    assert (found.grid, found.block) == (wanted.grid, wanted.block)
    assert not found.cooperative


def test_blocks_that_wait_for_each_other_are_all_there_or_refused() -> None:
    found = geometry(kernel(rows(4, 1 << 16), reduce="barrier"), H100)
    assert found.cooperative and 4 < found.grid <= 132 * 8
    with pytest.raises(UnsupportedKernel, match=r"blocks wait for each other, more than the"):
        geometry(kernel(rows(1 << 12, 1 << 16), reduce="barrier", parts=8), H100)


def test_rows_beyond_static_shared_memory_are_dynamic_or_refused() -> None:
    found = geometry(kernel(rows(8, 20_000), reduce="block", keep="shared"), H100)
    assert 80_000 <= found.shared <= H100.shared_per_block
    assert geometry(kernel(rows(8, 1000), reduce="block", keep="shared"), H100).shared == 0
    with pytest.raises(UnsupportedKernel, match=r"a block needs .* more than the 101376"):
        geometry(kernel(rows(8, 40_000), reduce="block", keep="shared"), TARGETS["RTX4090"])
    assert DEFAULT_TARGET == H100
