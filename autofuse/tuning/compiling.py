"""What runs a graph here: a plan that is given, known, tuned for, borrowed or chosen by bounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from autofuse import faults
from autofuse.collector import seldom_collecting
from autofuse.devices import DeviceKind, device_named
from autofuse.graph.canonical import digest
from autofuse.graph.types import Graph
from autofuse.ops.types import AutofuseError
from autofuse.plan.parameters import MATH
from autofuse.plan.types import Candidate
from autofuse.records import CHECKED, Trust
from autofuse.runtime.compiled import CompiledPlan, signature_of
from autofuse.runtime.request import ERROR, TUNE, PlanRequest, check_on_miss
from autofuse.simplify import Forms
from autofuse.tuning.advice import Advice, advice_for
from autofuse.tuning.evaluate import build
from autofuse.tuning.plans import (
    BEST,
    PassedOver,
    known_peaks,
    known_plans,
    plan_named,
)
from autofuse.tuning.serve.borrowed import Lent, borrow, lent_by_database
from autofuse.tuning.serve.forms import known_forms
from autofuse.tuning.serve.kept import kept_untuned
from autofuse.tuning.serve.moving import moved_candidates
from autofuse.tuning.serve.served import Choice, keep_trust, serve
from tuning_db import Store

Found = tuple[Candidate, str, tuple[str, ...]]


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
    kind = device_named(asked.device, asked.target, asked.math)
    kind.backend.ready()
    signature_of(graph).chosen(asked.constants)  # before anything is built
    forms = known_forms(graph, asked.simplify)
    with seldom_collecting():
        candidate, origin, notes = _chosen(forms, kind, asked, lent, missed)
    choice = Choice(candidate, origin, (*forms.notes, *notes))
    return serve(kind, forms, choice, asked)


def _chosen(
    forms: Forms, kind: DeviceKind, asked: PlanRequest, lent: Sequence[Lent],
    missed: tuple[str, ...],
) -> Found:  # fmt: skip
    """The plan that was pinned, else the first there is."""
    if isinstance(asked.plan, Candidate):
        return asked.plan, asked.plan.origin or "given", ()
    if asked.plan is not None:
        named = plan_named(forms.graph, asked.plan, kind, db=asked.db, simplify=False)
        return named, asked.plan, ()
    return _looked_up(forms, kind, asked, lent, missed)


def _looked_up(
    forms: Forms, kind: DeviceKind, asked: PlanRequest, lent: Sequence[Lent],
    missed: tuple[str, ...],
) -> Found:  # fmt: skip
    """The first there is: in the database, by tuning if that is asked for, borrowed, moved from
    another size, by bounds."""
    graph, db = forms.graph, asked.db
    known, passed = _known(graph, kind, db, missed)
    if known is not None:
        return known
    why = (*missed, _why(graph, kind, db, passed))
    if asked.on_miss == ERROR:
        raise AutofuseError(f"no plan is known for this graph on this device: {'; '.join(why)}")
    advice = _advice(forms, kind, asked)
    why = (*why, *(() if advice is None else (str(advice),)))
    if asked.on_miss == TUNE or (advice is not None and advice.seconds):
        from autofuse.tuning.job.tuner import tune  # takes the strategies along

        target = "" if kind.backend.target is None else str(kind.backend.target)
        try:
            result = tune(
                forms.written, device=kind.name, target=target, db=db,
                budget_s=asked.budget_s if advice is None else advice.seconds, advice=advice,
                simplify=graph != forms.written, math=asked.math,
            )  # fmt: skip
        except AutofuseError as error:  # no time, or no plan: what is not tuned serves all the same
            why = (*why, f"tuning found no plan: {error}")
            result = None
        if result is not None and result.digest != digest(graph):
            return _looked_up(known_forms(forms.written), kind, asked, lent, why)
        known, _ = _known(graph, kind, db, why)
        if known is not None:
            return known
    candidate, origin, notes = borrow(forms, kind, _offers(graph, kind, db, lent))
    why = (*why, *notes)
    if candidate is not None:
        keep_trust(kind, forms, candidate, Trust(CHECKED, "when it was borrowed"))
        return candidate, origin, why
    for moved in moved_candidates(graph, kind, db):
        failure = build(kind.backend, graph, moved).failure
        if failure is None:
            return moved, moved.origin, why
        why = (*why, f"the plan {moved.origin} cannot be built: {failure.message}")
    with faults.collecting() as told:
        untuned = kept_untuned(graph, kind, known_peaks(kind.backend.environment(), db))
    return untuned, untuned.origin, (*why, *told)


def _advice(forms: Forms, kind: DeviceKind, asked: PlanRequest) -> Advice | None:
    """How long to tune, where it was said how often the program runs."""
    if asked.runs is None or asked.on_miss == TUNE or kind.hardware is None:
        return None
    return advice_for(forms.graph, kind, asked.runs, asked.db)


def _known(
    graph: Graph, kind: DeviceKind, db: str | None, notes: tuple[str, ...]
) -> tuple[Found | None, tuple[PassedOver, ...]]:
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
    here = kind.backend.environment()
    others = {s.environment.device for s in sessions if s.environment != here}
    plain = dict(here.must) | {MATH.name: ""}
    if any(dict(s.environment.must) | {MATH.name: ""} == plain for s in sessions):
        return f"database: it was tuned under other math, not math='{kind.backend.math}'"
    if not others:
        return "database: new graph"
    return f"database: other device: it was tuned on another one ({', '.join(sorted(others))})"


def _offers(graph: Graph, kind: DeviceKind, db: str | None, lent: Sequence[Lent]) -> Iterator[Lent]:
    yield from lent
    yield from lent_by_database(graph, kind.backend, db)
