"""Rows of a database that a report is made of, some of them hostile."""

from __future__ import annotations

import math
from dataclasses import replace

from autofuse.records import (
    Cost,
    Environment,
    Event,
    Failure,
    FailureKind,
    Measurement,
    Proof,
    SessionResult,
    SessionRow,
    Timing,
    Verdict,
    WorkloadRow,
)
from autofuse.report.collect import collect
from autofuse.report.model import WorkloadReport
from autofuse.report.plan_picture import Box, plan_svg

ENV = Environment("cpu", (("isa", "avx2"),), (("compiler", "gcc 12"),))
WORKLOAD = WorkloadRow("d" * 32, "text", "zoo:softmax", 7)
HOSTILE = "<script>alert('x')</script>\"&\x00\ud800]]>"


def timing(us: float) -> Timing:
    return Timing(30, us * 0.9, us * 0.95, us, us * 1.1, us, us * 0.05, "cold", "noise")


def measurement(
    name: str, us: float | None, compile_s: float, origin: str = "random", stage: str = "search"
) -> Measurement:
    return Measurement(
        workload=WORKLOAD.digest,
        candidate="{}",
        candidate_digest=name,
        origin=origin,
        kernels=len(name),
        groups=(),
        timing=None if us is None else timing(us),
        failure=Failure(FailureKind.TIMEOUT, "too slow") if us is None else None,
        max_rel_error=None if us is None else 1e-7,
        cost=Cost(0.0, compile_s, 0.5, 0.0),
        stage=stage,
    )


MEASUREMENTS = (
    measurement("plain", 4000.0, 0.5, "unfused", "baseline"),
    measurement("xla", 2000.0, 0.25, "xla-2022", "baseline"),
    measurement("slow", 9000.0, 0.125),
    measurement("broken", None, 2.0),
    measurement("good", 900.0, 2.0),
    measurement("good", 1000.0, 0.0, stage="final"),
)

EVENTS = (
    Event(0, Cost(compile=0.5), 4000.0, "plain", "unfused"),
    Event(1, Cost(compile=1.0), 2000.0, "xla", "xla-2022"),
    Event(5, Cost(0.5, 4.0, 3.0, 0.5), 900.0, "good", "random", Proof(400.0)),
)

RESULT = SessionResult(
    strategy="random",
    seed=7,
    budget_s=20.0,
    spent=Cost(1.0, 6.0, 4.0, 1.25),
    trials=9,
    measured=4,
    failed=(("timeout", 1),),
    best_digest="good",
    baselines=(("unfused", "plain"), ("xla-2022", "xla")),
    verdicts=(Verdict("xla-2022", 2000.0, 1000.0, 2.0, 1.5, 2.5, "faster"),),
    finished=True,
)

SESSION = SessionRow(
    3, ENV, WORKLOAD.digest, "random", 7, 20.0, "2024-01-01T00:00:00Z", "end", RESULT
)


def hostile_report() -> WorkloadReport:
    result = replace(
        RESULT,
        baselines=((HOSTILE, "plain"), ("xla-2022", "xla")),
        verdicts=(Verdict(HOSTILE, 1.0, 1.0, 1.0, 0.5, math.inf, HOSTILE),),
        failed=((HOSTILE, 2),),
    )
    environment = Environment(HOSTILE, ((HOSTILE, HOSTILE),))
    session = replace(SESSION, strategy=HOSTILE, result=result, environment=environment)
    plan = plan_svg([Box(0, HOSTILE, 0, HOSTILE)], [], title=HOSTILE)
    workload = replace(WORKLOAD, name=HOSTILE)
    rows = [replace(m, origin=HOSTILE) for m in MEASUREMENTS]
    return collect(workload, [session], {3: EVENTS}, rows, plan_svg=plan)
