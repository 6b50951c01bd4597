"""The comparison on a GPU from end to end: every implementation in graph and in eager mode.

A sample: in graph mode the stream is kept busy while the host queues; in eager mode the device is
idle when the call begins, so that the host's cost counts. In both the second-level cache is
emptied before, and events on the stream take the time.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from autofuse.backends.base import LaunchError
from autofuse.backends.cuda.launch import MODES
from autofuse.backends.cuda.nvrtc import nvrtc_version
from autofuse.devices import DEVICES, DeviceKind
from autofuse.graph.reference import evaluate
from autofuse.measure.cuda import CudaDevice, CudaWatch
from autofuse.measure.truth.references import prepared
from autofuse.measure.worker.lock import measurement_lock
from autofuse.measure.workload import Workload
from autofuse.ops.types import AutofuseError
from autofuse.peers.interleave import sample_in_turns
from autofuse.peers.types import Arrays, BenchWorkload, PeerOutcome
from autofuse.peers.verify import check
from autofuse.simplify import normal_form
from benchmarks import table
from benchmarks.peers_cuda import (
    CUDA_COLUMNS,
    CUDA_PEERS,
    CudaImplementation,
    CudaReady,
    Issue,
    NotApplicableError,
    cuda_implementations,
    prepare_process,
)
from benchmarks.run import RANDOM_NOTE, Row, Say, sentence, timed, write_json
from benchmarks.workloads import bench_workload, chosen

Rows = dict[str, Row]
Clock = Callable[[], float]


def bench_peers_cuda(
    workloads: Sequence[str] = (),
    *,
    seconds: float = 20.0,
    timing_s: float = 3.0,
    size: str = "default",
    db: str | None = None,
    output: Path | None = None,
    total_s: float = float("inf"),
    kind: DeviceKind = DEVICES["cuda"],
    say: Say = lambda _: None,
    clock: Clock = time.monotonic,
) -> dict[str, Any]:
    """Compare on each of `workloads` (none: all) and return what `output` holds.

    Ours is tuned for `seconds` per workload (0: the best plan known is taken); all are then timed
    for about `timing_s` seconds in each mode. `output` is rewritten after every workload, and no
    workload is begun after `total_s` seconds. Raises BenchError for an unknown workload,
    CudaMissing without a device."""
    names, begun = chosen(workloads), clock()
    kind.backend.ready()
    prepare_process()
    device = cuda_device(kind)
    with device.stream:
        columns, missing = cuda_implementations(device, seconds, db, kind)
        results: dict[str, Rows] = {mode: {} for mode in MODES}
        facts = _facts(device, kind, seconds, size, missing)
        for name in names:
            if clock() - begun > total_s:
                missing[name] = "not begun: the time was used up"
                continue
            say(f"{name} ...")
            try:
                workload = bench_workload(name, size)
            except AutofuseError as error:
                missing[name] = str(error)
                continue
            for mode, row in compare_cuda(workload, columns, device, timing_s, say, kind).items():
                results[mode][name] = row
            if output is not None:
                write_json(output, modes_data(results, facts))
    data = modes_data(results, facts)
    if output is not None:
        write_json(output, data)
    return {**data, "table": modes_table(results, missing)}


def compare_cuda(
    workload: BenchWorkload,
    columns: Sequence[CudaImplementation],
    device: CudaDevice,
    timing_s: float,
    say: Say = lambda _: None,
    kind: DeviceKind = DEVICES["cuda"],
) -> Rows:
    """A row for each mode: every implementation checked against the float64 reference in that mode,
    then timed in turns. The device's stream is the current one."""
    wanted = wanted_results(workload)
    arrays = tuple(device.driver.upload(array) for array in workload.inputs)
    rows: Rows = {mode: {} for mode in MODES}
    issues: dict[str, dict[str, Issue]] = {mode: {} for mode in MODES}
    for column in columns:
        say(f"  {column.name}")
        try:
            made = column.prepare(workload, arrays)
        except NotApplicableError:
            continue
        except Exception as failed:  # a peer's compiler may raise anything; the row goes on
            for mode in MODES:
                rows[mode][column.name] = PeerOutcome(error=sentence(failed))
            continue
        own_numbers = workload.random and column.name in CUDA_PEERS
        for mode in MODES:
            try:
                issue = made.issue(mode)
                error = check(made.fetch(issue()), wanted, own_numbers)
            except Exception as failed:  # what cannot be captured, say; the other mode goes on
                rows[mode][column.name] = PeerOutcome(error=sentence(failed))
                continue
            issues[mode][column.name] = issue
            rows[mode][column.name] = _outcome(made, error, own_numbers)
    del wanted
    for mode in MODES:
        with measurement_lock(kind.timer.unit):
            samples, lost = timed_in_turns(device, issues[mode], mode, timing_s)
        for name, cell in rows[mode].items():
            cell = replace(cell, error=lost.get(name, cell.error))
            rows[mode][name] = cell if cell.error else timed(cell, samples[name])
    return rows


def wanted_results(workload: BenchWorkload) -> Arrays:
    """The exact results: taken from a reference that was prepared, else computed now."""
    known = prepared(Workload(normal_form(workload.graph))) if workload.zoo else None
    if known is None:
        return evaluate(workload.graph, workload.inputs)
    return tuple(one.expected.reshape(one.type.shape) for one in known.outputs)


def timed_in_turns(
    device: CudaDevice, issues: Mapping[str, Issue], mode: str, seconds: float
) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Microseconds of each, cold, in turns; and why there are none of one whose samples failed."""
    failed: dict[str, str] = {}

    def sampler(name: str, watch: CudaWatch) -> float:
        try:
            return float("nan") if name in failed else watch.sample()
        except LaunchError as error:
            failed[name] = str(error)
            return float("nan")

    watches = {name: _watch(device, issue, mode) for name, issue in issues.items()}
    samplers = {name: partial(sampler, name, watch) for name, watch in watches.items()}
    return sample_in_turns(samplers, seconds), failed


def _watch(device: CudaDevice, issue: Issue, mode: str) -> CudaWatch:
    """As `CudaDevice.watch` samples a plan of ours."""
    device.queueing_us(issue)
    stall = 2 * max(device.queueing_us(issue) for _ in range(3)) if mode == "graph" else 0.0
    return CudaWatch(device, issue, None, True, 1, stall, mode)


def _outcome(made: CudaReady, error: float, own_numbers: bool) -> PeerOutcome:
    notes = [text for text in (made.note, RANDOM_NOTE if own_numbers else "") if text]
    return PeerOutcome(
        compile_s=made.compile_s,
        tune_s=made.tune_s,
        kernels=made.kernels,
        max_rel_error=error,
        note="; ".join(notes),
    )


def modes_data(results: Mapping[str, Rows], facts: Mapping[str, Any]) -> dict[str, Any]:
    """What the output file holds: for each mode what the comparison on a CPU has, and the facts."""
    return {"modes": {mode: table.as_data(rows, {}) for mode, rows in results.items()}, **facts}


def modes_table(results: Mapping[str, Rows], missing: Mapping[str, str]) -> str:
    """A table for each mode."""
    parts = [
        f"{mode} mode\n{table.text_table(rows, CUDA_COLUMNS, missing)}"
        for mode, rows in results.items()
    ]
    return "\n\n".join(parts)


def cuda_device(kind: DeviceKind) -> CudaDevice:
    """What takes times of this kind, in this process; raises CudaMissing without a device."""
    device = kind.timer.device()
    assert isinstance(device, CudaDevice)
    return device


def versions(kind: DeviceKind) -> dict[str, str]:
    """Of Python, of what is behind the device, and of the packages that are here."""
    found = {"python": platform.python_version(), "nvrtc": nvrtc_version()}
    found |= dict(kind.backend.environment().stale)
    for package in ("numpy", "jax", "torch", "triton", "optuna"):
        with suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def _facts(
    device: CudaDevice, kind: DeviceKind, seconds: float, size: str, missing: Mapping[str, str]
) -> dict[str, Any]:
    """What must be known to read the figures."""
    return {
        "device": str(device.target),
        "tuning_budget_s": seconds,
        "size": size,
        "cache": "cold: the second-level cache is emptied, by reading, before each sample",
        "timing": "events on one stream; graph mode: queued behind a stall; "
        "eager mode: the device idle when the call begins",
        "versions": versions(kind),
        "missing": missing,
    }
