"""Models of ONNX under plans of ours and under onnxruntime, timed in turns."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import numpy as np

from autofuse import __version__
from autofuse.backends.machine import cpu_model, last_level_cache_bytes
from autofuse.devices import timed_device
from autofuse.errors import AutofuseError
from autofuse.frontends.onnx.read import OnnxFile, import_for
from autofuse.graph.reference import evaluate
from autofuse.measure.hardware import HOST
from autofuse.measure.timing.compare import verdict
from autofuse.measure.worker.lock import measurement_lock
from autofuse.peers.interleave import BLOCKS, overwriter, take_turns
from autofuse.peers.systems import limit_threads
from autofuse.peers.types import Arrays, BenchError
from autofuse.simplify import normal_form
from autofuse.tuning import compile as compile_graph
from autofuse.tuning import tune
from autofuse.tuning.cache_state import cache_state
from benchmarks.onnx_conformance import every_input
from benchmarks.onnx_zoo import BENCH_MODELS, BenchModel
from benchmarks.run import sentence, write_json
from benchmarks.table import geomean

Say = Callable[[str], None]
Runs = Callable[[], Sequence[np.ndarray]]
# A model, its inputs by name and a number of threads: what runs it.
Peer = Callable[[OnnxFile, Mapping[str, np.ndarray], int], Runs]
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class OnnxBench:
    """`seconds` of tuning a model (0: the best plan known), `timing_s` of timing, the threads of
    both systems, a tuning database."""

    seconds: float = 60.0
    timing_s: float = 10.0
    threads: int = 2
    db: str | None = None


def by_onnxruntime(file: OnnxFile, arrays: Mapping[str, np.ndarray], threads: int) -> Runs:
    """A session with all optimisations. Raises BenchError where onnxruntime is not installed."""
    try:
        runtime = import_module("onnxruntime")
    except ImportError as error:
        raise BenchError("onnxruntime is missing: pip install onnxruntime") from error
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = runtime.InferenceSession(
        file.proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    feed = dict(arrays)
    return lambda: list(session.run(None, feed))


def bench_onnx(
    names: Sequence[str],
    options: OnnxBench,
    output: Path | None = None,
    peer: Peer = by_onnxruntime,
    say: Say = lambda _: None,
) -> dict[str, Any]:
    """A row for each model (`names`; none: all) and figures over them, as `output` holds them.

    `output` is rewritten after each model; rows that it has for the same settings are kept. Raises
    BenchError for an unknown model, a thread count that cannot be had and where onnxruntime is not
    installed; a model that is not here, or fails, has its sentence in its row."""
    unknown = [name for name in names if name not in BENCH_MODELS]
    if unknown:
        raise BenchError(f"no model '{unknown[0]}' (models: {', '.join(BENCH_MODELS)})")
    facts = _facts(options)
    rows = _kept(output, facts)
    limit_threads(options.threads)
    for name in names or BENCH_MODELS:
        if "us" not in rows.get(name, {}):
            rows[name] = _row(BENCH_MODELS[name], options, peer)
        say(f"{name}: {row_text(rows[name])}")
        if output is not None:
            write_json(output, {**facts, **summary(rows), "rows": rows})
    return {**facts, **summary(rows), "rows": rows}


def _facts(options: OnnxBench) -> dict[str, Any]:
    """What must be the same for a row to be kept."""
    try:
        theirs = metadata.version("onnxruntime")
    except metadata.PackageNotFoundError:
        theirs = "missing"
    told = {name: value for name, value in asdict(options).items() if name != "db"}
    return {"cpu": cpu_model(), "autofuse": __version__, "onnxruntime": theirs, **told}


def _kept(output: Path | None, facts: Mapping[str, Any]) -> dict[str, Row]:
    """Rows of a run that was cut off, where it had these settings."""
    if output is None or not output.exists():
        return {}
    try:
        found = json.loads(output.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BenchError(f"{output} holds no results: {error}") from error
    same = all(found.get(name) == value for name, value in facts.items())
    return dict(found["rows"]) if same else {}


def _row(model: BenchModel, options: OnnxBench, peer: Peer) -> Row:
    try:
        file = model.read()
        arrays = model.arrays(file)
        theirs = peer(file, arrays, options.threads)
        return {"elementwise": model.elementwise, **_timed(model, file, arrays, theirs, options)}
    except AutofuseError as error:
        return {"elementwise": model.elementwise, "error": str(error)}
    except Exception as failed:  # onnxruntime may raise anything; the other models go on
        return {"elementwise": model.elementwise, "error": sentence(failed)}


def _timed(
    model: BenchModel, file: OnnxFile, arrays: Mapping[str, np.ndarray], theirs: Runs,
    options: OnnxBench,
) -> Row:  # fmt: skip
    begun = time.process_time()
    imported = import_for(file, arrays, tuple(model.values))
    import_s = time.process_time() - begun
    graph, inputs = imported.graph, tuple(arrays[name] for name in imported.inputs)
    cold = cache_state("auto", normal_form(graph), timed_device("cpu", "")) == "cold"
    if options.seconds > 0:
        tune(graph, name=f"onnx:{model.name}", device="cpu", db=options.db,
             budget_s=options.seconds)  # fmt: skip
    plan = compile_graph(graph, device="cpu", db=options.db, constants=imported.weights)
    exact = evaluate(graph, every_input(imported, inputs))
    calls = {"ours": lambda: plan(*inputs), "onnxruntime": theirs}
    errors = {who: relative_error(call(), exact) for who, call in calls.items()}
    with measurement_lock(HOST.unit):
        overwrite = overwriter(last_level_cache_bytes() if cold else 0)
        samples = take_turns(calls, overwrite, options.timing_s)
    return {
        "nodes": len(file.proto.graph.node),
        "graph_nodes": len(graph.nodes),
        "import_cpu_s": import_s,
        "origin": plan.origin,
        "cache": "cold" if cold else "warm",
        "apart": relative_error(calls["ours"](), theirs()),
        "errors_to_float64": errors,
        "us": {who: np.percentile(each, (25, 50, 75)).tolist() for who, each in samples.items()},
        "samples": {who: len(each) for who, each in samples.items()},
        **_ratio(samples),
    }


def _ratio(samples: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Their median over ours, with its interval."""
    blocks = {who: [list(b) for b in np.array_split(each, BLOCKS)] for who, each in samples.items()}
    found = verdict("onnxruntime", blocks["onnxruntime"], blocks["ours"])
    return {"ratio": found.ratio, "interval": [found.low, found.high], "outcome": found.outcome}


def relative_error(found: Sequence[np.ndarray], wanted: Sequence[np.ndarray] | Arrays) -> float:
    """The largest difference of any output, in parts of its largest element."""
    worst = 0.0
    for ours, theirs in zip(found, wanted, strict=True):
        a, b = (np.asarray(each, np.float64) for each in (ours, theirs))
        if a.size:
            worst = max(worst, float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30)))
    return worst


def summary(rows: Mapping[str, Row]) -> dict[str, Any]:
    """Geometric means of the ratios, the worst of them, the largest difference, and the models that
    have none, with the reason."""
    ratios = {name: row["ratio"] for name, row in rows.items() if "ratio" in row}
    dominated = [ratio for name, ratio in ratios.items() if rows[name]["elementwise"]]
    return {
        "geomean": geomean(list(ratios.values())),
        "geomean_elementwise": geomean(dominated),
        "worst": min(ratios, key=lambda name: ratios[name], default=None),
        "largest_difference": max((rows[name]["apart"] for name in ratios), default=None),
        "left_out": {name: row["error"] for name, row in rows.items() if name not in ratios},
    }


def row_text(row: Row) -> str:
    """A row in one line: medians in microseconds, their ratio and its interval."""
    if "ratio" not in row:
        return str(row["error"])
    us, (low, high) = row["us"], row["interval"]
    return (
        f"ours {us['ours'][1]:.0f} us, onnxruntime {us['onnxruntime'][1]:.0f} us, "
        f"{row['ratio']:.2f} ({low:.2f} to {high:.2f}), {row['cache']}, "
        f"{row['apart']:.1e} apart, imported in {row['import_cpu_s']:.2f} s"
    )
