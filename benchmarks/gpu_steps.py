"""The steps of `gpu_check`. Each yields what it has found, more every time, as plain data.

A step that was cut off finds what it had found in `Context.found` and goes on from there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from autofuse.backends.cuda.devices import Target
from autofuse.devices import DeviceKind
from autofuse.graph.types import Graph
from autofuse.measure.calibrate.cuda import copy_us
from autofuse.measure.timing.compare import verdict
from autofuse.measure.timing.sampling import Sampling
from autofuse.measure.truth.references import Preparation
from autofuse.measure.worker.lock import measurement_lock
from autofuse.measure.worker.session import Worker
from autofuse.measure.workload import Workload
from autofuse.simplify import normal_form
from autofuse.tuning import best_plan, plan_named, tune
from autofuse.tuning.plans import FUSED
from autofuse.tuning.together import Interleaving, time_together
from autofuse.zoo import ZOO, zoo_graph
from autofuse.zoo.kernels import black_scholes, layer_norm_gelu, rms_norm_residual, softmax
from benchmarks.handwritten import CARTPOLE, VARIANTS, cartpole_program
from benchmarks.run_cuda import cuda_device, versions
from benchmarks.table import geomean

Data = Mapping[str, Any]
# Workloads are tuned for no less than this, in seconds.
LEAST_TUNING_S = 3.0
# Those that a plan is to beat: more of them would leave the search no time.
RIVALS = ("xla-2026", "inductor-benchmark", "unfused")


@dataclass(frozen=True)
class Large:
    """A memory-bound workload. Inputs and outputs at `sizes` are 256 MiB or more together; `small`
    is for a dry run."""

    make: Callable[..., Graph]
    sizes: tuple[int, ...]
    small: tuple[int, ...]

    def graph(self, size: str) -> Graph:
        return normal_form(self.make(*self.at(size)))

    def at(self, size: str) -> tuple[int, ...]:
        return self.small if size == "small" else self.sizes


LARGE: Mapping[str, Large] = {
    "softmax": Large(softmax, (8192, 4096), (64, 128)),
    "layer_norm_gelu": Large(layer_norm_gelu, (8192, 4096), (64, 128)),
    "rms_norm_residual": Large(rms_norm_residual, (8192, 2048), (64, 128)),
    "black_scholes": Large(black_scholes, (14 << 20,), (1 << 12,)),
}


@dataclass(frozen=True)
class Context:
    """Where a step works and what it may use. `size` is that of zoo workloads, `programs` are those
    of `gpu_classes` (none: all), `steps` what each step has found so far, in earlier runs too, and
    `references` prepares for whoever measures."""

    out: Path
    db: str
    kind: DeviceKind
    target: Target
    size: str
    workloads: tuple[str, ...]
    programs: tuple[str, ...]
    clock: Callable[[], float]
    say: Callable[[str], None]
    steps: Mapping[str, Data]
    references: Preparation

    def found(self, step: str, key: str) -> dict[str, Any]:
        """What a step has under `key`, by name, without what failed."""
        known: Mapping[str, Data] = self.steps.get(step, {}).get(key, {})
        return {name: one for name, one in known.items() if "error" not in one}


def tuned_name(name: str) -> str:
    """What the reference of a zoo workload is called in a `Preparation`."""
    return f"zoo:{name}"


def zoo_references(context: Context, names: Sequence[str]) -> dict[str, Workload]:
    """Those of zoo workloads, as they are tuned."""
    return {tuned_name(n): Workload(normal_form(zoo_graph(n, context.size))) for n in names}


def tuned_references(context: Context) -> dict[str, Workload]:
    """Those that `tune_zoo` will ask for."""
    return zoo_references(context, _left(context.workloads, context.found("tune", "workloads")))


def large_references(context: Context) -> dict[str, Workload]:
    """Those that `bandwidth` will ask for."""
    left = _left(tuple(LARGE), context.found("bandwidth", "workloads"))
    return {name: Workload(LARGE[name].graph(context.size)) for name in left}


def cartpole_references(context: Context) -> dict[str, Workload]:
    """That of `cartpole`."""
    return zoo_references(context, [CARTPOLE])


def _left(names: Sequence[str], found: Mapping[str, Any]) -> list[str]:
    return [name for name in names if name not in found]


def facts(context: Context, seconds: float) -> Iterator[Data]:
    """The device, versions, and the peaks that bounds go by."""
    yield {"device": asdict(context.target), "versions": versions(context.kind)}
    yield {"calibration": asdict(context.kind.timer.calibrate())}


# --- tuning ---------------------------------------------------------------------------------


def shares(
    names: Iterator[str], count: int, seconds: float, clock: Callable[[], float]
) -> Iterator[tuple[str, float]]:
    """Each of `count` names with an equal share of what is left of `seconds` when its turn comes;
    those whose share would be too short are left out."""
    end = clock() + seconds
    for at, name in enumerate(names):
        share = (end - clock()) / (count - at)
        if share >= LEAST_TUNING_S:
            yield name, share


def tuned(context: Context, graph: Graph, name: str, budget_s: float) -> dict[str, Any]:
    """The end of a tuning session as plain data, or why there is none."""
    end = context.clock() + 2 * budget_s
    context.say(f"  {name}: {budget_s:.0f} s")
    try:
        result = tune(
            graph, name=name, device=context.kind.name, db=context.db, budget_s=budget_s,
            cache="cold", baselines=RIVALS, stop=lambda: context.clock() > end,
        )  # fmt: skip
    except Exception as error:  # one workload's end is not that of the others
        return {"error": f"{type(error).__name__}: {error}"[:500]}
    return result.to_json()


def tune_zoo(context: Context, seconds: float) -> Iterator[Data]:
    """Every workload for its share of the time, those first whose reference is ready."""
    found = context.found("tune", "workloads")
    names = {tuned_name(name): name for name in _left(context.workloads, found)}
    ready = context.references.as_ready(tuple(names), seconds / 2)
    for label, share in shares(ready, len(names), seconds, context.clock):
        graph = zoo_graph(names[label], context.size)
        found[names[label]] = tuned(context, graph, label, share)
        yield {"workloads": found}
    ratios = [best_rule(one) for one in found.values()]
    mean = geomean([ratio for ratio in ratios if ratio is not None])
    yield {"workloads": found, "geomean_best_rule_over_best": mean}
    require_all(context.workloads, found)


def require_all(names: Sequence[str], found: Mapping[str, Any]) -> None:
    """A step that left something out is not done: a later run goes on with it."""
    left, failed = _left(names, found), [n for n, one in found.items() if "error" in one]
    if left or failed:
        parts = [("not begun", left), ("failed", failed)]
        raise RuntimeError("; ".join(f"{what}: {', '.join(n)}" for what, n in parts if n))


def best_rule(result: Data) -> float | None:
    """The fastest baseline's time over that of the best plan."""
    if "best" not in result:
        return None
    times = [b["time_us"] for b in result["baselines"].values() if b["time_us"]]
    return min(times) / result["best"]["time_us"] if times else None


def bandwidth(context: Context, seconds: float) -> Iterator[Data]:
    """What share of a copy's bandwidth the memory-bound workloads reach on large arrays."""
    found = context.found("bandwidth", "workloads")
    names, device = _left(tuple(LARGE), found), cuda_device(context.kind)
    ready = context.references.as_ready(names, seconds / 2)
    for name, share in shares(ready, len(names), seconds, context.clock):
        sizes, graph = LARGE[name].at(context.size), LARGE[name].graph(context.size)
        result = tuned(context, graph, f"{name} {sizes}", share)
        with measurement_lock(context.kind.timer.unit):
            copied_us = copy_us(device, moved_bytes(graph))
        found[name] = {"sizes": sizes, **moved(graph, result, copied_us)}
        yield {"workloads": found}
    require_all(tuple(LARGE), found)


def moved_bytes(graph: Graph) -> int:
    """The bytes that must be read and written."""
    return sum(t.nbytes for t in (*graph.input_types, *graph.output_types))


def moved(graph: Graph, result: Data, copied_us: float) -> Data:
    """How fast the best plan moves the bytes that must move, and what a copy takes for as many, in
    microseconds and sampled alike."""
    nbytes = moved_bytes(graph)
    if "best" not in result:
        return {"bytes": nbytes, "error": result["error"]}
    us = result["best"]["time_us"]
    return {
        "bytes": nbytes,
        "time_us": us,
        "kernels": result["best"]["kernels"],
        "origin": result["best"]["origin"],
        "verified": result["verified"],
        "gbytes_per_s": nbytes / us * 1e-3,
        "copy_gbytes_per_s": nbytes / copied_us * 1e-3,
        "share_of_copy": copied_us / us,
        "notes": result.get("notes", []),
    }


# --- against a kernel by hand -----------------------------------------------------------------


def cartpole(context: Context, seconds: float) -> Iterator[Data]:
    """Our best plan of Cartpole, tuned first for half of the time where it is not yet, and
    everything in one kernel, in turns with what a person would write, all in graph mode and
    checked alike."""
    begun, label = context.clock(), tuned_name(CARTPOLE)
    graph, kind = normal_form(zoo_graph(CARTPOLE, context.size)), context.kind
    for _ in context.references.as_ready((label,), seconds / 4):
        if CARTPOLE not in context.found("tune", "workloads"):
            yield {"tuned": tuned(context, graph, label, seconds / 2)}
    left = seconds - (context.clock() - begun)
    plans = {"fused": plan_named(graph, FUSED, kind, db=context.db)}
    known = best_plan(graph, device=kind.name, db=context.db)
    if known is not None:
        plans["best"] = known.candidate
    artifacts: dict[str, Any] = {
        name: kind.backend.build(kind.backend.program(graph, plan)).artifact
        for name, plan in plans.items()
    } | _by_hand(context, graph, left / 3)
    yield {"kernels": list(artifacts)}
    with Worker(Workload(graph), hardware=kind.timer) as worker:
        how = Interleaving(blocks=5, rounds=6, limit_s=left / 2, single_limit_s=left / 4)
        together = time_together(worker, artifacts, Sampling("cold"), how)
    failures = {name: failure.message for name, failure in together.failures.items()}
    comparison = together.comparison
    if comparison is None:
        raise RuntimeError(f"nothing could be compared: {failures or together.unexplained}")
    times = {n: t.median_us for n, t in zip(together.names, comparison.timings, strict=True)}
    samples = dict(zip(together.names, comparison.samples, strict=True))
    yield {"times_us": times, "failures": failures, **against_hand(times, samples, tuple(plans))}


def _by_hand(context: Context, graph: Graph, seconds: float) -> dict[str, Any]:
    """The variants of the kernel by hand that can be built in time, at least one."""
    end = context.clock() + seconds
    steps = int(ZOO[CARTPOLE].parameters[context.size][1])  # type: ignore[call-overload]  # a count
    found: dict[str, Any] = {}
    for variant in VARIANTS:
        if not found or context.clock() < end:
            program = cartpole_program(graph, steps, variant, context.target)
            found[str(variant)] = context.kind.backend.build(program).artifact
    return found


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


def read_result(path: Path) -> dict[str, Any]:
    """What is in a JSON file; nothing where there is none."""
    if not path.exists():
        return {}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found
