"""A plan that was tuned on another device of the kind, for a graph that was never tuned here.

Plans move well between devices (see `docs/rooms/tuning.md`), but nothing that was measured there
holds here: a borrowed plan is built and checked against the float64 reference before it is served,
and is never shown with a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from autofuse.backends.base import AnyArtifact
from autofuse.backends.registry import Backend
from autofuse.devices import DeviceKind
from autofuse.graph.canonical import digest
from autofuse.graph.types import Graph
from autofuse.plan.arithmetic import not_asked
from autofuse.plan.types import Candidate, candidate_from_json
from autofuse.records import CHECKED
from autofuse.simplify import Forms
from autofuse.tuning.evaluate import build
from autofuse.tuning.serve.served import in_a_child
from tuning_db import Store

# What generated code is for, and how many of it work together.
_ARCHITECTURE, _UNITS = ("isa", "arch"), ("cores", "sms")
# Plans that are tried, the nearest first.
_TRIED = 3


@dataclass(frozen=True, slots=True)
class Lent:
    """A plan of another device: what had to match there, and where it is kept."""

    device: str
    must: tuple[tuple[str, str], ...]
    candidate: Candidate
    kept_in: str

    @property
    def owner(self) -> str:
        """The other device in a few words."""
        facts = dict(self.must)
        units = [f"{facts[k]} {k}" for k in _UNITS if k in facts]
        return ", ".join([facts.get("model", self.device), *units])


def distance(here: Mapping[str, str], there: Mapping[str, str]) -> tuple[int, int, float]:
    """How far devices of one kind are from each other: another architecture is farther than another
    model, and that than other counts of cores or multiprocessors (by their ratio)."""
    architecture = sum(here.get(k) != there.get(k) for k in _ARCHITECTURE)
    ratios = (_ratio(here[k], there[k]) for k in _UNITS if k in here and k in there)
    return architecture, here.get("model") != there.get("model"), sum(ratios)


def _ratio(one: str, other: str) -> float:
    try:
        return abs(math.log(float(one) / float(other)))
    except (ValueError, ZeroDivisionError):
        return math.inf


def lent_by_database(graph: Graph, backend: Backend, db: str | None) -> Iterator[Lent]:
    """The best plans of a graph in its normal form on other devices of the kind."""
    here = backend.environment()
    with Store.open(db) as store:
        known = {s.environment for s in store.sessions(digest(graph))}
        found = {(e.device, e.must): e for e in known if e.device == here.device}
        for environment in found.values():
            best = store.best(environment, digest(graph))
            if environment.must != here.must and best is not None:
                one = best.measurement
                candidate = candidate_from_json(one.candidate, one.origin)
                yield Lent(environment.device, environment.must, candidate, "database")


def borrow(
    forms: Forms, kind: DeviceKind, lent: Iterable[Lent]
) -> tuple[Candidate | None, str, tuple[str, ...]]:
    """The nearest plan that is right here, its origin, and a sentence on each that is not.

    It is right if it computes what the program was written to. Nothing is borrowed on a device that
    is never timed: it checks nothing either."""
    if kind.hardware is None:
        return None, "", ()
    here = dict(kind.backend.environment().must)
    near = sorted(
        (
            one
            for one in lent
            if one.device == kind.backend.name and not not_asked(one.candidate, kind.backend.math)
        ),
        key=lambda one: (distance(here, dict(one.must)), one.candidate.digest),
    )
    notes: list[str] = []
    for one in near[:_TRIED]:
        wrong = _wrong(forms, kind, one.candidate)
        if not wrong:
            text = f"borrowed from {one.owner} ({one.candidate.origin})"
            return one.candidate, text, tuple(notes)
        notes.append(f"the plan of {one.owner} is not borrowed: {wrong}")
    return None, "", tuple(notes)


def _wrong(forms: Forms, kind: DeviceKind, candidate: Candidate) -> str:
    """Why a plan does not do here; "" where it was found to be right."""
    lacking = kind.backend.lacking(candidate)
    if lacking:
        return lacking
    built = build(kind.backend, forms.graph, candidate)
    if built.artifact is None:
        assert built.failure is not None
        return built.failure.message
    return _failure(forms, kind, built.artifact)


def _failure(forms: Forms, kind: DeviceKind, artifact: AnyArtifact) -> str:
    trust = in_a_child(forms, kind, artifact)
    return "" if trust.state == CHECKED else trust.why
