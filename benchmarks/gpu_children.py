"""The steps of `gpu_check` that are programs of their own: followed while they run, ended in time.

What they have found is read from what they write.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import autofuse
from autofuse.measure.workload import Workload
from benchmarks.dry import DRY
from benchmarks.gpu_steps import Context, Data, read_result, zoo_references
from benchmarks.table import geomean
from benchmarks.workloads import HEADLINE

ROOT = Path(autofuse.__file__).parent.parent
# Tests that stand for those that need a GPU in a dry run: of the driver, on a fake.
DRY_TESTS = ("tests/test_cuda_driver.py",)
# The variable of the environment that names a file with the names of tests, one a line.
PASSED_FILE = "AUTOFUSE_PASSED_TESTS"
_VERDICT = re.compile(r"^(tests/\S+::.+?) (PASSED|FAILED|ERROR|SKIPPED)\b", re.MULTILINE)
_TAIL = 4000


def tests(context: Context, seconds: float) -> Iterator[Data]:
    """The tests marked `gpu` that no earlier run has passed, in a process of their own."""
    before = list(context.steps.get("tests", {}).get("passed_tests", ()))
    log, passed = context.out / "tests.log", context.out / "tests.passed"
    passed.write_text("\n".join(before), encoding="utf-8")
    try:
        code: int | None = None
        command = tests_command(context.kind.name)
        for state in follow(command, log, seconds, context.clock, {PASSED_FILE: str(passed)}):
            code = state
            yield read_tests(log.read_text(encoding="utf-8", errors="replace"), code, before)
    finally:
        passed.unlink()
    if code not in (0, *((5,) if before else ())):  # 5: none was left to run
        reason = "were cut off" if code is None else f"ended with code {code}"
        raise RuntimeError(f"the tests {reason}: see tests.log")


def tests_command(device: str) -> list[str]:
    """pytest on the tests that need the device."""
    files = [str(p.relative_to(ROOT)) for p in (ROOT / "tests").glob("test_gpu_*.py")]
    marks, chosen = ("not gpu", DRY_TESTS) if device == DRY else ("gpu", sorted(files))
    return [
        sys.executable, "-m", "pytest", "-v", "-m", marks, "-p", "no:cacheprovider",
        "-p", "benchmarks.gpu_passed", "--tb=short", "--color=no", *chosen,
    ]  # fmt: skip


def read_tests(text: str, code: int | None, before: Sequence[str] = ()) -> Data:
    """Counts and names from pytest's own words, those that passed `before` included; `code` is
    None while it runs or was cut off."""
    found = dict(_VERDICT.findall(text))
    passed = [*before, *(name for name, word in found.items() if word == "PASSED")]
    bad = sorted(name for name, word in found.items() if word in ("FAILED", "ERROR"))
    return {
        "passed": len(passed),
        "skipped": list(found.values()).count("SKIPPED"),
        "failed": bad,
        "code": code,
        "passed_tests": passed,
        "tail": text[-_TAIL:] if bad or code not in (0, 5, None) else "",
    }


def peers(context: Context, seconds: float) -> Iterator[Data]:
    """scripts/bench_peers on the plans that the step before found (else on the workloads that are
    asked for), in a process of its own; workloads compared before are left out."""
    earlier, left = context.steps.get("peers", {}), to_compare(context)
    result, log = context.out / "peers.json", context.out / "peers.log"
    result.unlink(missing_ok=True)
    command = [
        sys.executable, str(ROOT / "scripts" / "bench_peers"), "--device", context.kind.name,
        "--size", context.size, "--seconds", "0", "--timing-seconds", "1.5", "--db", context.db,
        "--workloads", ",".join(left), "--total", f"{0.75 * seconds:.0f}",
        "--output", str(result),
    ]  # fmt: skip
    code: int | None = None
    if not left:
        return
    for state in follow(command, log, seconds, context.clock):
        yield merged(earlier, read_result(result))
        code = state
    if code != 0:
        reason = "was cut off" if code is None else f"ended with code {code}"
        tail = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
        raise RuntimeError(f"the comparison {reason}: {''.join(tail) or 'see peers.log'}")
    missing = [name for name in left if name not in _compared(read_result(result))]
    if missing:
        raise RuntimeError(f"not compared: {', '.join(missing)}")


def to_compare(context: Context) -> list[str]:
    """Workloads that are not compared yet."""
    names = tuple(context.found("tune", "workloads")) or context.workloads
    return [name for name in names if name not in _compared(context.steps.get("peers", {}))]


def peers_references(context: Context) -> dict[str, Workload]:
    """Those that `peers` will look for; it waits for none."""
    return zoo_references(context, to_compare(context))


def _compared(data: Data) -> set[str]:
    """Workloads with a row in every mode."""
    modes: Mapping[str, Data] = data.get("modes", {})
    rows = [set(found.get("workloads", {})) for found in modes.values()]
    return set.intersection(*rows) if rows else set()


def merged(earlier: Data, now: Data) -> Data:
    """The results of an earlier comparison and of one of other workloads, as of one."""
    modes: dict[str, Any] = {}
    for mode, found in now.get("modes", {}).items():
        before: Data = earlier.get("modes", {}).get(mode, {})
        both = {
            key: {**before.get(key, {}), **found.get(key, {})}
            for key in ("workloads", "ratio_best_peer_over_autofuse")
        }
        ratios = both["ratio_best_peer_over_autofuse"]
        counted = [name for name in HEADLINE if name in ratios]
        modes[mode] = {
            **found,
            **both,
            "geomean_over": counted,
            "geomean_missing": [name for name in HEADLINE if name not in ratios],
            "geomean_best_peer_over_autofuse": geomean([ratios[name] for name in counted]),
        }
    return {**now, "modes": modes} if modes else {}


def follow(
    command: Sequence[str],
    log: Path,
    seconds: float,
    clock: Callable[[], float],
    environment: Mapping[str, str] | None = None,
    poll_s: float = 3.0,
) -> Iterator[int | None]:
    """Run `command` with its output in `log`: yields None now and then while it runs, and its
    exit code at the end; after `seconds` it is killed with all it started, and nothing more
    comes."""
    end = clock() + seconds
    path = os.pathsep.join(p for p in (str(ROOT), os.environ.get("PYTHONPATH", "")) if p)
    settings = {
        "PYTHONPATH": path,
        "PYTHONUNBUFFERED": "1",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        **(environment or {}),
    }
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, cwd=ROOT,
            env=os.environ | settings, start_new_session=True,
        )  # fmt: skip
        try:
            while clock() < end:
                try:
                    yield process.wait(max(0.05, min(poll_s, end - clock())))
                    return
                except subprocess.TimeoutExpired:
                    yield None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
