"""What is served was checked: a program is compared with the reference before it runs for a user.

The verdict is kept in the build cache under what it follows from (graph, plan, code, environment,
this program's own text), so that no later process checks again. What is wrong is never served: the
next plan is, at last the reference itself. A check runs in this process, as the program will; a
note that it has begun tells a later process if it never ended, which then checks in a child.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from autofuse import faults
from autofuse.backends.base import AnyArtifact, LaunchError
from autofuse.baselines import BASELINES
from autofuse.devices import DeviceKind
from autofuse.errors import Blame
from autofuse.graph.canonical import digest
from autofuse.graph.types import Graph
from autofuse.measure.first_check import first_check
from autofuse.measure.timing.sampling import MeasureError
from autofuse.measure.worker.session import Worker
from autofuse.measure.workload import Workload
from autofuse.ops.types import AutofuseError
from autofuse.plan.types import Candidate, FusionPlan
from autofuse.records import CHECKED, UNVERIFIED, WRONG, FailureKind, Trust
from autofuse.runtime.by_reference import ByReference
from autofuse.runtime.compiled import CompiledPlan
from autofuse.runtime.request import PlanRequest
from autofuse.simplify import Forms
from autofuse.tuning.evaluate import code_of
from autofuse.tuning.plans import DEFAULT_PLAN, baseline_candidate
from autofuse.tuning.serve.kept import keep, kept_key, recalled

# Seconds that computing what a program must give may take, and what rounding may do to that.
CHECK_S, NOISE_S = 2.0, 10.0
# Wall seconds of a check in a child.
CHILD_S = 60.0
BY_REFERENCE = "the reference itself (NumPy)"
# What serves where the plan that was chosen is wrong, before the reference.
_SIMPLER = (DEFAULT_PLAN, "unfused")
_BEGUN = "begun"


@dataclass(frozen=True, slots=True)
class Choice:
    """A plan to be served, where it came from, and why those before it were not."""

    candidate: Candidate
    origin: str
    notes: tuple[str, ...] = ()


def serve(kind: DeviceKind, forms: Forms, choice: Choice, asked: PlanRequest) -> CompiledPlan:
    """The plan that was chosen, built, found right and loaded; a simpler one where it is wrong.

    It is a plan of the form in which the program is planned, held to what was written. One that
    cannot be built is told and replaced by the next, unless the caller chose it, or the machine is
    at fault: then AutofuseError is raised."""
    graph = forms.graph
    pinned = asked.plan is not None
    notes, spent_s = list(choice.notes), 0.0
    for number, (candidate, origin) in enumerate(_in_turn(kind, graph, choice)):
        try:
            built = kind.backend.build(kind.backend.program(graph, candidate))
        except Exception as error:  # whatever a planner or a pass did wrong: the next plan serves
            if not number and (pinned or _is_the_machines(error)):
                raise
            notes.append(faults.tell(f"the plan {origin}", error))
            continue
        trust = trust_in(kind, forms, candidate, built.artifact)
        spent_s += trust.check_s
        if trust.state == WRONG:
            notes.append(f"the plan {origin} is wrong and not served: {trust.why}")
            continue
        if trust.state == UNVERIFIED and kind.first_check:
            notes.append(str(trust))
        return CompiledPlan(
            graph, candidate, kind.backend.load(built.artifact, asked.mode), built.artifact,
            kind.name, origin, tuple(notes), asked.constants, built.compile_s,
            trust=replace(trust, check_s=spent_s),
        )  # fmt: skip
    nothing = Candidate(FusionPlan(()), (), origin=BY_REFERENCE)
    return CompiledPlan(
        graph, nothing, ByReference(forms.written), None, kind.name, BY_REFERENCE, tuple(notes),
        asked.constants, trust=Trust(CHECKED, "it is the reference", spent_s),
    )  # fmt: skip


def _in_turn(kind: DeviceKind, graph: Graph, choice: Choice) -> Iterator[tuple[Candidate, str]]:
    """The plan that was chosen, then simpler ones."""
    yield choice.candidate, choice.origin
    seen = {choice.candidate.digest}
    for name in _SIMPLER:
        if name not in BASELINES:
            continue
        with faults.guarded(f"the plan {name}"):  # rules that this graph is too much for
            simpler = baseline_candidate(graph, name, kind.space)[0]
            if simpler.digest not in seen:
                seen.add(simpler.digest)
                yield simpler, name


def _is_the_machines(error: Exception) -> bool:
    return getattr(error, "blame", None) is Blame.MACHINE


def trust_in(
    kind: DeviceKind, forms: Forms, candidate: Candidate, artifact: AnyArtifact,
    limits_s: tuple[float, float] | None = None,
) -> Trust:  # fmt: skip
    """What is known of a built program, by a check now if nothing is. `limits_s`: seconds that
    computing what it must give may take, and what rounding may do to that; what was not found out
    in less than usual is not kept."""
    if not kind.first_check:
        return Trust(UNVERIFIED, f"plans on device '{kind.name}' are checked by tuning only")
    begun, usual_s = time.perf_counter(), (CHECK_S, NOISE_S)
    key, allowed_s = _key(kind, forms, candidate), limits_s or usual_s
    known = recalled(key) or {}
    state, why = str(known.get("state", "")), str(known.get("why", ""))
    if state in (CHECKED, UNVERIFIED, WRONG):
        return Trust(state, why)
    if state == _BEGUN and not _runs(known.get("process")):
        found = in_a_child(forms, kind, artifact)
    else:
        found = _checked_here(kind, forms, artifact, key, allowed_s)
    if found.state != UNVERIFIED or allowed_s >= usual_s:
        keep_trust(kind, forms, candidate, found)
    else:
        keep(key, {})
    return replace(found, check_s=time.perf_counter() - begun)


def keep_trust(kind: DeviceKind, forms: Forms, candidate: Candidate, trust: Trust) -> None:
    """Keep what was found, for whoever serves the same program; tuning has checked its own."""
    keep(_key(kind, forms, candidate), {"state": trust.state, "why": trust.why})


def _key(kind: DeviceKind, forms: Forms, candidate: Candidate) -> str:
    code = code_of(kind.backend, forms.graph, candidate)
    told = (digest(forms.written), candidate.digest, code)
    return kept_key("verdict", digest(forms.graph), kind.backend.environment(), told)


def _checked_here(
    kind: DeviceKind, forms: Forms, artifact: AnyArtifact, key: str, limits_s: tuple[float, float]
) -> Trust:
    keep(key, {"state": _BEGUN, "process": os.getpid()})
    try:
        return first_check(forms.written, lambda: kind.backend.load(artifact, ""), *limits_s)
    except (MemoryError, LaunchError) as error:  # of the machine's
        return Trust(UNVERIFIED, f"the check could not be made: {error or 'no memory'}")
    except BaseException:  # an interrupt says nothing about the plan
        keep(key, {})
        raise


def _runs(process: object) -> bool:
    """Whether a process of this host is still there."""
    if not isinstance(process, int) or process <= 0:
        return False
    try:
        os.kill(process, 0)
    except OSError as error:
        return error.errno == errno.EPERM
    return True


def in_a_child(forms: Forms, kind: DeviceKind, artifact: AnyArtifact) -> Trust:
    """A check by the whole reference, in a process that may die of it."""
    workload = Workload(forms.graph, written=forms.written)
    try:
        with Worker(workload, hardware=kind.timer, setup_s=lambda: CHILD_S) as worker:
            failure = worker.measure(artifact, None, CHILD_S).failure
            blind = worker.blind
    except (MeasureError, AutofuseError) as error:
        return Trust(UNVERIFIED, str(error))
    if failure is None:
        return Trust(UNVERIFIED, blind) if blind else Trust(CHECKED)
    faulty = failure.blame is Blame.CANDIDATE and failure.kind is not FailureKind.TIMEOUT
    return Trust(WRONG if faulty else UNVERIFIED, failure.message)
