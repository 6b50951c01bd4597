"""Everything that only a GPU can answer, in one command that may be cut off at any time.

Steps run one after another, each within its share of the time that is left. What a step has found
so far is written (one JSON and one HTML file, each replaced at once) whenever there is more of it.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autofuse.backends.cuda.driver import ready
from autofuse.peers.types import BenchError
from autofuse.zoo import ZOO
from benchmarks import gpu_steps
from benchmarks.gpu_page import page
from benchmarks.gpu_steps import Context
from benchmarks.run import Say, sentence, write_json
from benchmarks.workloads import HEADLINE

RESULT, PAGE, DATABASE = "gpu-check.json", "gpu-check.html", "tuning.db"
Step = Callable[[Context, float], Iterator[Mapping[str, Any]]]
Data = dict[str, Any]
# No step is begun with less time than this left, in seconds.
LEAST_S = 8.0
# When the whole process gives up although a step goes on.
GRACE_S = 20.0
GIVEN_UP = 3


@dataclass(frozen=True)
class Stage:
    """A step, the share of the time left that it may take, and what it does in a few words."""

    run: Step
    share: float
    title: str


STAGES: Mapping[str, Stage] = {
    "facts": Stage(gpu_steps.facts, 1.0, "The device and its peaks"),
    "tests": Stage(gpu_steps.tests, 0.25, "Tests that need a GPU"),
    "tune": Stage(gpu_steps.tune_zoo, 0.5, "The zoo, tuned"),
    "bandwidth": Stage(gpu_steps.bandwidth, 0.35, "Memory-bound kernels against a copy"),
    "handwritten": Stage(gpu_steps.handwritten, 0.4, "Cartpole against a kernel by hand"),
    "peers": Stage(gpu_steps.peers, 1.0, "Against JAX, PyTorch and CuPy"),
}


@dataclass(frozen=True)
class CheckOptions:
    """`budget_s` seconds are split over tuning the `workloads` (none: the whole zoo, headline
    workloads first); no new work begins when `total_s` seconds are nearly used. `db` is a tuning
    database (none: one in `out`)."""

    out: Path
    budget_s: float = 150.0
    total_s: float = 500.0
    steps: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    db: str | None = None


def chosen_steps(names: tuple[str, ...]) -> tuple[str, ...]:
    """The steps called `names` in their own order (none: all); raises BenchError."""
    for name in names:
        if name not in STAGES:
            raise BenchError(f"unknown step '{name}' (known: {', '.join(STAGES)})")
    return tuple(name for name in STAGES if not names or name in names)


def chosen_zoo(names: tuple[str, ...]) -> tuple[str, ...]:
    """Zoo names, those of the headline figure first; raises BenchError for an unknown one."""
    for name in names:
        if name not in ZOO:
            raise BenchError(f"unknown zoo workload '{name}' (known: {', '.join(ZOO)})")
    order = dict.fromkeys((*HEADLINE, *ZOO))
    return tuple(name for name in order if not names or name in names)


def checked_options(options: CheckOptions) -> CheckOptions:
    """`options` complete; raises BenchError for what cannot be."""
    for what, value in (("budget", options.budget_s), ("total", options.total_s)):
        if not (math.isfinite(value) and value > 0):
            raise BenchError(f"the {what} must be a positive number of seconds, not {value:g}")
    db = options.db or str(options.out / DATABASE)
    steps, workloads = chosen_steps(options.steps), chosen_zoo(options.workloads)
    return CheckOptions(options.out, options.budget_s, options.total_s, steps, workloads, db)


def gpu_check(options: CheckOptions, say: Say = lambda _: None) -> Data:
    """Run the steps and return what the JSON file holds.

    Raises CudaMissing without a GPU, BenchError for options that cannot be, OSError for a folder
    that cannot be written."""
    options = checked_options(options)
    ready()
    options.out.mkdir(parents=True, exist_ok=True)
    watchdog = threading.Timer(options.total_s + GRACE_S, os._exit, (GIVEN_UP,))
    watchdog.daemon = True
    watchdog.start()
    try:
        return Check(options, say).run(STAGES)
    finally:
        watchdog.cancel()


@dataclass
class Check:
    """One run of the steps; `data` is what has been found so far."""

    options: CheckOptions
    say: Say
    clock: Callable[[], float] = time.monotonic
    data: Data = field(default_factory=dict)

    def run(self, stages: Mapping[str, Stage]) -> Data:
        begun = self.clock()
        self.data |= {
            "format": 1,
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "budget_s": self.options.budget_s,
            "total_s": self.options.total_s,
            "steps": {
                name: {"title": stages[name].title, "state": "not begun"}
                for name in self.options.steps
            },
        }
        self.write()
        for name in self.options.steps:
            left = self.options.total_s - (self.clock() - begun)
            if left >= LEAST_S:
                self._step(name, stages[name], stages[name].share * left, begun)
        self.data["seconds"] = self.clock() - begun
        self.write()
        return self.data

    def _step(self, name: str, stage: Stage, seconds: float, begun: float) -> None:
        """One step; what it raises ends it, not the run."""
        self.say(f"{name}: at most {seconds:.0f} s")
        own: Data = self.data["steps"][name]
        own["state"], started = "running", self.clock()
        self.write()
        context = Context(
            self.options.out, str(self.options.db), self.options.workloads, self.options.budget_s,
            self.clock, self.say, self.data["steps"],
        )  # fmt: skip
        try:
            for found in stage.run(context, seconds):
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
