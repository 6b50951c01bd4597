"""The study of one program: what each dial buys, what each rule costs, whose the speed-up is.

A search comes first, in most of the budget. Then the plans of all rules, of planners without one of
their rules, the untuned plan, and the searched partition under default launches are built; all that
differ are timed in turns with the searched plan. Equal plans are timed once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from autofuse.backends.cache import empty_cache
from autofuse.baselines import BASELINES
from autofuse.baselines.switches import SWITCHABLE, only, without
from autofuse.devices import DeviceKind, timed_device
from autofuse.errors import AutofuseError
from autofuse.graph.canonical import digest
from autofuse.graph.types import Graph
from autofuse.measure.timing.compare import Blocks, verdict
from autofuse.plan.types import Candidate
from autofuse.study.types import Crossing, Dial, ProgramStudy, RulePrice, SpeedupFactor
from autofuse.tuning import tune
from autofuse.tuning.cache_state import cache_state
from autofuse.tuning.evaluate import build
from autofuse.tuning.in_turns import timed_in_turns
from autofuse.tuning.plans import UNTUNED, baseline_candidate, known_peaks, untuned_candidate
from autofuse.tuning.problem import default_candidate
from autofuse.tuning.result import Progress, TuneResult
from autofuse.tuning.serve.forms import known_forms
from autofuse.tuning.together import Interleaving

# The share of the budget that the search has; of the rest that other plans are made in; and of what
# is then left that they are built in, some of them from nothing. What is not there by then is left
# out, plans without a rule first.
SEARCH_SHARE, PLANNING_SHARE, BUILD_SHARE, FRESH_SHARE = 0.6, 0.4, 0.6, 0.3
BLOCKS, ROUNDS = 5, 6
# However little is left, building and timing may each take so long.
LEAST_S = 5.0
SEARCHED, DEFAULT_LAUNCHES = "searched", "searched, default launches"
PLAINEST = "unfused"
NEEDED = (SEARCHED, DEFAULT_LAUNCHES, UNTUNED, PLAINEST)
NEEDS_NO_SEARCH = (UNTUNED, *BASELINES)
NO_TIME = "no time was left for it"
# A time below this fraction of the one before is a better one.
BETTER = 0.999


@dataclass(frozen=True, slots=True)
class _Plans:
    """Candidates by name, the seconds of planning each, and why others are missing."""

    candidates: Mapping[str, Candidate]
    planned_s: Mapping[str, float]
    missing: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Timed:
    """By name: samples by block, microseconds, and of those that need no search the seconds from
    nothing to a plan that can be called."""

    samples: Mapping[str, Blocks]
    us: Mapping[str, float]
    seconds: Mapping[str, float]


def study(
    graph: Graph, *, name: str = "", device: str = "auto", db: str | None = None,
    budget_s: float = 300.0, say: Callable[[str], object] = lambda _: None,
) -> ProgramStudy:  # fmt: skip
    """Study one program in about `budget_s` seconds of wall time.

    The search is kept in the tuning database `db` as any session is. Raises AutofuseError for a
    budget that is none, for a device that cannot time, and where the searched plan did not run."""
    begun = time.monotonic()
    kind = timed_device(device)
    say(f"searching for {SEARCH_SHARE * budget_s:.0f} s")
    found, better = _searched(graph, name, kind, db, SEARCH_SHARE * budget_s)
    # A machine that is new was calibrated first, outside of the budget.
    after, rest_s = time.monotonic(), (1 - SEARCH_SHARE) * budget_s
    graph = known_forms(graph).graph
    plans = _planned(graph, kind, found.best, db, after + PLANNING_SHARE * rest_s)
    different = len({candidate.digest for candidate in plans.candidates.values()})
    say(f"timing {different} plans in turns")
    timed, left_out = _timed(graph, kind, plans, rest_s - (time.monotonic() - after))
    if SEARCHED not in timed.us:
        raise AutofuseError(f"the searched plan did not run: {left_out.get(SEARCHED, 'no reason')}")
    dials = _dials(timed, better, found)
    return ProgramStudy(
        name, digest(graph), len(graph.nodes), kind.name, cache_state("auto", graph, kind),
        budget_s, time.monotonic() - begun,
        dials, tuple(_prices(plans, timed)), dict(_unchanged(plans)), tuple(_parts(timed)),
        tuple(_crossings(timed, found.total_s)), {**plans.missing, **left_out},
    )  # fmt: skip


def _searched(
    graph: Graph, name: str, kind: DeviceKind, db: str | None, seconds: float
) -> tuple[TuneResult, list[tuple[float, float]]]:
    """The session's result, and each time (seconds, microseconds) at which its plan got better."""
    better: list[tuple[float, float]] = []

    def watch(state: Progress) -> None:
        us = state.best_us
        if us is not None and (not better or us < BETTER * better[-1][1]):
            better.append((seconds - state.left_s, us))

    found = tune(
        graph, name=name, device=kind.name, db=db, budget_s=seconds, progress=watch
    )  # fmt: skip
    return found, better


def variants() -> Iterator[tuple[str, str, str]]:
    """(name, planner, rule) of each planner without one rule, and ("" for the rule) without any."""
    for planner, switchable in SWITCHABLE.items():
        yield only(planner), planner, ""
        for rule in switchable.rules:
            yield without(planner, rule), planner, rule


def _planned(
    graph: Graph, kind: DeviceKind, best: Candidate, db: str | None, deadline: float
) -> _Plans:
    peaks = known_peaks(kind.backend.environment(), db)
    makers: dict[str, Callable[[], Candidate]] = {
        SEARCHED: lambda: best,
        DEFAULT_LAUNCHES: lambda: default_candidate(graph, best.plan, kind.space, best.origin),
        UNTUNED: lambda: untuned_candidate(graph, kind, peaks),
    }
    for planner in (*BASELINES, *(each for each, _, _ in variants())):
        makers[planner] = lambda planner=planner: baseline_candidate(graph, planner, kind.space)[0]  # type: ignore[misc]  # bound defaults
    candidates, seconds, missing = {}, {}, {}
    for each, make in makers.items():
        begun = time.monotonic()
        if begun > deadline and each not in NEEDED:
            missing[each] = NO_TIME
            continue
        try:
            candidates[each] = make()
        except AutofuseError as error:
            missing[each] = str(error)
        seconds[each] = time.monotonic() - begun
    return _Plans(candidates, seconds, missing)


def _timed(
    graph: Graph, kind: DeviceKind, plans: _Plans, left_s: float
) -> tuple[_Timed, dict[str, str]]:
    """Different plans built and timed in turns, in about the seconds that are left; why others were
    not."""
    different: dict[str, Candidate] = {}
    for candidate in plans.candidates.values():
        different.setdefault(candidate.digest, candidate)
    begun, timing_s = time.monotonic(), max(LEAST_S, (1 - BUILD_SHARE) * left_s)
    from_nothing = _compile_s(graph, kind, plans, begun + FRESH_SHARE * left_s)
    left_s -= time.monotonic() - begun
    how = Interleaving(BLOCKS, ROUNDS, timing_s, timing_s)
    found = timed_in_turns(graph, kind, different, how, max(LEAST_S, left_s - timing_s))
    by = {each: candidate.digest for each, candidate in plans.candidates.items()}
    there = {each: d for each, d in by.items() if d in found.samples}
    timed = _Timed(
        {each: found.samples[d] for each, d in there.items()},
        {each: found.timings[d].median_us for each, d in there.items()},
        {e: plans.planned_s[e] + from_nothing[d] for e, d in there.items() if d in from_nothing},
    )
    return timed, {e: found.failures.get(d, NO_TIME) for e, d in by.items() if e not in there}


def _compile_s(graph: Graph, kind: DeviceKind, plans: _Plans, deadline: float) -> dict[str, float]:
    """Seconds of building the plans that need no search, each from nothing, by digest."""
    found: dict[str, float] = {}
    for each in NEEDS_NO_SEARCH:
        candidate = plans.candidates.get(each)
        if candidate is None or candidate.digest in found or time.monotonic() > deadline:
            continue
        with empty_cache():
            found[candidate.digest] = build(kind.backend, graph, candidate).compile_s
    return found


def _over(timed: _Timed, one: str, other: str) -> tuple[float, float, float]:
    """Time of one plan over another's, and its 95 % interval."""
    if timed.samples[one] is timed.samples[other]:
        return 1.0, 1.0, 1.0
    found = verdict("", timed.samples[one], timed.samples[other])
    return found.ratio, found.low, found.high


def _dials(
    timed: _Timed, better: Sequence[tuple[float, float]], found: TuneResult
) -> tuple[Dial, ...]:
    """Rules, the untuned plan and each step of the search, by seconds."""
    names = [each for each in NEEDS_NO_SEARCH if each in timed.seconds]
    dials = [
        Dial(each, timed.seconds[each], timed.us[each], *_over(timed, each, SEARCHED))
        for each in names
    ]
    for seconds, us in better[:-1]:
        over = us / better[-1][1]
        us = over * timed.us[SEARCHED]
        dials.append(Dial(f"search, {seconds:.1f} s", seconds, us, over, over, over, read=True))
    dials.append(
        Dial(f"search, {found.total_s:.1f} s", found.total_s, timed.us[SEARCHED], 1.0, 1.0, 1.0)
    )
    return tuple(_marked(sorted(dials, key=lambda dial: dial.seconds)))


def _marked(dials: Sequence[Dial]) -> Iterator[Dial]:
    """Those on the front say so: each is faster than all that take fewer seconds."""
    least = float("inf")
    for dial in dials:
        yield replace(dial, on_front=dial.us < least)
        least = min(least, dial.us)


def _prices(plans: _Plans, timed: _Timed) -> Iterator[RulePrice]:
    for each, planner, rule in variants():
        if {each, planner} <= timed.us.keys() and _changes(plans, each, planner):
            yield RulePrice(planner, rule, *_over(timed, planner, each))


def _changes(plans: _Plans, each: str, planner: str) -> bool:
    return plans.candidates[each].digest != plans.candidates[planner].digest


def _unchanged(plans: _Plans) -> Iterator[tuple[str, int]]:
    for planner in SWITCHABLE:
        those = [each for each, own, rule in variants() if own == planner and rule]
        known = [each for each in those if each in plans.candidates]
        if planner in plans.candidates:
            yield planner, sum(not _changes(plans, each, planner) for each in known)


def _parts(timed: _Timed) -> Iterator[SpeedupFactor]:
    """The speed-up over one kernel for each op, as factors in this order: what the best rules' plan
    saves, what the searched partition does beyond it under default launches, what launches do."""
    rules = [each for each in BASELINES if each in timed.us and each != PLAINEST]
    if PLAINEST not in timed.us or not rules or DEFAULT_LAUNCHES not in timed.us:
        return
    best = min(rules, key=lambda each: timed.us[each])
    for what, before, after in (
        (f"fusion by rules ({best})", PLAINEST, best),
        ("the searched partition", best, DEFAULT_LAUNCHES),
        ("launches", DEFAULT_LAUNCHES, SEARCHED),
        ("all", PLAINEST, SEARCHED),
    ):
        yield SpeedupFactor(what, *_over(timed, before, after))


def _crossings(timed: _Timed, searched_s: float) -> Iterator[Crossing]:
    us = timed.us[SEARCHED]
    for each in NEEDS_NO_SEARCH:
        if each not in timed.seconds:
            continue
        extra = max(0.0, searched_s - timed.seconds[each])
        ratio, low, high = _over(timed, each, SEARCHED)
        runs = [extra / (1e-6 * us * (r - 1)) if r > 1 else None for r in (ratio, high, low)]
        yield Crossing(each, *runs)
