"""The steps of `gpu_check`. Each yields what it has found, more every time, as plain data."""

from __future__ import annotations

import json
import os
import platform
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import autofuse
from autofuse.backends.cuda.build import build_cuda
from autofuse.backends.cuda.driver import cupy_version, driver_version, running_target
from autofuse.backends.cuda.nvrtc import nvrtc_version
from autofuse.backends.registry import CUDA_BACKEND
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph
from autofuse.measure.compare import verdict
from autofuse.measure.hardware import GPU
from autofuse.measure.session import Worker
from autofuse.measure.timing import Sampling
from autofuse.measure.workload import Workload
from autofuse.tuning import best_plan, plan_named, tune
from autofuse.tuning.plans import FUSED
from autofuse.tuning.together import time_together
from autofuse.zoo import ZOO, zoo_graph
from autofuse.zoo.kernels import black_scholes, layer_norm_gelu, rms_norm_residual, softmax
from benchmarks.handwritten import CARTPOLE, VARIANTS, cartpole_program
from benchmarks.table import geomean

Data = Mapping[str, Any]
ROOT = Path(autofuse.__file__).parent.parent
# Workloads are tuned for no less than this, in seconds.
LEAST_TUNING_S = 3.0
_VERDICT = re.compile(r"^(tests/\S+::.+?) (PASSED|FAILED|ERROR|SKIPPED)\b", re.MULTILINE)
_TAIL = 4000
# Inputs and outputs of each are 256 MiB or more.
LARGE: Mapping[str, tuple[Callable[..., Graph], tuple[int, ...]]] = {
    "softmax": (softmax, (8192, 4096)),
    "layer_norm_gelu": (layer_norm_gelu, (8192, 4096)),
    "rms_norm_residual": (rms_norm_residual, (8192, 2048)),
    "black_scholes": (black_scholes, (14 << 20,)),
}


@dataclass(frozen=True)
class Context:
    """Where a step works and what it may use; `steps` is what the steps before have found."""

    out: Path
    db: str
    workloads: tuple[str, ...]
    budget_s: float
    clock: Callable[[], float]
    say: Callable[[str], None]
    steps: Mapping[str, Data]


def facts(context: Context, seconds: float) -> Iterator[Data]:
    """The device, versions, and the peaks that bounds go by."""
    versions = {
        "python": platform.python_version(),
        "cupy": cupy_version(),
        "driver": driver_version(),
        "nvrtc": nvrtc_version(),
    }
    for package in ("numpy", "jax", "torch", "triton", "optuna"):
        with suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    yield {"device": asdict(running_target()), "versions": versions}
    yield {"calibration": asdict(GPU.calibrate())}


# --- tests ----------------------------------------------------------------------------------


def tests(context: Context, seconds: float) -> Iterator[Data]:
    """The tests marked `gpu`, in a process of their own."""
    files = sorted(str(p.relative_to(ROOT)) for p in (ROOT / "tests").glob("test_gpu_*.py"))
    log = context.out / "tests.log"
    options = ["-v", "-m", "gpu", "-p", "no:cacheprovider", "--tb=short", "--color=no"]
    command = [sys.executable, "-m", "pytest", *options, *files]
    code: int | None = None
    for state in follow(command, log, seconds, context.clock):
        code = state
        yield read_tests(log.read_text(encoding="utf-8", errors="replace"), code)
    if code != 0:
        reason = "were cut off" if code is None else f"ended with code {code}"
        raise RuntimeError(f"the tests {reason}: see tests.log")


def read_tests(text: str, code: int | None) -> Data:
    """Counts and names from pytest's own words; `code` is None while it runs or was cut off."""
    found = dict(_VERDICT.findall(text))
    counts = {name: list(found.values()).count(name.upper()) for name in ("passed", "skipped")}
    bad = sorted(name for name, word in found.items() if word in ("FAILED", "ERROR"))
    failed = bool(bad) or code not in (0, None)
    return {**counts, "failed": bad, "code": code, "tail": text[-_TAIL:] if failed else ""}


def follow(
    command: Sequence[str],
    log: Path,
    seconds: float,
    clock: Callable[[], float],
    poll_s: float = 3.0,
) -> Iterator[int | None]:
    """Run `command` with its output in `log`: yields None now and then while it runs, and its
    exit code at the end; after `seconds` it is killed with all it started, and nothing more
    comes."""
    end = clock() + seconds
    path = os.pathsep.join(p for p in (str(ROOT), os.environ.get("PYTHONPATH", "")) if p)
    environment = os.environ | {
        "PYTHONPATH": path,
        "PYTHONUNBUFFERED": "1",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    }
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, cwd=ROOT,
            env=environment, start_new_session=True,
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


# --- tuning ---------------------------------------------------------------------------------


def shares(
    names: Sequence[str], seconds: float, clock: Callable[[], float]
) -> Iterator[tuple[str, float]]:
    """Each name with an equal share of what is left of `seconds` when its turn comes; those whose
    share would be too short are left out."""
    end = clock() + seconds
    for at, name in enumerate(names):
        share = (end - clock()) / (len(names) - at)
        if share >= LEAST_TUNING_S:
            yield name, share


def tuned(context: Context, graph: Graph, name: str, budget_s: float) -> dict[str, Any]:
    """The end of a tuning session as plain data, or why there is none."""
    end = context.clock() + 2 * budget_s
    context.say(f"  {name}: {budget_s:.0f} s")
    try:
        result = tune(
            graph, name=name, device="cuda", db=context.db, budget_s=budget_s, cache="cold",
            stop=lambda: context.clock() > end,
        )  # fmt: skip
    except Exception as error:  # one workload's end is not that of the others
        return {"error": f"{type(error).__name__}: {error}"[:500]}
    return result.to_json()


def tune_zoo(context: Context, seconds: float) -> Iterator[Data]:
    """Every workload for its share of the budget."""
    found: dict[str, Any] = {}
    wall = min(context.budget_s, seconds)
    for name, share in shares(context.workloads, wall, context.clock):
        found[name] = tuned(context, zoo_graph(name), f"zoo:{name}", share)
        yield {"workloads": found}
    left = [name for name in context.workloads if name not in found]
    ratios = [best_rule(one) for one in found.values()]
    mean = geomean([ratio for ratio in ratios if ratio is not None])
    yield {"workloads": found, "not_begun": left, "geomean_best_rule_over_best": mean}


def best_rule(result: Data) -> float | None:
    """The fastest baseline's time over that of the best plan."""
    if "best" not in result:
        return None
    times = [b["time_us"] for b in result["baselines"].values() if b["time_us"]]
    return min(times) / result["best"]["time_us"] if times else None


def bandwidth(context: Context, seconds: float) -> Iterator[Data]:
    """What share of a copy's bandwidth the memory-bound workloads reach on large arrays."""
    known = context.steps.get("facts", {}).get("calibration")
    copy = (known or asdict(GPU.calibrate()))["gbytes_per_s"]
    found: dict[str, Any] = {}
    for name, share in shares(tuple(LARGE), seconds, context.clock):
        make, sizes = LARGE[name]
        graph = make(*sizes)
        result = tuned(context, graph, f"{name} {sizes}", share)
        found[name] = {"sizes": sizes, **moved(graph, result, copy)}
        yield {"copy_gbytes_per_s": copy, "workloads": found}
    left = [name for name in LARGE if name not in found]
    yield {"copy_gbytes_per_s": copy, "workloads": found, "not_begun": left}


def moved(graph: Graph, result: Data, copy_gbytes_per_s: float) -> Data:
    """The bytes that must move, and how fast the best plan moves them."""
    nbytes = sum(t.nbytes for t in (*graph.input_types, *graph.output_types))
    if "best" not in result:
        return {"bytes": nbytes, "error": result["error"]}
    us = result["best"]["time_us"]
    rate = nbytes / us * 1e-3
    return {
        "bytes": nbytes,
        "time_us": us,
        "kernels": result["best"]["kernels"],
        "origin": result["best"]["origin"],
        "verified": result["verified"],
        "gbytes_per_s": rate,
        "share_of_copy": rate / copy_gbytes_per_s,
    }


# --- against others --------------------------------------------------------------------------


def handwritten(context: Context, seconds: float) -> Iterator[Data]:
    """Our best plan of Cartpole, and everything in one kernel, in turns with what a person would
    write, all in graph mode and checked alike."""
    graph = canonical(zoo_graph(CARTPOLE))
    steps, target = int(ZOO[CARTPOLE].parameters["default"][1]), running_target()  # type: ignore[call-overload]  # a count
    known = best_plan(graph, device="cuda", db=context.db)
    plans = {"fused": plan_named(graph, FUSED, device="cuda", db=context.db)}
    if known is not None:
        plans["best"] = known.candidate
    artifacts: dict[str, Any] = {
        name: CUDA_BACKEND.build(CUDA_BACKEND.program(graph, plan)).artifact
        for name, plan in plans.items()
    }
    end = context.clock() + seconds / 3
    for variant in VARIANTS:
        if context.clock() < end:
            made = build_cuda(cartpole_program(graph, steps, variant, target))
            artifacts[str(variant)] = made.artifact
    yield {"kernels": list(artifacts)}
    with Worker(Workload(graph), hardware=GPU) as worker:
        together = time_together(
            worker, artifacts, blocks=5, rounds=6, sampling=Sampling("cold"),
            limit_s=seconds, single_limit_s=seconds / 4,
        )  # fmt: skip
    failures = {name: failure.message for name, failure in together.failures.items()}
    comparison = together.comparison
    if comparison is None:
        raise RuntimeError(f"nothing could be compared: {failures or together.unexplained}")
    times = {n: t.median_us for n, t in zip(together.names, comparison.timings, strict=True)}
    samples = dict(zip(together.names, comparison.samples, strict=True))
    yield {"times_us": times, "failures": failures, **against_hand(times, samples, tuple(plans))}


def against_hand(
    times: Mapping[str, float], samples: Mapping[str, Any], ours: Sequence[str]
) -> Data:
    """The fastest kernel by hand over the fastest of ours, with the interval of the ratio."""
    by_hand = [name for name in times if name not in ours]
    own = [name for name in ours if name in times]
    if not by_hand or not own:
        return {"error": "one side of the comparison is missing"}
    hand, best = min(by_hand, key=lambda n: times[n]), min(own, key=lambda n: times[n])
    found = verdict(hand, samples[hand], samples[best])
    return {
        "hand": hand,
        "ours": best,
        "ratio_hand_over_ours": found.ratio,
        "low": found.low,
        "high": found.high,
    }


def peers(context: Context, seconds: float) -> Iterator[Data]:
    """scripts/bench_peers, in a process of its own, with the plans found before."""
    result, log = context.out / "peers.json", context.out / "peers.log"
    result.unlink(missing_ok=True)
    command = [
        sys.executable, str(ROOT / "scripts" / "bench_peers"), "--device", "cuda",
        "--seconds", "0", "--timing-seconds", "1.5", "--db", context.db,
        "--workloads", ",".join(context.workloads), "--total", f"{0.75 * seconds:.0f}",
        "--output", str(result),
    ]  # fmt: skip
    code: int | None = None
    for state in follow(command, log, seconds, context.clock):
        yield read_result(result)
        code = state
    if code != 0:
        reason = "was cut off" if code is None else f"ended with code {code}"
        tail = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
        raise RuntimeError(f"the comparison {reason}: {''.join(tail) or 'see peers.log'}")


def read_result(path: Path) -> Data:
    """What a child has written so far."""
    if not path.exists():
        return {}
    found: Data = json.loads(path.read_text(encoding="utf-8"))
    return found
