"""Experiment E: what a plan is worth at another size than the one it was tuned at.

Programs of the zoo at five sizes, of which the first extent is scaled. Each size is tuned; then the
partitions of all sizes, with the launches found there and with default ones, take turns with the
size's own plan and with the untuned one, for which nothing moves.
"""

from __future__ import annotations

from collections.abc import Mapping

from autofuse.devices import DeviceKind, timed_device
from autofuse.errors import AutofuseError
from autofuse.graph.canonical import text
from autofuse.graph.family import family
from autofuse.graph.types import Graph
from autofuse.plan.fusion.legality import check_plan
from autofuse.plan.types import Candidate
from autofuse.simplify import normal_form
from autofuse.tuning import tune
from autofuse.tuning.in_turns import timed_in_turns
from autofuse.tuning.plans import UNTUNED, untuned_candidate
from autofuse.tuning.problem import default_candidate
from autofuse.tuning.together import Interleaving
from autofuse.zoo import ZOO
from benchmarks.kept import Row, empty_database

# Of the first extent.
FACTORS = (1 / 16, 1 / 4, 1.0, 4.0, 16.0)
# What is moved: the partition with its launches, or alone.
WHOLE, PARTITION = "whole", "partition"
# Samples of each plan in turns; wall seconds of them all, and of a plan that must run alone.
HOW = Interleaving(blocks=5, rounds=4, limit_s=120.0, single_limit_s=60.0)
# No array may have more elements, nor an extent fewer.
MOST_ELEMENTS, LEAST_EXTENT = 1 << 27, 4


def travel_row(name: str, seconds: float, peaks: Mapping[str, float]) -> Row:
    """Times of a program of the zoo at each size, tuned for so many seconds there.

    `sizes`: the first extent of each; `us`: by size, microseconds of its own plan, of the untuned
    one and of those moved from each other size, `whole` and `partition`; None for what is no plan
    there. Raises AutofuseError for what has fewer than two sizes of one family."""
    graphs = sized(name)
    kind = timed_device("cpu")
    with empty_database(peaks) as db:
        best = {
            size: tune(graph, device="cpu", db=db, budget_s=seconds).best
            for size, graph in graphs.items()
        }
        us = {str(size): _times(kind, graph, size, best) for size, graph in graphs.items()}
    return {"sizes": list(graphs), "us": us}


def sized(name: str) -> dict[int, Graph]:
    """The normal forms of a program at its sizes, by first extent: those that differ in numbers
    alone from the default one. Raises AutofuseError where that is none but itself."""
    first, *others = ZOO[name].parameters["default"]
    if not isinstance(first, int):
        raise AutofuseError(f"{name} has no extent to scale")
    graphs: dict[int, Graph] = {}
    for factor in FACTORS:
        extent = int(first * factor)
        if extent < LEAST_EXTENT:
            continue
        try:
            graphs[extent] = normal_form(ZOO[name].make(extent, *others))
        except AutofuseError:  # the program has no such size
            continue
    own = family(text(graphs[first]))
    fits = [size for size, graph in graphs.items() if _most(graph) <= MOST_ELEMENTS]
    alike = {size: graphs[size] for size in fits if family(text(graphs[size])) == own}
    if len(alike) < 2:
        raise AutofuseError(f"{name} is another program at every other size")
    return alike


def _most(graph: Graph) -> int:
    return max(kind.size for node in graph.nodes for kind in node.types)


def _times(
    kind: DeviceKind, graph: Graph, size: int, best: Mapping[int, Candidate]
) -> dict[str, dict[str, float | None] | float]:
    """Equal plans are timed once."""
    named = {("own", ""): best[size], (UNTUNED, ""): untuned_candidate(graph, kind)}
    for other, candidate in best.items():
        if other == size or not _is_legal(graph, candidate):
            continue
        named[WHOLE, str(other)] = candidate
        plan = default_candidate(graph, candidate.plan, kind.space, candidate.origin)
        named[PARTITION, str(other)] = plan
    found = timed_in_turns(graph, kind, {c.digest: c for c in named.values()}, HOW)
    us = {d: round(t.median_us, 3) for d, t in found.timings.items()}
    told: dict[str, dict[str, float | None] | float] = {
        name: us[named[name, ""].digest] for name in ("own", UNTUNED)
    }
    others = [str(other) for other in best if other != size]
    for what in (WHOLE, PARTITION):
        told[what] = {
            other: us.get(named[what, other].digest) if (what, other) in named else None
            for other in others
        }
    return told


def _is_legal(graph: Graph, candidate: Candidate) -> bool:
    try:
        check_plan(graph, candidate.plan)
    except AutofuseError:  # a group that is no kernel at this size
        return False
    return True
