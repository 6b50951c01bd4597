"""Says as text why a searched plan is cut where it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autofuse.commands.output import duration
from autofuse.commands.plan_tree import contest_text
from autofuse.graph.types import Graph
from autofuse.units import amount_text, bytes_text


def why_lines(graph: Graph, data: dict[str, Any]) -> Iterator[str]:
    """The boundaries and the recomputed nodes of `Explanation.to_json`."""
    if not data["boundaries"]:
        yield "no kernel of this plan reads what another one writes"
    for row in data["boundaries"]:
        values = ", ".join(_label(graph, text) for text in row["values"])
        pair = f"kernel {row['producer']} -> kernel {row['consumer']}"
        yield f"{pair}: {values}, {bytes_text(row['bytes'])}"
        yield f"   apart    {_time(row['apart'], row['apart_us'])}"
        yield f"   as one   {_merged(row)}"
    for row in data["crossings"]:
        yield from _crossed(graph, row)
    for row in data["recomputed"]:
        kernels = ", ".join(map(str, row["kernels"]))
        yield f"%{row['node']} {graph[row['node']].op} is computed in kernels {kernels}"
        yield f"   stored   {_stored(row)}"
    if not data["calibrated"]:
        yield "note: bounds are those of a fast machine; tuning calibrates this one"


def contest_lines(graph: Graph, rows: list[dict[str, Any]]) -> Iterator[str]:
    """Who computes each lone product or convolution of a plan, and by how much."""
    for row in rows:
        what = _label(graph, f"%{row['node']}")
        yield f"kernel {row['kernel']}: {what} by {contest_text(row)}"


def _crossed(graph: Graph, row: dict[str, Any]) -> Iterator[str]:
    """A product that shares its kernel: with what, and what that saves."""
    product = _label(graph, f"%{row['product']}")
    sides = [(row["before"], "takes in"), (row["after"], "goes on with")]
    said = [
        f"{verb} {', '.join(_label(graph, v) for v in values)}" for values, verb in sides if values
    ]
    kept = bytes_text(row["bytes"])
    yield f"kernel {row['kernel']}: {product} {' and '.join(said)}, {kept} not moved"
    yield f"   apart    {_time(row['apart'], row['apart_us'])}"
    yield f"   as one   {_time(row['fused'], row['fused_us'])}{_saving(row)}"


def _saving(row: dict[str, Any]) -> str:
    """What crossing the wall saved: at least so much where the time apart is a bound."""
    if row["fused"] != "measured":
        return ""
    saved = row["apart_us"] - row["fused_us"]
    us = duration(abs(saved))
    if row["apart"] == "measured":
        return f": saves {us}" if saved >= 0 else f": {us} slower"
    return f": saves at least {us}" if saved >= 0 else f": apart might save {us} at most"


def _label(graph: Graph, text: str) -> str:
    node = graph[int(text.lstrip("%").split(".")[0])]
    name = f" '{node.name}'" if node.name else ""
    return f"{text} {node.op}{name}"


def _time(kind: str, us: float) -> str:
    return f"{duration(us)}, measured" if kind == "measured" else f"at least {duration(us)}"


def _merged(row: dict[str, Any]) -> str:
    if row["merged"] == "illegal":
        return f"cannot be: [{row['rule']}] {row['reason']}"
    text = _time(row["merged"], row["merged_us"])
    change = row["merged_us"] - row["apart_us"]
    if row["merged"] == row["apart"] == "measured":
        return f"{text}: {duration(abs(change))} {'slower' if change >= 0 else 'faster'}"
    if change >= 0 and row["apart"] == "measured":
        return f"{text}: slower by its bound, so never measured"
    return f"{text}: not measured"


def _stored(row: dict[str, Any]) -> str:
    moved, flops = row["more_bytes"], row["fewer_flops"]
    more = f"{bytes_text(abs(moved))} {'more' if moved >= 0 else 'less'} to move"
    sign = "+" if row["more_us"] >= 0 else "-"
    return (
        f"{more}, {amount_text(flops)} flop saved, {sign}{duration(abs(row['more_us']))} by bounds"
    )
