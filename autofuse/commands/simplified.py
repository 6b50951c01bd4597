"""Says what the simplifier did to a program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from autofuse.commands.output import table
from autofuse.graph.canonical import canonical, digest
from autofuse.graph.types import Graph
from autofuse.simplify import RULES, simplify
from autofuse.units import plural


def simplified_data(graph: Graph) -> dict[str, Any]:
    """The graph before and after, the rules that applied, and every step in order."""
    written = canonical(graph)
    found = simplify(written)
    counts = Counter(step.rule for step in found.steps)
    return {
        "before": {"nodes": len(written.nodes), "digest": digest(written)},
        "after": {"nodes": len(found.graph.nodes), "digest": digest(found.graph)},
        "rules": [
            {"rule": name, "times": times, "family": RULES[name].family,
             "source": RULES[name].source}
            for name, times in counts.most_common()
        ],
        "steps": [
            {"rule": s.rule, "scope": list(s.scope), "before": s.before, "after": s.after}
            for s in found.steps
        ],
    }  # fmt: skip


def simplified_lines(data: dict[str, Any]) -> Iterator[str]:
    """As text: the rules, then what each did."""
    before, after = data["before"], data["after"]
    yield (f"{plural(before['nodes'], 'node')}, digest {before['digest']}, become "
           f"{plural(after['nodes'], 'node')}, digest {after['digest']}")  # fmt: skip
    if not data["rules"]:
        yield "no simplification applies"
        return
    rows = [[r["rule"], str(r["times"]), r["family"], r["source"]] for r in data["rules"]]
    yield from table(["rule", ">times", "family", "known as"], rows)
    for step in data["steps"]:
        yield ""
        yield f"{step['rule']}{''.join(f', in a {name}' for name in step['scope'])}"
        yield f"   {step['before']}"
        yield f"-> {step['after']}"
