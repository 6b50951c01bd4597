"""The first step on a GPU: one small kernel of each class (`gpu_classes`), run once and checked.

Kernels that nobody has run on a device may hang, or break its context for whoever comes after them
in the same process. They run in a process of their own that says what it begins before it begins:
the case that it hangs or dies at is named, and another process goes on after it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

from autofuse.backends.base import CompileError, LaunchError
from autofuse.devices import DeviceKind, device_named
from autofuse.errors import AutofuseError
from autofuse.limits import usable_cores
from autofuse.measure.first_check import first_check
from autofuse.records import CHECKED, UNVERIFIED, WRONG
from benchmarks.dry import measured
from benchmarks.gpu_children import follow
from benchmarks.gpu_classes import SmokeCase, smoke_cases
from benchmarks.gpu_steps import Context, Data, require_all
from benchmarks.run import sentence

# Seconds that a case may take, compiling included, and those of a check.
LIMIT_S, CHECK_S = 20.0, 5.0
# The share of cases that may fail before nothing else is worth the time.
FEW = 0.1
# What the child ends with after a fault of the device: its context is of no use any more.
BROKEN = 3
RIGHT, REFUSED, BEGUN = "right", "refused", "begun"
_VERDICTS, _LOG, _ASKED = "smoke.jsonl", "smoke.log", "smoke-asked.json"


def smoke(context: Context, seconds: float) -> Iterator[Mapping[str, Any]]:
    """Verdicts by case. A later call goes on with what was not right."""
    cases = context.found("smoke", "cases")
    names = [one.name for one in smoke_cases(context.kind, context.size, context.programs)]
    end = context.clock() + seconds
    while (left := [name for name in names if name not in cases]) and context.clock() < end:
        watch = _Watch(context)
        for found in _child(context, left, end, watch):
            cases |= found
            yield _summary(names, cases)
        cases |= watch.look()
        why = watch.verdict()
        if why is None:
            break
        if why:
            cases[watch.current] = {"state": "failed", "error": why}
    yield _summary(names, cases)
    require_all(names, cases)


def _child(context: Context, left: Sequence[str], end: float, watch: _Watch) -> Iterator[Data]:
    """One process on the cases that are left, killed where it hangs and at the end; what it has
    told so far, again and again."""
    asked = context.out / _ASKED
    asked.write_text(json.dumps(left), encoding="utf-8")
    watch.told.unlink(missing_ok=True)
    command = [
        sys.executable, "-m", "benchmarks.gpu_smoke", "--device", context.kind.name,
        "--size", context.size, "--asked", str(asked), "--told", str(watch.told),
    ]  # fmt: skip
    log, seconds = context.out / _LOG, end - context.clock()
    with closing(follow(command, log, seconds, context.clock, poll_s=0.2)) as child:
        for code in child:
            watch.code = code
            yield watch.look()
            if watch.hangs:
                return


class _Watch:
    """What a child has told so far: `current` is the case that it is at, `hangs` that it has been
    at it for too long, `code` what it ended with."""

    def __init__(self, context: Context) -> None:
        self._clock, self.told = context.clock, context.out / _VERDICTS
        self.current, self.hangs = "", False
        self.code: int | None = None
        self._since = self._clock()

    def look(self) -> dict[str, Any]:
        """Verdicts by case."""
        text = self.told.read_text(encoding="utf-8") if self.told.exists() else ""
        rows = [json.loads(line) for line in text.split("\n")[:-1]]  # of lines that are whole
        found = {row["name"]: row["found"] for row in rows if "found" in row}
        begun = [row["name"] for row in rows if row.get("state") == BEGUN]
        at = begun[-1] if begun and begun[-1] not in found else ""
        if at != self.current:
            self.current, self._since = at, self._clock()
        self.hangs = bool(at) and self._clock() - self._since > LIMIT_S
        return found

    def verdict(self) -> str | None:
        """What its end says of the current case, "" for nothing; None where the step is over.
        Raises RuntimeError where it ended before any case."""
        if self.hangs:
            return f"it hung: more than {LIMIT_S:g} s"
        if self.code is None:
            return None
        if self.code not in (0, BROKEN) and not self.current:
            raise RuntimeError(f"the cases ended with code {self.code}: see {_LOG}")
        return f"its process ended with code {self.code}" if self.current else ""


def _summary(names: Sequence[str], cases: Mapping[str, Any]) -> Mapping[str, Any]:
    bad = [name for name in names if "error" in cases.get(name, {})]
    right = sum(one["state"] == RIGHT for one in cases.values())
    stop = len(bad) > FEW * len(names)
    return {"asked": len(names), "right": right, "cases": dict(cases), "stop": stop}


# --- the child ------------------------------------------------------------------------------------


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
        found: dict[str, Any] = {"state": "failed", "error": sentence(error)}
    except AutofuseError as error:  # what the device cannot hold is said, and is no fault
        found = {"state": REFUSED, "why": sentence(error)}
    else:
        state = RIGHT if trust.state == CHECKED else trust.state
        found = {"state": state}
        if state != RIGHT:
            found["why" if state == UNVERIFIED else "error"] = trust.why
    return found | {"seconds": round(time.perf_counter() - begun, 3)}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("device", "size", "asked", "told"):
        parser.add_argument(f"--{name}", required=True)
    given = parser.parse_args(arguments)
    asked: list[str] = json.loads(Path(given.asked).read_text(encoding="utf-8"))
    programs = tuple(dict.fromkeys(name.partition("/")[0] for name in asked))
    with measured(given.device), Path(given.told).open("a", encoding="utf-8") as told:
        kind = device_named(given.device)
        cases = {one.name: one for one in smoke_cases(kind, given.size, programs)}

        def say(row: Mapping[str, Any]) -> None:
            told.write(json.dumps(row) + "\n")
            told.flush()

        # Compilers run ahead of the device, on all cores.
        pool = ThreadPoolExecutor(usable_cores())
        builds = {name: pool.submit(built_case, kind, cases[name]).result for name in asked}
        try:
            for name in asked:
                say({"name": name, "state": BEGUN})
                found = run_case(kind, cases[name], builds[name])
                say({"name": name, "found": found})
                if found["state"] == WRONG:  # an illegal address is one of its reasons
                    return BROKEN
        except LaunchError as error:
            say({"name": name, "found": {"state": "failed", "error": sentence(error)}})
            return BROKEN
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
