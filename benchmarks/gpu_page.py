"""The results of `gpu_check` as one HTML page; what is not there yet is left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autofuse.report.svg import tag, words
from autofuse.units import ratio_text, seconds_text, time_text
from benchmarks.peers_cuda import CUDA_COLUMNS

Data = Mapping[str, Any]
# What is asked of a GPU, each with the figure it is judged by.
COPY_SHARE, PEERS_MEAN, HAND_RATIO = 0.92, 1.5, 1.0
_STYLE = (
    "body{font:15px system-ui,sans-serif;max-width:1300px;margin:2em auto;padding:0 1em;"
    "color:#1c2128;background:#fff}td,th{padding:2px 10px;text-align:right}"
    "td:first-child,th:first-child{text-align:left}table{border-collapse:collapse;margin:.7em 0}"
    "tr+tr{border-top:1px solid #d9dee3}.wide{overflow-x:auto}.bad{color:#b42318}"
    "@media screen and (prefers-color-scheme:dark){body{color:#e8ecf0;background:#14181d}"
    "tr+tr{border-color:#363d46}.bad{color:#ff8f80}}"
)


def page(data: Data) -> str:
    """The page for what `gpu_check` has written so far."""
    steps: Mapping[str, Data] = data.get("steps", {})
    device = steps.get("facts", {}).get("device", {})
    title = f"autofuse on {device['name']}" if device else "autofuse on a GPU"
    said = f"Begun {data.get('started', '')}; times are medians, caches cold."
    banner = ""
    if "times" in data:
        # Figures that nobody measured are held against nothing.
        banner = tag("p", words(f"A dry run. Times are {data['times']}."), class_="bad")
    sections = [_section(name, step) for name, step in steps.items()]
    head = tag("meta", charset="utf-8") + tag("title", words(title)) + tag("style", _STYLE)
    bars = banner or _bars(steps)
    body = (tag("h1", words(title)), tag("p", words(said)), bars, *sections)
    return "<!DOCTYPE html>\n" + tag("html", tag("head", head), tag("body", *body), lang="en")


def _section(name: str, step: Data) -> str:
    took = f", {seconds_text(step['seconds'])}" if "seconds" in step else ""
    state = tag("p", words(f"{step['state']}{took}"))
    if "error" in step:
        state += tag("p", words(step["error"]), class_="bad")
    makers: Mapping[str, Callable[[Data], str]] = {
        "facts": _facts, "smoke": _smoke, "sanitize": _sanitize, "tests": _tests,
        "headline": _headline, "tune": _tuning,
        "bandwidth": _bandwidth, "cartpole": _cartpole, "peers": _peers,
    }  # fmt: skip
    body = makers[name](step) if name in makers else ""
    return tag("h2", words(str(step.get("title", name)))) + state + body


def table(rows: Sequence[Sequence[str]]) -> str:
    """A table whose first row is the head; a text that begins with "!" is shown as bad."""
    head, *body = rows
    lines = [tag("tr", *(tag("th", words(text)) for text in head))]
    for row in body:
        lines.append(tag("tr", *map(_cell, row)))
    return tag("div", tag("table", *lines), class_="wide")


def _cell(text: str) -> str:
    if text.startswith("!"):
        return tag("td", words(text[1:]), class_="bad")
    return tag("td", words(text))


def _bars(steps: Mapping[str, Data]) -> str:
    """What is asked, and what was measured; nothing is said of what was not."""
    rows = [["asked", "measured", ""]]
    zoo = steps.get("tune", {}).get("workloads", {})
    if zoo:
        right = sum(bool(one.get("verified")) for one in zoo.values())
        rows.append(["zoo workloads verified", f"{right} of {len(zoo)}", _met(right == len(zoo))])
    for name, one in steps.get("bandwidth", {}).get("workloads", {}).items():
        if "share_of_copy" in one:
            share = one["share_of_copy"]
            asked = f"{name}: {COPY_SHARE:.0%} of copy bandwidth"
            rows.append([asked, f"{share:.1%}", _met(share >= COPY_SHARE)])
    graph = steps.get("peers", {}).get("modes", {}).get("graph", {})
    mean = graph.get("geomean_best_peer_over_autofuse")
    if mean is not None:
        over = f"{mean:.3f} over {len(graph['geomean_over'])} workloads"
        asked = f"best peer / autofuse, graph mode: {PEERS_MEAN}"
        rows.append([asked, over, _met(mean >= PEERS_MEAN)])
    ratio = steps.get("cartpole", {}).get("ratio_hand_over_ours")
    if ratio is not None:
        asked = f"Cartpole, by hand / autofuse: {HAND_RATIO}"
        rows.append([asked, f"{ratio:.3f}", _met(ratio >= HAND_RATIO)])
    return table(rows) if len(rows) > 1 else ""


def _met(met: bool) -> str:
    return "met" if met else "!not met"


def _pairs(title: str, values: Data) -> str:
    return table([[title, ""], *([str(k), _number(v)] for k, v in values.items())])


def _number(value: Any) -> str:
    return f"{value:,.6g}" if isinstance(value, int | float) else str(value)


def _facts(step: Data) -> str:
    names = ("device", "calibration", "versions")
    return "".join(_pairs(name, step[name]) for name in names if name in step)


def _smoke(step: Data) -> str:
    """How many cases of each program are right, and each that is not, by name."""
    cases: Mapping[str, Data] = step.get("cases", {})
    rows = [["program", "right", "refused", "not looked at", "not right"]]
    programs: dict[str, list[Data]] = {}
    for name, one in cases.items():
        programs.setdefault(name.partition("/")[0], []).append(one)
    for program, own in programs.items():
        bad = sum("error" in one for one in own)
        states = Counter(one["state"] for one in own)
        counts = [states[word] for word in ("right", "refused", "unverified")]
        rows.append([program, *map(str, counts), f"!{bad}" if bad else "0"])
    wrong = {name: one["error"] for name, one in cases.items() if "error" in one}
    said = (tag("p", words(f"{name}: {error}"), class_="bad") for name, error in wrong.items())
    asked = tag("p", words(f"{step.get('right', 0)} of {step.get('asked', 0)} are right"))
    return asked + table(rows) + "".join(said)


def _sanitize(step: Data) -> str:
    rows = [["check", "cases", "found"]]
    checks: Mapping[str, Data] = step.get("checks", {})
    for name, one in checks.items():
        said = f"!{one['error']}" if "error" in one else str(one["found"])
        rows.append([name, f"{one['tried']} of {one['asked']}", said])
    tails = (tag("pre", words(one["tail"])) for one in checks.values() if one.get("tail"))
    return table(rows) + "".join(tails)


def _tests(step: Data) -> str:
    if "passed" not in step:
        return ""
    said = f"{step['passed']} passed, {len(step['failed'])} failed, {step['skipped']} skipped"
    text = tag("p", words(said)) + "".join(
        tag("p", words(name), class_="bad") for name in step["failed"]
    )
    return text + (tag("pre", words(step["tail"])) if step.get("tail") else "")


def _headline(step: Data) -> str:
    """Each program's times, the fastest first, with teraflops a second."""
    parts = []
    for name, one in step.get("cases", {}).items():
        rows = [["", "time", "quarters", "TFLOP/s", "relative error"]]
        times: Mapping[str, Data] = one.get("times", {})
        for label, time in sorted(times.items(), key=lambda item: float(item[1]["us"])):
            rate, us = one["flops"] / time["us"] * 1e-6, time["us"]
            quarters = f"{time_text(time['q1_us'])} to {time_text(time['q3_us'])}"
            off = f"{one['errors'][label]:.2g}"
            rows.append([label, time_text(us), quarters, f"{rate:,.1f}", off])
        rows += [[label, f"!{why}"] for label, why in one.get("failed", {}).items()]
        rows += [["", f"!{one['error']}"]] if "error" in one else []
        parts += [tag("h3", words(name)), table(rows)]
    return "".join(parts)


def _tuning(step: Data) -> str:
    rows = [["workload", "best", "kernels", "best baseline", "baseline / best", "relative error"]]
    for name, one in step.get("workloads", {}).items():
        if "best" not in one:
            rows.append([name, "!" + one["error"]])
            continue
        times = {n: b["time_us"] for n, b in one["baselines"].items() if b["time_us"]}
        rival = min(times, key=lambda n: times[n], default="")
        best, error = one["best"], one["max_rel_error"]
        ratio = ratio_text(times[rival] / best["time_us"]) if rival else "–"
        rows.append([
            name, time_text(best["time_us"]), str(best["kernels"]),
            f"{rival} {time_text(times[rival])}" if rival else "–", ratio,
            "–" if error is None else f"{error:.2g}",
        ])  # fmt: skip
    return table(rows) + _notes(step)


def _notes(step: Data) -> str:
    """What should be known of the figures, such as a clock that power held down."""
    found = [
        (name, note)
        for name, one in step.get("workloads", {}).items()
        for note in one.get("notes", ())
    ]
    return "".join(tag("p", words(f"{name}: {note}")) for name, note in found)


def _bandwidth(step: Data) -> str:
    rows = [["workload", "bytes", "time", "kernels", "GB/s", "a copy, GB/s", "of a copy"]]
    for name, one in step.get("workloads", {}).items():
        if "time_us" not in one:
            rows.append([name, f"{one['bytes']:,}", "!" + one.get("error", "")])
            continue
        rows.append([
            f"{name} {tuple(one['sizes'])}", f"{one['bytes']:,}", time_text(one["time_us"]),
            str(one["kernels"]), f"{one['gbytes_per_s']:,.0f}",
            f"{one['copy_gbytes_per_s']:,.0f}", f"{one['share_of_copy']:.1%}",
        ])  # fmt: skip
    return table(rows) + _notes(step)


def _cartpole(step: Data) -> str:
    if "times_us" not in step:
        return ""
    rows = [["kernel", "time"]]
    rows += [[n, time_text(t)] for n, t in sorted(step["times_us"].items(), key=lambda i: i[1])]
    if "ratio_hand_over_ours" not in step:
        return table(rows)
    said = (
        f"{step['hand']} over {step['ours']}: {step['ratio_hand_over_ours']:.3f} "
        f"({step['low']:.3f} to {step['high']:.3f})"
    )
    return tag("p", words(said)) + table(rows)


def _peers(step: Data) -> str:
    parts = [_pairs("missing", step["missing"])] if step.get("missing") else []
    for mode, found in step.get("modes", {}).items():
        ratios = found.get("ratio_best_peer_over_autofuse", {})
        rows = [["workload", *CUDA_COLUMNS, "best peer / autofuse"]]
        for name, cells in found.get("workloads", {}).items():
            times = [_outcome(cells.get(column)) for column in CUDA_COLUMNS]
            ratio = f"{ratios[name]:.2f}" if name in ratios else "–"
            rows.append([name, *times, ratio])
        parts += [tag("h3", words(f"{mode} mode")), table(rows)]
    return "".join(parts)


def _outcome(cell: Data | None) -> str:
    if cell is None:
        return "–"
    return time_text(cell["time_us"]) if cell.get("time_us") else "!failed"
