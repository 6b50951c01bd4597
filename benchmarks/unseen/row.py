"""One program under one budget: tuned, held against the rules, checked, timed with its peers."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from autofuse.backends.machine import last_level_cache_bytes
from autofuse.baselines import BASELINES
from autofuse.devices import timed_device
from autofuse.errors import AutofuseError
from autofuse.graph.canonical import group_digest
from autofuse.graph.types import Graph
from autofuse.measure.check.compare import check, reference_of
from autofuse.measure.hardware import HOST
from autofuse.measure.truth.compiled import CompiledRuns
from autofuse.measure.worker.lock import measurement_lock
from autofuse.peers.interleave import overwriter, take_turns
from autofuse.simplify import normal_form
from autofuse.tuning import compile as compile_graph
from autofuse.tuning import tune
from autofuse.tuning.api import compare
from autofuse.tuning.cache_state import cache_state
from autofuse.tuning.plans import BEST
from autofuse.tuning.result import Progress, TuneResult
from autofuse.tuning.serve.forms import known_forms
from benchmarks.kept import empty_database
from benchmarks.run import sentence
from benchmarks.unseen.making import constant_names
from benchmarks.unseen.types import Made
from tuning_db import Store

# What counts as a gain over the best rule, and as a proof that there is none to be had.
GAIN, PROOF = 1.02, 0.05
# The microsecond from which on a time is a better one than before, as a fraction.
BETTER = 0.999


@dataclass(frozen=True, slots=True)
class Asked:
    """What a row is asked: `seconds` of tuning, `timing_s` of taking turns with `peers` (by name;
    none: no peer), `rules` whether the ten rules are measured afterwards. `peaks` is what this
    device was calibrated to."""

    seconds: float
    timing_s: float
    peers: tuple[str, ...]
    rules: bool
    peaks: Mapping[str, float]


@dataclass(slots=True)
class Watched:
    """What a session told while it ran: seconds in each phase, and when the best plan improved."""

    budget_s: float
    phases: dict[str, float] = field(default_factory=dict)
    better: list[tuple[float, float]] = field(default_factory=list)
    _at: float = 0.0
    _phase: str = "starting"

    def __call__(self, state: Progress) -> None:
        now = self.budget_s - state.left_s
        self.phases[self._phase] = self.phases.get(self._phase, 0.0) + now - self._at
        self._at, self._phase = now, state.phase.partition(" baseline")[0]
        if state.best_us is None:
            return
        if not self.better or state.best_us < BETTER * self.better[-1][1]:
            self.better.append((now, state.best_us))


def row(made: Made, name: str, asked: Asked) -> dict[str, Any]:
    """What is to be told of one program. Raises AutofuseError where no plan was found."""
    with empty_database(asked.peaks) as db:
        watched, begun = Watched(asked.seconds), time.perf_counter()
        found = tune(
            made.graph, name=name, device="cpu", db=db, budget_s=asked.seconds, progress=watched
        )
        took_s = time.perf_counter() - begun
        told = _searched(found, watched, took_s) | _kept(db)
        # Where there was no time to measure anything there is no plan to hold rules against.
        told |= _ruled(made.graph, db) if asked.rules and found.is_timed else {}
        if not _is_settled(told):
            told |= {"loose": _loose(made.graph, found, db)}
        return told | _beside_peers(made, db, asked)


def _searched(found: TuneResult, watched: Watched, took_s: float) -> dict[str, Any]:
    spent = asdict(found.session.spent)
    return {
        "nodes": found.nodes,
        "timed": found.is_timed,
        "best_us": found.best_us,
        "origin": found.best.origin,
        "first_plan_s": watched.better[0][0] if watched.better else None,
        "better": watched.better,
        "trials": found.trials,
        "measured": found.measured,
        "failed": found.failed,
        "search_gap": found.search_gap,
        "bound_gap": found.bound_gap,
        "certificate": found.proof.certificate,
        "spent_s": spent,
        "phases_s": {phase: round(s, 2) for phase, s in watched.phases.items()},
        "took_s": took_s,
        "verified": found.verified,
        "left_out": list(found.left_out),
        "notes": list(found.notes),
        "load": os.getloadavg()[0],
    }


def _kept(db: str) -> dict[str, int]:
    """How much the database holds of it."""
    with Store.open(db) as store:
        counts = store.counts()
    return {"kernels_kept": counts["kernel_measurement"], "plans_kept": counts["measurement"]}


def _ruled(graph: Graph, db: str) -> dict[str, Any]:
    """All rules' plans and the best one, timed interleaved."""
    found = compare(graph, device="cpu", db=db, plans=(*BASELINES, BEST))
    us = {name: plan["time_us"] for name, plan in found.plans.items() if "time_us" in plan}
    broken = {name: plan["error"] for name, plan in found.plans.items() if "error" in plan}
    rules = {name: time_us for name, time_us in us.items() if name != BEST}
    told: dict[str, Any] = {"rules_us": us, "rules_failed": broken}
    if rules and BEST in us:
        rule = min(rules, key=lambda name: rules[name])
        told |= {"best_rule": rule, "over_rules": rules[rule] / us[BEST]}
    return told


def _is_settled(told: Mapping[str, Any]) -> bool:
    """Whether there is a gain over the rules, or a proof that there is none."""
    gap, gain = told["search_gap"], told.get("over_rules")
    return (gap is not None and gap <= PROOF) or (gain is not None and gain >= GAIN)


def _loose(graph: Graph, found: TuneResult, db: str) -> dict[str, Any] | None:
    """The kernel of the best plan that was measured furthest above its bound: its ops, its time and
    bound in microseconds. None where no kernel of it was measured alone."""
    form = known_forms(graph).graph
    groups = {group_digest(form, g.nodes, g.outputs): g for g in found.best.plan.groups}
    kind = timed_device("cpu")
    with Store.open(db) as store:
        kernels = store.kernels(kind.backend.environment(), set(groups))
    best: dict[str, tuple[float, float]] = {}
    for record in kernels.values():
        if record.timing is None or record.bound_us is None:
            continue
        us = record.timing.median_us
        if record.group not in best or us < best[record.group][0]:
            best[record.group] = (us, record.bound_us)
    if not best:
        return None
    worst = max(best, key=lambda key: best[key][0] - best[key][1])
    ops = Counter(form[n].op for n in groups[worst].nodes)
    us, bound_us = best[worst]
    return {"ops": dict(ops.most_common(8)), "us": us, "bound_us": bound_us}


def _beside_peers(made: Made, db: str, asked: Asked) -> dict[str, Any]:
    """Whether results are right, and peers' times over ours."""
    plan = compile_graph(made.graph, device="cpu", db=db, constants=made.constants)
    peers, failed = {}, {}
    for name, make in made.peers.items():
        if name in asked.peers:
            try:
                peers[name] = make()
                peers[name]()
            except Exception as error:  # whatever a peer raises: the others go on
                failed[name] = sentence(error)
                peers.pop(name, None)
    calls = {"ours": lambda: plan(*made.arguments), **peers}
    told: dict[str, Any] = {"peers_failed": failed, **judged(made, calls)}
    if len(calls) == 1 or asked.timing_s <= 0:
        return told
    cold = cache_state("auto", normal_form(made.graph), timed_device("cpu")) == "cold"
    with measurement_lock(HOST.unit):
        overwrite = overwriter(last_level_cache_bytes() if cold else 0)
        samples = take_turns(calls, overwrite, asked.timing_s)
    us = {name: float(np.median(each)) for name, each in samples.items()}
    return told | {"us": us, "peer_over": {n: us[n] / us["ours"] for n in peers}}


def judged(made: Made, calls: Mapping[str, Any]) -> dict[str, Any]:
    """Results of ours and of each peer held to the float64 reference of the graph, on the
    program's own arguments."""
    inputs = list(_inputs(made))
    reference = reference_of(made.graph, inputs, evaluate=CompiledRuns)
    wrong: dict[str, str] = {}
    for name, call in calls.items():
        verdict = check(_alike(call(), made.graph), reference)
        if not verdict.ok:
            wrong[name] = verdict.message
    return {"right": "ours" not in wrong, "wrong": wrong, "blind": reference.blind}


def _inputs(made: Made) -> Iterator[np.ndarray]:
    """An array for each input of the graph, constants among them."""
    given, fixed = iter(made.arguments), constant_names(made.graph)
    for name in made.graph.input_names:
        yield made.constants[name] if name in fixed else next(given)


def _alike(found: Sequence[np.ndarray], graph: Graph) -> list[np.ndarray]:
    """As many arrays as outputs, each of the output's type, or AutofuseError."""
    types = graph.output_types
    if len(found) != len(types):
        raise AutofuseError(f"{len(found)} results where the graph has {len(types)}")
    pairs = zip(found, types, strict=True)
    return [np.ascontiguousarray(array).reshape(type_.shape) for array, type_ in pairs]
