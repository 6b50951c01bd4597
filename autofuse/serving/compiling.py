"""`autofuse.compile`: a graph to a function, by the best plan that is known where it runs.

What a plan from a bundle does not need is imported where it is needed: the database, the search
and what builds plans take a second to import, and a process that serves has no use for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from autofuse.backends.base import LaunchError
from autofuse.backends.library import load_library
from autofuse.errors import AutofuseError
from autofuse.graph.canonical import digest
from autofuse.graph.types import Graph
from autofuse.records import CHECKED, Trust
from autofuse.runtime.compiled import CompiledPlan, signature_of
from autofuse.runtime.request import (
    BUDGET_S,
    DEFAULT,
    DEFAULT_MATH,
    TUNE,
    PlanRequest,
    check_on_miss,
)
from autofuse.serving.binary import artifact_of, why_not
from autofuse.serving.bundle import (
    HOST,
    AnyBundle,
    Bundle,
    HostFacts,
    as_bundle,
    origin_of,
    remarks,
    stale_by,
    this_host,
    variant_for,
)
from autofuse.serving.entries import Entry, Variant
from autofuse.serving.keys import BundleError
from autofuse.version import __version__

if TYPE_CHECKING:
    from autofuse.devices import DeviceKind
    from autofuse.plan.types import Candidate
    from autofuse.simplify import Forms
    from autofuse.tuning.serve.borrowed import Lent


CUDA = "cuda"
# Plans of a bundle are best ones, which tuning has checked; a library is there where its code is
# the one that was timed.
MADE = Trust(CHECKED, "where its bundle was made")
FormOf = Callable[[], Graph]


class _MissError(Exception):
    """Why a bundle does not serve a graph, in a few words."""


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
    bundle: AnyBundle | None = None,
    on_miss: str = DEFAULT,
    budget_s: float = BUDGET_S,
    math: str = DEFAULT_MATH,
    runs: float | None = None,
) -> CompiledPlan:
    """A callable for `graph`. Its plan is the first of these, which `.origin` says:

    * `plan`, by name or given: a plan of the graph's `normal_form`, which is simplified unless
      `simplify` is False;
    * that of `bundle` ("bundle (...)"), a file or what `autofuse.open_bundle` gave;
    * the best that the database `db` knows for this device ("best ...");
    * that of the nearest other device of the kind ("borrowed from ..."), once it was checked here
      against the reference;
    * what bounds and rules expect to be best ("untuned ...").

    `.notes` are sentences on why those that come first were not found (a new graph, another device,
    another generator of code), or may not be the best any more (stale). `on_miss` says what happens
    where neither bundle nor database have a plan: "default" goes on down the list, "tune" tunes for
    `budget_s` seconds, also where the plan of the bundle is stale, and "error" is an AutofuseError.
    For as many `runs` as are told "default" tunes too, if and as long as that repays itself.

    `math` says what kernels may do with arithmetic. By default each operation is computed as it is
    written, to the tolerance that checks hold it to, and sums over an axis in any order. "relaxed"
    asks for plans that were tuned so that arithmetic may be reassociated and quotients become
    products with reciprocals, as by a compiler's fast math; these serve no other request.

    `target` names a GPU that device "cuda-emulated" stands for; `mode` says how device "cuda"
    issues a plan: "graph" (the default) or "eager". `constants` has an array for each input that is
    declared constant, by name: they are copied now, and calls take the other inputs only. Raises
    AutofuseError, also for a bundle that is damaged."""
    asked = PlanRequest(
        device, target, db, plan, mode, constants, simplify, on_miss, budget_s, math, runs
    )
    check_on_miss(on_miss)
    missed: tuple[str, ...] = ()
    lent: tuple[Lent, ...] = ()
    if bundle is not None and plan is None:
        opened = as_bundle(bundle)
        entry, form = _known(opened, graph, simplify)
        try:
            return _served(opened, entry, graph, form, asked)
        except _MissError as miss:
            missed = (f"bundle: {miss}",)
        if entry is not None:
            lent = _lent(entry)
    from autofuse.tuning.compiling import compile_here

    return compile_here(graph, asked, lent, missed)


def _known(bundle: Bundle, graph: Graph, simplify: bool) -> tuple[Entry | None, FormOf]:
    """What a bundle has of a graph, and the graph's normal form. That is not worked out where this
    very version has said of a graph written so which one it is: its rules take long to import."""
    entry = bundle.written(digest(graph)) if simplify else None
    if entry is not None and any(v.version == __version__ for v in entry.variants):
        return entry, lambda: _checked_form(graph, entry.workload)
    form = _normal_form(graph, simplify)
    return bundle.workload(digest(form)), lambda: form


def _checked_form(graph: Graph, workload: str) -> Graph:
    form = _normal_form(graph, True)
    if digest(form) != workload:
        raise BundleError(f"the bundle was made by another generator than {__version__}")
    return form


def _normal_form(graph: Graph, simplify: bool) -> Graph:
    from autofuse.simplify import normal_form

    return normal_form(graph, simplify)


def _served(
    bundle: Bundle, entry: Entry | None, graph: Graph, form: FormOf, asked: PlanRequest
) -> CompiledPlan:
    """The plan that a bundle has for a graph here; raises _MissError where it has none."""
    if entry is None:
        if bundle.written(digest(graph)) is not None:
            raise _MissError("other generator: this graph was simplified otherwise")
        raise _MissError("new graph")
    here, kind = _here(asked)
    variant = variant_for(entry, here)
    if isinstance(variant, str):
        raise _MissError(variant)
    if variant.version != __version__:  # what this one wrote is read when it is asked for
        _readable(variant)
    stale = stale_by(variant, here)
    if stale and asked.on_miss == TUNE:
        raise _MissError(f"stale: {', '.join(stale)} changed since it was measured")
    why = why_not(bundle.container, variant)
    if not why and here.device == HOST:
        try:
            return _ready(bundle, variant, here, graph, form, asked)
        except (LaunchError, BundleError) as error:
            why = str(error)
    from autofuse.graph.canonical import canonical
    from autofuse.simplify import Forms

    return _built(bundle, variant, Forms(form(), canonical(graph)), kind, asked, why)


def _here(asked: PlanRequest) -> tuple[HostFacts, DeviceKind | None]:
    """What a plan is looked up for. The processor is asked without the registry of devices, where
    no GPU can be meant."""
    device, target, math = asked.device, asked.target, asked.math
    plain = not target and math == DEFAULT_MATH
    if plain and (device == HOST or (device == "auto" and find_spec("cupy") is None)):
        return this_host(), None
    from autofuse.devices import device_named

    kind = device_named(device, target, math)
    environment = kind.backend.environment()
    return HostFacts(kind.name, dict(environment.must), dict(environment.stale)), kind


def _ready(
    bundle: Bundle, variant: Variant, here: HostFacts, graph: Graph, form: FormOf,
    asked: PlanRequest,
) -> CompiledPlan:  # fmt: skip
    """By the binary of the bundle."""
    assert variant.binary is not None
    signature = signature_of(graph)  # which its normal form has too
    artifact = artifact_of(bundle.container, variant.binary, signature)
    return CompiledPlan(
        form, lambda: _candidate(variant), load_library(artifact, asked.mode), artifact,
        here.device, origin_of(variant), remarks(variant, here), asked.constants,
        signature=signature, trust=MADE,
    )  # fmt: skip


def _candidate(variant: Variant) -> Candidate:
    """The candidate of a variant; raises PlanError where this version cannot read it."""
    from autofuse.plan.types import candidate_from_json

    return candidate_from_json(variant.candidate, variant.origin)


def _readable(variant: Variant) -> Candidate:
    """The candidate of a variant; one that this version cannot read is a miss."""
    try:
        return _candidate(variant)
    except AutofuseError as error:
        raise _MissError(f"other generator: {error}") from error


def _changed(stale: tuple[str, ...]) -> tuple[str, ...]:
    return (f"stale: {', '.join(stale)} changed since it was measured",) if stale else ()


def _built(
    bundle: Bundle, variant: Variant, forms: Forms, kind: DeviceKind | None, asked: PlanRequest,
    why: str,
) -> CompiledPlan:  # fmt: skip
    """Compiled here, on a GPU by the cubins of the bundle where it has them."""
    from autofuse.devices import device_named
    from autofuse.tuning.evaluate import code_of
    from autofuse.tuning.serve.served import Choice, serve

    form, candidate = forms.graph, _readable(variant)
    kind = kind or device_named(asked.device, asked.target, asked.math)
    backend = kind.backend
    backend.ready()
    lacking = backend.lacking(candidate)
    if lacking:
        raise _MissError(lacking)
    code = code_of(backend, form, candidate)
    if not code:
        raise _MissError("other generator: this version cannot make its kernels")
    environment = backend.environment()
    here = HostFacts(backend.name, dict(environment.must), dict(environment.stale))
    stale = stale_by(variant, here)
    if code != variant.code:
        stale = (*stale, "code")
    if stale and asked.on_miss == TUNE:
        raise _MissError(f"stale: {', '.join(stale)} changed since it was measured")
    changed = _changed(stale)
    origin = origin_of(variant)
    if not why and backend.name == CUDA:
        from autofuse.serving.cubins import artifact_with

        program = backend.program(form, candidate)
        artifact = artifact_with(bundle.container, variant, program)
        if artifact is not None:
            return CompiledPlan(
                form, candidate, backend.load(artifact, asked.mode), artifact, backend.name, origin,
                changed, asked.constants,
            )  # fmt: skip
        why = "the kernels of its bundle are other ones"
    notes = (f"compiled here: {why}", *changed)
    return serve(kind, forms, Choice(candidate, origin, notes), asked)


def _lent(entry: Entry) -> tuple[Lent, ...]:
    """The plans of other devices."""
    from autofuse.tuning.serve.borrowed import Lent

    found = []
    for variant in entry.variants:
        try:
            candidate = _candidate(variant)
        except AutofuseError:  # of another generator
            continue
        found.append(Lent(variant.device, variant.must, candidate, "bundle"))
    return tuple(found)
