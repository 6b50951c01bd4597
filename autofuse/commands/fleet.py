"""`autofuse fleet` tunes many graphs within one budget, and says what became of each."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, replace
from itertools import chain
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
from autofuse.commands.output import Format, duration, emit, note, seconds, table
from autofuse.commands.progress import StopSignals
from autofuse.errors import AutofuseError
from autofuse.fleet.shares import GraphShare
from autofuse.graph.types import Graph
from autofuse.records import SessionRow
from autofuse.sources import SOURCES
from autofuse.units import plural

if TYPE_CHECKING:
    from autofuse.devices import DeviceKind
    from autofuse.fleet.engine import Engine
    from autofuse.fleet.health import UnitHealth
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
    compile_anywhere: Annotated[
        bool,
        typer.Option("--compile-anywhere", help="ray, cpu: compile on any host of the cluster."),
    ] = False,
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

    Every measurement is kept: the same command again resumes and measures nothing twice. Ctrl-C or
    `autofuse fleet cancel` ends it; what was found is kept.
    """
    from autofuse.fleet.jobs import JobLease
    from autofuse.fleet.run import fleet_tune
    from autofuse.tuning import TuneOptions
    from tuning_db import Store

    asked = TuneOptions(db=db, budget_s=budget, seed=seed)
    with StopSignals() as stop:
        graphs, weights = graphs_of(what)
        kind = asked_device(device, target)
        kind.must_be_timed()
        with (
            closing(_engine(engine, address, kind, compile_anywhere)) as own,
            Store.open(db) as store,
            JobLease(store, what.name) as job,
        ):
            asked = replace(asked, device=kind.name, stop=lambda: stop() or job.is_cancelled())
            found = fleet_tune(graphs, own, asked, weights=weights, say=note)
    emit(form, _data(found), _lines(found))


def _engine(name: str, address: str | None, kind: DeviceKind, anywhere: bool) -> Engine:
    if name not in ENGINES:
        raise AutofuseError(f"unknown engine '{name}' (known: {', '.join(ENGINES)})")
    if anywhere and (name != "ray" or kind.name != "cpu"):
        raise AutofuseError("only engine 'ray' compiles anywhere, and only for device 'cpu'")
    if name == "ray":
        from autofuse.fleet.engine import tune_slice
        from autofuse.fleet.on_ray import RayEngine, tune_compiling_anywhere

        work = tune_compiling_anywhere if anywhere else tune_slice
        return RayEngine(address=address, device=kind.name, work=work)
    if address is not None:
        raise AutofuseError("engine 'local' has no address")
    from autofuse.fleet.local import LocalEngine

    return LocalEngine({unit.name: dict(unit.variables) for unit in kind.timer.units()})


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


def _in_folder(folder: Path) -> list[str]:
    known = {suffix for suffix in SOURCES if suffix.startswith(".") and suffix[-1] != ":"}
    return [str(p) for p in sorted(folder.iterdir()) if p.suffix in known]


def _sources(what: Path) -> Iterator[tuple[str, float]]:
    if what.is_dir():
        yield from ((path, 1.0) for path in _in_folder(what))
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
        "health": {unit: _health(one) for unit, one in found.health.items()},
        "graphs": [{k: v for k, v in row.items() if k != "graph"} for row in rows],
    }


def _health(one: UnitHealth) -> dict[str, Any]:
    canaries = [asdict(canary) | {"fault": canary.fault} for canary in one.canaries]
    return {"quarantined": one.is_quarantined, "canaries": canaries}


def _gap(one: GraphShare) -> str:
    return "-" if one.search_gap is None else f"{one.search_gap:.1%}"


def _lines(found: FleetResult) -> Iterator[str]:
    rows = [
        [one.name, duration(one.first_us), duration(one.best_us), f"{one.weight:g}",
         str(one.slices), seconds(one.spent_s), _gap(one),
         one.error or ("" if one.slices else "the budget had no time for it")]
        for one in found.shares
    ]  # fmt: skip
    head = ["graph", ">first", ">best", ">weight", ">slices", ">spent", ">gap of search", ""]
    yield from table(head, rows)
    data = _data(found)
    yield f"{seconds(found.seconds)} on {plural(found.units, 'unit')}, {data['busy']:.0%} busy"
    for unit, one in found.health.items():
        if bad := [canary.fault for canary in one.canaries if canary.fault]:
            ended = "was given up" if one.is_quarantined else "rested"
            yield f"{unit} {ended}, disturbed {plural(len(bad), 'time')}: at last {bad[-1]}"


@app.command("status", epilog=example("autofuse fleet status"))
@reported
def status(db: DbOption = None, form: FormatOption = Format.table) -> None:
    """Say which jobs run, what was tuned where, what it cost, and what it gained."""
    from autofuse.fleet.jobs import running_jobs

    with existing_store(db) as store:
        jobs = running_jobs(store)
        names = {row.digest: row.name or row.digest for row in store.workloads()}
        sessions = store.sessions()
    rows = [_status(names.get(d, d), m, own) for (d, m), own in _by_place(sessions).items()]
    texts = [
        [r["name"], r["device"], str(r["sessions"]), str(r["open"]), seconds(r["spent_s"]),
         "-" if r["gain"] is None else f"{r['gain']:.2f}x", r["latest"]]
        for r in rows
    ]  # fmt: skip
    head = ["graph", "device", ">sessions", ">not ended", ">spent", ">over baselines", "latest"]
    running = [f"job {one.id} tunes {one.what} ({one.owner})" for one in jobs]
    data = {"jobs": [asdict(one) for one in jobs], "graphs": rows}
    emit(form, data, chain(running, table(head, texts)))


@app.command("cancel", epilog=example("autofuse fleet cancel"))
@reported
def cancel(
    job: Annotated[
        str | None, typer.Argument(metavar="JOB", help="As status calls it (default: all).")
    ] = None,
    db: DbOption = None,
    form: FormatOption = Format.table,
) -> None:
    """End jobs, wherever they run; what they found is kept, and the same command resumes one."""
    from autofuse.fleet.jobs import cancel_jobs

    with existing_store(db) as store:
        found = cancel_jobs(store, job)
    texts = [f"job {one.id} ends ({one.what}, {one.owner})" for one in found]
    emit(form, {"jobs": [asdict(one) for one in found]}, texts or ["no fleet job is running"])


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
