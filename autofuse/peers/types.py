"""What a comparison is made of: workloads, implementations, and what was measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from autofuse.graph.types import Graph
from autofuse.ops.types import AutofuseError

Arrays = tuple[np.ndarray, ...]
PeerProgram = Callable[..., Sequence[Any]]


class BenchError(AutofuseError):
    """A comparison that cannot be made: unknown workload, missing package, failed peer."""


@dataclass(frozen=True)
class BenchWorkload:
    """One graph on fixed inputs, one array per graph input by position.

    `zoo` is its zoo name ("" for none) and `sizes` the parameters it was made with; `jax` is the
    program it came from, taking the inputs by position. `random` says that programs draw their
    own numbers, so that their results are compared as distributions only.
    """

    name: str
    graph: Graph
    inputs: Arrays
    zoo: str = ""
    sizes: tuple[Any, ...] = field(default=(), hash=False)
    jax: PeerProgram | None = None
    random: bool = False


@dataclass(frozen=True)
class Ready:
    """An implementation ready to be timed: `call` runs it once to the end, `fetch` turns what it
    returned into arrays by output position. Costs are seconds; `kernels` and `note` inform."""

    call: Callable[[], Any]
    fetch: Callable[[Any], Arrays]
    compile_s: float
    tune_s: float | None = None
    kernels: int | None = None
    note: str = ""


class Implementation(Protocol):
    """One column of the table. Raises BenchError, or what the library raises, when it cannot."""

    name: str

    def prepare(self, workload: BenchWorkload) -> Ready: ...


@dataclass(frozen=True)
class PeerOutcome:
    """One cell: the times (microseconds) of a checked implementation, or an error sentence."""

    time_us: float | None = None
    q1_us: float | None = None
    q3_us: float | None = None
    samples: int = 0
    compile_s: float | None = None
    tune_s: float | None = None
    kernels: int | None = None
    max_rel_error: float | None = None
    note: str = ""
    error: str = ""
