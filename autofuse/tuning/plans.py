"""Plans by name: baselines, everything fused, the best known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from autofuse import faults
from autofuse.backends.registry import Backend
from autofuse.baselines import (
    BASELINES,
    LAUNCH_RULES,
    Baseline,
    baseline_named,
    is_baseline,
)
from autofuse.baselines.switches import planner_of
from autofuse.baselines.unfused import unfused
from autofuse.cost.bounds import Calibration, usual_peaks
from autofuse.devices import DeviceKind, device_named
from autofuse.graph.canonical import digest
from autofuse.graph.types import Graph
from autofuse.limits import usable_cores
from autofuse.ops.types import AutofuseError
from autofuse.plan.arithmetic import DEFAULT_MATH
from autofuse.plan.fusion.groups import in_one_order
from autofuse.plan.fusion.horizontal import side_by_side
from autofuse.plan.fusion.legalise import legalise
from autofuse.plan.fusion.prepared import prepared_apart
from autofuse.plan.fusion.products import with_moves
from autofuse.plan.types import Candidate, FusionPlan, LaunchConfig, candidate_from_json
from autofuse.records import Environment, Measurement
from autofuse.simplify import normal_form
from autofuse.tuning.evaluate import code_of
from autofuse.tuning.problem import default_candidate, ruled_candidate
from autofuse.tuning.search.default_launches import RecalledLaunches
from autofuse.tuning.serve.untuned import expected_plan, has_slices
from search_spaces import FusionSpace, LaunchSpace
from tuning_db import Store, stale_with_code

# The rules behind what a program gets that was never tuned.
DEFAULT_PLAN = "xla-2022"
UNTUNED = "untuned"
# Says of such a plan that it was chosen by expected times, not by rules.
EXPECTED = "untuned: expected"
# Baselines whose kernels are among those that it is chosen from: one of each school of fusing.
ALSO_EXPECTED = ("inductor", "tvm", "nnc")
# What serves where nothing better can be planned.
PLAINEST = "unfused"
ONE_OP_EACH = "one op a kernel"
FUSED = "fused"
BEST = "best"


@dataclass(frozen=True, slots=True)
class PassedOver:
    """A plan that would be the best known, if what it calls were on this machine; `lacking` says
    what is not."""

    plan_digest: str
    time_us: float
    lacking: str

    def __str__(self) -> str:
        return f"plan {self.plan_digest} was found to be the best, but {self.lacking}"


@dataclass(frozen=True, slots=True)
class KnownPlan:
    """The best plan the database has for a workload on this device, of those that can be built
    here; `passed_over` are those that cannot, the best first."""

    candidate: Candidate
    measurement: Measurement
    stale: tuple[str, ...]
    passed_over: tuple[PassedOver, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The plan and its measurement as plain data."""
        timing = self.measurement.timing
        assert timing is not None
        return {
            "found": True,
            "plan_digest": self.candidate.digest,
            "origin": self.candidate.origin,
            "kernels": self.measurement.kernels,
            "time_us": timing.median_us,
            "q1_us": timing.q1_us,
            "q3_us": timing.q3_us,
            "max_rel_error": self.measurement.max_rel_error,
            "stale": list(self.stale),
            "passed_over": [asdict(one) for one in self.passed_over],
            "plan": self.candidate.to_json(),
        }


def baseline_plan(graph: Graph, name: str) -> tuple[FusionPlan, int]:
    """A baseline's plan, and how many of its groups had to be cut because no kernel of ours can be
    them. What constants alone decide is prepared, as its compiler folds it. `graph` must be
    canonical."""
    return _planned(graph, baseline_named(name))


@lru_cache(maxsize=64)
def _planned(graph: Graph, baseline: Baseline) -> tuple[FusionPlan, int]:
    """Remembered: the untuned plan asks for some baselines, and tuning then for all."""
    plan, cut = legalise(graph, baseline(graph).plan)
    return prepared_apart(graph, in_one_order(graph, plan)), cut


def baseline_candidate(graph: Graph, name: str, space: LaunchSpace) -> tuple[Candidate, int]:
    """As `baseline_plan`, launched as the baseline's rules say, where they do, else by default."""
    plan, cut = baseline_plan(graph, name)
    return _launched(graph, plan, name, space), cut


def _launched(graph: Graph, plan: FusionPlan, name: str, space: LaunchSpace) -> Candidate:
    """The plan of the baseline `name` under its launch rule, if it has one, as has a baseline
    without some of its rules."""
    rule = LAUNCH_RULES.get(planner_of(name))
    if rule is None:
        return default_candidate(graph, plan, space, name)
    return ruled_candidate(graph, plan, space, name, rule)


def fused_candidate(graph: Graph, space: LaunchSpace) -> Candidate:
    """Whatever is legal merged, under default launches. `graph` must be canonical."""
    plan = FusionSpace(graph).choose(lambda _, options: options[0])
    return default_candidate(graph, plan, space, FUSED)


def untuned_candidate(
    graph: Graph, kind: DeviceKind, peaks: Calibration | None = None,
    space: LaunchSpace | None = None,
) -> Candidate:  # fmt: skip
    """What a program gets that was never tuned: the default baseline's plan, but products take in
    moves of their operands, and where launches are dear independent kernels are fused horizontally.
    On a device whose kernels' times can be foreseen it is the plan of least expected time, where
    another one is clearly expected to be faster (origin `EXPECTED`).

    What fails on the way is told and done without: at last every op is a kernel of its own.

    `graph` must be canonical; `peaks`: what the device was calibrated to, if it was; `space`: one
    of the kind's that recalls what was asked of it before."""
    try:
        return _untuned(graph, kind, peaks, space or RecalledLaunches(graph, kind.space))
    except Exception as error:  # whatever a planner did wrong: a simpler one plans
        faults.tell("the untuned plan", error)
    for name in (DEFAULT_PLAN, PLAINEST):
        with faults.guarded(f"the plan {name}"):
            return baseline_candidate(graph, name, kind.space)[0]
    return plainest_candidate(graph)


def plainest_candidate(graph: Graph) -> Candidate:
    """Every op a kernel of its own, launched without a setting: nothing is decided."""
    plan = unfused(graph).plan
    return Candidate(plan, (LaunchConfig(),) * len(plan.groups), origin=ONE_OP_EACH)


def _untuned(
    graph: Graph, kind: DeviceKind, peaks: Calibration | None, space: LaunchSpace
) -> Candidate:
    ruled, _ = baseline_plan(graph, DEFAULT_PLAN)
    plan = with_moves(graph, ruled)
    if kind.fast_tiles:
        asked = () if has_slices(graph, plan) else ALSO_EXPECTED
        known = (name for name in asked if name in BASELINES)
        others = list(_planned_by(graph, known))
        likely = peaks or usual_peaks(usable_cores())
        expected = expected_plan(graph, plan, others, space, likely)
        if expected != plan:
            return default_candidate(graph, expected, space, EXPECTED)
    if kind.dear_launches:
        plan = side_by_side(graph, plan)
    if plan == ruled:
        return _launched(graph, ruled, DEFAULT_PLAN, space)
    return default_candidate(graph, plan, space, UNTUNED)


def _planned_by(graph: Graph, names: Iterable[str]) -> Iterator[FusionPlan]:
    """The plans of some baselines, without those that fail."""
    for name in names:
        with faults.guarded(f"baseline {name}"):
            yield baseline_plan(graph, name)[0]


def best_plan(
    graph: Graph, *, device: str = "auto", target: str = "", db: str | None = None,
    simplify: bool = True, math: str = DEFAULT_MATH,
) -> KnownPlan | None:  # fmt: skip
    """The best plan known for `graph` on this device that can be built here, or None. It is a plan
    of the graph's `normal_form`, simplified unless `simplify` is False.

    Raises AutofuseError for an unusable device, target or database."""
    backend = device_named(device, target, math).backend
    return known_plans(normal_form(graph, simplify), backend, db)[0]


def known_peaks(environment: Environment, db: str | None) -> Calibration | None:
    """What tuning calibrated this device to, or None."""
    with Store.open(db) as store:
        return Calibration.kept(store.calibration(environment))


def known_plans(
    graph: Graph, backend: Backend, db: str | None = None
) -> tuple[KnownPlan | None, tuple[PassedOver, ...]]:
    """The best plan known that can be built here, or None, and better ones that cannot. `graph`
    is in its normal form."""
    passed = list[PassedOver]()
    environment = backend.environment()
    with Store.open(db) as store:
        while True:
            without = {one.plan_digest for one in passed}
            found = store.best(environment, digest(graph), without=without)
            if found is None or found.measurement.timing is None:
                return None, tuple(passed)
            one = found.measurement
            candidate = candidate_from_json(one.candidate, one.origin)
            lacking = backend.lacking(candidate)
            if not lacking:
                break
            passed.append(PassedOver(candidate.digest, found.measurement.timing.median_us, lacking))
    found = stale_with_code(found, code_of(backend, graph, candidate))
    return KnownPlan(candidate, one, found.stale, tuple(passed)), tuple(passed)


def none_known(name: str, passed: Sequence[PassedOver]) -> str:
    """That no plan is known which can be built here, in a sentence."""
    text = f"no plan is known for {name} on this device"
    return f"{text}: {passed[0]}" if passed else f"{text}: tune it first"


def plan_named(
    graph: Graph, plan_name: str, kind: DeviceKind | None = None, *, db: str | None = None,
    simplify: bool = True,
) -> Candidate:  # fmt: skip
    """The candidate called "best", "untuned", "fused" or by a baseline's name: a plan of the
    graph's `normal_form` for a kind of device (the one that is here), simplified unless `simplify`
    is False."""
    graph = normal_form(graph, simplify)
    kind = kind or device_named("auto")
    if plan_name == BEST:
        known, passed = known_plans(graph, kind.backend, db)
        if known is None:
            raise AutofuseError(none_known("this graph", passed))
        return known.candidate
    if plan_name == FUSED:
        return fused_candidate(graph, kind.space)
    if plan_name == UNTUNED:
        return untuned_candidate(graph, kind, known_peaks(kind.backend.environment(), db))
    if not is_baseline(plan_name):
        known_names = ", ".join((BEST, UNTUNED, FUSED, *BASELINES))
        raise AutofuseError(f"unknown plan '{plan_name}' (known: {known_names})")
    return baseline_candidate(graph, plan_name, kind.space)[0]
