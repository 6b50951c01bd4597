"""What the report is made of, gathered from the tuning database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autofuse.commands.pictures import graph_svg
from autofuse.cost.account import account
from autofuse.devices import DEVICES
from autofuse.graph.readback import read_text
from autofuse.graph.types import Graph
from autofuse.ops.types import GraphError
from autofuse.plan.types import FusionPlan, PlanError, candidate_from_json
from autofuse.records import Account, Environment, Measurement, SessionRow, WorkloadRow
from autofuse.report.collect import by_device, collect
from autofuse.report.gains import Implemented
from autofuse.report.model import WorkloadReport
from autofuse.report.peers import PeersFile, peers_of
from autofuse.tuning.explain.contests import NAMES, Contest, contested, contests, timed_in
from tuning_db import Store


def workload_reports(
    store: Store, workload: WorkloadRow, peers: PeersFile | None = None
) -> Iterator[WorkloadReport]:
    """One report per device that the workload was tuned on."""
    graph = _graph(workload)
    for environment, sessions in by_device(store.sessions(workload.digest)):
        measurements = store.measurements(workload.digest, environment)
        events = {session.id: store.events(session.id) for session in sessions}
        yield collect(
            workload,
            sessions,
            events,
            measurements,
            plan_svg=_picture(graph, workload.name, sessions, measurements),
            peers=peers_of(peers, workload.name, environment) if peers else (),
            accounts=plan_accounts(graph, sessions, measurements),
            implemented=_implemented(store, graph, environment, sessions, measurements),
            served=_served(store, workload, environment),
        )


def _served(store: Store, workload: WorkloadRow, environment: Environment) -> str:
    """The digest of the candidate that the database serves, "" where there is none."""
    found = store.best(environment, workload.digest)
    return "" if found is None else found.measurement.candidate_digest


def _named(sessions: Sequence[SessionRow], measurements: Sequence[Measurement]) -> set[str]:
    """Digests of baselines and best plans."""
    results = [s.result for s in sessions if s.result]
    named = {d for result in results for _, d in result.baselines}
    named |= {result.best_digest for result in results}
    return named | {m.candidate_digest for m in measurements if m.stage in ("baseline", "final")}


def plan_accounts(
    graph: Graph | None, sessions: Sequence[SessionRow], measurements: Sequence[Measurement]
) -> dict[str, Account]:
    """Accounts of every baseline and best plan by candidate digest; none without a graph, and none
    of a plan whose stored text this version cannot read."""
    if graph is None:
        return {}
    named = _named(sessions, measurements)
    texts = {m.candidate_digest: m.candidate for m in measurements if m.candidate_digest in named}
    accounts: dict[str, Account] = {}
    # How kernels are launched changes none of this, so equal plans are counted once.
    known: dict[FusionPlan, Account] = {}
    for digest, text in texts.items():
        try:
            candidate = candidate_from_json(text)
            if candidate.plan not in known:
                known[candidate.plan] = account(graph, candidate)
            accounts[digest] = known[candidate.plan]
        except (PlanError, GraphError, LookupError):
            # A database may hold plans of other versions: what cannot be counted is left out.
            continue
    return accounts


def _implemented(
    store: Store,
    graph: Graph | None,
    environment: Environment,
    sessions: Sequence[SessionRow],
    measurements: Sequence[Measurement],
) -> tuple[Implemented, ...]:
    """Who computes products and convolutions in the best plan of the latest session that has one;
    nothing for a device or a plan that this version does not know."""
    text, kind = _best_text(sessions, measurements), DEVICES.get(environment.device)
    if graph is None or kind is None or not text:
        return ()
    try:
        candidate = candidate_from_json(text)
        wanted = contested(graph, candidate, kind.dialect)
    except (PlanError, GraphError, LookupError):
        return ()
    stored = store.kernels(environment, wanted.values())
    usual = next((m.timing.cache for m in reversed(measurements) if m.timing), "warm")
    cache = timed_in(stored, wanted.values(), usual)
    found = contests(graph, candidate, kind.dialect, stored, cache, lambda *_: True)
    return tuple(_told(graph, one) for one in found)


def _told(graph: Graph, one: Contest) -> Implemented:
    node = graph[one.node]
    times = tuple((NAMES[who], us) for who, us in one.times)
    place = f"%{one.node}" + (f" '{node.name}'" if node.name else "")
    return Implemented(place, node.op, str(node.types[0]), NAMES[one.chosen], times, one.ahead)


def _best_text(sessions: Sequence[SessionRow], measurements: Sequence[Measurement]) -> str:
    """The stored text of the best plan of the latest session that has one, else ""."""
    plans = {one.candidate_digest: one.candidate for one in measurements}
    bests = [s.result.best_digest for s in sessions if s.result is not None]
    return next((plans[digest] for digest in reversed(bests) if digest in plans), "")


def _graph(workload: WorkloadRow) -> Graph | None:
    """The workload as a graph, or None where another version wrote what this one cannot read."""
    try:
        return read_text(workload.text)
    except GraphError:
        return None


def _picture(
    graph: Graph | None,
    name: str,
    sessions: Sequence[SessionRow],
    measurements: Sequence[Measurement],
) -> str:
    """The best plan of the latest session that has one, drawn; "" if there is none, or none that
    this version can read."""
    text = _best_text(sessions, measurements)
    if graph is None or not text:
        return ""
    try:
        return graph_svg(graph, candidate_from_json(text).plan, f"The best plan of {name}")
    except (PlanError, GraphError, LookupError):
        return ""
