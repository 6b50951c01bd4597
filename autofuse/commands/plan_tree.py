"""A plan as data and as an indented tree: what each kernel computes, reads, writes and moves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from autofuse.commands.output import duration
from autofuse.cost.traffic import Traffic, group_traffic, plan_traffic, read_bytes
from autofuse.graph.types import Graph, Value
from autofuse.kernel.library.gemm import library_of
from autofuse.kernel.text.dialects import Dialect
from autofuse.ops.control import is_counted
from autofuse.plan.fusion.groups import host_loop
from autofuse.plan.program.binding import groups_once
from autofuse.plan.types import Candidate, FusionGroup, FusionPlan, LaunchConfig
from autofuse.tuning.explain.contests import NAMES
from autofuse.units import amount_text, bytes_text, plural

_NAMED_NODES = 12


def plan_data(graph: Graph, candidate: Candidate, dialect: Dialect) -> dict[str, Any]:
    """The groups of a candidate of a canonical graph with their traffic, and the totals; a dialect
    says which of them are library calls."""
    groups = _groups(graph, candidate.plan, candidate.launches, dialect)
    once = groups_once(graph, candidate.plan)
    return {
        "groups": [{**group, "once": k in once} for k, group in enumerate(groups)],
        "traffic": _traffic(plan_traffic(graph, candidate.plan)),
    }


def _groups(
    graph: Graph,
    plan: FusionPlan,
    launches: Sequence[LaunchConfig],
    dialect: Dialect,
) -> list[dict[str, Any]]:
    return [
        _group(graph, group, launch, dialect)
        for group, launch in zip(plan.groups, launches, strict=True)
    ]


def _group(
    graph: Graph, group: FusionGroup, launch: LaunchConfig, dialect: Dialect
) -> dict[str, Any]:
    data: dict[str, Any] = {
        "nodes": [{"node": n, "op": graph[n].op, "name": graph[n].name,
                   "types": [str(t) for t in graph[n].types]} for n in group.nodes],
        "reads": [_value(graph, v, count) for v, count in read_bytes(graph, group).items()],
        "writes": [_value(graph, v, graph.type_of(v).nbytes) for v in group.outputs],
        "traffic": _traffic(group_traffic(graph, group)),
    }  # fmt: skip
    if group.body is None:
        library = library_of(graph, group, launch, dialect)
        own = {"library": bool(library), "launch": dict(launch.settings)}
        return data | own | ({"implementation": library} if library else {})
    body, trips = host_loop(graph, group)
    inside = launch.inner or (launch,) * len(group.body.groups)
    inner = _groups(body, group.body, inside, dialect)
    known = trips if is_counted(graph[group.nodes[0]].op) else None
    return data | {"loop": {"trips": known, "unroll": group.unroll, "groups": inner}}


def _value(graph: Graph, value: Value, nbytes: int) -> dict[str, Any]:
    node = graph[value.node]
    return {"value": str(value), "op": node.op, "name": node.name,
            "type": str(graph.type_of(value)), "bytes": nbytes}  # fmt: skip


def _traffic(traffic: Traffic) -> dict[str, Any]:
    return {
        "read_bytes": traffic.read_bytes,
        "written_bytes": traffic.written_bytes,
        "flops": traffic.flops,
    }


def traffic_text(traffic: dict[str, Any]) -> str:
    read, written = bytes_text(traffic["read_bytes"]), bytes_text(traffic["written_bytes"])
    return f"reads {read}, writes {written}, {amount_text(traffic['flops'])} flop"


def tree_lines(groups: Sequence[dict[str, Any]], indent: str = "", path: str = "") -> Iterator[str]:
    """The groups of `plan_data`, those of host loop bodies below their loop."""
    for position, group in enumerate(groups):
        number, last = f"{path}{position}", position == len(groups) - 1
        branch, deeper = ("└─ ", "   ") if last else ("├─ ", "│  ")
        count = plural(len(group["nodes"]), "node")
        what = "host loop" if "loop" in group else _kind(group)
        when = " run once" if group.get("once") else ""
        yield f"{indent}{branch}{what} {number}{when}: {count}, {traffic_text(group['traffic'])}"
        yield from _details(group, indent + deeper)
        if "loop" in group:
            loop = group["loop"]
            unrolled = "" if loop["unroll"] == 1 else f", unrolled by {loop['unroll']}"
            yield f"{indent}{deeper}{_times(loop['trips'])}{unrolled}, each:"
            yield from tree_lines(loop["groups"], indent + deeper, f"{number}.")


def _times(trips: int | None) -> str:
    return "iterations until its flag is false" if trips is None else plural(trips, "iteration")


def _kind(group: dict[str, Any]) -> str:
    return f"{NAMES[group['implementation']]} call" if group["library"] else "kernel"


def _details(group: dict[str, Any], indent: str) -> Iterator[str]:
    labels = [_label(f"%{n['node']}", n) for n in group["nodes"]]
    shown = ", ".join(labels[:_NAMED_NODES])
    more = len(labels) - _NAMED_NODES
    yield f"{indent}nodes   {shown}" + (f" and {more} more" if more > 0 else "")
    for kind in ("reads", "writes"):
        for value in group[kind]:
            label = _label(value["value"], value)
            yield f"{indent}{kind:<7} {label} {value['type']}, {bytes_text(value['bytes'])}"
    if "contest" in group:
        yield f"{indent}by      {contest_text(group['contest'])}"
    if group.get("launch") and not group["library"]:
        settings = ", ".join(f"{k}={v}" for k, v in group["launch"].items())
        yield f"{indent}launch  {settings}"


def contest_text(row: dict[str, Any]) -> str:
    """Who computes a product or a convolution, and by how much, of `Contest.to_json`."""
    times, chosen = row["times_us"], row["implementation"]
    said = ", ".join(f"{NAMES[who]} {duration(us)}" for who, us in times.items())
    if row["ahead"] is None:
        return f"{NAMES[chosen]}; {said or 'nothing'} was timed"
    other = NAMES[next(who for who in times if who != chosen)]
    if row["ahead"] < 1:
        return f"{NAMES[chosen]}, though {other} was {1 / row['ahead']:.2f}x as fast: {said}"
    return f"{NAMES[chosen]}, {row['ahead']:.2f}x as fast as {other}: {said}"


def _label(number: str, node: dict[str, Any]) -> str:
    name = f" '{node['name']}'" if node["name"] else ""
    return f"{number} {node['op']}{name}"
