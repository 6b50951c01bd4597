"""The steps of `gpu_check` that are programs of their own: followed while they run, ended in time.

What they have found is read from what they write.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import autofuse
from autofuse.backends.cache import cache_directory
from autofuse.limits import usable_cores
from autofuse.measure.workload import Workload
from benchmarks.dry import DRY
from benchmarks.gpu_passed import VERDICTS, read_verdicts
from benchmarks.gpu_steps import Context, Data, read_result, zoo_references
from benchmarks.table import geomean
from benchmarks.workloads import HEADLINE

ROOT = Path(autofuse.__file__).parent.parent
# Tests that take times are alone on the device; the others run in so many processes.
ALONE, PROCESSES = ("tests/test_gpu_measure.py",), 8
# What stands for both in a dry run: tests of the driver and of graphs, on fakes.
DRY_ALONE, DRY_TOGETHER = ("tests/test_cuda_driver.py",), ("tests/test_cuda_order.py",)
# pytest's code where no test was left to run.
NONE_RAN = 5
_TAIL = 4000


def tests(context: Context, seconds: float) -> Iterator[Data]:
    """The tests marked `gpu` that no earlier run has passed, in processes of their own."""
    before = list(context.steps.get("tests", {}).get("passed_tests", ()))
    log, end, codes = context.out / "tests.log", context.clock() + seconds, list[int | None]()
    log.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        verdicts = Path(folder, "verdicts")
        verdicts.write_text("".join(f"{name} passed\n" for name in before), encoding="utf-8")
        # Kernels are compiled once for all processes, and for what comes after the tests.
        settings = {VERDICTS: str(verdicts), "AUTOFUSE_CACHE": str(cache_directory())}
        for command in pytest_commands(context.kind.name):
            codes.append(None)
            for code in follow(command, log, end - context.clock(), context.clock, settings):
                codes[-1] = code
                text = log.read_text(encoding="utf-8", errors="replace")
                yield read_tests(verdicts.read_text(encoding="utf-8"), text, codes)
    bad = _bad(codes, bool(before))
    if bad:
        reason = "were cut off" if None in bad else f"ended with code {bad[0]}"
        raise RuntimeError(f"the tests {reason}: see tests.log")


def _bad(codes: Sequence[int | None], before: bool) -> list[int | None]:
    """The codes of those that went wrong; that none ran is wrong if none did before."""
    ran = [code for code in codes if code != NONE_RAN]
    return [code for code in ran if code != 0] or ([] if ran or before else [NONE_RAN])


def pytest_commands(device: str) -> list[list[str]]:
    """pytest on the tests that need the device: those that must be alone, then the others, side by
    side where pytest-xdist is installed."""
    files = sorted(str(p.relative_to(ROOT)) for p in (ROOT / "tests").glob("test_gpu_*.py"))
    marks, alone, others = "gpu", ALONE, tuple(f for f in files if f not in ALONE)
    if device == DRY:
        marks, alone, others = "not gpu", DRY_ALONE, DRY_TOGETHER
    many = ("-n", str(min(PROCESSES, usable_cores()))) if find_spec("xdist") is not None else ()
    head = [sys.executable, "-m", "pytest", "-v", "-m", marks]
    plugins = ["-p", "no:cacheprovider", "-p", "benchmarks.gpu_passed"]
    return [
        [*head, *plugins, "--tb=short", "--color=no", *more]
        for more in (alone, (*many, *others))
    ]  # fmt: skip


def read_tests(verdicts: str, log: str, codes: Sequence[int | None]) -> Data:
    """Counts and names from verdicts, and the end of pytest's words where it failed; `codes`: None
    of what still runs or was cut off."""
    found = read_verdicts(verdicts)
    named = {word: [n for n, own in found.items() if own == word]
             for word in ("passed", "failed", "skipped")}  # fmt: skip
    code = next((c for c in codes if c not in (0, NONE_RAN)), codes[-1])
    return {
        "passed": len(named["passed"]),
        "skipped": len(named["skipped"]),
        "failed": sorted(named["failed"]),
        "code": code,
        "passed_tests": named["passed"],
        "tail": log[-_TAIL:] if named["failed"] or code not in (0, NONE_RAN, None) else "",
    }


def peers(context: Context, seconds: float) -> Iterator[Data]:
    """scripts/bench_peers on the plans that the step before found (else on the workloads that are
    asked for), in a process of its own; workloads compared before are left out."""
    earlier, left = context.steps.get("peers", {}), to_compare(context)
    result, log = context.out / "peers.json", context.out / "peers.log"
    for old in (result, log):
        old.unlink(missing_ok=True)
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
) -> Generator[int | None, None, None]:
    """Run `command`, what it says added to `log`: yields None now and then while it runs, and its
    exit code at the end; after `seconds` it is killed with all it started, and nothing more comes;
    without any left it is not begun."""
    end = clock() + seconds
    if seconds <= 0:
        return
    path = os.pathsep.join(p for p in (str(ROOT), os.environ.get("PYTHONPATH", "")) if p)
    settings = {
        "PYTHONPATH": path,
        "PYTHONUNBUFFERED": "1",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        **(environment or {}),
    }
    with log.open("ab") as out:
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
