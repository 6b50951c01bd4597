"""Times of other systems, from the JSON file that scripts/bench_peers writes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from autofuse.records import Environment
from autofuse.report.errors import ReportError

# Columns of such a file that are ours: the tuning database has them itself.
_OURS = "autofuse"


@dataclass(frozen=True, slots=True)
class Peer:
    """Another system on a workload: a median with its quartiles (None: it failed, see `error`),
    and the seconds it compiled and tuned.

    `ours_us` is autofuse in the same run of the comparison. `comparable`: it ran on the machine
    that the report's own times are of, with as many threads; `machine` says where it ran."""

    name: str
    time_us: float | None
    q1_us: float | None
    q3_us: float | None
    compile_s: float
    tune_s: float
    kernels: int | None
    ours_us: float | None
    comparable: bool
    machine: str
    note: str = ""
    error: str = ""

    @property
    def total_s(self) -> float:
        return self.compile_s + self.tune_s


@dataclass(frozen=True, slots=True)
class PeersFile:
    """A file of peers: columns by workload name, and where and how they ran."""

    device: str
    cpu: str
    threads: int | None
    size: str
    workloads: Mapping[str, Mapping[str, Mapping[str, Any]]]


def read_peers(text: str, name: str) -> PeersFile:
    """The file of this text and name; raises ReportError unless it is what bench_peers writes."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ReportError(f"{name} is not a JSON file: {error}") from error
    rows = data.get("workloads") if isinstance(data, dict) else None
    if not isinstance(rows, dict) or not all(_is_row(row) for row in rows.values()):
        raise ReportError(f"{name} is not what scripts/bench_peers writes: it has no workloads")
    threads = data.get("threads")
    return PeersFile(
        device=str(data.get("device", "cpu")),
        cpu=str(data.get("cpu", "")),
        threads=threads if type(threads) is int else None,
        size=str(data.get("size", "default")),
        workloads=rows,
    )


def peers_of(file: PeersFile, workload: str, environment: Environment) -> tuple[Peer, ...]:
    """The peers of a workload, by name; none of another device, or where the file lacks it."""
    row = next((file.workloads[n] for n in _names(file, workload) if n in file.workloads), None)
    if row is None or environment.device != file.device:
        return ()
    ours = _number(row.get(_OURS, {}), "time_us")
    same = _is_machine(file, dict(environment.must))
    threads = "" if file.threads is None else f", {file.threads} threads"
    machine = f"{file.cpu or 'unknown machine'}{threads}"
    return tuple(
        _peer(name, cell, ours, same, machine)
        for name, cell in sorted(row.items())
        if not name.startswith(_OURS)
    )


def _is_machine(file: PeersFile, must: Mapping[str, str]) -> bool:
    """Whether the peers ran on the machine that a fingerprint is of."""
    if not file.cpu or must.get("model") != file.cpu:
        return False
    return file.threads is None or must.get("cores") == str(file.threads)


def _names(file: PeersFile, workload: str) -> Iterator[str]:
    """What the file may call a workload that the database calls `workload`."""
    if not workload.startswith("zoo:"):
        yield workload
        return
    name, _, size = workload.removeprefix("zoo:").partition(":")
    if (size or "default") == file.size:
        yield name


def _is_row(row: object) -> bool:
    return isinstance(row, dict) and all(isinstance(cell, dict) for cell in row.values())


def _peer(
    name: str, cell: Mapping[str, Any], ours: float | None, comparable: bool, machine: str
) -> Peer:
    us, kernels = _number(cell, "time_us"), cell.get("kernels")
    return Peer(
        name=name,
        time_us=us,
        q1_us=_number(cell, "q1_us"),
        q3_us=_number(cell, "q3_us"),
        compile_s=_number(cell, "compile_s") or 0.0,
        tune_s=_number(cell, "tune_s") or 0.0,
        kernels=kernels if type(kernels) is int else None,
        ours_us=ours,
        comparable=comparable,
        machine=machine,
        note=str(cell.get("note", "")),
        error=str(cell.get("error", "") or ("" if us is not None else "no time")),
    )


def _number(cell: Mapping[str, Any], key: str) -> float | None:
    value = cell.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None
