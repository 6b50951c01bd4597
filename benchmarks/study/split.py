"""Experiment B: whose speed-up is it, the partition's, the launches' or the generator's?

Every rule's partition and the searched one, each under default and under tuned launches, all in
turns. First the launches of the rules' partitions are tuned, then partition and launches are
searched together for as many seconds, from what is known by then: kernels that both use are tuned
for both. A peer takes turns with the plan of the rules that stand for its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from autofuse.baselines import BASELINES
from autofuse.devices import DeviceKind, timed_device
from autofuse.graph.types import Graph
from autofuse.plan.types import Candidate
from autofuse.tuning import compile as compile_graph
from autofuse.tuning import tune
from autofuse.tuning.cache_state import cache_state
from autofuse.tuning.in_turns import timed_in_turns
from autofuse.tuning.known_kernels import tuned_candidate
from autofuse.tuning.plans import baseline_plan
from autofuse.tuning.problem import default_candidate
from autofuse.tuning.result import TuneResult
from autofuse.tuning.search.rule_launches import LAUNCHES
from autofuse.tuning.serve.forms import known_forms
from autofuse.tuning.together import Interleaving
from benchmarks.kept import Row, empty_database
from benchmarks.run import sentence
from benchmarks.study.dials import samples_in_turns
from benchmarks.unseen.types import Call, Made

SEARCHED, DEFAULT, TUNED = "searched", "default", "tuned"
STATES = ("cold", "warm")
# The rules that stand for a peer's own.
RULES_OF: Mapping[str, str] = {"jax.jit": "xla-2026", "inductor": "inductor"}
# Samples of each plan in turns; wall seconds of them all, and of a plan that must run alone.
HOW = Interleaving(blocks=5, rounds=4, limit_s=120.0, single_limit_s=60.0)
# Digits of a digest that tell the plans of one program apart.
SHORT = 12


def split_row(made: Made, seconds: float, peaks: Mapping[str, float]) -> Row:
    """Times of one program, which is tuned twice for so many seconds.

    `plans`: by partition, its plan under `default` and under `tuned` launches (short digests), its
    `groups`, and how many of these had been timed (`known`); `us`: by cache state, microseconds of
    each plan that ran; `failed`: why others did not; `calls`: by peer, microseconds of its calls
    and of ours, `rules` and `searched`, taken in turns. Raises AutofuseError where no plan was
    found."""
    kind = timed_device("cpu")
    with empty_database(peaks) as db:
        sessions = {
            name: tune(made.graph, device="cpu", db=db, budget_s=seconds, strategy=name)
            for name in (LAUNCHES, "exact")
        }
        graph = known_forms(made.graph).graph
        plans = _plans(graph, kind, db, sessions["exact"].best)
        told, failed = _timed(graph, kind, {c.digest: c for _, c in plans.values()})
        return {
            "nodes": len(graph.nodes),
            "state": cache_state("auto", graph, kind),
            "sessions": {name: _session(each) for name, each in sessions.items()},
            "plans": _named(plans),
            "us": told,
            "failed": failed,
            "calls": _calls(made, db, plans),
        }


def _session(found: TuneResult) -> Row:
    return {"trials": found.trials, "took_s": round(found.total_s, 2), "best": found.best.origin}


# By partition and launches: how many kernels had been timed, and the candidate.
_Plans = dict[tuple[str, str], tuple[int, Candidate]]


def _plans(graph: Graph, kind: DeviceKind, db: str, best: Candidate) -> _Plans:
    partitions = {name: baseline_plan(graph, name)[0] for name in BASELINES}
    found: _Plans = {}
    for name, plan in (partitions | {SEARCHED: best.plan}).items():
        tuned, known = tuned_candidate(graph, plan, kind, db, name)
        found[name, DEFAULT] = known, default_candidate(graph, plan, kind.space, name)
        found[name, TUNED] = known, tuned
    return found


def _named(plans: _Plans) -> Row:
    told: Row = {}
    for (name, launches), (known, candidate) in plans.items():
        counts = {"groups": len(candidate.plan.groups), "known": known}
        told.setdefault(name, counts)[launches] = candidate.digest[:SHORT]
    return told


def _timed(
    graph: Graph, kind: DeviceKind, different: Mapping[str, Candidate]
) -> tuple[Row, dict[str, str]]:
    us, failed = Row(), dict[str, str]()
    for state in STATES:
        found = timed_in_turns(graph, kind, different, HOW, cache=state)
        us[state] = {d[:SHORT]: round(t.median_us, 3) for d, t in found.timings.items()}
        failed |= {d[:SHORT]: why for d, why in found.failures.items()}
    return us, failed


def _calls(made: Made, db: str, plans: _Plans) -> Row:
    """Calls from Python, as a user's are."""
    return {
        peer: _beside(made, made.peers[peer], {
            "rules": _ours(made, db, plans[rules, DEFAULT][1]),
            SEARCHED: _ours(made, db, plans[SEARCHED, TUNED][1]),
        })
        for peer, rules in RULES_OF.items() if peer in made.peers
    }  # fmt: skip


def _ours(made: Made, db: str, candidate: Candidate) -> Call:
    plan = compile_graph(made.graph, device="cpu", db=db, plan=candidate, constants=made.constants)
    return lambda: plan(*made.arguments)


def _beside(made: Made, peer: Callable[[], Call], ours: Mapping[str, Call]) -> Row:
    try:
        call = peer()
        call()
    except Exception as error:  # whatever a peer raises: the row goes on
        return {"error": sentence(error)}
    samples = samples_in_turns(made, {"peer": call, **ours})
    return {name: round(float(np.median(each)), 3) for name, each in samples.items()}
