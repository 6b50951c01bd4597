"""The table over all networks: each row in a process of its own, kept as it ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from autofuse.backends.machine import cpu_model
from autofuse.limits import usable_cores
from benchmarks.apart import answer_apart
from benchmarks.kept import Row, filled, kept_table
from benchmarks.models.pages import line, summary
from benchmarks.models.row import NetworkAsked
from benchmarks.models.systems import SYSTEMS
from benchmarks.models.types import Network

# What Python is started with for a row; a network's name and a file follow.
CHILD = ("-m", "benchmarks.models.one")
# What rows of one table have in common.
SAME = ("cpu", "batch", "budget_s")
_PACKAGES = ("torch", "transformers", "onnxruntime", "openvino")
Say = Callable[[str], object]
Answer = Callable[[Network, NetworkAsked], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class NetworkOptions:
    """Items at once; seconds of tuning a network (0: only untuned), of taking turns, and the most
    that a row may take in all; the systems, by name."""

    batch: int = 1
    budget_s: float = 120.0
    timing_s: float = 20.0
    systems: tuple[str, ...] = tuple(SYSTEMS)
    limit_s: float = 1800.0
    note: str = ""


def bench_models(
    networks: Sequence[Network], options: NetworkOptions, output: Path | None = None,
    say: Say = lambda _: None, answer: Answer | None = None,
) -> dict[str, Any]:  # fmt: skip
    """A row for each network, and figures over them; what `output` holds.

    `output` is rewritten after each row; rows that it has are kept, those without figures are tried
    again. Networks whose packages are not here are under `absent`. Raises BenchError for an output
    of something else."""
    facts = _facts(options)
    same = {name: facts[name] for name in SAME}
    rows: dict[str, Row] = kept_table(output, same, "bench_models").get("rows", {})
    asked = NetworkAsked(options.batch, options.budget_s, options.timing_s, options.systems)
    make = answer or (lambda network, asked: _apart(network, asked, options.limit_s))
    absent = {n.name: ", ".join(n.absent) for n in networks if n.absent}
    for name, missing in absent.items():
        say(f"{name:22} absent: {missing}")

    def row(network: Network) -> Row:
        about = {"kind": network.kind, "origin": network.origin}
        return {**about, **make(network, asked)}

    wanted = ((n.name, partial(row, n)) for n in networks if n.name not in absent)
    return filled(
        rows, wanted, lambda row: "systems" in row, lambda: _data(facts, rows, absent), output,
        lambda name, made: say(line(name, made)),
    )  # fmt: skip


def _apart(network: Network, asked: NetworkAsked, limit_s: float) -> Row:
    return answer_apart([*CHILD, network.name], asdict(asked), limit_s)


def _facts(options: NetworkOptions) -> dict[str, Any]:
    return {"cpu": cpu_model(), "threads": usable_cores(), "batch": options.batch,
            "budget_s": options.budget_s, "versions": {p: _version(p) for p in _PACKAGES},
            "note": options.note}  # fmt: skip


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "missing"


def _data(
    facts: Mapping[str, Any], rows: Mapping[str, Row], absent: Mapping[str, str]
) -> dict[str, Any]:
    return {**facts, "summary": summary(rows), "absent": dict(absent), "rows": dict(rows)}
