"""Everything that only a GPU can answer, in calls of minutes, each of which may be cut off.

Steps run one after another, each within its share of the time that is left. What a step has found
so far is written (one JSON and one HTML file, each replaced at once) whenever there is more of it.
A later call with the same folder adds to it: what is done is not done again. References that the
steps will need are prepared by other processes meanwhile.
"""

from __future__ import annotations

import math
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autofuse.backends.cuda.devices import Target, target_named
from autofuse.backends.cuda.driver import running_target
from autofuse.devices import DeviceKind
from autofuse.measure.truth.references import Preparation
from autofuse.measure.workload import Workload
from autofuse.peers.types import BenchError
from autofuse.zoo import ZOO
from benchmarks import (
    gpu_children,
    gpu_headline,
    gpu_prepare,
    gpu_sanitize,
    gpu_smoke,
    gpu_steps,
)
from benchmarks.dry import CUDA_KINDS, DRY, TARGET, measured
from benchmarks.gpu_classes import PROGRAMS
from benchmarks.gpu_page import page
from benchmarks.gpu_steps import Context, read_result
from benchmarks.run import Say, sentence, write_json
from tuning_db.engine import database_url

RESULT, PAGE, DATABASE = "gpu-check.json", "gpu-check.html", "tuning.db"
MADE_UP = "made up: no GPU took part"
# What is tuned unless other workloads are asked for: few enough for a real search of each.
TUNED = ("softmax", "layer_norm_gelu", "swiglu", "black_scholes", "adam_16", "cartpole_naive")
Step = Callable[[Context, float], Iterator[Mapping[str, Any]]]
Data = dict[str, Any]
# No step is begun with less time than this left, in seconds.
LEAST_S = 8.0
# When the whole process gives up although a step goes on.
GRACE_S = 20.0
GIVEN_UP = 3


def _no_references(context: Context) -> Mapping[str, Workload]:
    return {}


@dataclass(frozen=True)
class Stage:
    """A step, how much of the time that is left it gets beside the others, what it does in a few
    words, and the references that it will ask for."""

    run: Step
    weight: float
    title: str
    references: Callable[[Context], Mapping[str, Workload]] = _no_references


STAGES: Mapping[str, Stage] = {
    "facts": Stage(gpu_steps.facts, 1.0, "The device and its peaks"),
    "smoke": Stage(gpu_smoke.smoke, 4.0, "One kernel of each class"),
    "sanitize": Stage(gpu_sanitize.sanitize, 4.0, "Classes under compute-sanitizer"),
    "tests": Stage(gpu_children.tests, 4.0, "Tests that need a GPU"),
    "headline": Stage(gpu_headline.headline, 6.0, "Products and attention against libraries"),
    "bandwidth": Stage(
        gpu_steps.bandwidth, 4.0, "Memory-bound kernels against a copy", gpu_steps.large_references
    ),
    "tune": Stage(gpu_steps.tune_zoo, 6.0, "The zoo, tuned", gpu_steps.tuned_references),
    "cartpole": Stage(
        gpu_steps.cartpole, 3.0, "Cartpole against a kernel by hand", gpu_steps.cartpole_references
    ),
    "peers": Stage(
        gpu_children.peers, 6.0, "Against JAX, PyTorch and CuPy", gpu_children.peers_references
    ),
}


@dataclass(frozen=True)
class CheckOptions:
    """No new work begins when `total_s` seconds are nearly used. `workloads` are tuned and compared
    (none: `TUNED`), at size "small" in a dry run, which device "cuda-emulated" is; `programs` are
    those of `gpu_classes` that classes are tried on (none: all). `db` is a tuning database (none:
    one in `out`). `again`: what earlier calls found of these steps is forgotten."""

    out: Path
    total_s: float = 500.0
    steps: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    db: str | None = None
    device: str = "cuda"
    again: bool = False
    programs: tuple[str, ...] = ()


def chosen_steps(names: tuple[str, ...]) -> tuple[str, ...]:
    """The steps called `names` in their own order (none: all); raises BenchError."""
    for name in names:
        if name not in STAGES:
            raise BenchError(f"unknown step '{name}' (known: {', '.join(STAGES)})")
    return tuple(name for name in STAGES if not names or name in names)


def chosen_zoo(names: tuple[str, ...]) -> tuple[str, ...]:
    """Zoo names, once each; raises BenchError for an unknown one."""
    for name in names:
        if name not in ZOO:
            raise BenchError(f"unknown zoo workload '{name}' (known: {', '.join(ZOO)})")
    return tuple(dict.fromkeys(names)) or TUNED


def chosen_programs(names: tuple[str, ...]) -> tuple[str, ...]:
    """Programs of `gpu_classes`, once each; raises BenchError for an unknown one."""
    for name in names:
        if name not in PROGRAMS:
            raise BenchError(f"unknown program '{name}' (known: {', '.join(PROGRAMS)})")
    return tuple(dict.fromkeys(names))


def checked_options(options: CheckOptions) -> CheckOptions:
    """`options` complete, with absolute paths: children work in another folder. Raises BenchError
    for what cannot be, DatabaseError for no database."""
    if not (math.isfinite(options.total_s) and options.total_s > 0):
        raise BenchError(f"the total must be a positive number of seconds, not {options.total_s:g}")
    if options.device not in CUDA_KINDS:
        known = ", ".join(CUDA_KINDS)
        raise BenchError(f"device '{options.device}' is none of these: {known}")
    steps, workloads = chosen_steps(options.steps), chosen_zoo(options.workloads)
    out, programs = options.out.absolute(), chosen_programs(options.programs)
    db = _file_of(options.db) or options.db or str(out / DATABASE)
    return replace(options, out=out, steps=steps, workloads=workloads, db=db, programs=programs)


def _file_of(db: str | None) -> str | None:
    """The file of a SQLite database."""
    url = None if db is None else database_url(db)
    if url is None or url.get_backend_name() != "sqlite" or url.database is None:
        return None
    return str(Path(url.database).absolute())


def gpu_check(options: CheckOptions, say: Say = lambda _: None) -> Data:
    """Run the steps and return what the JSON file holds.

    Raises CudaMissing without a GPU, BenchError for options that cannot be and for a folder with
    another device's results, OSError for a folder that cannot be written."""
    options = checked_options(options)
    with measured(options.device) as kind, gpu_prepare.travelling_cache(options.out):
        kind.backend.ready()
        target = _target(kind)
        options.out.mkdir(parents=True, exist_ok=True)
        watchdog = threading.Timer(options.total_s + GRACE_S, _give_up, (str(options.db),))
        watchdog.daemon = True
        watchdog.start()
        try:
            return Check(options, kind, target, say).run(STAGES)
        finally:
            watchdog.cancel()
            settle(str(options.db))


def prepare_check(options: CheckOptions, target: str, say: Say = lambda _: None) -> Data:
    """Compile beforehand what the steps will need on `target`, a device that is elsewhere (in a dry
    run: the one that is made up), into the folder. Raises TargetError, BenchError, OSError."""
    options = checked_options(options)
    dry = options.device == DRY
    device = TARGET if dry else target_named(target)
    size = "small" if dry else "default"
    return gpu_prepare.prepare(options.out, device, size, options.programs, say)


def _target(kind: DeviceKind) -> Target:
    return TARGET if kind.name == DRY else running_target()


def settle(db: str) -> bool:
    """Leave a SQLite database in one file, whatever was killed while it had it open; False where
    somebody still writes to it."""
    path = _file_of(db)
    if path is None or not Path(path).exists():
        return True
    with closing(sqlite3.connect(path, timeout=2.0)) as connection:
        busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return not busy


def _give_up(db: str) -> None:
    """End this process at once. Its own open connections would leave their files behind."""
    try:
        if settle(db):
            for ending in ("-wal", "-shm"):
                Path(f"{_file_of(db)}{ending}").unlink(missing_ok=True)
    finally:
        os._exit(GIVEN_UP)


def earlier(options: CheckOptions, target: Target) -> Data:
    """What is known of each step from earlier calls with this folder, less what is to be forgotten.

    Raises BenchError if another device found it."""
    path = options.out / RESULT
    found = read_result(path)
    if found and found.get("device") != str(target):
        raise BenchError(
            f"{path} has results of {found.get('device')}, not of {target}: choose another folder"
        )
    forgotten = options.steps if options.again else ()
    return {name: one for name, one in found.get("steps", {}).items() if name not in forgotten}


@dataclass
class Check:
    """One run of the steps; `data` is what has been found so far."""

    options: CheckOptions
    kind: DeviceKind
    target: Target
    say: Say
    clock: Callable[[], float] = time.monotonic
    data: Data = field(default_factory=dict)

    def run(self, stages: Mapping[str, Stage]) -> Data:
        begun, known = self.clock(), earlier(self.options, self.target)
        left = [n for n in self.options.steps if known.get(n, {}).get("state") != "done"]
        for name in left:
            known[name] = known.get(name, {}) | {"title": stages[name].title, "state": "not begun"}
        self.data |= {
            "format": 2,
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "device": str(self.target),
            "total_s": self.options.total_s,
            "steps": {name: known[name] for name in stages if name in known},
        }
        if self.kind.name == DRY:
            self.data["times"] = MADE_UP
        self.write()
        nothing = Preparation({})
        wanted = [stages[n].references(self._context(nothing)).items() for n in left]
        with Preparation(dict(pair for pairs in wanted for pair in pairs)) as references:
            for at, name in enumerate(left):
                seconds = self.options.total_s - (self.clock() - begun)
                if seconds >= LEAST_S:
                    weights = [stages[n].weight for n in left[at:]]
                    self._step(name, stages[name], seconds * weights[0] / sum(weights), references)
                if self.data["steps"][name].get("stop"):
                    self.say(f"{name}: too much is wrong for the other steps to be worth the time")
                    break
        self.data["seconds"] = self.clock() - begun
        self.write()
        return self.data

    def _context(self, references: Preparation) -> Context:
        return Context(
            self.options.out, str(self.options.db), self.kind, self.target,
            "small" if self.kind.name == DRY else "default", self.options.workloads,
            self.options.programs, self.clock, self.say, self.data["steps"], references,
        )  # fmt: skip

    def _step(self, name: str, stage: Stage, seconds: float, references: Preparation) -> None:
        """One step; what it raises ends it, not the run."""
        self.say(f"{name}: at most {seconds:.0f} s")
        own: Data = self.data["steps"][name]
        own["state"], started = "running", self.clock()
        own.pop("error", None)
        self.write()
        try:
            for found in stage.run(self._context(references), seconds):
                own |= found
                own["seconds"] = self.clock() - started
                self.write()
            own["state"] = "done"
        except Exception as error:  # a driver or a library may raise anything; later steps go on
            own |= {"state": "failed", "error": sentence(error)}
        except BaseException:  # an interrupt or the time limit: what was found is kept
            own["state"] = "cut off"
            self.write()
            raise
        own["seconds"] = self.clock() - started
        self.say(f"{name}: {own['state']} after {own['seconds']:.0f} s {own.get('error', '')}")
        self.write()

    def write(self) -> None:
        """Replace both files."""
        write_json(self.options.out / RESULT, self.data)
        target = self.options.out / PAGE
        part = target.with_name(f".{PAGE}.part-{os.getpid()}")
        part.write_text(page(self.data), encoding="utf-8")
        os.replace(part, target)
