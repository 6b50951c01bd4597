"""Records of every kind for the tests of the tuning database; also a process that writes them."""

from __future__ import annotations

import sys
from dataclasses import replace

from autofuse.records import (
    Cost,
    Environment,
    Event,
    Failure,
    FailureKind,
    KernelMeasurement,
    Measurement,
    Proof,
    SessionResult,
    Timing,
    Verdict,
)
from tuning_db import Store

ENV = Environment("cpu", (("isa", "avx2"),), (("driver", "5"), ("power", "90")))
WORKLOAD = "a" * 32


def timing(us: float = 10.0) -> Timing:
    return Timing(30, us - 1, us - 0.5, us, us + 0.5, us + 0.1, 0.25, "cold", "noise")


def measurement(name: str, us: float = 10.0, stage: str = "search") -> Measurement:
    return Measurement(
        workload=WORKLOAD,
        candidate=f'{{"plan":"{name}"}}',
        candidate_digest=name,
        origin="random",
        kernels=2,
        groups=(f"g-{name}", "g-shared", f"g-{name}"),
        timing=timing(us),
        failure=None,
        max_rel_error=1e-7,
        cost=Cost(0.25, 1.5, 0.75, 0.125),
        stage=stage,
    )


def failed(name: str, kind: FailureKind = FailureKind.COMPILE) -> Measurement:
    failure = Failure(kind, "ptxas: too many registers\n\x00\udcff")
    return replace(measurement(name), timing=None, failure=failure, max_rel_error=None)


def kernel(
    group: str,
    us: float = 5.0,
    launch: str = '{"block":128}',
    cache: str = "cold",
    code: str = "",
) -> KernelMeasurement:
    return KernelMeasurement(
        group=group,
        launch=launch,
        cache=cache,
        code=code,
        timing=replace(timing(us), cache=cache),
        failure=None,
        max_rel_error=1e-7,
        cost=Cost(0.25, 1.5, 0.75, 0.125),
        bound_us=2.5,
        facts=(("registers", 32.0), ("bytes", 4096.0)),
    )


def failed_kernel(group: str) -> KernelMeasurement:
    return replace(kernel(group), timing=None, failure=failed("").failure, max_rel_error=None)


def event(
    name: str, us: float, trial: int = 1, bound: float | None = None, gap: float | None = None
) -> Event:
    return Event(trial, Cost(1.0, 2.0, 3.0, 4.0), us, name, "random", Proof(bound, gap))


def result(best: str, baseline: str = "", finished: bool = True) -> SessionResult:
    return SessionResult(
        strategy="random",
        seed=7,
        budget_s=60.0,
        spent=Cost(1.0, 2.0, 3.0, 4.0),
        trials=9,
        measured=6,
        failed=(("timeout", 1), ("compile", 2)),
        best_digest=best,
        baselines=(("unfused", baseline), ("xla-2022", baseline)) if baseline else (),
        verdicts=(Verdict("unfused", 30.0, 10.0, 3.0, 2.5, float("inf"), "faster"),),
        finished=finished,
        proof=Proof(search_gap=0.25, residual_us=-1.5),
    )


def filled(store: Store) -> int:
    """Put one record of every kind into a store; returns the session."""
    store.add_workload(WORKLOAD, "graph text", "toy", 3)
    session = store.start_session(ENV, WORKLOAD, "random", 7, 60.0)
    store.add_measurement(session, ENV, measurement("base", 30.0, "baseline"))
    store.add_event(session, event("base", 30.0))
    store.add_measurement(session, ENV, failed("broken"))
    store.add_measurement(session, ENV, measurement("good", 10.0))
    store.add_event(session, event("good", 10.0, 3, 2.5, 3.0))
    store.add_measurement(session, ENV, measurement("good", 10.5, "final"))
    store.add_kernel(session, ENV, kernel("g-good"))
    store.add_kernel(None, ENV, failed_kernel("g-broken"))
    store.finish_session(session, result("good", "base"))
    store.add_measurement(None, ENV, measurement("loose", 20.0))
    store.set_calibration(ENV, {"copy_gb_s": 123.5})
    store.add_groups({"g-good": "group text"})
    return session


def main(path: str, prefix: str, count: int) -> None:
    """Write `count` measurements, each with its own candidate, naming each once it is stored."""
    with Store.open(path) as store:
        store.add_workload(WORKLOAD, "graph text", "toy", 3)
        session = store.start_session(ENV, WORKLOAD, "random", 1, 60.0)
        for number in range(count):
            store.add_measurement(session, ENV, measurement(f"{prefix}{number}", 10.0 + number))
            print(f"{prefix}{number}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
