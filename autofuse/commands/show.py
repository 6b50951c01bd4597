"""`autofuse show` tells what a plan is, and why, and what its kernels look like."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from autofuse.baselines import baseline_named, explain, is_baseline
from autofuse.commands.boundaries import contest_lines
from autofuse.commands.common import (
    DbOption,
    DeviceOption,
    DimOption,
    FormatOption,
    MathOption,
    SourceArg,
    TargetOption,
    asked_device,
    load_workload,
    output_path,
    reported,
    write_text,
)
from autofuse.commands.output import Format, emit, note
from autofuse.commands.plan_tree import plan_data, traffic_text, tree_lines
from autofuse.commands.simplified import simplified_data, simplified_lines
from autofuse.cost.bounds import candidate_bytes
from autofuse.devices import DeviceKind, speaking
from autofuse.graph.canonical import digest
from autofuse.graph.keys import input_keys
from autofuse.graph.types import Graph
from autofuse.plan.arithmetic import DEFAULT_MATH
from autofuse.plan.networks import write_network
from autofuse.plan.program.schedule import kernel_runs, launches_per_call, schedule
from autofuse.plan.types import Candidate
from autofuse.simplify import normal_form
from autofuse.units import bytes_text, plural


@reported
def show(
    source: SourceArg,
    dim: DimOption = None,
    plan: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="best, fused or a baseline (default: the best known, else a baseline).",
        ),
    ] = None,
    why: Annotated[
        bool, typer.Option("--why", help="Print why kernels were fused or kept apart.")
    ] = False,
    text: Annotated[bool, typer.Option("--source", help="Print the text of the kernels.")] = False,
    dialect: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Language of --source (default: the device's own)."),
    ] = None,
    simplify: Annotated[
        bool | None,
        typer.Option(
            "--simplify/--no-simplify",
            help="Print what each simplification did; or keep the program as it is written.",
        ),
    ] = None,
    svg: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the graph, groups coloured.")
    ] = None,
    network: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write graph and groups as .graphml or .dot."),
    ] = None,
    device: DeviceOption = "auto",
    target: TargetOption = "",
    db: DbOption = None,
    math: MathOption = DEFAULT_MATH,
    form: FormatOption = Format.table,
) -> None:
    """Print a plan as a tree of kernels.

    Each comes with its nodes, what it reads and writes, and how many bytes that is.
    """
    name, loaded = load_workload(source, dim)
    graph = normal_form(loaded, simplify is not False)
    for file in filter(None, (svg, network)):
        output_path(file)
    kind = asked_device(device, target, math)
    speaker = kind if dialect in (None, kind.dialect.name) else speaking(str(dialect))
    chosen, candidate = _candidate(graph, plan, kind, target, db)
    data = _data(name, graph, chosen, candidate, kind)
    data["contests"] = _contests(data["groups"], graph, candidate, kind, db)
    lines = list(_tree(data)) if not (why or text or simplify) else []
    if simplify:
        data["simplify"] = simplified_data(loaded)
        lines += simplified_lines(data["simplify"])
    if why:
        told, found = _why(graph, chosen, candidate, kind, target, db)
        data |= found
        lines += [*told, *contest_lines(graph, data["contests"])]
    if text:
        spoken = candidate if speaker is kind else _spoken(graph, candidate, speaker)
        data["kernels"] = list(_kernels(graph, spoken, speaker))
        lines += _kernel_lines(data["kernels"], speaker)
    if svg is not None:
        _draw(svg, name, graph, chosen, candidate)
    if network is not None:
        write_network(graph, candidate.plan, network)
        note(f"written to {network}")
    emit(form, data, lines)


def _candidate(
    graph: Graph, plan: str | None, kind: DeviceKind, target: str, db: str | None
) -> tuple[str, Candidate]:
    """The plan asked for and its name; asked for none, what `autofuse.compile` would use."""
    from autofuse.tuning import plan_named
    from autofuse.tuning.plans import BEST, known_peaks, known_plans
    from autofuse.tuning.serve.kept import kept_untuned
    from autofuse.tuning.serve.moving import moved_candidates

    if plan is not None:
        named = plan_named(graph, plan, kind, db=db, simplify=False)
        return plan, named
    known, passed = known_plans(graph, kind.backend, db)
    for one in passed:
        note(str(one))
    if known is not None:
        return BEST, known.candidate
    for moved in moved_candidates(graph, kind, db):
        return moved.origin, moved
    untuned = kept_untuned(graph, kind, known_peaks(kind.backend.environment(), db))
    return untuned.origin, untuned


def _data(
    name: str, graph: Graph, chosen: str, candidate: Candidate, kind: DeviceKind
) -> dict[str, Any]:
    made = schedule(graph, candidate)
    return {
        "name": name,
        "graph": {"digest": digest(graph), "nodes": len(graph.nodes)},
        "plan": {
            "name": chosen,
            "origin": candidate.origin,
            "digest": candidate.digest,
            "launches_per_call": launches_per_call(made.steps),
            "peak_bytes": candidate_bytes(graph, candidate),
            "constants": {
                "inputs": [input_keys(graph)[k] for k in made.binding.bound],
                "kernels": launches_per_call(made.prepare),
                "prepared_bytes": made.binding.held,
            },
        },
        **plan_data(graph, candidate, kind.dialect),
    }


def _contests(
    groups: list[dict[str, Any]], graph: Graph, candidate: Candidate, kind: DeviceKind,
    db: str | None,
) -> list[dict[str, Any]]:  # fmt: skip
    """Who was timed computing each lone product or convolution; its group is told too."""
    from autofuse.tuning.explain.contests import plan_contests

    found = [contest.to_json() for contest in plan_contests(graph, candidate, kind, db)]
    for one in found:
        groups[one["kernel"]]["contest"] = one
    return found


def _tree(data: dict[str, Any]) -> Iterator[str]:
    graph, plan = data["graph"], data["plan"]
    yield f"{data['name']}: {plural(graph['nodes'], 'node')}, digest {graph['digest']}"
    origin = "" if plan["origin"] in ("", plan["name"]) else f" ({plan['origin']})"
    launches = plural(plan["launches_per_call"], "launch").replace("launchs", "launches")
    yield f"plan {plan['name']}{origin}, {launches} a call, {traffic_text(data['traffic'])}"
    yield f"{bytes_text(plan['peak_bytes'])} of intermediates alive at once"
    fixed = plan["constants"]
    if fixed["inputs"]:
        kernels = plural(fixed["kernels"], "kernel")
        yield (
            f"constants ({', '.join(fixed['inputs'])}) are prepared once: {kernels}, "
            f"{bytes_text(fixed['prepared_bytes'])} kept for calls"
        )
    yield from tree_lines(data["groups"])


def _why(
    graph: Graph, chosen: str, candidate: Candidate, kind: DeviceKind, target: str, db: str | None
) -> tuple[list[str], dict[str, Any]]:
    """The decisions of the rules behind a plan, or what other cuts than a searched plan's would
    have cost, as lines and as data."""
    name = chosen if is_baseline(chosen) else candidate.origin
    if not is_baseline(name):
        from autofuse.commands.boundaries import why_lines
        from autofuse.tuning.explain.explain import explain_plan

        found = explain_plan(graph, candidate, device=kind.name, target=target, db=db)
        data = found.to_json()
        return list(why_lines(graph, data)), data
    result = baseline_named(name)(graph)
    lines = explain(result, graph)
    if result.plan != candidate.plan:
        lines.append(
            "note: groups that no kernel here can be were cut; show without --why prints the plan"
        )
    decisions = [
        {
            "pass": d.pass_name,
            "scope": list(d.scope),
            "producer": d.producer,
            "consumer": d.consumer,
            "producer_node": d.producer_node,
            "consumer_node": d.consumer_node,
            "fused": d.fused,
            "rule": d.rule,
            "reason": d.reason,
        }
        for d in result.decisions
    ]
    return lines, {"decisions": decisions}


def _spoken(graph: Graph, candidate: Candidate, speaker: DeviceKind) -> Candidate:
    """Launch settings chosen for another kind of device say nothing here: its own defaults do."""
    from autofuse.tuning.problem import default_candidate

    return default_candidate(graph, candidate.plan, speaker.space, candidate.origin)


def _kernels(graph: Graph, candidate: Candidate, speaker: DeviceKind) -> Iterator[dict[str, Any]]:
    """The text of every distinct kernel, in the order they first run."""
    from autofuse.kernel.library.gemm import library_of
    from autofuse.tuning.explain.contests import NAMES

    seen: set[tuple[Any, ...]] = set()
    for run in kernel_runs(schedule(graph, candidate).everything):
        key = (run.graph, run.group, run.launch, run.packs)
        if key in seen:
            continue
        seen.add(key)
        nodes = list(run.group.nodes)
        library = library_of(run.graph, run.group, run.launch, speaker.dialect)
        if library:
            yield {"name": None, "nodes": nodes, "library": NAMES[library], "text": None}
            continue
        name, text = speaker.kernel_text(run)
        yield {"name": name, "nodes": nodes, "library": None, "text": text}


def _kernel_lines(kernels: list[dict[str, Any]], speaker: DeviceKind) -> Iterator[str]:
    names = " and ".join(speaker.dialect.preludes)
    yield f"/* Each text is compiled after autofuse/kernel/text/prelude/{names}. */"
    for number, kernel in enumerate(kernels):
        ops = ", ".join(f"%{n}" for n in kernel["nodes"])
        yield ""
        if kernel["library"]:
            yield f"/* kernel {number} ({ops}) is a call of {kernel['library']} */"
            continue
        yield f"/* kernel {number} ({ops}) */"
        yield from kernel["text"].splitlines()


def _draw(path: Path, name: str, graph: Graph, chosen: str, candidate: Candidate) -> None:
    from autofuse.commands.pictures import graph_svg

    drawn = graph_svg(graph, candidate.plan, f"{name}: plan {chosen}")
    write_text(path, drawn)
    note(f"drawn in {path}")
