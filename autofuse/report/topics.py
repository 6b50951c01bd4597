"""What the report says of one workload: a topic per question, with its pictures and tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from autofuse.report import charts, charts_cost, tables
from autofuse.report.envelope import advice, envelope, options
from autofuse.report.model import WorkloadReport
from autofuse.report.tables import Table
from autofuse.units import bytes_text


@dataclass(frozen=True, slots=True)
class Picture:
    """A chart (markup), a short name for files, and the table that says the same; a `wide` one
    is shown at its own size."""

    key: str
    svg: str
    table: Table | None = None
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Topic:
    """A heading, sentences on how to read what is below it, pictures and further tables."""

    key: str
    heading: str
    note: str
    pictures: tuple[Picture, ...] = ()
    tables: tuple[Table, ...] = ()
    result: str = ""


def topics(report: WorkloadReport) -> tuple[Topic, ...]:
    """The topics there is something to say about."""
    made = (
        _run_time(report),
        _tradeoff(report),
        _envelope(report),
        _progress(report),
        _pays(report),
        _gain(report),
        _implemented(report),
        _memory(report),
        _failures(report),
        _candidates(report),
        _plan(report),
        _spending(report),
    )
    return tuple(t for t in made if t.pictures or t.tables)


def _topic(
    key: str,
    heading: str,
    note: str,
    pictures: Iterable[Picture] = (),
    *more: Table | None,
    result: str = "",
) -> Topic:
    drawn = tuple(p for p in pictures if p.svg)
    return Topic(key, heading, note, drawn, tuple(t for t in more if t is not None), result)


def _run_time(report: WorkloadReport) -> Topic:
    note = (
        "Median of each baseline and of the best plan of each session; the whisker goes from the "
        "first to the third quartile. Shorter is better."
    )
    if report.leading:
        note += (
            f" “Best is” compares the fastest session, {report.leading.label}, with each baseline: "
            "how many times as fast, with the 95 % interval where they were measured in turns."
        )
    if report.peers:
        note += (
            f" Peers were timed in a run of their own ({report.peers[0].machine}); “best is” "
            "compares them with autofuse in that same run."
        )
    if any(not p.comparable for p in report.peers):
        note += " It was another machine than these times are of, so no chart mixes them."
    bars = Picture("run-time", charts.bars(report))
    return _topic("run-time", "Run time", note, [bars], tables.plans(report))


def _tradeoff(report: WorkloadReport) -> Topic:
    return _topic(
        "tradeoff",
        "What the seconds buy",
        "Run time against all seconds spent before it could be had: compiling for the baselines "
        "(squares) and peers (triangles), compiling and searching for the sessions (diamonds at "
        "their end). Both axes are logarithmic. The line is the Pareto front.",
        [Picture("tradeoff", charts.tradeoff(report), tables.offers(report))],
    )


def _envelope(report: WorkloadReport) -> Topic:
    found = options(report)
    segments = envelope(found)
    chart = charts_cost.envelope_chart(report.name, segments, found)
    return _topic(
        "envelope",
        "What to use for how many runs",
        "Seconds of compiling and searching plus the seconds of all runs. A search may be stopped "
        "at any plan it found; every second up to then counts.",
        [Picture("envelope", chart)],
        tables.segments_table(segments),
        result=advice(segments),
    )


def _progress(report: WorkloadReport) -> Topic:
    return _topic(
        "progress",
        "Best so far against seconds spent",
        "Seconds count everything: code generation, compiling, measuring and the sampler. Dashed "
        "lines are baselines, dotted ones the bound that no plan whatever can be below. The gap of "
        "a search is what plans of its kernels at the launches tried may still gain. Times "
        "during a search are samples: single measurements, of killed sessions too.",
        [
            Picture("progress", charts.progress(report), tables.progress(report)),
            Picture("gap", charts_cost.gap_chart(report)),
        ],
    )


def _pays(report: WorkloadReport) -> Topic:
    chart, rows = charts_cost.break_even_chart(report), tables.pays(report)
    return _topic(
        "break-even",
        "When searching pays",
        "Runs after which the extra seconds (all seconds spent by the session, less compiling the "
        "baseline) are won back by the seconds saved per run. A session that began from what "
        "earlier ones had measured carries their seconds too. Intervals come from plans measured "
        "in turns in one process: ratio of the medians (other / best) with its 95 % interval.",
        [Picture("break-even", chart)],
        rows,
        tables.verdicts(report),
    )


def _gain(report: WorkloadReport) -> Topic:
    known = tables.known_accounts(report)
    rows = [(n, float(a.bytes), 0 if best else 1) for n, a, best in known]
    title = f"Bytes moved per call of {report.name}"
    bars = charts_cost.quantity_bars(title, rows, bytes_text)
    return _topic(
        "gain",
        "Where the gain comes from",
        "What each plan does in one call, by the traffic model: a kernel reads a value from memory "
        "once. Each value is a decision: kept inside a kernel, or stored by one and read by "
        "others. The bytes saved add up to the whole difference.",
        [Picture("bytes", bars)],
        tables.moved(report),
        tables.boundaries(report),
    )


def _implemented(report: WorkloadReport) -> Topic:
    return _topic(
        "implementations",
        "Who computes products and convolutions",
        "Of the best plan: those that are kernels of their own, by the least time of each "
        "implementation that was timed, in the cache state of the plan.",
        [],
        tables.implementations(report),
    )


def _memory(report: WorkloadReport) -> Topic:
    known = tables.known_accounts(report)
    rows = [(n, float(a.peak_bytes), 0 if best else 1) for n, a, best in known]
    title = f"Peak bytes of intermediates of {report.name}"
    return _topic(
        "memory",
        "Memory",
        "Bytes of intermediates alive at once, with buffers reused; inputs and outputs come on top "
        "and are the same for every plan.",
        [Picture("memory", charts_cost.quantity_bars(title, rows, bytes_text))],
        tables.memory(report),
    )


def _failures(report: WorkloadReport) -> Topic:
    note = "Candidates that were tried and cannot be used. A failure costs one row, never the job."
    return _topic("failures", "Failures by kind", note, [], tables.failures(report))


def _candidates(report: WorkloadReport) -> Topic:
    chart = charts.compile_scatter(report)
    return _topic(
        "candidates",
        "Compile time against run time",
        "Every candidate that was measured, at the seconds its own code generation and compiling "
        "took: the price of a plan that the database already knows.",
        [Picture("candidates", chart, tables.candidates(report))],
    )


def _plan(report: WorkloadReport) -> Topic:
    return _topic(
        "plan",
        "The best plan",
        "Data flows downwards. Boxes with the same number (K0, K1, ...) run as one kernel; dashed "
        "boxes are inputs and constants.",
        [Picture("plan", report.plan_svg, wide=True)],
    )


def _spending(report: WorkloadReport) -> Topic:
    note = "Seconds by what they were spent on."
    return _topic("spending", "Where the seconds went", note, [], tables.spending(report))
