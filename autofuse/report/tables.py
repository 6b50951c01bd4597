"""The tables of a workload: what the charts show and what they cannot, as rows of texts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from autofuse.records import Account, Verdict
from autofuse.report.envelope import MOST_RUNS, EnvelopeSegment
from autofuse.report.gains import gains
from autofuse.report.model import (
    BreakEven,
    Contender,
    SessionReport,
    WorkloadReport,
    median_ratio,
)
from autofuse.report.peers import Peer
from autofuse.units import (
    amount_text,
    bytes_text,
    percent_text,
    ratio_text,
    runs_text,
    seconds_text,
    time_text,
)

_MOST_GAINS = 15
_OUTCOMES = {"tie": "tie: no difference shown"}


@dataclass(frozen=True, slots=True)
class Cell:
    """A text, and the number it is sorted by (None: by the text)."""

    text: str
    sort: float | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells under heads; the first cell of a row names it. `strong` are rows to mark."""

    caption: str
    heads: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    strong: frozenset[int] = frozenset()


Row = Sequence[Cell | str]


def table(
    caption: str, heads: Sequence[str], rows: Iterable[Row], strong: Iterable[int] = ()
) -> Table | None:
    """None where there are no rows."""
    made = tuple(tuple(c if isinstance(c, Cell) else Cell(c) for c in row) for row in rows)
    return Table(caption, tuple(heads), made, frozenset(strong)) if made else None


def us(value: float | None) -> Cell:
    return _cell(value, time_text)


def seconds(value: float | None) -> Cell:
    return _cell(value, seconds_text)


def count(value: float | None) -> Cell:
    return Cell("–") if value is None else Cell(f"{value:,.0f}", float(value))


def runs(value: float | None) -> Cell:
    return Cell(runs_text(value), math.inf if value is None else value)


def size(value: float | None) -> Cell:
    return _cell(value, bytes_text)


def amount(value: float | None) -> Cell:
    return _cell(value, amount_text)


def percent(value: float | None) -> Cell:
    return _cell(value, percent_text)


def ratio(value: float | None) -> Cell:
    return _cell(value, ratio_text)


def _cell(value: float | None, text: object) -> Cell:
    assert callable(text)
    return Cell("–") if value is None or math.isnan(value) else Cell(str(text(value)), value)


def plans(report: WorkloadReport) -> Table | None:
    """Baselines, peers and best plans with their times."""
    session, rows = report.leading, list[Row]()
    for b in report.baselines:
        times = _leading_ratio(session, b.name) if session else Cell("–")
        rows.append((b.name, "rules", *_contender(b), times))
    rows += [_peer(p) for p in report.peers]
    strong = [len(rows) + k for k, s in enumerate(report.current) if not s.is_sample]
    for s in report.current:
        assert s.best is not None
        kind, told = ("search sample", "sample") if s.is_sample else ("search", "best")
        rows.append((f"{told}: {s.label}", kind, *_contender(s.best), "–"))
    heads = ("Plan", "Kind", "Median", "Quartiles", "Kernels", "Compile", "Best is")
    return table("Baselines, peers and best plans", heads, rows, strong)


def _contender(one: Contender) -> Row:
    """Median, quartiles, kernels and seconds of compiling."""
    t = one.timing
    span = f"{time_text(t.q1_us)} to {time_text(t.q3_us)}"
    return (us(t.median_us), span, count(one.kernels), seconds(one.compile_s))


def _peer(p: Peer) -> Row:
    role = "peer" if p.comparable else "peer, elsewhere"
    quartiles = "–" if p.q1_us is None else f"{time_text(p.q1_us)} to {_known(p.q3_us)}"
    shown = us(p.time_us) if p.time_us is not None else Cell("failed", math.inf)
    times = ratio(p.time_us / p.ours_us) if p.time_us and p.ours_us else Cell("–")
    return (p.name, role, shown, quartiles, count(p.kernels), seconds(p.total_s), times)


def _known(value: float | None) -> str:
    return "–" if value is None else time_text(value)


def _leading_ratio(session: SessionReport, baseline: str) -> Cell:
    """How many times as fast the best is as a baseline, with its interval if there is one."""
    for one in session.verdicts:
        if one.other == baseline:
            return Cell(f"{ratio_text(one.ratio)} ({interval(one)})", one.ratio)
    found = next((b for b in session.baselines if b.name == baseline), None)
    if found is None or session.best is None:
        return Cell("–")
    return ratio(median_ratio(found.timing, session.best.timing))


def interval(one: Verdict) -> str:
    return f"{ratio_text(one.low)} to {ratio_text(one.high)}"


def pays_interval(one: BreakEven) -> str:
    """The interval of break-even runs; "never" if it may not pay even at best."""
    if one.interval is None:
        return "–"
    low, high = one.interval
    return f"{runs_text(low)} to {runs_text(high)}" if low is not None else "never"


def offers(report: WorkloadReport) -> Table | None:
    """What could be had after how many seconds."""
    kinds = {"baseline": "rules", "best": "search, to the end"}
    rows = [
        (p.label, kinds.get(p.role, p.role), seconds(p.seconds), us(p.run_us),
         "yes" if p.front else "no")
        for p in dict.fromkeys(report.offers)
    ]  # fmt: skip
    heads = ("Strategy", "Kind", "Compile and search", "Run time", "On the Pareto front")
    strong = [i for i, p in enumerate(dict.fromkeys(report.offers)) if p.front]
    return table("Seconds before the first run, and time per run", heads, rows, strong)


def segments_table(segments: Sequence[EnvelopeSegment]) -> Table | None:
    """The envelope as rows; it ends at the most runs that are looked at."""
    rows = [
        (s.option.label, s.option.role, runs(s.first),
         runs(s.last) if s.last < MOST_RUNS else Cell("and more", math.inf),
         seconds(s.option.seconds), us(s.option.run_us))
        for s in segments
    ]  # fmt: skip
    heads = ("Cheapest", "Kind", "From runs", "To runs", "Compile and search", "Run time")
    return table("The cheapest strategy by number of runs", heads, rows)


def progress(report: WorkloadReport) -> Table | None:
    """Every incumbent with its gaps."""
    rows = [
        (s.label, seconds(e.spent.total), us(e.best_us), e.origin, percent(e.proof.search_gap),
         us(e.proof.bound_us), percent(e.bound_gap))
        for s in report.sessions
        for e in s.events
    ]  # fmt: skip
    heads = ("Session", "Seconds spent", "Best sample so far", "Found by", "Gap of the search",
             "Bound", "Gap to the bound")  # fmt: skip
    return table("Search samples, bounds and gaps", heads, rows)


def pays(report: WorkloadReport) -> Table | None:
    rows = [
        (s.label, b.baseline, seconds(b.extra_s), us(b.saved_us), runs(b.runs), pays_interval(b))
        for s in report.current
        for b in s.break_even
    ]
    heads = ("Session", "Against", "Extra seconds", "Saved per run", "Pays after runs", "Interval")
    return table("Break-even runs", heads, rows)


def verdicts(report: WorkloadReport) -> Table | None:
    rows = [
        (s.label, v.other, us(v.other_us), us(v.best_us), ratio(v.ratio), interval(v),
         _OUTCOMES.get(v.outcome, v.outcome))
        for s in report.current
        for v in s.verdicts
    ]  # fmt: skip
    heads = ("Session", "Against", "Other", "Best", "Ratio", "Interval", "The best is")
    return table("Interleaved comparisons", heads, rows)


def known_accounts(report: WorkloadReport) -> Iterator[tuple[str, Account, bool]]:
    """(name, account, whether found by search) of every baseline and best plan that has one."""
    accounts = dict(report.accounts)
    for b in report.baselines:
        if b.digest in accounts:
            yield b.name, accounts[b.digest], False
    for s in report.current:
        if s.best and s.best.digest in accounts:
            yield f"best: {s.label}", accounts[s.best.digest], True


def moved(report: WorkloadReport) -> Table | None:
    """Kernels, launches, bytes, arithmetic and memory of every plan."""
    found = list(known_accounts(report))
    rows = [
        (name, count(f.kernels), count(f.launches), size(f.read_bytes), size(f.written_bytes),
         size(f.bytes), amount(f.flops), count(f.recomputed), amount(f.recomputed_flops))
        for name, f, _ in found
    ]  # fmt: skip
    heads = ("Plan", "Kernels", "Launches", "Bytes read", "Bytes written", "Bytes moved",
             "Operations", "Nodes recomputed", "Operations recomputed")  # fmt: skip
    strong = [i for i, (_, _, best) in enumerate(found) if best]
    return table("What each plan does per call", heads, rows, strong)


def boundaries(report: WorkloadReport) -> Table | None:
    """Where the leading plan moves other bytes than the best baseline, value by value."""
    session, accounts, rival = report.leading, dict(report.accounts), report.rival
    if session is None or session.best is None or rival is None:
        return None
    best, other = accounts.get(session.best.digest), accounts.get(rival.digest)
    if best is None or other is None:
        return None
    found = gains(best, other)
    rows: list[Row] = [
        (f"{g.place} {g.what}", g.type, g.rival, g.best, size(g.saved_bytes))
        for g in found[:_MOST_GAINS]
    ]
    rest = found[_MOST_GAINS:]
    if rest:
        rows.append(
            (f"{len(rest)} more values", "–", "–", "–", size(sum(g.saved_bytes for g in rest)))
        )
    if rows:
        rows.append(("all together", "–", "–", "–", size(other.bytes - best.bytes)))
    heads = ("Value", "Type", f"In {rival.name}", "In the best plan", "Bytes saved per call")
    caption = f"Boundary decisions: the best plan ({session.label}) against {rival.name}"
    return table(caption, heads, rows)


def implementations(report: WorkloadReport) -> Table | None:
    """A row for each lone product or convolution of the best plan."""
    rows: list[Row] = [
        (f"{one.place} {one.op}", one.type, one.chosen, _cell(one.ahead, ratio_text),
         ", ".join(f"{who} {time_text(us)}" for who, us in one.times) or "–")
        for one in report.implemented
    ]  # fmt: skip
    heads = ("Value", "Type", "Computed by", "Ahead of the next", "Times")
    return table("Implementations in the best plan", heads, rows)


def failures(report: WorkloadReport) -> Table | None:
    """By kind, with the most frequent message."""
    rows = [
        (f.kind.replace("_", " "), count(f.attempts), count(f.candidates),
         "; ".join(f"{label}: {n}" for label, n in f.sessions) or "–", _cut(f.example) or "–")
        for f in report.failures
    ]  # fmt: skip
    heads = ("Kind", "Attempts failed", "Plans failed", "By session", "Most frequent message")
    return table("Failures by kind", heads, rows)


def _cut(text: str, limit: int = 160) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def memory(report: WorkloadReport) -> Table | None:
    found = list(known_accounts(report))
    rows = [(name, size(f.peak_bytes)) for name, f, _ in found]
    strong = [i for i, (_, _, best) in enumerate(found) if best]
    return table("Intermediates alive at once", ("Plan", "Peak bytes"), rows, strong)


def candidates(report: WorkloadReport) -> Table | None:
    """The candidates that have a name or are on the front, at their own compile seconds."""
    rows = [
        (p.label, p.role, seconds(p.seconds), us(p.run_us), count(p.kernels),
         "yes" if p.front else "no")
        for p in report.points
        if p.front or p.role != "search"
    ]  # fmt: skip
    heads = ("Candidate", "Kind", "Compile", "Run time", "Kernels", "On the Pareto front")
    return table("Named candidates and those on the front", heads, rows)


def spending(report: WorkloadReport) -> Table | None:
    """Where the seconds of each session went."""
    rows = [
        (s.label, s.state, s.started, seconds(s.budget_s), seconds(s.spent.total),
         seconds(s.carried_s) if s.carried_s else "–", seconds(s.spent.codegen),
         seconds(s.spent.compile), seconds(s.spent.measure), seconds(s.spent.sampler),
         count(s.trials), count(s.measured), s.best.name if s.best else "nothing works")
        for s in report.sessions
    ]  # fmt: skip
    heads = ("Session", "State", "Started", "Budget", "Spent", "Carried", "Codegen", "Compile",
             "Measure", "Sampler", "Trials", "Measured", "Best from")  # fmt: skip
    return table("Sessions", heads, rows)
