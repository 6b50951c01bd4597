"""Who computes the products and convolutions of a plan that are kernels of their own, and by how
much: our kernel under its settings, BLAS and oneDNN, as far as they were timed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from autofuse.devices import DeviceKind
from autofuse.graph.canonical import group_digest
from autofuse.graph.types import Graph
from autofuse.kernel.library.gemm import could_be_library, library_of
from autofuse.kernel.text.dialects import Dialect
from autofuse.ops.types import AutofuseError
from autofuse.plan.parameters import BLAS, GENERATED, ONEDNN
from autofuse.plan.types import Candidate, FusionGroup, LaunchConfig
from autofuse.records import KernelMeasurement
from autofuse.tuning.cache_state import cache_state
from autofuse.tuning.search.launches import launch_of
from tuning_db import Store

NAMES = {BLAS: "BLAS", ONEDNN: "oneDNN", GENERATED: "our kernel"}
# Group, launch, cache state and code of a stored kernel.
Stored = Mapping[tuple[str, str, str, str], KernelMeasurement]


@dataclass(frozen=True, slots=True)
class Contest:
    """One kernel of a plan, the node whose result it is, who computes it there ("blas", "onednn"
    or "loops"), and the least microseconds of each that was timed, fastest first."""

    kernel: int
    node: int
    chosen: str
    times: tuple[tuple[str, float], ...]

    @property
    def ahead(self) -> float | None:
        """How many times as long the best of the others takes as who was chosen; None where one of
        the two was not timed."""
        found = dict(self.times)
        own = found.pop(self.chosen, None)
        return None if own is None or not found else min(found.values()) / own

    def to_json(self) -> dict[str, Any]:
        """Plain data, numbers unrounded."""
        return {
            "kernel": self.kernel,
            "node": self.node,
            "implementation": self.chosen,
            "times_us": dict(self.times),
            "ahead": self.ahead,
        }


def plan_contests(
    graph: Graph, candidate: Candidate, kind: DeviceKind, db: str | None
) -> tuple[Contest, ...]:
    """The contests of a plan of a canonical graph, by times of code that would run now.

    Raises AutofuseError for an unusable database."""
    wanted = contested(graph, candidate, kind.dialect)
    if not wanted:
        return ()
    with Store.open(db) as store:
        stored = store.kernels(kind.backend.environment(), set(wanted.values()))

    def is_current(group: FusionGroup, launch: LaunchConfig, code: str) -> bool:
        try:
            return kind.backend.group_code(graph, group, launch) == code
        except AutofuseError:  # it calls what is not here any more
            return False

    cache = timed_in(stored, wanted.values(), cache_state("auto", graph, kind))
    return tuple(contests(graph, candidate, kind.dialect, stored, cache, is_current))


def contested(graph: Graph, candidate: Candidate, dialect: Dialect) -> dict[int, str]:
    """The digests of those kernels of a plan that a library could be, by position."""
    return {
        position: group_digest(graph, group.nodes, group.outputs)
        for position, group in enumerate(candidate.plan.groups)
        if group.body is None and could_be_library(graph, group, dialect)
    }


def _timed(stored: Stored, digest: str, cache: str) -> list[tuple[float, str, str]]:
    """Time, launch and code of a kernel, the fastest first."""
    return sorted(
        (one.timing.median_us, launch, code)
        for (of, launch, state, code), one in stored.items()
        if of == digest and state == cache and one.timing is not None
    )


def contests(
    graph: Graph, candidate: Candidate, dialect: Dialect, stored: Stored, cache: str,
    is_current: Callable[[FusionGroup, LaunchConfig, str], bool],
) -> Iterator[Contest]:  # fmt: skip
    """The contests of a plan by what is stored in a cache state; `is_current` says of a kernel
    whether a stored code is the one that counts."""
    for position, digest in contested(graph, candidate, dialect).items():
        group = candidate.plan.groups[position]
        times: dict[str, float] = {}
        for us, text, code in _timed(stored, digest, cache):
            try:
                launch = launch_of(text)
                who = library_of(graph, group, launch, dialect) or GENERATED
            except AutofuseError:  # a setting that this version does not know
                continue
            if who not in times and is_current(group, launch, code):
                times[who] = us
        chosen = library_of(graph, group, candidate.launches[position], dialect) or GENERATED
        yield Contest(position, group.outputs[0].node, chosen, tuple(times.items()))


def timed_in(stored: Stored, own: Collection[str], usual: str) -> str:
    """The cache state that most kernels of these digests were timed in, else the usual one."""
    timed = {(key[0], key[2]) for key, one in stored.items() if one.timing is not None}
    seen = Counter(cache for digest, cache in timed if digest in own)
    return max(sorted(seen), key=lambda cache: (seen[cache], cache == usual), default=usual)
