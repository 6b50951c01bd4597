"""The report as one self-contained HTML file: no network, no scripts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from autofuse.records import Verdict
from autofuse.report import charts
from autofuse.report.model import BreakEven, SessionReport, WorkloadReport, median_ratio
from autofuse.report.svg import clean, ratio_text, runs_text, seconds_text, time_text

_OUTCOMES: Mapping[str, str] = {
    "faster": "faster",
    "slower": "slower",
    "tie": "tie: no difference shown",
}


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart and the sentences that say how to read it; the chart is markup."""

    heading: str
    note: str
    picture: Markup
    wide: bool = False


@dataclass(frozen=True, slots=True)
class _Section:
    """A workload on the page; `anchor` is its id there."""

    anchor: str
    report: WorkloadReport
    headline: str
    figures: tuple[Figure, ...]


def render_html(
    reports: Sequence[WorkloadReport], generated: str, title: str = "autofuse report"
) -> str:
    """The whole page, the same text for equal arguments. `generated` says when it was made.

    Names may hold anything: they are escaped, and what a page cannot hold is replaced.
    """
    sections = [
        _Section(f"workload-{i}", report, headline(report), _figures(report))
        for i, report in enumerate(reports, 1)
    ]
    return _template().render(title=title, generated=generated, sections=sections)


def headline(report: WorkloadReport) -> str:
    """The one sentence about a workload: what the best plan is worth against the best rules."""
    session = report.leading
    if session is None or session.best is None:
        return "No plan that works is known."
    best = session.best
    told = f"Best plan: {time_text(best.timing.median_us)} in {_kernels(best.kernels)}"
    if not session.baselines:
        return f"{told}, found by {session.strategy}."
    again = {v.other: v.other_us for v in session.verdicts}
    rival = min(session.baselines, key=lambda b: (again.get(b.name, b.timing.median_us), b.name))
    if rival.digest == best.digest:
        return f"{told}; it is the plan of {rival.name}: searching found nothing better."
    against = next((v for v in session.verdicts if v.other == rival.name), None)
    if against is not None and against.outcome == "tie":
        return f"{told}; a tie with {rival.name}, the best baseline."
    ratio = against.ratio if against else median_ratio(rival.timing, best.timing)
    pays = next(b for b in session.break_even if b.baseline == rival.name)
    when = "never pays" if pays.runs is None else f"pays after {runs_text(pays.runs)} runs"
    return f"{told}, {ratio_text(ratio)} as fast as {rival.name}, the best baseline; {when}."


def _kernels(count: int) -> str:
    return f"{count} kernel{'' if count == 1 else 's'}"


def _figures(report: WorkloadReport) -> tuple[Figure, ...]:
    found = (
        Figure(
            "Run time",
            "Median of each baseline and of the best plan of each session; the whisker goes from "
            "the first to the third quartile. Shorter is better.",
            Markup(charts.bars(report)),
        ),
        Figure(
            "Best so far against seconds spent",
            "Seconds count everything: code generation, compiling, measuring and the sampler. "
            "Dashed lines are baselines. Times during a search are single measurements; the bars "
            "show those measured again at the end.",
            Markup(charts.progress(report)),
        ),
        Figure(
            "What the seconds buy",
            "Run time against all seconds spent before it could be had: compiling for the "
            "baselines (squares), compiling and searching for the sessions (diamonds at their "
            "end). The line is the Pareto front.",
            Markup(charts.tradeoff(report)),
        ),
        Figure(
            "Compile time against run time",
            "Every candidate that was measured, at the seconds its own code generation and "
            "compiling took: the price of a plan that the database already knows.",
            Markup(charts.compile_scatter(report)),
        ),
        Figure(
            "The best plan",
            "Data flows downwards. Boxes with the same number (K0, K1, ...) run as one kernel; "
            "dashed boxes are inputs and constants.",
            Markup(report.plan_svg),
            wide=True,
        ),
    )
    return tuple(figure for figure in found if figure.picture)


def _leading_ratio(session: SessionReport, baseline: str) -> str:
    """How many times as fast the best is as a baseline, with its interval if there is one."""
    for one in session.verdicts:
        if one.other == baseline:
            return f"{ratio_text(one.ratio)} ({_interval(one)})"
    found = next((b for b in session.baselines if b.name == baseline), None)
    if found is None or session.best is None:
        return "–"
    return ratio_text(median_ratio(found.timing, session.best.timing))


def _interval(one: Verdict) -> str:
    return f"{ratio_text(one.low)} to {ratio_text(one.high)}"


def _pays_interval(one: BreakEven) -> str:
    if one.interval is None:
        return "–"
    low, high = one.interval
    return f"{runs_text(low)} to {runs_text(high)}" if low is not None else "never"


def _shown(value: object) -> object:
    """Every text that goes into the page passes here before it is escaped."""
    return clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("autofuse.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    environment.filters |= {
        "us": time_text,
        "seconds": seconds_text,
        "runs": runs_text,
        "ratio": ratio_text,
        "interval": _interval,
        "pays_interval": _pays_interval,
        "outcome": lambda name: _OUTCOMES.get(name, name),
    }
    environment.globals["speedup"] = _leading_ratio
    return environment.get_template("report.html.j2")
