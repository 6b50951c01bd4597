"""The case study as text: the tables of the command, and the page in docs/."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from autofuse.casestudy.columns import EXACT, PEERS, STRATEGIES
from autofuse.casestudy.rungs import LADDER, NAIVE, POLICY, TRAINING, UNROLLED

Data = Mapping[str, Any]
COLUMNS = (*STRATEGIES, EXACT, *PEERS)
WRITTEN = {
    "cartpole_naive": "random numbers drawn in the step, state in one array",
    "cartpole_norng": "random numbers given",
    "cartpole_noconcat": "and four state arrays",
    "cartpole_unroll10": "and ten steps an iteration",
    POLICY: "a network of one hidden layer chooses each push",
    TRAINING: "forward, backward and Adam in one graph",
}


def time_text(us: float | None) -> str:
    """Three digits with a unit."""
    if us is None:
        return "-"
    for limit, scale, unit in ((1e3, 1.0, "µs"), (1e6, 1e3, "ms"), (float("inf"), 1e6, "s")):
        if us < limit:
            return f"{us / scale:.3g} {unit}"
    return "-"


def _cell(found: Data, what: str) -> str:
    if "error" in found:
        return "failed"
    value = found.get(what)
    if value is None:
        return "-"
    if what == "time_us":
        return time_text(value)
    if what == "bytes_per_step":
        return f"{value / 1024:,.0f} KiB"
    return f"{value:.3g}"


def tables(data: Data) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """Title, head and rows of each table."""
    rungs = data["rungs"]
    steps = data["steps"]
    titles = (
        ("time_us", f"Time of {steps} steps (training: of one)"),
        ("kernels_per_step", "Kernels and library calls per step"),
        ("bytes_per_step", "Bytes moved per step, by the traffic model"),
    )
    for what, title in titles:
        columns = [
            c for c in COLUMNS if what == "time_us" or any(_has(r, c, what) for r in rungs.values())
        ]
        every = {**rungs, "drawing": data["drawing"]}
        rows = [
            [name, *(_cell(row.get(c, {}), what) for c in columns)] for name, row in every.items()
        ]
        yield title, ["rung", *columns], rows
    yield _parts(data)
    yield _sizes(data)


def _has(row: Mapping[str, Data], column: str, what: str) -> bool:
    return row.get(column, {}).get(what) is not None


def _parts(data: Data) -> tuple[str, list[str], list[list[str]]]:
    """The two parts of ablation steps whose numbers are given."""
    rows = []
    for name in (n for n in LADDER if n in data["rungs"]):
        found = data["rungs"][name].get(EXACT, {})
        given, drawn = found.get("given_us"), found.get("draw_us")
        parts = [time_text(given if given else found.get("time_us")), time_text(drawn)]
        rows.append([name, *parts, time_text(found.get("time_us"))])
    title = "What the searched plans take: each part alone, and one after the other"
    return title, ["rung", "roll-out", "drawing", "drawing, then roll-out"], rows


def _sizes(data: Data) -> tuple[str, list[str], list[list[str]]]:
    rows, columns = [], ("unfused", EXACT, "jax.jit")
    for n_envs, row in data["sizes"].items():
        for name in (NAIVE, UNROLLED):
            found = row[name]
            told = [_step(found if "error" in found else found[c]) for c in columns]
            rows.append([f"{int(n_envs):,}", name, *told])
    return "One step at other numbers of environments", ["environments", "rung", *columns], rows


def sentences(data: Data) -> Iterator[str]:
    """What the figures say, and what must be known to read them."""
    yield from _said(data["bars"])
    worst = data["max_rel_error"]
    if worst is not None:
        yield (
            f"Results {'agree' if data['agree'] else 'DO NOT agree'}: in 99 of 100 elements no "
            f"column is further than {worst:.2g} from the float64 reference; of programs that draw "
            "their own numbers, means and spreads are compared."
        )
    for name, found in data["recomputed"].items():
        yield f"`{name}`: {_recomputed(found)}"
    yield from (f"`{name}`: {note}." for name, note in data["notes"].items())
    yield from (f"Absent: {name}: {reason}." for name, reason in data["absent"].items())
    yield from (f"Failed: {name}." for name in data["failed"])


def _recomputed(found: Data) -> str:
    if not found["nodes"]:
        return "the searched plan stores what it uses again; nothing is recomputed."
    return (
        f"the searched plan computes {found['nodes']} operations ({', '.join(found['ops'])}) in "
        f"several kernels instead of storing them: {found['bytes_saved'] / 1024:,.0f} KiB less to "
        f"move for {found['more_flops']:,.0f} more operations."
    )


def _said(bars: Data) -> Iterator[str]:
    texts = {
        "naive_over_unroll10": (
            "From the naive program the search reaches {:.2f} times the speed that it reaches from "
            "the one rewritten by hand three times, drawing its numbers included."
        ),
        "naive_over_unroll10_without_drawing": (
            "Were the rewritten program's numbers free, it would be {:.2f} times: the naive one "
            "draws them."
        ),
        "naive_over_jax": "It is {:.2f} times as fast as jax.jit of the naive program.",
        "naive_over_best_rule": "It is {:.2f} times as fast as the best rules on it.",
    }
    yield from (text.format(bars[bar]) for bar, text in texts.items() if bars[bar] is not None)


def _step(found: Data) -> str:
    return "left out" if "error" in found else time_text(found["step_us"])


def page(data: Data) -> str:
    """docs/casestudy.md."""
    lines = [
        "# Case study: Cartpole",
        "",
        f"Written by `autofuse casestudy {data['study']} --budget {data['budget_s']:g} --markdown` "
        f"on {data['cpu']}, {data['threads']} threads: {data['n_envs']:,} environments, "
        f"{data['steps']} steps, {data['spent_s']:.0f} s in all.",
        "",
        "The ladder of \"Operator Fusion in XLA: Analysis and Evaluation\" (arXiv 2301.13062): one "
        "simulation written four ways, each rewritten by hand so that the rules fuse more of it. "
        "Then what the paper leaves to others: a network in the loop, and a training step. All are "
        "timed in turns, in the cache state that their plans were searched for. An ablation step "
        "that is given its random numbers draws them first, as each column draws them, so that all "
        "of them do equal work; kernels and bytes are those of the roll-out alone.",
        "",
        *_bullets(f"`{name}`: {text}" for name, text in WRITTEN.items()),
        "",
        *_bullets(sentences(data)),
    ]  # fmt: skip
    for title, head, rows in tables(data):
        lines += ["", f"## {title}", "", _row(head), _row(["---", *["---:"] * (len(head) - 1)])]
        lines += [_row(row) for row in rows]
    return "\n".join(lines) + "\n"


def _bullets(texts: Iterator[str] | Sequence[str]) -> list[str]:
    return [f"* {text}" for text in texts]


def _row(texts: Sequence[str]) -> str:
    return f"| {' | '.join(texts)} |"
