"""What a kernel costs a device at least: its least work at the device's peaks, and a launch."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace

from autofuse.cost.amounts import Work
from autofuse.cost.chains import chain_us
from autofuse.cost.masked import least_work
from autofuse.cost.scalar_calls import (
    ARITHMETIC,
    CHAINED,
    DIVISION,
    INTEGER,
    busy_ns,
    least_ns,
)
from autofuse.graph.types import Graph, Value
from autofuse.ops.control import is_counted
from autofuse.ops.types import AutofuseError
from autofuse.plan.fusion.groups import host_loop
from autofuse.plan.program.binding import may_run_once
from autofuse.plan.program.schedule import schedule
from autofuse.plan.types import Candidate, FusionGroup, FusionPlan, LaunchConfig


class CalibrationError(AutofuseError):
    """Calibration constants that cannot be."""


# Calibrations of another edition are made anew: without some figure a bound could be too high.
EDITION = 4.0


@dataclass(frozen=True, slots=True)
class Calibration:
    """A device's peaks. `launch_us` microseconds per kernel; bandwidth in GB/s (10^9 bytes read
    plus written a second), out of cache and (`cached_gbytes_per_s`) in it; arithmetic in 10^9
    operations a second by class: `cheap`, `special` (exp, log, ...; one exp is 15) and
    `contraction` (of f32), `wide` (contractions of f64) and `narrow` (of types below 4 bytes, which
    some instruction sets multiply faster); 0 where the two are as `contraction`; and `byte` (of
    whole numbers of one byte), 0 where it is as `narrow`. `library` is
    what the library's products reach, no bound; 0 where nothing is known. `tiers` refines the
    cached bandwidth: (working set in bytes, GB/s), ascending. `alone` is the same for a kernel run
    by one thread, whose launch is cheaper. `scalar` are the reciprocal throughputs of scalar
    functions by vector width: (name.bits, nanoseconds an element), by name; where there are none
    these functions count as `cheap` or `special`. `latency` are the latencies of scalar operations
    (`cost/latency.py`), ns by name, type and width; where there are none chains do not count.
    `edition` says which figures were measured.
    """

    launch_us: float
    gbytes_per_s: float
    cheap: float
    special: float
    contraction: float
    cached_gbytes_per_s: float
    cache_bytes: int = 1 << 25
    tiers: tuple[tuple[int, float], ...] = ()
    alone: Calibration | None = None
    wide: float = 0.0
    narrow: float = 0.0
    library: float = 0.0
    scalar: tuple[tuple[str, float], ...] = ()
    edition: float = EDITION
    byte: float = 0.0
    latency: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        classes = (self.cheap, self.special, self.contraction)
        tiers = (rate for _, rate in (*self.tiers, *self.scalar))
        rates = (self.gbytes_per_s, self.cached_gbytes_per_s, *classes, *tiers)
        if not all(math.isfinite(r) and r > 0 for r in rates):
            raise CalibrationError(f"calibrated rates must be positive numbers, got {rates}")
        optional = (self.wide, self.narrow, self.byte, self.library)
        if not all(math.isfinite(r) and r >= 0 for r in (*optional, *dict(self.latency).values())):
            raise CalibrationError("rates that may be 0 must not be negative")
        if not (math.isfinite(self.launch_us) and self.launch_us >= 0):
            raise CalibrationError(f"a launch cannot cost {self.launch_us} us")

    def move_us(self, nbytes: float, warm: bool = True) -> float:
        """Microseconds to read and write `nbytes`; `warm`: what fits the cache may be there."""
        if not warm:
            return nbytes / (self.gbytes_per_s * 1e3)
        rate = max(self.cached_gbytes_per_s, self.gbytes_per_s)
        for size, tier in self.tiers:
            if nbytes >= size:
                rate = max(min(rate, tier), self.gbytes_per_s)
        kept = min(nbytes, float(self.cache_bytes))
        return kept / (rate * 1e3) + (nbytes - kept) / (self.gbytes_per_s * 1e3)

    def compute_us(self, work: Work) -> float:
        """Microseconds of arithmetic: what shares a unit adds up, and the busiest unit counts.

        Scalar functions are in no unit's way but that of their own kind, and no kernel does plain
        arithmetic or products on theirs. One whose time is not known counts as plain arithmetic."""
        products = (
            work.contraction / self.contraction
            + work.wide / (self.wide or self.contraction)
            + work.narrow / (self.narrow or self.contraction)
            + work.byte / (self.byte or self.narrow or self.contraction)
        )
        if not self.scalar:
            return max(products, work.cheap / self.cheap, work.special / self.special) / 1e3
        plain, others, busy = self._busy_ns(work)
        arithmetic = max(products, plain) + others + busy[ARITHMETIC]
        return max(arithmetic, busy[DIVISION], busy[INTEGER], busy[CHAINED]) / 1e3

    def added_us(self, work: Work) -> float:
        """Microseconds of all but products, one unit after the other."""
        plain, others, busy = self._busy_ns(work)
        return (plain + others + math.fsum(busy.values())) / 1e3

    def _busy_ns(self, work: Work) -> tuple[float, float, Mapping[str, float]]:
        """Nanoseconds of plain arithmetic, of special functions without a time of their own, and of
        each unit of those that have one."""
        if not self.scalar:
            return work.cheap / self.cheap, work.special / self.special, {}
        others = max(work.special - work.called_special, 0.0) / self.special
        plain = max(work.cheap - work.called_cheap, 0.0) / self.cheap
        return plain, others, busy_ns(work.calls, least_ns(self.scalar))

    def to_mapping(self) -> dict[str, float]:
        """Plain numbers by name, as the tuning database keeps them."""
        found = {f.name: float(getattr(self, f.name)) for f in fields(self) if f.name not in _LISTS}
        found |= {f"tier.{size}": rate for size, rate in self.tiers}
        found |= {f"scalar.{name}": ns for name, ns in self.scalar}
        found |= {f"latency.{name}": ns for name, ns in self.latency}
        if self.alone is not None:
            found |= {f"alone.{name}": value for name, value in self.alone.to_mapping().items()}
        return found

    @staticmethod
    def kept(values: Mapping[str, float]) -> Calibration | None:
        """What a database keeps of a device; None where it was never calibrated, or to another
        edition's figures."""
        known = "launch_us" in values and values.get("edition") == EDITION
        return Calibration.from_mapping(values) if known else None

    @staticmethod
    def from_mapping(values: Mapping[str, float]) -> Calibration:
        """Inverse of to_mapping; other names are ignored. Raises CalibrationError."""
        inner = {k[6:]: v for k, v in values.items() if k.startswith("alone.")}
        names = [f.name for f in fields(Calibration) if f.name not in _LISTS]
        missing = [n for n in names if n not in values and n not in _MAY_LACK]
        if missing:
            raise CalibrationError(f"the calibration lacks {', '.join(missing)}")
        try:
            sizes = sorted((int(k[5:]), v) for k, v in values.items() if k.startswith("tier."))
        except ValueError as error:
            raise CalibrationError(f"not a cache tier: {error}") from error
        rates = {n: values.get(n, 0.0) for n in names if n != "cache_bytes"}
        scalar = sorted((k[7:], v) for k, v in values.items() if k.startswith("scalar."))
        latency = sorted((k[8:], v) for k, v in values.items() if k.startswith("latency."))
        return Calibration(
            **rates,
            cache_bytes=int(values["cache_bytes"]),
            tiers=tuple(sizes),
            alone=Calibration.from_mapping(inner) if inner else None,
            scalar=tuple(scalar),
            latency=tuple(latency),
        )


# Microseconds that a kernel counts for which runs once, before any call: next to nothing, but of
# plans that cost calls the same the one that prepares least is chosen.
ONCE_US = 1e-3
# What calibrations that were made before do not say.
_MAY_LACK = ("wide", "narrow", "byte", "library", "edition")
_LISTS = ("tiers", "alone", "scalar", "latency")
# Where nothing was measured: a fast desktop, faster than most.
NOMINAL = Calibration(2.0, 50.0, 500.0, 100.0, 1000.0, 400.0, library=400.0)
# One core of it.
_CORE = Calibration(0.0, 25.0, 62.5, 12.5, 125.0, 50.0, library=50.0)


def usual_peaks(cores: int) -> Calibration:
    """What a processor with so many cores does that was never calibrated: a fast machine's peaks,
    as NOMINAL has them for eight cores. Two cores are enough for all of its memory."""
    if cores <= 1:
        return _CORE
    rates = ("cheap", "special", "contraction", "cached_gbytes_per_s", "library")
    many = {name: cores * getattr(_CORE, name) for name in rates}
    return replace(NOMINAL, alone=_CORE, **many)


def group_bound_us(graph: Graph, group: FusionGroup, calibration: Calibration) -> float:
    """Microseconds one call of the plan spends in `group` at the very least, whatever the state of
    the cache before the call: a kernel finds what kernels before it read or wrote.

    A host loop costs every iteration of its body's plan, or what it leaves where there may be none;
    what no call changes next to nothing."""
    if group.body is not None and not may_run_once(graph, group.nodes):
        if not is_counted(graph[group.nodes[0]].op):
            work = least_work(graph, group.nodes, group.outputs)
            return calibration.move_us(work.nbytes)
        body, trips = host_loop(graph, group)
        # All iterations may be one job, whose kernels are not launched one by one (`resident`).
        inside = trips * plan_bound_us(body, group.body, _launched(calibration))
        waits = chain_us(graph, group.nodes, group.outputs, calibration.latency)
        return _least_launch_us(calibration) + max(inside, waits)
    return kernel_bound_us(graph, group.nodes, group.outputs, calibration)


def _least_launch_us(calibration: Calibration) -> float:
    """Of a job that one thread may do."""
    alone = calibration.alone
    return (
        calibration.launch_us
        if alone is None
        else min(calibration.launch_us, _least_launch_us(alone))
    )


def _launched(calibration: Calibration) -> Calibration:
    """The peaks of what has been launched already."""
    alone = calibration.alone and _launched(calibration.alone)
    return replace(calibration, launch_us=0.0, alone=alone)


def kernel_bound_us(
    graph: Graph, nodes: Collection[int], outputs: Sequence[Value], calibration: Calibration
) -> float:
    """As `group_bound_us`, of one kernel; ONCE_US where it need not run in a call."""
    if may_run_once(graph, nodes):
        return ONCE_US
    waits = chain_us(graph, nodes, outputs, calibration.latency)
    return work_bound_us(least_work(graph, tuple(nodes), tuple(outputs)), calibration, waits)


def plan_bound_us(graph: Graph, plan: FusionPlan, calibration: Calibration) -> float:
    """The bounds of a plan's groups together."""
    return math.fsum(group_bound_us(graph, g, calibration) for g in plan.groups)


def work_bound_us(
    work: Work, calibration: Calibration, waits_us: float = 0.0, *, warm: bool = True
) -> float:
    """The faster of all threads and one, neither of which shortens a chain that takes `waits_us`;
    `warm`: what fits the cache may be there."""
    best = math.inf
    found: Calibration | None = calibration
    while found is not None:
        busy = max(found.move_us(work.nbytes, warm), found.compute_us(work), waits_us)
        best = min(best, found.launch_us + busy)
        found = found.alone
    return best


def peak_bytes(graph: Graph, plan: FusionPlan) -> int:
    """Bytes of intermediates alive at once, with buffers reused, and of values prepared from
    constants (panels apart, which depend on launches); inputs and outputs apart."""
    return candidate_bytes(graph, Candidate(plan, (LaunchConfig(),) * len(plan.groups)))


def candidate_bytes(graph: Graph, candidate: Candidate) -> int:
    """As `peak_bytes`, with the panels that are packed once."""
    made = schedule(graph, candidate)
    return made.workspace + made.binding.held
