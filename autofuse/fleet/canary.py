"""Timing the canary of this process's unit (see `health`).

What is usual there is kept with the calibration of its environment, so another driver begins anew.
"""

from __future__ import annotations

from dataclasses import replace

from autofuse.devices import DeviceKind, timed_device
from autofuse.fleet.health import Canary
from autofuse.frontends import array_api as xp
from autofuse.frontends import spec, trace
from autofuse.frontends.array_api.array import TracedArray
from autofuse.graph.types import Graph
from autofuse.measure.timing.sampling import MeasureError, Sampling
from autofuse.measure.worker.session import Worker
from autofuse.measure.workload import Workload
from autofuse.simplify import normal_form
from autofuse.tuning.evaluate import build
from autofuse.tuning.problem import default_candidate
from search_spaces.fusion import FusionSpace
from search_spaces.launch import first_option
from tuning_db import Store

_SAMPLING = Sampling("warm", wall_s=0.25)


def canary_of(device: str, db: str | None) -> Canary:
    """Look at the unit of this process. Raises AutofuseError for a device that cannot be timed, and
    for an unusable database."""
    kind = timed_device(device)
    unit, environment = kind.timer.unit, kind.backend.environment()
    name = f"canary.{unit}"
    others = kind.timer.others(unit)
    told = Canary(unit, None)
    told = replace(told, note=others) if isinstance(others, str) else replace(told, others=others)
    with Store.open(db) as store:
        usual = store.calibration(environment).get(name)
        found = _timed(kind, replace(told, usual_us=usual))
        if found.next_usual_us is not None and not found.fault:
            store.set_calibration(environment, {name: found.next_usual_us})
    return found


def _timed(kind: DeviceKind, told: Canary) -> Canary:
    graph = normal_form(_graph(), True)
    plan = FusionSpace(graph).choose(first_option)
    built = build(kind.backend, graph, default_candidate(graph, plan, kind.space, "canary"))
    if built.artifact is None:
        assert built.failure is not None
        return replace(told, note=built.failure.message)
    try:
        with Worker(Workload(graph), hardware=kind.timer) as worker:
            reply = worker.measure(built.artifact, _SAMPLING)
    except MeasureError as error:
        return replace(told, note=str(error))
    if reply.timing is None:
        assert reply.failure is not None
        return replace(told, note=reply.failure.message)
    return replace(told, us=reply.timing.median_us)


def _graph() -> Graph:
    """Arithmetic and traffic of the cache, on all threads."""

    def rows(x: TracedArray) -> TracedArray:
        return xp.sum(xp.exp(x) * x, axis=1)

    return trace(rows, spec((1024, 512)))
