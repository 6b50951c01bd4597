"""The constants behind lower bounds on a CUDA device: measured, or from a target's data sheet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from autofuse.backends.cuda.devices import Target
from autofuse.backends.cuda.driver import CupyDriver
from autofuse.backends.cuda.geometry import Geometry
from autofuse.backends.cuda.graphs import GraphNode, HeldCall
from autofuse.backends.cuda.nvrtc import compile_cubin
from autofuse.cost.bounds import Calibration
from autofuse.measure.cuda import CudaDevice

FAR_BYTES = 1 << 28
# A working set that stays in the second-level cache.
CACHED_SHARE = 4
# Bytes of which the size of a copy is a multiple.
LINE = 256
# Longer than the host takes to queue a graph.
STALL_US = 500.0
LAUNCHES, FAR_COPIES, NEAR_COPIES, RUNS = 200, 4, 40, 20
# One exp counts as 15 operations (see `cost/bounds.py`) and takes one special-function result.
SPECIAL_OPS = 15.0
# What no launch inside a graph is below, where none was measured.
NOMINAL_LAUNCH_US = 1.0
_CACHE_BYTES_PER_CLOCK = 64
_EMPTY = 'extern "C" __global__ void af_nothing() {}'


def target_calibration(target: Target) -> Calibration:
    """The peaks of a device that need not be here: no kernel on it can be faster than they say."""
    peaks = target.peaks
    return Calibration(
        launch_us=NOMINAL_LAUNCH_US,
        gbytes_per_s=target.bandwidth,
        cheap=peaks["f32"],
        special=SPECIAL_OPS * peaks["special"],
        contraction=peaks["tf32"],
        cached_gbytes_per_s=_CACHE_BYTES_PER_CLOCK * target.sms * target.clock_ghz,
        cache_bytes=target.l2_bytes,
        wide=peaks["double"],
        narrow=peaks["half"],
        byte=peaks["byte"],
    )


def calibrate_cuda(
    driver: CupyDriver | None = None, target: Target | None = None, far_bytes: int = FAR_BYTES
) -> Calibration:
    """The running device: bandwidth far from the cache (copies) and inside it (copies or reads,
    whichever is faster), and the cost of a launch, each inside a graph and at its best: launched
    one by one, the host would be timed, and what is to be a lower bound would be none. Arithmetic
    is the data sheet's. `far_bytes` are read and written by a copy that no cache holds.

    Raises CudaMissing without a device, RuntimeError from the driver."""
    device = CudaDevice(driver, target)
    d, near = device.driver, device.target.l2_bytes // CACHED_SHARE
    with device.stream:
        rates = (
            _rate(device, far_bytes, _copies(d, far_bytes // 2), FAR_COPIES),
            _rate(device, near, _copies(d, near // 2), NEAR_COPIES),
            _rate(device, near, partial(device.read, d.zeros(near)), NEAR_COPIES),
        )
        module = d.load(compile_cubin(_EMPTY, device.target.arch)[0])
        launch = HeldCall(d.launch, (d.function(module, "af_nothing", 0), Geometry(1, 32), ()))
        # In no order: kernels of a plan may overlap, and a bound must hold for those too.
        launches = d.graph(d.new_stream(), [GraphNode(launch)] * LAUNCHES)
        launch_us = _graph_us(device, launches) / LAUNCHES
    return replace(
        target_calibration(device.target),
        launch_us=launch_us,
        gbytes_per_s=rates[0],
        cached_gbytes_per_s=max(rates),
    )


def copy_us(device: CudaDevice, nbytes: int) -> float:
    """Microseconds of copying so that `nbytes` are read and written together: one copy, sampled
    cold like a plan, the best of some. What it leaves in the cache costs neither. A size that is no
    multiple of lines is copied by other means, in 1.3 times the time: half a line more is."""
    with device.stream:
        graph = device.driver.capture(
            device.driver.new_stream(), (_copies(device.driver, -(-nbytes // (2 * LINE)) * LINE),)
        )
        return min(
            device.timed_us(partial(_cold, device), partial(graph.launch, device.stream))
            for _ in range(RUNS)
        )


def _cold(device: CudaDevice) -> None:
    device.stall(STALL_US)
    device.flush()


def _copies(d: CupyDriver, nbytes: int) -> Callable[[], None]:
    """A copy of `nbytes` within the device."""
    source, target = d.zeros(nbytes), d.zeros(nbytes)

    def copy(_kept: Any = (source, target)) -> None:
        d.copy(d.pointer(target), d.pointer(source), nbytes)

    return copy


def _rate(device: CudaDevice, nbytes: int, move: Callable[[], None], times: int) -> float:
    """GB/s, read plus written, of moving `nbytes` `times` times in a row."""
    graph = device.driver.capture(device.driver.new_stream(), (move,) * times)
    return 1e-3 * nbytes * times / _graph_us(device, graph)


def _graph_us(device: CudaDevice, graph: Any) -> float:
    """The shortest of RUNS runs of a graph, in microseconds, the first left out."""
    stall = partial(device.stall, STALL_US)
    run = partial(graph.launch, device.stream)
    return max(min([device.timed_us(stall, run) for _ in range(RUNS + 1)][1:]), 1e-3)
