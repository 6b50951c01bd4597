"""What runs a graph here: a plan that is given, known, tuned for, borrowed or chosen by bounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from autofuse.devices import DeviceKind, device_named
from autofuse.graph.canonical import digest
from autofuse.graph.types import Graph
from autofuse.ops.types import AutofuseError
from autofuse.plan.types import Candidate
from autofuse.runtime.compiled import CompiledPlan, compiled_plan, signature_of
from autofuse.runtime.request import ERROR, TUNE, PlanRequest, check_on_miss
from autofuse.simplify import normal_form
from autofuse.tuning.borrowed import Lent, borrow, lent_by_database
from autofuse.tuning.evaluate import build
from autofuse.tuning.kept import kept_untuned
from autofuse.tuning.moving import moved_candidates
from autofuse.tuning.plans import (
    BEST,
    PassedOver,
    known_peaks,
    known_plans,
    plan_named,
)
from tuning_db import Store

Choice = tuple[Candidate, str, tuple[str, ...]]


def compile(graph: Graph, **options: Any) -> CompiledPlan:
    """As `autofuse.compile` without a bundle; `options` are the fields of `PlanRequest`."""
    asked = PlanRequest(**options)
    check_on_miss(asked.on_miss)
    return compile_here(graph, asked)


def compile_here(
    graph: Graph, asked: PlanRequest, lent: Sequence[Lent] = (), missed: tuple[str, ...] = ()
) -> CompiledPlan:
    """As `autofuse.compile` once a bundle had no plan, for the reasons `missed`; `lent` are plans
    of other devices that it has."""
    kind = device_named(asked.device, asked.target)
    kind.backend.ready()
    graph = normal_form(graph, asked.simplify)
    signature_of(graph).chosen(asked.constants)  # before anything is built
    candidate, origin, notes = _chosen(graph, kind, asked, lent, missed)
    return compiled_plan(kind.backend, graph, candidate, origin, asked.mode, notes, asked.constants)


def _chosen(
    graph: Graph, kind: DeviceKind, asked: PlanRequest, lent: Sequence[Lent],
    missed: tuple[str, ...],
) -> Choice:  # fmt: skip
    """The plan that was pinned, else the first there is."""
    if isinstance(asked.plan, Candidate):
        return asked.plan, asked.plan.origin or "given", ()
    if asked.plan is not None:
        named = plan_named(
            graph, asked.plan, device=asked.device, target=asked.target, db=asked.db,
            simplify=False,
        )  # fmt: skip
        return named, asked.plan, ()
    return _looked_up(graph, kind, asked.db, asked.on_miss, asked.budget_s, lent, missed)


def _looked_up(
    graph: Graph, kind: DeviceKind, db: str | None, on_miss: str, budget_s: float,
    lent: Sequence[Lent], missed: tuple[str, ...],
) -> Choice:  # fmt: skip
    """The first there is: in the database, by tuning if that is asked for, borrowed, moved from
    another size, by bounds."""
    known, passed = _known(graph, kind, db, missed)
    if known is not None:
        return known
    why = (*missed, _why(graph, kind, db, passed))
    if on_miss == ERROR:
        raise AutofuseError(f"no plan is known for this graph on this device: {'; '.join(why)}")
    if on_miss == TUNE:
        from autofuse.tuning.tuner import tune  # takes the strategies along

        target = "" if kind.backend.target is None else str(kind.backend.target)
        tune(graph, device=kind.name, target=target, db=db, budget_s=budget_s, simplify=False)
        known, _ = _known(graph, kind, db, why)
        if known is not None:
            return known
    candidate, origin, notes = borrow(graph, kind, _offers(graph, kind, db, lent))
    why = (*why, *notes)
    if candidate is not None:
        return candidate, origin, why
    for moved in moved_candidates(graph, kind, db):
        failure = build(kind.backend, graph, moved).failure
        if failure is None:
            return moved, moved.origin, why
        why = (*why, f"the plan {moved.origin} cannot be built: {failure.message}")
    untuned = kept_untuned(graph, kind, known_peaks(kind.backend.environment(), db))
    return untuned, untuned.origin, why


def _known(
    graph: Graph, kind: DeviceKind, db: str | None, notes: tuple[str, ...]
) -> tuple[Choice | None, tuple[PassedOver, ...]]:
    """The best plan that the database has for this device."""
    known, passed = known_plans(graph, kind.backend, db)
    if known is None:
        return None, passed
    best = "best that can be built here" if passed else BEST
    stale = (f"stale: {', '.join(known.stale)} changed since it was measured",)
    told = (*notes, *map(str, passed), *(stale if known.stale else ()))
    return (known.candidate, f"{best} ({known.candidate.origin})", told), passed


def _why(graph: Graph, kind: DeviceKind, db: str | None, passed: Sequence[PassedOver]) -> str:
    """Why the database has no plan."""
    if passed:
        return f"database: {passed[0]}"
    with Store.open(db) as store:
        sessions = store.sessions(digest(graph))
    others = {s.environment.device for s in sessions if s.environment != kind.backend.environment()}
    if not others:
        return "database: new graph"
    return f"database: other device: it was tuned on another one ({', '.join(sorted(others))})"


def _offers(graph: Graph, kind: DeviceKind, db: str | None, lent: Sequence[Lent]) -> Iterator[Lent]:
    yield from lent
    yield from lent_by_database(graph, kind.backend, db)
