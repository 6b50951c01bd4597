"""Prices of rules as tables for people, in Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.kept import Row
from benchmarks.study.summary import Price, all_rules, alone, interval_text, opening, prices

HEAD = (
    "| rule | programs changed | slower with it | faster with it | ratio, all programs "
    "| most | least |"
)


def page(data: Mapping[str, Any]) -> str:
    """The tables of one run (`bench.study_prices`)."""
    return "\n".join(_lines(data))


def _lines(data: Mapping[str, Any]) -> Iterator[str]:
    rows = [row for row in data["rows"].values() if "error" not in row]
    yield from opening(
        data,
        f"{len(rows)} programs ({data['size']} sizes), {data['cpu']}, {data['threads']} threads.",
    )
    for planner in data["planners"]:
        yield from ("", f"### {planner}", "", *_planner(rows, planner))
    own, every = (sum(row["kernels"][which] for row in rows) for which in ("own", "all"))
    yield ""
    yield (
        f"The plans of these planners hold {own} different kernels. All plans without a rule, or "
        f"with only one, hold {every - own} more."
    )


def _planner(rows: Sequence[Row], planner: str) -> Iterator[str]:
    every = all_rules(rows, planner)
    yield (
        f"All of them off at once change {every.changed} programs of {every.programs}: ratio "
        f"{_interval(every)}, most {_program(every.most)}, least {_program(every.least)}."
    )
    yield from ("", "Each rule left out:")
    yield from _table(prices(rows, planner))
    yield from ("", "Each rule alone, over none:")
    yield from _table(alone(rows, planner))
    own = median(row["planners"][planner]["plan_s"] for row in rows)
    yield from ("", f"Planning takes {1000 * own:.1f} ms in the median of the programs.")


def _table(found: Sequence[Price]) -> Iterator[str]:
    told = [price for price in found if price.changed or price.failed]
    if told:
        yield from ("", HEAD, "|---" * 7 + "|")
    for price in told:
        failed = f", {price.failed} did not run" if price.failed else ""
        yield (
            f"| `{price.rule}` | {price.changed}{failed} | {price.dearer} | {price.cheaper} "
            f"| {_interval(price)} | {_program(price.most)} | {_program(price.least)} |"
        )
    same = ", ".join(f"`{price.rule}`" for price in found if price not in told)
    if same:
        yield from ("", f"No plan of any program is changed by {same}.")


def _interval(price: Price) -> str:
    return interval_text((price.ratio, price.low, price.high), digits=3)


def _program(found: tuple[float, str]) -> str:
    ratio, name = found
    return f"{name} {ratio:.2f}" if name else "none"
