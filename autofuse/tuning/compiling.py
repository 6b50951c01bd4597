"""What runs a graph here: a plan that is given, known, tuned for, borrowed or chosen by bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from autofuse.devices import DeviceKind, device_named
from autofuse.graph.canonical import digest
from autofuse.graph.types import Graph
from autofuse.ops.types import AutofuseError
from autofuse.plan.types import Candidate
from autofuse.runtime.compiled import CompiledPlan, compiled_plan, signature_of
from autofuse.simplify import normal_form
from autofuse.tuning.borrowed import Lent, borrow, lent_by_database
from autofuse.tuning.plans import (
    BEST,
    PassedOver,
    known_peaks,
    known_plans,
    plan_named,
    untuned_candidate,
)
from tuning_db import Store

DEFAULT, TUNE, ERROR = "default", "tune", "error"
ON_MISS = (DEFAULT, TUNE, ERROR)
BUDGET_S = 60.0
Choice = tuple[Candidate, str, tuple[str, ...]]


def check_on_miss(on_miss: str) -> None:
    """Raises AutofuseError for a word that says nothing."""
    if on_miss not in ON_MISS:
        raise AutofuseError(f"on_miss is one of {', '.join(ON_MISS)}, not '{on_miss}'")


def compile(  # autofuse.compile is the public name
    graph: Graph,
    *,
    device: str = "auto",
    target: str = "",
    db: str | None = None,
    plan: str | Candidate | None = None,
    mode: str = "",
    constants: Mapping[str, Any] | None = None,
    simplify: bool = True,
    on_miss: str = DEFAULT,
    budget_s: float = BUDGET_S,
    lent: Sequence[Lent] = (),
    missed: tuple[str, ...] = (),
) -> CompiledPlan:
    """As `autofuse.compile` (see `autofuse/serving/compiling.py`) without a bundle, in which the
    plan was `missed` for these reasons; `lent` are plans of other devices that it has."""
    check_on_miss(on_miss)
    kind = device_named(device, target)
    backend = kind.backend
    backend.ready()
    graph = normal_form(graph, simplify)
    signature_of(graph).chosen(constants)  # before anything is built
    if isinstance(plan, Candidate):
        chosen: Choice = (plan, plan.origin or "given", ())
    elif plan is not None:
        named = plan_named(graph, plan, device=device, target=target, db=db, simplify=False)
        chosen = (named, plan, ())
    else:
        chosen = _looked_up(graph, kind, db, on_miss, budget_s, lent, missed)
    candidate, origin, notes = chosen
    return compiled_plan(backend, graph, candidate, origin, mode, notes, constants)


def _looked_up(
    graph: Graph, kind: DeviceKind, db: str | None, on_miss: str, budget_s: float,
    lent: Sequence[Lent], missed: tuple[str, ...],
) -> Choice:  # fmt: skip
    """The first there is: in the database, by tuning if that is asked for, borrowed, by bounds."""
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
    peaks = known_peaks(kind.backend.environment(), db)
    untuned = untuned_candidate(graph, kind, peaks)
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
