"""A fleet of workers on one database, as a discrete-event simulation.

A worker goes through scripts of sessions: work of its own, then an operation that it waits for. An
operation waits for a processor of the server (first come, first served), takes it for what was
measured, and if it writes waits for the disk: commits that arrive during a flush share the next one
(group commit). Equal arguments give equal results.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.scale.costs import OperationCost, ScaleCosts
from benchmarks.scale.scripts import SessionScript

_ARRIVES, _COMMITS, _DONE = range(3)


@dataclass(frozen=True, slots=True)
class FleetSize:
    """`cores` are the server's, `trip_s` the seconds from a worker to the server and back;
    `sessions`: how often each graph is tuned on each kind of device."""

    graphs: int = 10_000
    kinds: int = 8
    workers: int = 500
    cores: int = 8
    trip_s: float = 0.0005
    sessions: int = 1


@dataclass(frozen=True, slots=True)
class FleetLoad:
    """`operations_s` and `sessions_s` are a second, `busy` is the share of the server's processors
    that is used, `waited` that of the workers' time that goes to the database; milliseconds of an
    operation; `at_once`: the most operations that were under way together."""

    operations_s: float
    sessions_s: float
    busy: float
    waited: float
    median_ms: float
    p99_ms: float
    at_once: int


@dataclass(slots=True)
class _Work:
    """Where a worker is, and since when it waits for the database (below 0: it does not)."""

    script: SessionScript
    at: int
    since: float = -1.0


@dataclass(slots=True)
class _Sums:
    """What happened within the time that counts."""

    latencies: list[float] = field(default_factory=list)
    busy_s: float = 0.0
    waited_s: float = 0.0
    sessions: int = 0
    under_way: int = 0
    at_once: int = 0


def simulate(
    size: FleetSize, scripts: Sequence[SessionScript], costs: ScaleCosts,
    seconds: float = 20.0, seed: int = 0,
) -> FleetLoad:  # fmt: skip
    """`seconds` of a fleet at work, after a quarter of that which does not count."""
    return _Simulation(size, scripts, costs, seconds, seed).run()


class _Simulation:
    def __init__(
        self, size: FleetSize, scripts: Sequence[SessionScript], costs: ScaleCosts,
        seconds: float, seed: int,
    ) -> None:  # fmt: skip
        self._size, self._scripts, self._costs = size, scripts, costs
        self._draw = random.Random(seed)
        self._from, self._until = seconds / 4, 1.25 * seconds
        self._events: list[tuple[float, int, int, int]] = []
        self._serial = 0
        # When each processor is free, and when the last flush begins that anybody waits for.
        self._free, self._flush = [0.0] * size.cores, -1.0
        self._sums = _Sums()
        self._workers = [self._begun() for _ in range(size.workers)]

    def run(self) -> FleetLoad:
        """Event after event until the time is up."""
        for number in range(len(self._workers)):
            self._go_on(number, 0.0)
        while self._events[0][0] < self._until:
            now, _, kind, number = heapq.heappop(self._events)
            (self._arrive, self._commit, self._finish)[kind](number, now)
        return self._load()

    def _begun(self) -> _Work:
        """A worker in the middle of a session: likelier in a long one."""
        script = self._draw.choices(self._scripts, [one.own_s for one in self._scripts])[0]
        return _Work(script, self._draw.randrange(len(script.steps)))

    def _cost(self, work: _Work) -> OperationCost:
        return self._costs.operations[work.script.steps[work.at].operation]

    def _push(self, when: float, kind: int, number: int) -> None:
        self._serial += 1
        heapq.heappush(self._events, (when, self._serial, kind, number))

    def _go_on(self, number: int, now: float) -> None:
        """A worker's own work up to its next operation."""
        work = self._workers[number]
        work.since = -1.0
        asks = now + work.script.steps[work.at].after_s
        self._push(asks + self._cost(work).client_s, _ARRIVES, number)

    def _arrive(self, number: int, now: float) -> None:
        work, sums = self._workers[number], self._sums
        cost = self._cost(work)
        work.since = now - cost.client_s
        sums.under_way += 1
        sums.at_once = max(sums.at_once, sums.under_way)
        ended = max(now, heapq.heappop(self._free)) + cost.server_s
        heapq.heappush(self._free, ended)
        if now >= self._from:
            sums.busy_s += cost.server_s
        waits = cost.trips * self._size.trip_s
        self._push(ended + waits, _COMMITS if cost.writes else _DONE, number)

    def _commit(self, number: int, now: float) -> None:
        if now > self._flush:  # that one has begun without it: the next
            self._flush = max(now, self._flush + self._costs.flush_s)
        self._push(self._flush + self._costs.flush_s, _DONE, number)

    def _finish(self, number: int, now: float) -> None:
        work, sums = self._workers[number], self._sums
        sums.under_way -= 1
        if now >= self._from:
            sums.latencies.append(now - work.since)
            sums.waited_s += now - max(work.since, self._from)
        work.at += 1
        if work.at == len(work.script.steps):
            sums.sessions += now >= self._from
            work.script, work.at = self._draw.choice(self._scripts), 0
        self._go_on(number, now)

    def _load(self) -> FleetLoad:
        found, counted = sorted(self._sums.latencies), self._until - self._from
        # Who still waits at the end has waited too.
        waiting = self._sums.waited_s + sum(
            self._until - max(work.since, self._from)
            for work in self._workers if work.since >= 0.0
        )  # fmt: skip
        return FleetLoad(
            len(found) / counted,
            self._sums.sessions / counted,
            min(1.0, self._sums.busy_s / (counted * self._size.cores)),
            min(1.0, waiting / (counted * len(self._workers))),
            1e3 * found[len(found) // 2] if found else 0.0,
            1e3 * found[min(len(found) - 1, 99 * len(found) // 100)] if found else 0.0,
            self._sums.at_once,
        )
