"""The constants behind lower bounds on a CUDA device: measured, or from a target's data sheet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from autofuse.backends.cuda.devices import Target
from autofuse.backends.cuda.driver import CupyDriver, running_target
from autofuse.backends.cuda.geometry import Geometry
from autofuse.backends.cuda.graphs import GraphNode, HeldCall
from autofuse.backends.cuda.nvrtc import compile_cubin
from autofuse.cost.bounds import Calibration

FAR_BYTES = 1 << 28
# A working set that stays in the second-level cache.
CACHED_SHARE = 4
LAUNCHES, COPIES, RUNS = 200, 20, 20
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
        contraction=peaks["product"],
        cached_gbytes_per_s=_CACHE_BYTES_PER_CLOCK * target.sms * target.clock_ghz,
        cache_bytes=target.l2_bytes,
    )


def calibrate_cuda(driver: CupyDriver | None = None, target: Target | None = None) -> Calibration:
    """The running device: bandwidth of copies far from and inside the cache, and the cost of a
    launch in a graph are measured at their best; arithmetic is the data sheet's.

    Raises CudaMissing without a device, RuntimeError from the driver."""
    own, d = target or running_target(), driver or CupyDriver()
    stream = d.new_stream()
    with stream:
        far = _copy_rate(d, stream, FAR_BYTES // 2, 1)
        near = _copy_rate(d, stream, own.l2_bytes // (2 * CACHED_SHARE), COPIES)
        cubin, _ = compile_cubin(_EMPTY, own.arch)
        nothing = d.function(d.load(cubin), "af_nothing", 0)
        launch = HeldCall(d.launch, (nothing, Geometry(1, 32), ()))
        # In no order: kernels of a plan may overlap, and a bound must hold for those too.
        graph = d.graph(d.new_stream(), [GraphNode(launch)] * LAUNCHES)
        launch_us = _best_us(d, stream, lambda: graph.launch(stream)) / LAUNCHES
    return replace(
        target_calibration(own),
        launch_us=launch_us,
        gbytes_per_s=far,
        cached_gbytes_per_s=max(near, far),
    )


def _copy_rate(d: CupyDriver, stream: object, nbytes: int, times: int) -> float:
    """GB/s, read plus written, of copying `nbytes` within the device `times` times in a row."""
    source, target = d.zeros(nbytes), d.zeros(nbytes)
    addresses = d.pointer(target), d.pointer(source)

    def copy() -> None:
        for _ in range(times):
            d.copy(*addresses, nbytes)

    return 2e-3 * nbytes * times / _best_us(d, stream, copy)


def _best_us(d: CupyDriver, stream: object, work: Callable[[], object]) -> float:
    """The shortest of RUNS runs, in microseconds, the first left out."""
    found = []
    for _ in range(RUNS + 1):
        start, end = d.event(), d.event()
        start.record(stream)
        work()
        end.record(stream)
        end.synchronize()
        found.append(d.elapsed_us(start, end))
    return max(min(found[1:]), 1e-3)
