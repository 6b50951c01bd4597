"""`autofuse tune` searches for a plan, `query` gives the best one known, `compare` times plans."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autofuse.commands.common import (
    NOT_FOUND,
    DbOption,
    DeviceOption,
    DimOption,
    FormatOption,
    MathOption,
    NoSimplifyOption,
    SeedOption,
    SourceArg,
    TargetOption,
    asked_device,
    load_workload,
    reported,
)
from autofuse.commands.output import Format, duration, emit, seconds, table
from autofuse.commands.progress import StopSignals, shown_progress
from autofuse.errors import AutofuseError
from autofuse.plan.arithmetic import DEFAULT_MATH
from autofuse.simplify import normal_form
from autofuse.tuning import TuneOptions
from autofuse.tuning.options import ALL, FAST
from autofuse.units import bytes_text, plural

if TYPE_CHECKING:
    from autofuse.devices import DeviceKind
    from autofuse.graph.types import Graph
    from autofuse.tuning.advice import Advice

DEFAULTS = TuneOptions()


@reported
def tune(
    source: SourceArg,
    dim: DimOption = None,
    device: DeviceOption = "auto",
    target: TargetOption = "",
    db: DbOption = None,
    math: MathOption = DEFAULT_MATH,
    budget: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="All it may take (60, or what --runs repays)."),
    ] = None,
    strategy: Annotated[
        str, typer.Option(metavar="NAME", help="exact, launches (of rules), optuna or random.")
    ] = DEFAULTS.strategy,
    search_gap: Annotated[
        float,
        typer.Option(
            "--search-gap",
            "--gap",
            help="exact: stop at this gap of the search, a fraction.",
        ),
    ] = DEFAULTS.search_gap,
    runs: Annotated[
        float | None,
        typer.Option(metavar="N", help="exact: stop when N runs cannot repay more tuning."),
    ] = DEFAULTS.runs,
    max_memory: Annotated[
        int | None,
        typer.Option("--max-memory", metavar="BYTES", help="Of intermediates alive at once."),
    ] = DEFAULTS.max_memory,
    cache: Annotated[
        str, typer.Option(metavar="STATE", help="Timed cold, warm or auto.")
    ] = DEFAULTS.cache,
    baselines: Annotated[
        str,
        typer.Option(metavar="WHICH", help="all, fast (those that can win) or names: A,B."),
    ] = FAST,
    seed: SeedOption = DEFAULTS.seed,
    sampler: Annotated[
        str | None, typer.Option(metavar="NAME", help="Sampler of optuna: tpe or nsga2.")
    ] = None,
    no_simplify: NoSimplifyOption = False,
    form: FormatOption = Format.table,
) -> None:
    """Search for the fastest plan of a graph.

    Every measurement is kept: the same command again resumes and measures nothing twice. Ctrl-C
    stops the search and keeps what was found; a second Ctrl-C aborts.
    """
    names = _plan_names(baselines, "--baselines")
    budget_s = DEFAULTS.budget_s if budget is None else budget
    asked = TuneOptions(
        db=db, budget_s=budget_s, strategy=strategy, search_gap=search_gap, runs=runs,
        max_memory=max_memory, cache=cache, seed=seed, simplify=not no_simplify, math=math,
        options={} if sampler is None else {"sampler": sampler},
        baselines=baselines if baselines in (ALL, FAST) else names,
    )  # fmt: skip
    # Optuna is slow to import: signals are caught before, so that an early Ctrl-C is a clean end.
    with StopSignals() as stop:
        from autofuse.tuning import tune as search

        name, graph = load_workload(source, dim)
        kind = asked_device(device, target, math)
        if kind.hardware is None:
            from autofuse.tuning.job.planned import plan_for

            planned = plan_for(graph, replace(asked, name=name, device=kind.name, target=target))
            emit(form, planned.to_json(), _planned_lines(name, planned.to_json()))
            return
        if runs is not None and budget is None:
            advice = _advice(graph, kind, asked)
            if not advice.seconds:
                emit(form, {"advice": asdict(advice)}, [f"{name}: {advice}"])
                return
            asked = replace(asked, budget_s=advice.seconds, advice=advice)
        with shown_progress() as progress:
            result = search(graph, asked, name=name, device=kind.name, progress=progress, stop=stop)
    data = result.to_json()
    emit(form, data, tune_lines(name, data))


def _advice(graph: Graph, kind: DeviceKind, asked: TuneOptions) -> Advice:
    from autofuse.tuning.advice import advice_for

    assert asked.runs is not None
    return advice_for(normal_form(graph) if asked.simplify else graph, kind, asked.runs, asked.db)


def _planned_lines(name: str, data: dict[str, Any]) -> Iterator[str]:
    graph, best = data["graph"], data["best"]
    yield f"{name} for {data['target']}: {plural(graph['nodes'], 'node')}, digest {graph['digest']}"
    yield ""
    rows = [
        [plan, duration(row["bound_us"]), str(row["kernels"]), bytes_text(row["peak_bytes"]),
         row.get("error", "")]
        for plan, row in data["plans"].items()
    ]  # fmt: skip
    yield from table(["plan", ">at least", ">kernels", ">memory", "cannot be built"], rows)
    yield ""
    where = "" if data["windows"] == 1 else f", planned in {data['windows']} windows"
    yield f"least bound: {best['name']}, plan {best['plan_digest']}{where}"
    yield "nothing was timed: times are lower bounds by the target's data sheet"


_CHECKED = {
    "reference": "verified against the reference",
    "sampled": "checked at drawn places, not timed",
    "no": "NOT verified",
}


def _checked(data: dict[str, Any]) -> str:
    told, draws = _CHECKED[data["checked"]], len(data.get("checked_on", ()))
    return f"{told} on {draws} draws of inputs" if data["verified"] and draws > 1 else told


def _plan_rows(data: dict[str, Any]) -> list[list[str]]:
    best = data["best"]
    rows = [_baseline_row(n, row, data) for n, row in data["baselines"].items()]
    rows += [
        [n, f"~{duration(row['time_us'])}", str(row["kernels"]), "-", "predicted, not run", ""]
        for n, row in data.get("predicted", {}).items()
    ]
    if best.get("expected_us") is None:
        return [*rows, ["best", *_measures(best), "", ""]]
    told = [f"~{duration(best['expected_us'])}", str(best["kernels"]), "-", "expected, not run"]
    return [*rows, ["best", *told, ""]]


def tune_lines(name: str, data: dict[str, Any]) -> Iterator[str]:
    """The result of a session as text."""
    graph, best, spent = data["graph"], data["best"], data["spent_s"]
    yield f"{name} on {data['device']}: {plural(graph['nodes'], 'node')}, digest {graph['digest']}"
    yield ""
    yield from table(
        ["plan", ">time", ">kernels", ">compile", "best is", "pays after"], _plan_rows(data)
    )
    yield ""
    error = data["max_rel_error"]
    checked = _checked(data)
    memory = f", {bytes_text(best['peak_bytes'])} of intermediates" if "peak_bytes" in best else ""
    worst = "" if error is None else f" (largest relative error {error:.2g})"
    origin = best["origin"] or "unknown"
    yield f"best: {origin}, plan {best['plan_digest']}, {checked}{worst}{memory}"
    parts = ", ".join(f"{k} {spent[k]:.1f}" for k in ("codegen", "compile", "measure", "sampler"))
    yield f"spent {seconds(spent['total'])} of {seconds(data['budget_s'])} ({parts})"
    failed = ", ".join(f"{n} {kind}" for kind, n in sorted(data["failed"].items())) or "none"
    yield f"{plural(data['trials'], 'trial')}, {data['measured']} measured, failed: {failed}"
    yield from _gap_lines(data)
    for line in data.get("notes", ()):
        yield f"note: {line}"
    if data.get("interrupted"):
        yield "interrupted: run the same command again to go on"


def _gap_lines(data: dict[str, Any]) -> Iterator[str]:
    if data.get("search_gap") is not None:
        where = ", window by window" if "per window" in (data.get("certificate") or "") else ""
        yield (
            f"gap of this search: {data['search_gap']:.1%}{where} (as far as costs add up, no plan "
            "of its kernels at the launches tried is better by more)"
        )
    if data.get("bound_gap") is not None:
        yield (
            f"gap to the bound: {data['bound_gap']:.1%} (no plan whatever takes less than "
            f"{duration(data['bound_us'])}, by this device's peaks)"
        )


def _measures(row: dict[str, Any]) -> list[str]:
    return [duration(row.get("time_us")), str(row["kernels"]), seconds(row.get("compile_s"))]


def _baseline_row(name: str, row: dict[str, Any], data: dict[str, Any]) -> list[str]:
    if row.get("failure"):
        return [name, *_measures(row), f"failed: {row['failure']['kind']}", ""]
    runs = data["break_even_runs"].get(name)
    pays = "never" if runs is None else f"{runs:,.0f} runs"
    return [name, *_measures(row), _speedup(data["speedup_over"].get(name)), pays]


def _speedup(found: dict[str, Any] | None) -> str:
    if found is None:
        return "-"
    interval = f"({found['low']:.2f} to {found['high']:.2f})"
    if found["outcome"] == "tie":
        return f"a tie {interval}"
    if found["outcome"] == "slower":
        return f"slower: {found['ratio']:.2f}x as fast {interval}"
    return f"{found['ratio']:.2f}x as fast {interval}"


@reported
def query(
    source: SourceArg,
    dim: DimOption = None,
    device: DeviceOption = "auto",
    target: TargetOption = "",
    db: DbOption = None,
    math: MathOption = DEFAULT_MATH,
    no_simplify: NoSimplifyOption = False,
    form: FormatOption = Format.table,
) -> None:
    """Print the best plan known for a graph.

    It is the best on this device; with none known the exit code is 4.
    """
    from autofuse.tuning.plans import known_plans, none_known

    name, graph = load_workload(source, dim)
    kind = asked_device(device, target, math)
    kind.must_be_timed()
    known, passed = known_plans(normal_form(graph, not no_simplify), kind.backend, db)
    if known is None:
        nothing = {"found": False, "passed_over": [asdict(one) for one in passed]}
        emit(form, nothing, [none_known(name, passed)])
        raise typer.Exit(NOT_FOUND)
    data = {"found": True, **known.to_json()}
    timing = known.measurement.timing
    quartiles = "" if timing is None else f", quartiles {_range(timing.q1_us, timing.q3_us)}"
    lines = [
        f"{name}: {duration(data['time_us'])}{quartiles}",
        f"{plural(known.measurement.kernels, 'kernel')}, found by {known.candidate.origin}, "
        f"plan {known.candidate.digest}",
    ]
    if known.stale:
        lines.append(f"stale: {', '.join(known.stale)} changed since it was measured")
    lines += [f"note: {one}" for one in passed]
    emit(form, data, lines)


def _range(low: float, high: float) -> str:
    return f"{duration(low)} to {duration(high)}"


@reported
def compare(
    source: SourceArg,
    dim: DimOption = None,
    plans: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...", help="Plans to time (default: the baselines and the best)."
        ),
    ] = None,
    why: Annotated[
        bool, typer.Option("--why", help="Print which rules of a baseline kept kernels apart.")
    ] = False,
    device: DeviceOption = "auto",
    target: TargetOption = "",
    db: DbOption = None,
    math: MathOption = DEFAULT_MATH,
    no_simplify: NoSimplifyOption = False,
    form: FormatOption = Format.table,
) -> None:
    """Time plans of a graph against each other.

    Each is checked against the reference first; their runs are interleaved. Bytes moved and the
    predicted time, a lower bound, follow from the plan alone.
    """
    from autofuse.tuning import compare as time_plans

    name, graph = load_workload(source, dim)
    names = None if plans is None else _plan_names(plans, "--plans")
    kind = asked_device(device, target, math)
    found = time_plans(
        graph, device=kind.name, target=target, db=db, plans=names, name=name, why=why,
        simplify=not no_simplify, math=math,
    )  # fmt: skip
    data = found.to_json()
    emit(form, data, (*_compare_lines(name, data), *_boundary_lines(data)))


def _plan_names(text: str, option: str) -> list[str]:
    names = [part.strip() for part in text.split(",")]
    if not all(names):
        raise AutofuseError(f"{option} wants names separated by commas, not '{text}'")
    return list(dict.fromkeys(names))


def _compared(row: dict[str, Any], least: float | None) -> list[str]:
    told = [duration(row["predicted_us"]), str(row["kernels"]), bytes_text(row["bytes"])]
    if row.get("error") or not row.get("time_us"):
        return ["-", "", "", *told, "", row.get("error") or "no time"]
    factor = f"{row['time_us'] / least:.2f}x" if least else "-"
    quartiles = _range(row["q1_us"], row["q3_us"])
    status = "verified" if row["verified"] else "NOT verified"
    return [duration(row["time_us"]), quartiles, factor, *told, seconds(row["compile_s"]), status]


def _compare_lines(name: str, data: dict[str, Any]) -> Iterator[str]:
    graph = data["graph"]
    yield f"{name} on {data['device']}: {plural(graph['nodes'], 'node')}, digest {graph['digest']}"
    yield ""
    timed = [row["time_us"] for row in data["plans"].values() if row.get("time_us")]
    least = min(timed, default=None)
    rows = [[plan, *_compared(row, least)] for plan, row in data["plans"].items()]
    head = ["plan", ">time", "quartiles", ">to the fastest", ">predicted", ">kernels", ">moved",
            ">compile", "result"]  # fmt: skip
    yield from table(head, rows)
    if not all(row["calibrated"] for row in data["plans"].values()):
        yield "note: predictions are those of a fast machine; tuning calibrates this one"
    for line in data["notes"]:
        yield f"note: {line}"


def _boundary_lines(data: dict[str, Any]) -> Iterator[str]:
    """What `--why` adds: each boundary of each baseline, and its rules' last words on it."""
    for plan, row in data["plans"].items():
        if "boundaries" not in row:
            continue
        yield ""
        if not row["boundaries"]:
            yield f"{plan}: no kernel reads what another one writes"
        if not any(boundary["refusals"] for boundary in row["boundaries"]):
            yield f"{plan}: its rules were asked about none of {len(row['boundaries'])} boundaries"
            continue
        for boundary in row["boundaries"]:
            where = "".join(f"in %{loop}: " for loop in boundary["scope"])
            first, second = boundary["kernels"]
            values = ", ".join(boundary["values"])
            yield (f"{plan}: {where}kernel {first} -> kernel {second}: {values}, "
                   f"{bytes_text(boundary['bytes'])}")  # fmt: skip
            yield from _refusal_lines(boundary["refusals"])


def _refusal_lines(refusals: Sequence[dict[str, Any]]) -> Iterator[str]:
    for rule, reason in dict.fromkeys((r["rule"], r["reason"]) for r in refusals):
        yield f"   [{rule}] {reason}"
    if not refusals:
        yield "   no rule was asked about these two"
