"""One program under planners that lack a rule, or have only one: plans, and times in turns.

Equal plans are built and timed once, and equal kernels are compiled once, so a rule that changes
nothing costs no measuring.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from autofuse.baselines.switches import SWITCHABLE, only, planner_of, without
from autofuse.devices import DeviceKind, timed_device
from autofuse.graph.canonical import group_digest
from autofuse.graph.types import Graph
from autofuse.measure.timing.compare import Blocks, verdict
from autofuse.plan.types import Candidate
from autofuse.simplify import normal_form
from autofuse.tuning.in_turns import InTurns, timed_in_turns
from autofuse.tuning.plans import baseline_candidate
from autofuse.tuning.together import Interleaving

# Samples of each plan in turns; wall seconds of one program, and of a plan that must run alone.
HOW = Interleaving(blocks=5, rounds=6, limit_s=240.0, single_limit_s=60.0)


def names(planners: Sequence[str]) -> Iterator[str]:
    """What is planned with: each planner, without each of its rules, with none of them, and with
    only one."""
    for planner in planners:
        yield planner
        yield only(planner)
        for rule in SWITCHABLE[planner].rules:
            yield without(planner, rule)
            yield only(planner, rule)


def beside(name: str) -> str:
    """What a variant is held to: with one rule only, the planner with none, else the planner."""
    planner = planner_of(name)
    bare = only(planner)
    return bare if name.startswith(bare) and name != bare else planner


def price_row(
    program: str, graph: Graph, planners: Sequence[str], how: Interleaving = HOW
) -> dict[str, Any]:
    """Plans and times of `graph`, as it is once simplified.

    `planners` maps each planner to its plan and to the seconds of planning; `variants` those that
    plan otherwise than what they are held to (`beside`) to their plans; `plans` a plan's digest to
    microseconds (median, quartiles), seconds of compiling and number of kernels, or to what failed;
    `over` a planner to the time of its own plan (`whole`) and of the plan without any of its rules
    (`bare`) over each other plan of it, with a 95 % interval. `kernels` counts different kernels of
    the planners' own plans and of all plans. Raises AutofuseError where no plan could be timed."""
    graph, kind = normal_form(graph), timed_device("cpu")
    planned = {name: _planned(graph, name, kind) for name in names(planners)}
    plans = {candidate.digest: candidate for candidate, _ in planned.values()}
    found = timed_in_turns(graph, kind, plans, how)
    digests = {name: candidate.digest for name, (candidate, _) in planned.items()}
    own = {digests[planner]: plans[digests[planner]] for planner in planners}
    return {
        "program": program,
        "nodes": len(graph.nodes),
        "planners": {
            planner: {"plan": digests[planner], "plan_s": round(planned[planner][1], 6)}
            for planner in planners
        },
        "variants": {n: d for n, d in digests.items() if d != digests[beside(n)]},
        "plans": {d: _told(found, d, len(c.plan.groups)) for d, c in plans.items()},
        "over": {planner: _over(planner, digests, found.samples) for planner in planners},
        "kernels": {"own": _kernels(graph, own), "all": _kernels(graph, plans)},
    }


def _planned(graph: Graph, name: str, kind: DeviceKind) -> tuple[Candidate, float]:
    begun = time.perf_counter()
    candidate, _ = baseline_candidate(graph, name, kind.space)
    return candidate, time.perf_counter() - begun


def _told(found: InTurns, plan: str, groups: int) -> dict[str, Any]:
    told: dict[str, Any] = {"compile_s": round(found.built[plan].compile_s, 6), "groups": groups}
    if plan in found.failures:
        return {**told, "error": found.failures[plan]}
    timing = found.timings[plan]
    times = {"us": timing.median_us, "q1_us": timing.q1_us, "q3_us": timing.q3_us}
    return told | {name: round(us, 3) for name, us in times.items()}


def _over(
    planner: str, digests: Mapping[str, str], samples: Mapping[str, Blocks]
) -> dict[str, dict[str, list[float]]]:
    own = {d for name, d in digests.items() if planner_of(name) == planner}
    others = sorted(own & samples.keys())
    sides = {"whole": digests[planner], "bare": digests[only(planner)]}
    return {
        side: {d: _ratio(samples[digest], samples[d]) for d in others if d != digest}
        for side, digest in sides.items()
        if digest in samples
    }


def _ratio(one: Blocks, other: Blocks) -> list[float]:
    """Median of `one` over that of `other`, and its interval."""
    found = verdict("", one, other)
    return [round(each, 5) for each in (found.ratio, found.low, found.high)]


def _kernels(graph: Graph, plans: Mapping[str, Candidate]) -> int:
    groups = {group for plan in plans.values() for group in plan.plan.groups}
    return len({(group_digest(graph, g.nodes, g.outputs), g.body) for g in groups})
