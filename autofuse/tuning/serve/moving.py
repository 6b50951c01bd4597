"""Plans moved from the size that they were tuned at to one that nothing is known of.

Partitions were measured to move over a factor of 256 in size with little loss, launch
configurations less well: those are derived anew.
"""

from __future__ import annotations

from collections.abc import Iterator

from autofuse.devices import DeviceKind
from autofuse.errors import AutofuseError
from autofuse.graph.canonical import digest, text
from autofuse.graph.family import distance, family
from autofuse.graph.types import Graph
from autofuse.plan.fusion.legality import check_plan
from autofuse.plan.types import Candidate, candidate_from_json
from autofuse.tuning.problem import default_candidate
from tuning_db import Store

# What the origin of such a plan begins with.
MOVED = "moved"
# Neighbours that are tried before the program is taken for a new one.
_MOST = 4


def moved_candidates(graph: Graph, kind: DeviceKind, db: str | None) -> Iterator[Candidate]:
    """The partitions of the nearest tuned members of a graph's family that are legal for it, the
    nearest first, under default launch configurations. `graph` must be in its normal form."""
    environment, name = kind.backend.environment(), digest(graph)
    with Store.open(db) as store:
        rows = [(d, t) for d, t in store.tuned(environment, len(graph.nodes)) if d != name]
        if not rows:
            return
        own = text(graph)
        mine = family(own)
        near = [(distance(own, t), d) for d, t in rows if family(t) == mine]
        found = [(d, store.best(environment, d)) for _, d in sorted(near)[:_MOST]]
    for relative, best in found:
        if best is None:
            continue
        try:
            plan = candidate_from_json(best.measurement.candidate).plan
            check_plan(graph, plan)
        except AutofuseError:  # a group that is no kernel at this size
            continue
        yield default_candidate(graph, plan, kind.space, f"{MOVED} from {relative[:12]}")
