"""Planners without some of their rules: what a rule costs is told by the plan without it.

`xla-2022:without=budget` leaves one rule out (several: `budget+shapes`). `xla-2022:only=budget`
leaves out all others that can be. What cannot be left out keeps a plan computable, or is what a
pass is made of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from autofuse.baselines.base import BaselineResult, Off
from autofuse.baselines.inductor import lowering
from autofuse.baselines.inductor import rules as inductor_rules
from autofuse.baselines.inductor.planner import inductor
from autofuse.baselines.priority import rules as priority_rules
from autofuse.baselines.priority.fusion import COST_MODEL
from autofuse.baselines.priority.multi_output import RULES_2026
from autofuse.baselines.priority.planner import xla_2026
from autofuse.baselines.xla import horizontal, instruction_fusion, merger
from autofuse.baselines.xla.multi_output import RULES_2022
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


# Names of rules that are never off, and why.
NEVER_OFF: Mapping[str, str] = {
    "library-call": "a call of a library is no kernel that could take anything in",
    "extern": "as library-call",
    "producer-is-fusion": "what instruction fusion pulls in is one op",
    "multi-output-producer": "a copy of a producer has one result",
    "tuple-result": "as multi-output-producer",
    "is-output": "what is merged away is not written",
    "no-users": "what nothing reads is no kernel",
    "dependence": "kernels would need each other",
    "intermediate": "as dependence",
    "concat": "a concatenation is placed before its operands are",
    "reduction": "a reduction's loops are those of its buffer",
}


def _named(*tables: Iterable[tuple[str, object]], others: Iterable[str] = ()) -> tuple[str, ...]:
    """Names in tables of rules, and `others`, each once, without those that are never off."""
    every = (*(name for table in tables for name, _ in table), *others)
    return tuple(name for name in dict.fromkeys(every) if name not in NEVER_OFF)


def _on_h100(graph: Graph, off: Off) -> BaselineResult:
    return xla_2026(graph, off=off)


SWITCHABLE: Mapping[str, Switchable] = {
    "xla-2022": Switchable(
        xla_2022,
        _named(
            *instruction_fusion.RULES.values(), merger.RULES, merger.WHOLE,
            RULES_2022.siblings, RULES_2022.producers, horizontal.MEMBER, horizontal.JOIN,
            others=(instruction_fusion.DO_NOT_DUPLICATE, horizontal.PARAMETER),
        ),
    ),
    "xla-2026": Switchable(
        _on_h100,
        _named(
            priority_rules.RULES, RULES_2026.siblings, RULES_2026.producers, others=(COST_MODEL,)
        ),
    ),
    "inductor": Switchable(
        inductor,
        _named(lowering.OWN_RULES, lowering.REALISE_RULES, inductor_rules.RULES),
    ),
}  # fmt: skip


def planner_of(name: str) -> str:
    """The planner that a name is of, be it without some of its rules."""
    return name.partition(":")[0]


def without(name: str, rule: str) -> str:
    """What the planner `name` is called without `rule`."""
    return f"{name}:{WITHOUT}={rule}"


def only(name: str, rule: str = "") -> str:
    """What it is called with no rule that can be off but `rule`; none: with none of them."""
    return f"{name}:{ONLY}={rule}"


def variant_named(name: str) -> RuleVariant:
    """The planner that such a name says. Raises AutofuseError for a planner or a rule that there is
    not."""
    planner = planner_of(name)
    switch = name.removeprefix(planner).removeprefix(":")
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
