"""Recorded spaces: every candidate kernel of a small workload, measured once and frozen.

The file is gzip-compressed JSON lines: one header, one line per group, one per kernel. A kernel is
a group digest under one launch configuration; it was timed inside a plan that uses it. The cost of
a plan is the sum of its kernels' medians, so a record of kernels answers for every plan of them.
"""

from __future__ import annotations

import gzip
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from autofuse.cover import CoverProblem, Piece, k_best
from autofuse.enumerate.enumeration import Enumeration
from autofuse.enumerate.structure import Structures
from autofuse.enumerate.supernodes import supernodes_of
from autofuse.frontends.json.file import dumps, loads
from autofuse.graph.canonical import digest
from autofuse.graph.types import Graph, Value
from autofuse.peers.types import BenchError
from autofuse.plan.stored import present_names, stored_launch
from autofuse.plan.types import FusionGroup, LaunchConfig, Setting
from autofuse.search.protocol import Chooser
from autofuse.tuning.search.cover import cover_problem
from search_spaces.launch import LaunchSpace

VERSION = 2
SUFFIX = ".jsonl.gz"
# Stands for a setting that a canonical configuration leaves out.
UNSET = "unset"


@dataclass(frozen=True, slots=True)
class RecordedGroup:
    """A group, the digest of its kernel and its lower bound in microseconds.

    `candidate`: the exact planner's enumeration has it; the others came from sampled plans only."""

    group: FusionGroup
    key: str
    bound_us: float
    candidate: bool


@dataclass(frozen=True, slots=True)
class RecordedKernel:
    """Median microseconds, None with the kind of its `failure`; seconds to compile it."""

    us: float | None
    compile_s: float
    failure: str = ""


@dataclass(frozen=True)
class RecordedSpace:
    """One workload's kernels. `measure_s`: seconds that checking and timing one plan takes.

    `kernels` is by group digest and launch configuration; the first one of a digest is its
    default. `asked`: the settings in the order in which the device's launch space asks for them.
    `device`, `calibration` and `date` say where and when it was recorded."""

    name: str
    graph: Graph
    measure_s: float
    cache: str
    groups: tuple[RecordedGroup, ...]
    kernels: Mapping[tuple[str, LaunchConfig], RecordedKernel] = field(hash=False)
    device: Mapping[str, str] = field(default_factory=dict, hash=False)
    calibration: Mapping[str, float] = field(default_factory=dict, hash=False)
    date: str = ""
    asked: tuple[str, ...] = ()

    @cached_property
    def keys(self) -> dict[FusionGroup, str]:
        """The digest of every recorded group."""
        return {g.group: g.key for g in self.groups}

    @cached_property
    def launches(self) -> dict[str, tuple[LaunchConfig, ...]]:
        """The recorded configurations of each digest, its default first."""
        found: dict[str, list[LaunchConfig]] = {}
        for key, launch in self.kernels:
            found.setdefault(key, []).append(launch)
        return {key: tuple(each) for key, each in found.items()}

    @cached_property
    def best_us(self) -> dict[str, float | None]:
        """The least recorded time of each digest; None where no configuration works."""
        found: dict[str, float | None] = {}
        for (key, _), kernel in self.kernels.items():
            times = [us for us in (found.get(key), kernel.us) if us is not None]
            found[key] = min(times, default=None)
        return found

    @cached_property
    def enumeration(self) -> Enumeration:
        """The groups that the exact planner's enumeration found."""
        return self._enumeration(tuple(g for g in self.groups if g.candidate))

    @cached_property
    def optimum_us(self) -> float:
        """The least plan of all recorded groups, each under its best recorded configuration."""
        problem = cover_problem(self._enumeration(self.groups), digests=True).problem
        # A time may lie below its bound, and presolving by bounds must not hide it.
        pieces = tuple(Piece(p.key, p.reads, p.writes, 0.0) for p in problem.pieces)
        free = CoverProblem(pieces, problem.required, problem.given)
        return k_best(free, self.best_us, 1)[0].cost_us

    def kernel(self, group: FusionGroup, launch: LaunchConfig) -> RecordedKernel | None:
        """What is recorded of a group under a configuration, None if nothing is."""
        key = self.keys.get(group)
        return None if key is None else self.kernels.get((key, launch))

    def _enumeration(self, groups: tuple[RecordedGroup, ...]) -> Enumeration:
        numbers: dict[str, int] = {}
        return _RecordedEnumeration(
            self.graph,
            tuple(g.group for g in groups),
            tuple(g.bound_us for g in groups),
            tuple(numbers.setdefault(g.key, len(numbers)) for g in groups),
            {"kept": len(groups)},
            supernodes_of(self.graph),
            Structures(self.graph),
            (None,) * len(groups),
            frozenset(g.group for g in groups),
            tuple(g.key for g in groups),
        )


@dataclass(frozen=True)
class _RecordedEnumeration(Enumeration):
    """An enumeration whose digests are those of the record, not of a later way of hashing."""

    names: tuple[str, ...]

    def digest(self, index: int) -> str:
        return self.names[index]


class RecordedLaunches(LaunchSpace):
    """The launch space of a record: the configurations that were measured, no others."""

    def __init__(self, space: RecordedSpace) -> None:
        self.space, self.asked = space, frozenset(space.asked)

    def kind(self, graph: Graph, group: FusionGroup) -> str:
        """All kernels are of one kind here: what may be chosen is in the record."""
        return "recorded"

    def default(self, graph: Graph, group: FusionGroup) -> LaunchConfig:
        """The recorded default; an empty configuration for a group that is not recorded."""
        launches = self._of(group)
        return launches[0] if launches else LaunchConfig()

    def choose(
        self, graph: Graph, group: FusionGroup, chooser: Chooser, prefix: str
    ) -> LaunchConfig:
        """Ask for each setting that was recorded with several values (as a full product)."""
        launches = self._of(group)
        if not launches:
            return LaunchConfig()
        settings: dict[str, Setting] = {}
        for name in self._asked_of(launches):
            options = tuple(dict.fromkeys(launch.get(name, UNSET) for launch in launches))
            if len(options) == 1:
                settings[name] = options[0]
            else:
                asked = f"{prefix}.{name}.{'/'.join(map(str, options))}"
                settings[name] = chooser(asked, options)
        return LaunchConfig.of(**{k: v for k, v in settings.items() if v != UNSET})

    def _asked_of(self, launches: Sequence[LaunchConfig]) -> list[str]:
        """The settings of launches, in the order in which they are asked for."""
        names = {name for launch in launches for name, _ in launch.settings}
        return [*(n for n in self.space.asked if n in names), *sorted(names - self.asked)]

    def _of(self, group: FusionGroup) -> tuple[LaunchConfig, ...]:
        key = self.space.keys.get(group)
        return () if key is None else self.space.launches.get(key, ())


def save(space: RecordedSpace, path: Path) -> None:
    """Write a space; equal spaces give equal bytes."""
    text = "".join(
        json.dumps(line, sort_keys=True, separators=(",", ":")) + "\n" for line in _lines(space)
    )
    buffer = io.BytesIO()
    with gzip.GzipFile("", "wb", 9, buffer, mtime=0) as packed:
        packed.write(text.encode())
    path.write_bytes(buffer.getvalue())


def load(path: Path) -> RecordedSpace:
    """Read a space. Raises BenchError for a file that is none, or of another version."""
    try:
        lines = gzip.decompress(path.read_bytes()).decode().splitlines()
        rows = [json.loads(line) for line in lines]
        header = rows[0]
        if header["autofuse_space"] != VERSION:
            raise BenchError(f"{path} is of version {header['autofuse_space']}, not {VERSION}")
        return _space(header, rows[1:])
    except OSError as error:
        raise BenchError(f"cannot read {path}: {error.strerror or error}") from error
    except (EOFError, ValueError, KeyError, IndexError, TypeError) as error:
        raise BenchError(f"{path} is not a recorded space: {error}") from error


def _lines(space: RecordedSpace) -> list[dict[str, Any]]:
    header: dict[str, Any] = {
        "autofuse_space": VERSION,
        "workload": space.name,
        "digest": digest(space.graph),
        "graph": dumps(space.graph),
        "measure_s": space.measure_s,
        "cache": space.cache,
        "device": dict(space.device),
        "calibration": dict(space.calibration),
        "date": space.date,
        "asked": list(space.asked),
    }
    groups = [
        {
            "nodes": list(g.group.nodes),
            "outputs": [[v.node, v.index] for v in g.group.outputs],
            "key": g.key,
            "bound_us": g.bound_us,
            "candidate": g.candidate,
        }
        for g in space.groups
    ]
    kernels = [
        {
            "kernel": key,
            "launch": dict(launch.settings),
            "us": kernel.us,
            "compile_s": kernel.compile_s,
            "failure": kernel.failure,
        }
        for (key, launch), kernel in space.kernels.items()
    ]
    return [header, *groups, *kernels]


def _kernel(row: Mapping[str, Any]) -> RecordedKernel:
    us = None if row["us"] is None else _number(row["us"])
    return RecordedKernel(us, _number(row["compile_s"]), str(row["failure"]))


def _space(header: Mapping[str, Any], rows: list[dict[str, Any]]) -> RecordedSpace:
    graph = loads(header["graph"], header["workload"])
    if digest(graph) != header["digest"]:
        raise ValueError("its graph does not have the digest it was recorded under")
    groups = tuple(_group(row) for row in rows if "nodes" in row)
    kernels = {
        (str(row["kernel"]), stored_launch(row["launch"])): _kernel(row)
        for row in rows
        if "kernel" in row
    }
    return RecordedSpace(
        name=str(header["workload"]),
        graph=graph,
        measure_s=_number(header["measure_s"]),
        cache=str(header["cache"]),
        groups=groups,
        kernels=kernels,
        device={str(k): str(v) for k, v in header["device"].items()},
        calibration={str(k): float(v) for k, v in header["calibration"].items()},
        date=str(header["date"]),
        asked=tuple(now for name in header["asked"] for now in present_names("c", str(name))),
    )


def _group(row: Mapping[str, Any]) -> RecordedGroup:
    outputs = tuple(Value(int(n), int(i)) for n, i in row["outputs"])
    group = FusionGroup(tuple(int(n) for n in row["nodes"]), outputs)
    return RecordedGroup(group, str(row["key"]), _number(row["bound_us"]), bool(row["candidate"]))


def _number(value: Any) -> float:
    number = float(value)
    if not (math.isfinite(number) and number >= 0):
        raise ValueError(f"{number} is no time")
    return number
