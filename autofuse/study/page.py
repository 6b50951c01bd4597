"""The study of one program as tables and as a page in Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autofuse.units import plural, runs_text, seconds_text, time_text

# A rule whose whole interval is nearer to 1 makes no difference that could be shown.
TIE = 0.02


@dataclass(frozen=True, slots=True)
class Section:
    """A table with what it says above it; ">" before a head's name aligns a column to the right."""

    title: str
    said: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def sections(data: Mapping[str, Any]) -> Iterator[Section]:
    """The tables of `ProgramStudy.to_json`."""
    yield Section(
        "What seconds buy",
        "Seconds from nothing to a plan that can be called, and the time of a run. A star: nothing "
        "is as fast in fewer seconds.",
        ("plan", ">seconds", ">time", ">over the searched one", ""),
        tuple(map(_dial, data["dials"])),
    )
    yield Section(
        "When the search pays",
        "From how many runs on the searched plan costs less in all.",
        ("instead of", ">runs", ">interval"),
        tuple(map(_crossing, data["crossings"])),
    )
    yield Section(
        "Whose the speed-up is",
        "Factors from one kernel an operation to the searched plan, in this order.",
        ("what", ">factor", ">interval"),
        tuple((p["what"], f"{p['factor']:.2f}", _range(p)) for p in data["parts"]),
    )
    yield Section(
        "What rules cost here",
        "A planner's plan over its plan without a rule: above 1 the rule costs time on this "
        "program. Rules without which the plan is the same are only counted.",
        ("planner", "rule", ">ratio", ">interval", ""),
        tuple(map(_price, data["prices"])),
    )


def _dial(dial: Mapping[str, Any]) -> tuple[str, ...]:
    over = f"{dial['ratio']:.2f}" + ("" if dial["read"] else f" ({_range(dial)})")
    star = "*" if dial["on_front"] else ""
    return dial["name"], seconds_text(dial["seconds"]), time_text(dial["us"]), over, star


def _range(found: Mapping[str, Any]) -> str:
    return f"{found['low']:.2f} to {found['high']:.2f}"


def _crossing(found: Mapping[str, Any]) -> tuple[str, ...]:
    ends = f"{runs_text(found['low'])} to {runs_text(found['high'])}"
    return found["over"], runs_text(found["runs"]), ends


def _price(price: Mapping[str, Any]) -> tuple[str, ...]:
    low, high = price["low"], price["high"]
    said = "costs" if low > 1 + TIE else "saves" if high < 1 / (1 + TIE) else ""
    name = price["rule"] or "all of them"
    return price["planner"], name, f"{price['ratio']:.2f}", _range(price), said


def sentences(data: Mapping[str, Any]) -> Iterator[str]:
    """What the tables leave out."""
    for planner, count in data["unchanged"].items():
        yield f"rules of {planner} without which the plan is the same: {count}"
    for name, why in data["left_out"].items():
        yield f"left out: {name} ({why})"


def heading(data: Mapping[str, Any]) -> str:
    return (
        f"{data['name']} on {data['device']}: {plural(data['graph']['nodes'], 'node')}, caches "
        f"{data['cache']}, {seconds_text(data['spent_s'])} of {seconds_text(data['budget_s'])}"
    )


def markdown(data: Mapping[str, Any]) -> str:
    """The page of one program."""
    return "\n".join(_lines(data)) + "\n"


def _lines(data: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"# Study of {_cell(data['name'])}", "", heading(data) + ".")
    for section in sections(data):
        if not section.rows:
            continue
        yield from ("", f"## {section.title}", "", section.said, "")
        yield _row([name.removeprefix(">") for name in section.head])
        yield _row(["---:" if name.startswith(">") else "---" for name in section.head])
        yield from map(_row, section.rows)
    told = list(sentences(data))
    if told:
        yield ""
        yield from (f"* {_cell(each)}" for each in told)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(text: str) -> str:
    """Names may hold anything."""
    return " ".join(text.replace("|", "\\|").split())
