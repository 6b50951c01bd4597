"""Every legal plan of small graphs, against the bound that no plan may be below.

All sets of nodes are tried as kernels, with every choice of what they write, so plans may compute a
node in several kernels, fuse what is unrelated, and leave loops to the host. Times are those of the
simulated device (`benchmarks/soak/simulated.py`) at its fastest launch configuration.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import chain, combinations, count, product
from statistics import median
from typing import Any

from autofuse.cost.bounds import NOMINAL, Calibration, group_bound_us, usual_peaks
from autofuse.cost.latency import PLAIN
from autofuse.cost.least import graph_bound_us
from autofuse.graph.canonical import group_digest
from autofuse.graph.types import Graph, Value
from autofuse.ops.spec import Family
from autofuse.plan.fusion.clusters import live
from autofuse.plan.fusion.groups import host_loop, is_source, ordered_plan, reads
from autofuse.plan.fusion.legality import refusal_of
from autofuse.plan.types import FusionGroup, FusionPlan, LaunchConfig, PlanError
from benchmarks.soak.simulated import SETTINGS, launch_part, own_part

# Computing nodes above which there are too many plans.
MOST_NODES = 6
# How often a loop's body is written out, where its iterations can be divided so.
UNROLLS = (1, 2, 4)
# Latencies so long that waiting is most of what a loop takes, in nanoseconds.
LATENCY = tuple((f"{name}.f32.0", 500.0) for name in (*PLAIN, "cos", "sin", "tanh"))
# Peaks with a way to run kernels by one thread, and without.
PEAKS = (replace(NOMINAL, latency=LATENCY), usual_peaks(2))
ROOM = 1e-9

Cost = Callable[[FusionGroup], float]


@dataclass(frozen=True, slots=True)
class BruteRow:
    """One graph: the bound of each of PEAKS, the least plan by the bounds of its kernels there, and
    the least on the simulated device, in microseconds."""

    seed: int
    nodes: int
    groups: int
    bounds_us: tuple[float, ...]
    least_us: tuple[float, ...]
    simulated_us: float

    @property
    def below(self) -> bool:
        """Whether some plan is below the bound."""
        simulated = self.bounds_us[0] > self.simulated_us * (1 + ROOM)
        pairs = zip(self.bounds_us, self.least_us, strict=True)
        return simulated or any(bound > least * (1 + ROOM) for bound, least in pairs)

    @property
    def gap(self) -> float:
        """How far the best plan of all is above the bound, as a fraction of it."""
        return 1 - self.bounds_us[0] / self.simulated_us


def brute_rows(make: Callable[[int], Graph], graphs: int, first: int = 0) -> Iterator[BruteRow]:
    """Small graphs among those that `make` makes of seeds, from the first on."""
    left = graphs
    for seed in count(first):
        if not left:
            return
        graph = make(seed)
        if graph_is_small(graph):
            left -= 1
            yield brute_row(graph, seed)


def graph_is_small(graph: Graph) -> bool:
    """Whether all plans can be tried; of a loop that can be no kernel those of its body too."""
    nodes = live(graph)
    return 1 < len(nodes) <= MOST_NODES and all(
        len(live(dict(graph[n].attrs)["body"])) <= MOST_NODES
        for n in nodes
        if graph[n].spec.family is Family.CONTROL
        and refusal_of(graph, (n,), _outputs(graph, n)) is not None
    )


def _outputs(graph: Graph, node: int) -> tuple[Value, ...]:
    """The results of a node that anybody wants."""
    read = {v for n in live(graph) for v in graph[n].inputs}
    return tuple(sorted(v for v in read | set(graph.outputs) if v.node == node))


def brute_row(graph: Graph, seed: int = 0) -> BruteRow:
    """The least of all plans of a graph."""
    bounds = tuple(graph_bound_us(graph, peaks) for peaks in PEAKS)
    groups = [tuple(_groups(graph, peaks)) for peaks in PEAKS]
    least = tuple(
        least_plan_us(graph, own, _bounds(graph, peaks))
        for own, peaks in zip(groups, PEAKS, strict=True)
    )
    simulated = least_plan_us(graph, groups[0], lambda g: fastest_us(graph, g))
    return BruteRow(seed, len(live(graph)), len(groups[0]), bounds, least, simulated)


def _bounds(graph: Graph, peaks: Calibration) -> Cost:
    return lambda group: group_bound_us(graph, group, peaks)


def fastest_us(graph: Graph, group: FusionGroup) -> float:
    """Microseconds of a kernel on the simulated device under the launch that suits it best."""
    key = group_digest(graph, group.nodes, group.outputs)
    launches = (dict(zip(SETTINGS, chosen, strict=True)) for chosen in product(*SETTINGS.values()))
    best = min(launch_part(key, LaunchConfig.of(**chosen)) for chosen in launches)
    return group_bound_us(graph, group, PEAKS[0]) * own_part(key) * best


def least_plan_us(graph: Graph, groups: Sequence[FusionGroup], cost: Cost) -> float:
    """Microseconds of the best plan of these groups: the shortest way from nothing written to all
    outputs written, by Dijkstra over sets of written values."""
    return _shortest(graph, groups, cost)[0]


def _shortest(
    graph: Graph, groups: Sequence[FusionGroup], cost: Cost
) -> tuple[float, tuple[FusionGroup, ...]]:
    places: dict[Value, int] = {}

    def mask(values: Iterable[Value]) -> int:
        made = (v for v in values if not is_source(graph, v.node))
        return sum(1 << places.setdefault(v, len(places)) for v in set(made))

    steps = [(mask(reads(graph, g.nodes)), mask(g.outputs), cost(g), g) for g in groups]
    goal = mask(graph.outputs)
    heap: list[tuple[float, int, int, tuple[FusionGroup, ...]]] = [(0.0, 0, 0, ())]
    done: set[int] = set()
    turn = 0
    while heap:
        us, _, state, path = heappop(heap)
        if state in done:
            continue
        if state & goal == goal:
            return us, path
        done.add(state)
        for read, written, own_us, group in steps:
            if read & state == read and written | state != state and written | state not in done:
                turn += 1
                heappush(heap, (us + own_us, turn, state | written, (*path, group)))
    raise PlanError("no plan of this graph is legal")


def _groups(graph: Graph, peaks: Calibration) -> Iterator[FusionGroup]:
    """All legal groups: every set of nodes with every choice of what it writes."""
    nodes = live(graph)
    wanted = set(graph.outputs).union(*(graph[n].inputs for n in nodes))
    for chosen in chain(*(combinations(nodes, size) for size in range(1, len(nodes) + 1))):
        own = sorted(v for v in wanted if v.node in chosen)
        for some in _choices(own):
            if refusal_of(graph, chosen, some) is None:
                yield FusionGroup(chosen, some)
    for n in nodes:
        if graph[n].spec.family is Family.CONTROL:
            yield from _host_loops(graph, n, _outputs(graph, n), peaks)


def _choices(values: Sequence[Value]) -> Iterator[tuple[Value, ...]]:
    for size in range(1, len(values) + 1):
        yield from combinations(values, size)


def _host_loops(
    graph: Graph, node: int, outputs: tuple[Value, ...], peaks: Calibration
) -> Iterator[FusionGroup]:
    """A loop left to the host, its body planned as well as can be, where that can be tried out."""
    for unroll in UNROLLS:
        loop = FusionGroup((node,), outputs, FusionPlan(()), unroll)
        try:
            body, _ = host_loop(graph, loop)
        except PlanError:
            continue
        if len(live(body)) > MOST_NODES:
            continue
        groups = tuple(_groups(body, peaks))
        found = _shortest(body, groups, _bounds(body, peaks))[1]
        yield FusionGroup((node,), outputs, ordered_plan(body, found), unroll)


def summary(rows: Sequence[BruteRow]) -> dict[str, Any]:
    """How many graphs have a plan below the bound, and how loose it is."""
    gaps = sorted(row.gap for row in rows)
    ratios = sorted(row.bounds_us[0] / row.least_us[0] for row in rows)
    return {
        "graphs": len(rows),
        "below": [row.seed for row in rows if row.below],
        "groups": sum(row.groups for row in rows),
        "bound_over_least_plan": {"median": median(ratios), "least": ratios[0]},
        "gap_of_the_best_plan": {"median": median(gaps), "most": gaps[-1]},
    }


def report(make: Callable[[int], Graph], graphs: int, seed: int) -> int:
    """Prints every plan of so many small graphs that is below its bound, and a summary; 1 if any
    is."""
    rows = []
    for row in brute_rows(make, graphs, seed):
        rows.append(row)
        if row.below:
            print(row, file=sys.stderr, flush=True)
    print(json.dumps(summary(rows), indent=1))
    return 1 if any(row.below for row in rows) else 0
