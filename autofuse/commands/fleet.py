"""`autofuse fleet` tunes many graphs within one budget, and says what became of each."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autofuse.commands.common import (
    DbOption,
    DeviceOption,
    FormatOption,
    SeedOption,
    TargetOption,
    asked_device,
    example,
    load_workload,
    reported,
)
from autofuse.commands.database import existing_store
from autofuse.commands.output import Format, duration, emit, note, plural, seconds, table
from autofuse.commands.progress import StopSignals
from autofuse.errors import AutofuseError
from autofuse.graph.types import Graph
from autofuse.records import SessionRow
from autofuse.sources import SOURCES

if TYPE_CHECKING:
    from autofuse.fleet.engine import Engine
    from autofuse.fleet.run import FleetResult

app = typer.Typer(
    help="Tune many graphs within one budget.", no_args_is_help=True, rich_markup_mode=None
)
ENGINES = ("local", "ray")


@app.command("tune", epilog=example("autofuse fleet tune zoo:softmax:small --budget 60"))
@reported
def tune(
    what: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER_OR_LIST",
            help="A folder of graph files, a text file with a SOURCE a line, each with how "
            "often it runs after a blank, if not once, or a SOURCE.",
        ),
    ],
    engine: Annotated[str, typer.Option(metavar="NAME", help="local or ray.")] = "local",
    address: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="ray: of its cluster (default: one started here)."),
    ] = None,
    device: DeviceOption = "auto",
    target: TargetOption = "",
    db: DbOption = None,
    budget: Annotated[
        float, typer.Option(metavar="SECONDS", help="Wall seconds for all graphs together.")
    ] = 600.0,
    seed: SeedOption = 0,
    form: FormatOption = Format.table,
) -> None:
    """Give the device to the graph of which most is expected, again and again.

    Every measurement is kept: the same command again resumes and measures nothing twice. Ctrl-C
    ends it; what was found is kept.
    """
    from autofuse.fleet.run import fleet_tune

    if not (math.isfinite(budget) and budget > 0):
        raise AutofuseError(f"the budget must be a positive number of seconds, not {budget:g}")
    with StopSignals() as stop:
        graphs, weights = graphs_of(what)
        kind = asked_device(device, target)
        kind.must_be_timed()
        with closing(_engine(engine, address, kind.name)) as own:
            found = fleet_tune(
                graphs, own, budget_s=budget, device=kind.name, db=db, weights=weights, seed=seed,
                say=note, stop=stop,
            )  # fmt: skip
    emit(form, _data(found), _lines(found))


def _engine(name: str, address: str | None, device: str) -> Engine:
    if name not in ENGINES:
        raise AutofuseError(f"unknown engine '{name}' (known: {', '.join(ENGINES)})")
    if name == "ray":
        from autofuse.fleet.on_ray import RayEngine

        return RayEngine(address=address, device=device)
    if address is not None:
        raise AutofuseError("engine 'local' has no address")
    from autofuse.fleet.local import LocalEngine

    return LocalEngine((device,))


def graphs_of(what: Path) -> tuple[dict[str, Graph], dict[str, float]]:
    """Graphs by name, and how often each runs. Raises AutofuseError."""
    graphs: dict[str, Graph] = {}
    weights: dict[str, float] = {}
    for source, weight in _sources(what):
        name, graph = load_workload(source)
        if name in graphs:
            raise AutofuseError(f"two graphs of {what} are called {name}")
        graphs[name], weights[name] = graph, weight
    if not graphs:
        raise AutofuseError(f"{what} names no graph")
    return graphs, weights


def _sources(what: Path) -> Iterator[tuple[str, float]]:
    if what.is_dir():
        known = {suffix for suffix in SOURCES if suffix.startswith(".") and suffix[-1] != ":"}
        yield from ((str(p), 1.0) for p in sorted(what.iterdir()) if p.suffix in known)
        return
    if not what.exists() or what.suffix in SOURCES:
        yield str(what), 1.0
        return
    try:
        lines = what.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise AutofuseError(f"{what} is neither a folder nor a list of sources") from None
    for line in lines:
        source, *rest = line.partition("#")[0].split()[:2] or ("",)
        if source:
            yield source, _weight(source, *rest)


def _weight(source: str, text: str = "1") -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not (math.isfinite(weight) and weight > 0):
        raise AutofuseError(f"'{text}' does not say how often {source} runs")
    return weight


def _data(found: FleetResult) -> dict[str, Any]:
    rows = [asdict(share) | {"graph": None} for share in found.shares]
    return {
        "seconds": found.seconds,
        "busy": found.busy_s / max(found.seconds * found.units, 1e-9),
        "units": found.units,
        "graphs": [{k: v for k, v in row.items() if k != "graph"} for row in rows],
    }


def _lines(found: FleetResult) -> Iterator[str]:
    rows = [
        [one.name, duration(one.first_us), duration(one.best_us), f"{one.weight:g}",
         str(one.slices), seconds(one.spent_s), "-" if one.gap is None else f"{one.gap:.1%}",
         one.error or ("" if one.slices else "the budget had no time for it")]
        for one in found.shares
    ]  # fmt: skip
    head = ["graph", ">first", ">best", ">weight", ">slices", ">spent", ">gap", ""]
    yield from table(head, rows)
    data = _data(found)
    yield f"{seconds(found.seconds)} on {plural(found.units, 'unit')}, {data['busy']:.0%} busy"


@app.command("status", epilog=example("autofuse fleet status"))
@reported
def status(db: DbOption = None, form: FormatOption = Format.table) -> None:
    """Say what was tuned where, what it cost, and what it gained."""
    with existing_store(db) as store:
        names = {row.digest: row.name or row.digest for row in store.workloads()}
        sessions = store.sessions()
    rows = [_status(names.get(d, d), m, own) for (d, m), own in _by_place(sessions).items()]
    texts = [
        [r["name"], r["device"], str(r["sessions"]), str(r["open"]), seconds(r["spent_s"]),
         "-" if r["gain"] is None else f"{r['gain']:.2f}x", r["latest"]]
        for r in rows
    ]  # fmt: skip
    head = ["graph", "device", ">sessions", ">not ended", ">spent", ">over baselines", "latest"]
    emit(form, {"graphs": rows}, table(head, texts))


def _by_place(sessions: tuple[SessionRow, ...]) -> dict[tuple[str, str], list[SessionRow]]:
    found: dict[tuple[str, str], list[SessionRow]] = defaultdict(list)
    for one in sessions:
        model = dict(one.environment.must).get("model", one.environment.device)
        found[one.workload, model].append(one)
    return found


def _status(name: str, device: str, sessions: list[SessionRow]) -> dict[str, Any]:
    """Of one graph on one device; `gain` is how many times faster the best plan is than the fastest
    baseline that it was compared with last."""
    results = [s.result for s in sessions if s.result is not None]
    compared = [r.verdicts for r in results if r.verdicts]
    return {
        "name": name,
        "device": device,
        "sessions": len(sessions),
        "open": sum(s.ended is None for s in sessions),
        "spent_s": sum(r.spent.total for r in results),
        "gain": min(v.ratio for v in compared[-1]) if compared else None,
        "latest": max(s.started for s in sessions),
    }
