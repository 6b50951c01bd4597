"""The first step on a GPU: one small kernel of each class (`gpu_classes`), run once and checked."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from autofuse.backends.base import CompileError, LaunchError
from autofuse.devices import DeviceKind, device_named
from autofuse.errors import AutofuseError
from autofuse.limits import usable_cores
from autofuse.measure.first_check import first_check
from autofuse.records import CHECKED, UNVERIFIED
from benchmarks.dry import measured
from benchmarks.gpu_cases import FAILED, REFUSED, RIGHT, CaseStep, asked
from benchmarks.gpu_classes import SmokeCase, smoke_cases
from benchmarks.gpu_steps import Context, require_all
from benchmarks.run import sentence

# Seconds that a case may take, compiling included, and those of a check.
LIMIT_S, CHECK_S = 20.0, 5.0
# The share of cases that may fail before nothing else is worth the time.
FEW = 0.1
CASES = CaseStep("smoke", "benchmarks.gpu_smoke", LIMIT_S)


def smoke(context: Context, seconds: float) -> Iterator[Mapping[str, Any]]:
    """Verdicts by case. A later call goes on with what was not right."""
    names = [one.name for one in smoke_cases(context.kind, context.size, context.programs)]
    cases: Mapping[str, Any] = {}
    for cases in CASES.run(context, names, seconds):
        yield _summary(names, cases)
    require_all(names, cases)


def _summary(names: Sequence[str], cases: Mapping[str, Any]) -> Mapping[str, Any]:
    bad = [name for name in names if "error" in cases.get(name, {})]
    right = sum(one["state"] == RIGHT for one in cases.values())
    stop = len(bad) > FEW * len(names)
    return {"asked": len(names), "right": right, "cases": dict(cases), "stop": stop}


def built_case(kind: DeviceKind, case: SmokeCase) -> Any:
    """The artifact of one case. Raises AutofuseError."""
    return kind.backend.build(kind.backend.program(case.graph, case.candidate)).artifact


def run_case(kind: DeviceKind, case: SmokeCase, build: Callable[[], Any]) -> dict[str, Any]:
    """The verdict of one case, once `build` has given its artifact. Raises LaunchError where the
    device is broken by it."""
    begun = time.perf_counter()
    try:
        artifact = build()
        trust = first_check(case.graph, lambda: kind.backend.load(artifact, ""), CHECK_S, CHECK_S)
    except LaunchError:
        raise
    except CompileError as error:
        found: dict[str, Any] = {"state": FAILED, "error": sentence(error)}
    except AutofuseError as error:  # what the device cannot hold is said, and is no fault
        found = {"state": REFUSED, "why": sentence(error)}
    else:
        state = RIGHT if trust.state == CHECKED else trust.state
        found = {"state": state}
        if state != RIGHT:
            found["why" if state == UNVERIFIED else "error"] = trust.why
    return found | {"seconds": round(time.perf_counter() - begun, 3)}


def main(arguments: Sequence[str]) -> int:
    """The child: it answers for the cases that it is asked about."""
    given = asked(arguments)
    programs = tuple(dict.fromkeys(name.partition("/")[0] for name in given.names))
    with measured(given.device):
        kind = device_named(given.device)
        cases = {one.name: one for one in smoke_cases(kind, given.size, programs)}
        # Compilers run ahead of the device, on all cores.
        pool = ThreadPoolExecutor(usable_cores())
        builds = {n: pool.submit(built_case, kind, cases[n]).result for n in given.names}
        try:
            return given.answer(lambda name: run_case(kind, cases[name], builds[name]))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
