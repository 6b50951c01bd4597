"""What the session and its worker say to each other over private pipes (pickled; never stored)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from autofuse.backends.base import AnyArtifact
from autofuse.measure.device import Device
from autofuse.measure.hardware import HOST
from autofuse.measure.timing.sampling import Sampling
from autofuse.measure.workload import Workload
from autofuse.records import Failure, Timing


@dataclass(frozen=True)
class Open:
    """First message: what to measure, where the reference is kept for later workers, what makes the
    device to measure on, and the seconds that references may take."""

    workload: Workload
    reference: Path
    device: Callable[[], Device] = HOST.device
    limit_s: float = math.inf


@dataclass(frozen=True)
class WorkerReady:
    """The worker has inputs and reference; `error` says in one sentence why it has not, `blind`
    why its checks verify nothing, `checked_on` names the draws of inputs that it checks on."""

    error: str = ""
    blind: str = ""
    checked_on: tuple[str, ...] = ()


@dataclass(frozen=True)
class MeasureJob:
    """Check one artifact, then time it unless `sampling` is None. `draws` False: all of its kernels
    passed on all draws in other programs, so one checked run is enough for this one."""

    artifact: AnyArtifact
    sampling: Sampling | None
    draws: bool = True


@dataclass(frozen=True)
class CompareJob:
    """Check all by one run, then time all in turns: `blocks` blocks of `rounds` rounds, shuffled by
    `seed`."""

    artifacts: tuple[AnyArtifact, ...]
    blocks: int
    rounds: int
    sampling: Sampling
    seed: int


@dataclass(frozen=True)
class ProfileJob:
    """Check one artifact, then time each of its `groups` groups where it runs in the plan; `draws`
    as in a MeasureJob."""

    artifact: AnyArtifact
    groups: int
    sampling: Sampling
    draws: bool = True


@dataclass(frozen=True)
class Profile:
    """The timing of each group in plan order and of the whole profiled call, or a failure."""

    groups: tuple[Timing, ...]
    total: Timing | None
    max_rel_error: float | None
    failure: Failure | None
    seconds: float = 0.0


@dataclass(frozen=True)
class Reply:
    """Outcome of one job on one artifact: exactly one of a pass and `failure`.

    `timing` is None on failure or if none was asked for. `max_rel_error` is None if no output was
    checked. `seconds` is the wall time of the job as the session saw it (waiting for the device
    not included).
    """

    timing: Timing | None
    max_rel_error: float | None
    failure: Failure | None
    seconds: float = 0.0


@dataclass(frozen=True)
class Last:
    """An answer after which the worker is of no more use: the device refuses it."""

    answer: Reply | Profile | Comparison | ComparisonFailure


@dataclass(frozen=True)
class Comparison:
    """`samples[a][b]` are the samples, in microseconds, of artifact a in block b; `timings` and
    `max_rel_errors` are per artifact."""

    samples: tuple[tuple[tuple[float, ...], ...], ...]
    timings: tuple[Timing, ...]
    max_rel_errors: tuple[float, ...]
    seconds: float = 0.0


@dataclass(frozen=True)
class ComparisonFailure:
    """Artifact number `index` failed (None: not known which), so nothing was compared."""

    index: int | None
    failure: Failure
    seconds: float = 0.0
