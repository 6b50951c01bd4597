"""Planners without some of their rules: what a rule costs is told by the plan without it.

`xla-2022:without=budget` leaves one rule out (several: `budget+shapes`). `xla-2022:only=budget`
leaves out all others that can be. What cannot be left out keeps a plan computable, or is what a
pass is made of.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autofuse.baselines.base import BaselineResult, Off
from autofuse.baselines.inductor.planner import inductor
from autofuse.baselines.priority.planner import xla_2026
from autofuse.baselines.xla.planner import xla_2022
from autofuse.errors import AutofuseError
from autofuse.graph.types import Graph

WITHOUT, ONLY = "without", "only"
RulePlanner = Callable[[Graph, Off], BaselineResult]


@dataclass(frozen=True, slots=True)
class Switchable:
    """A planner, and the names of its rules that may be off. A name stands for the rule in all
    passes that ask it."""

    planner: RulePlanner
    rules: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RuleVariant:
    """A planner without the rules that are `off`."""

    planner: RulePlanner
    off: Off

    def __call__(self, graph: Graph) -> BaselineResult:
        return self.planner(graph, self.off)


def _on_h100(graph: Graph, off: Off) -> BaselineResult:
    return xla_2026(graph, off=off)


SWITCHABLE: dict[str, Switchable] = {
    "xla-2022": Switchable(
        xla_2022,
        (
            "not-loop-fusible", "consumer-not-fusible", "nested-loop", "reduction-transpose",
            "expensive-reuse", "duplication", "expensive-duplication", "do-not-duplicate",
            "budget", "code-duplication", "bare-bitcast", "not-a-loop-fusion", "byte-ratio",
            "expensive", "not-a-root", "kinds", "shapes", "transpose", "elements",
            "instructions", "dtypes", "parameter",
        ),
    ),
    "xla-2026": Switchable(
        _on_h100,
        (
            "bare-bitcast", "two-reductions", "loop-fallback", "budget", "code-size",
            "cost-model", "not-loop-fusible", "not-a-root", "variadic", "shapes",
            "disjoint-slices", "transpose",
        ),
    ),
    "inductor": Switchable(
        inductor,
        (
            "random", "output", "library-operand", "reused-reads", "reused-ops",
            "accumulated-reads", "accumulated-ops", "large-body", "no-shared-data", "max-nodes",
            "peak-memory", "index-mismatch", "few-bytes", "far-apart", "loop-sizes", "ranges",
            "tiling",
        ),
    ),
}  # fmt: skip


def without(name: str, rule: str) -> str:
    """What the planner `name` is called without `rule`."""
    return f"{name}:{WITHOUT}={rule}"


def only(name: str, rule: str = "") -> str:
    """What it is called with no rule that can be off but `rule`; none: with none of them."""
    return f"{name}:{ONLY}={rule}"


def variant_named(name: str) -> RuleVariant:
    """The planner that such a name says. Raises AutofuseError for a planner or a rule that there is
    not."""
    planner, _, switch = name.partition(":")
    how, _, listed = switch.partition("=")
    found = SWITCHABLE.get(planner)
    if found is None or how not in (WITHOUT, ONLY):
        raise AutofuseError(
            f"'{name}' is no planner without some of its rules: {', '.join(SWITCHABLE)} can be, "
            f"as in {without('xla-2022', 'budget')} or {only('xla-2022', 'budget')}"
        )
    rules = frozenset(filter(None, listed.split("+")))
    unknown = sorted(rules.difference(found.rules))
    if unknown or (how == WITHOUT and not rules):
        what = f"no rule '{unknown[0]}' to leave out" if unknown else "to be told what to leave out"
        raise AutofuseError(f"{planner} has {what} (known: {', '.join(found.rules)})")
    return RuleVariant(found.planner, rules if how == WITHOUT else frozenset(found.rules) - rules)
