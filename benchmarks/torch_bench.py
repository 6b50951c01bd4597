"""Models of PyTorch compiled by us, by TorchInductor and not at all."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from math import exp, log
from pathlib import Path
from statistics import mean, median, quantiles
from typing import Any

import torch

from autofuse.errors import AutofuseError
from autofuse.frontends import array_api as xp
from autofuse.frontends import spec, trace
from autofuse.interop.torch.call import port_of, tensor_call
from autofuse.interop.torch.device import CPU, ISLAND_DEVICES, CallClock, IslandPlace
from autofuse.interop.torch.report import GraphReport
from autofuse.torch import explain
from autofuse.tuning import compile
from benchmarks.torch_devices import clock_of, model_of, placed, require
from benchmarks.torch_language import LANGUAGE
from benchmarks.torch_results import floats, largest_error, reported
from benchmarks.torch_training import TRAININGS, training_row
from benchmarks.torch_vision import VISION

WRONG = 1e-4
# A network of which one call of a library takes more of eager's time than this is dominated by it.
_DOMINATED = 0.5
_NOISE = 0.95
# Calls whose time is taken together, and how often that is done.
_CALLS, _CALL_ROUNDS = 2000, 51
_ROUND_S = 0.02
_MODELS = [*LANGUAGE, *VISION]


@dataclass(frozen=True, slots=True)
class Options:
    """Models by name (none: all); seconds of tuning a model, 0 for none; rounds of timing, in
    which all take turns, 0 for none; a tuning database; whether all run on one core and times are
    processor time, which other work on the machine changes least; the device."""

    models: Sequence[str]
    budget: float
    rounds: int
    db: str | None = None
    one_core: bool = False
    device: str = CPU

    @property
    def clock(self) -> CallClock:
        return clock_of(self.device, self.one_core)


def keep_to_one_core() -> None:
    """This process and those that it starts, from now on."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    torch.set_num_threads(1)


def bench_torch(
    options: Options, output: Path | None, say: Callable[[str], None]
) -> dict[str, Any]:
    """A row for each model, and figures over all, written after each model: those that `output` has
    are not run again. Raises AutofuseError for an unknown model, and a file of other figures."""
    require(options.device)
    _check(options.models, _MODELS)
    # What figures of two runs must share to stand in one file.
    told: dict[str, Any] = {
        "device": model_of(options.device), "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "budget": options.budget, "rounds": options.rounds, "one_core": options.one_core,
    }  # fmt: skip
    found: dict[str, Any] = {**told, "rows": _rows(output, told)}
    have = {row["model"] for row in found["rows"]}
    for name in options.models or _MODELS:
        if name not in have:
            found["rows"].append(_row(name, options))
            say(_line(found["rows"][-1]))
            _write(output, {**found, **_summary(found["rows"])})
    return {**found, **_summary(found["rows"])}


def _check(names: Sequence[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            raise AutofuseError(f"no model '{name}' (models: {', '.join(known)})")


def _rows(output: Path | None, told: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows that an earlier run wrote; raises AutofuseError where it was another kind of run."""
    if output is None or not output.exists():
        return []
    found = json.loads(output.read_text())
    for key, value in told.items():
        if found.get(key) != value:
            raise AutofuseError(f"{output} has figures with {key} {found.get(key)}, not {value}")
    rows: list[dict[str, Any]] = found["rows"]
    return rows


def _write(output: Path | None, found: dict[str, Any]) -> None:
    if output is not None:
        output.write_text(json.dumps(found, indent=1) + "\n")


def bench_training(
    options: Options, output: Path | None, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """A row for each model that is trained (see `torch_training`). Raises AutofuseError for an
    unknown model."""
    require(options.device)
    _check(options.models, list(TRAININGS))
    rows = []
    for name in options.models or TRAININGS:
        timed = partial(_times, args=(), kwargs={}, options=options)
        rows.append(training_row(name, timed, options.device))
        row = rows[-1]
        cut = row["min_cut"]
        say(f"{name}: losses apart by {row['error']:.1e}, bounded {row['bounded_error']:.1e}; "
            f"{row['stored']} bytes stored, {row['kept']} of {row['max_memory']} kept, minimum cut "
            f"{cut['kept']}; {row['over_min_cut']:.2f} times its time")  # fmt: skip
        told = {"device": model_of(options.device), "torch": torch.__version__}
        told |= {"one_core": options.one_core}
        _write(output, {**told, "load": os.getloadavg()[0], "training": rows})
    return rows


def _program(name: str) -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]:
    torch.manual_seed(0)
    if name in LANGUAGE:
        return LANGUAGE[name]()
    return VISION[name](), (torch.rand(2, 3, 32, 32),), {}


def _row(name: str, options: Options) -> dict[str, Any]:
    torch._dynamo.reset()
    model, args, kwargs = placed(_program(name), options.device)
    model.eval()
    chosen: dict[str, Any] = {"db": options.db}
    with torch.no_grad():
        begun = time.perf_counter()
        told = explain(model, *args, options=chosen, **kwargs)
        first_s = time.perf_counter() - begun
        torch._dynamo.reset()
        if options.budget > 0:
            chosen |= {"max_autotune": True, "budget_s": options.budget}
        ours = torch.compile(model, backend="autofuse", options=chosen)
        found: list[GraphReport] = []
        with reported(found):
            got = floats(ours(*args, **kwargs))
        islands = [*chain(*(graph.islands for graph in told.graphs))]
        row = {
            "model": name,
            "graphs": len(told.graphs),
            "nodes": sum(graph.nodes for graph in told.graphs),
            "islands": len(islands),
            "inside": sum(i.nodes for i in islands),
            "left": [str(one) for graph in told.graphs for one in graph.left],
            "first_s": first_s,
            # What of PyTorch's own serves in place of plans, which costs what it costs.
            "instead": [graph.instead for graph in found if graph.instead],
            "load": os.getloadavg()[0],
            "error": largest_error(got, floats(model(*args, **kwargs))),
        }
        if options.rounds:
            others = {"eager": model, "inductor": torch.compile(model)}
            row["us"] = _times({"ours": ours, **others}, args, kwargs, options)
            row["longest"] = _longest(model, args, kwargs, options.device)
    return row


def _longest(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], device: str) -> float:
    """The share of eager's time that the longest call of one operator takes."""
    known = torch.profiler.ProfilerActivity
    activities = [known.CPU] if device == CPU else [known.CPU, known.CUDA]
    with torch.profiler.profile(activities=activities) as found:
        model(*args, **kwargs)
    field = "self_cpu_time_total" if device == CPU else "self_device_time_total"
    own = [getattr(event, field) for event in found.events()]
    return float(max(own) / sum(own))


def _times(
    functions: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any],
    options: Options,
) -> dict[str, list[float]]:  # fmt: skip
    """Microseconds of a call of each: first quartile, median, third quartile of rounds, of which
    each is the median of its calls, because other work on the machine meets single calls."""

    clock = options.clock

    def call_s(function: Any) -> float:
        return clock(lambda: function(*args, **kwargs))

    counts = {}
    for name, function in functions.items():
        function(*args, **kwargs)
        counts[name] = max(3, int(_ROUND_S / call_s(function)))
    samples: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(max(options.rounds, 2)):
        for name, function in functions.items():
            calls = [call_s(function) for _ in range(counts[name])]
            samples[name].append(1e6 * median(calls))
    return {name: quantiles(each, n=4) for name, each in samples.items()}


def call_costs(
    counts: Sequence[int] = (2, 20, 70), device: str = CPU
) -> dict[str, dict[str, float]]:
    """Microseconds of processor time of a call with so many tensors of 16 numbers: the bound entry
    alone (`bound`), and with what Python does around it (`call`), the least of interleaved rounds;
    and the median over rounds of what the call takes beside it (`beside`). On a GPU that is what
    the host does; nobody waits for kernels."""
    require(device)
    place, found = IslandPlace(ISLAND_DEVICES[device]), {}
    for count in counts:
        graph = trace(_summed, tuple(spec(16) for _ in range(count)))
        loaded = compile(graph, device=device).loaded
        tensors = [torch.rand(16, device=place.torch) for _ in range(count)]
        entry, result = loaded.bound_entry(place.device.stream(0)), torch.empty_like(tensors[0])
        for at, tensor in zip((*entry.inputs, entry.first_output), (*tensors, result), strict=True):
            entry.table[at] = tensor.data_ptr()
        ports = [port_of(t) for t in tensors]
        call = tensor_call(loaded, place, ports, ports[:1])
        both = (entry.issue, partial(call, *tensors))
        pairs = [[_cpu_us(function) for function in both] for _ in range(_CALL_ROUNDS)]
        least = list(map(min, zip(*pairs, strict=True)))
        beside = median(call_us - bound_us for bound_us, call_us in pairs)
        found[str(count)] = {"bound": least[0], "call": least[1], "beside": beside}
    return found


def _summed(arrays: Any) -> dict[str, Any]:
    total = arrays[0]
    for array in arrays[1:]:
        total = total + array
    return {"y": xp.exp(total)}


def _cpu_us(function: Callable[[], object]) -> float:
    begun = time.thread_time()
    for _ in range(_CALLS):
        function()
    return 1e6 * (time.thread_time() - begun) / _CALLS


def _line(row: dict[str, Any]) -> str:
    text = f"{row['model']}: {row['inside']} of {row['nodes']} nodes in {row['islands']} islands"
    text += f", error {row['error']:.1e}, first call {row['first_s']:.1f} s"
    if "us" in row:
        text += "".join(f", {name} {us[1]:.0f} us" for name, us in row["us"].items())
    text += f"; {'; '.join(row['instead'])}" if row["instead"] else ""
    return text + (f"; left: {'; '.join(row['left'])}" if row["left"] else "")


def _summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """How many are right and whole, the geometric means of others' times over ours, and those of
    the networks that are slower than eager by more than noise."""
    found: dict[str, Any] = {
        "right": sum(row["error"] <= WRONG for row in rows),
        "whole": sum(row["islands"] == 1 and not row["left"] for row in rows),
        "first_s": median(row["first_s"] for row in rows),
    }
    timed = [row for row in rows if "us" in row]
    if not timed:
        return found
    over_eager = {row["model"]: row["us"]["eager"][1] / row["us"]["ours"][1] for row in timed}
    free = [over_eager[row["model"]] for row in timed if row["longest"] <= _DOMINATED]
    over_inductor = [row["us"]["inductor"][1] / row["us"]["ours"][1] for row in timed]
    return {
        **found,
        "over_inductor": _geomean(over_inductor),
        "over_eager": _geomean(list(over_eager.values())),
        "over_eager_not_dominated": _geomean(free),
        "slower_than_eager": {m: r for m, r in over_eager.items() if r < _NOISE},
    }


def _geomean(ratios: Sequence[float]) -> float | None:
    return exp(mean(map(log, ratios))) if ratios else None
