"""Planners without some of their rules: names, what cannot be off, and plans that stay valid."""

from __future__ import annotations

import pytest

from autofuse.baselines import baseline_named, is_baseline
from autofuse.baselines.inductor import lowering, rules
from autofuse.baselines.priority import fusion, multi_output
from autofuse.baselines.priority import rules as priority_rules
from autofuse.baselines.switches import SWITCHABLE, RuleVariant, only, without
from autofuse.baselines.xla import horizontal, instruction_fusion, merger
from autofuse.baselines.xla.multi_output import RULES_2022
from autofuse.errors import AutofuseError
from autofuse.plan.fusion import legality
from autofuse.plan.fusion.legalise import legalise
from autofuse.simplify import normal_form
from autofuse.tuning.plans import baseline_plan
from autofuse.zoo import zoo_graph
from tests.support.checked_plans import check_plan, random_dag
from tests.support.seeds import seeds

# Names of all rules that refuse, and why those that are not in `SWITCHABLE` cannot be off.
ASKED = {
    "xla-2022": {
        *(name for table in instruction_fusion.RULES.values() for name, _ in table),
        *(name for name, _ in (*merger.RULES, *merger.WHOLE)),
        *(name for name, _ in (*RULES_2022.siblings, *RULES_2022.producers)),
        *(name for name, _ in (*horizontal.MEMBER, *horizontal.JOIN)),
        instruction_fusion.DO_NOT_DUPLICATE,
        horizontal.PARAMETER,
    },
    "xla-2026": {
        *(name for name, _ in priority_rules.RULES),
        *(name for name, _ in multi_output.RULES_2026.siblings),
        *(name for name, _ in multi_output.RULES_2026.producers),
        fusion.COST_MODEL,
    },
    "inductor": {
        *(name for name, _ in (*lowering.OWN_RULES, *lowering.REALISE_RULES)),
        *(name for name, _ in rules.RULES),
    },
}
NEVER_OFF = {
    "library-call": "a call of a library is no kernel that could take anything in",
    "producer-is-fusion": "what instruction fusion pulls in is one op",
    "multi-output-producer": "a copy of a producer has one result",
    "tuple-result": "as above",
    "is-output": "what is merged away is not written",
    "no-users": "what nothing reads is no kernel",
    "dependence": "kernels would need each other",
    "intermediate": "as above",
    "concat": "a concatenation is placed before its operands are",
    "reduction": "a reduction's loops are those of its buffer",
    "extern": "as library-call",
}
VARIANTS = [
    name
    for planner, found in SWITCHABLE.items()
    for name in (
        only(planner),
        *(how(planner, rule) for rule in found.rules for how in (without, only)),
    )
]


@pytest.mark.parametrize("planner", SWITCHABLE)
def test_every_rule_can_be_off_or_says_why_not(planner: str) -> None:
    off = set(SWITCHABLE[planner].rules)
    assert off <= ASKED[planner]
    assert not off & NEVER_OFF.keys()
    assert ASKED[planner] - off <= NEVER_OFF.keys()


def test_nothing_is_never_off_that_nobody_asks() -> None:
    assert NEVER_OFF.keys() <= set().union(*ASKED.values())


@pytest.mark.parametrize("name", VARIANTS)
def test_plans_of_random_graphs_are_valid(name: str) -> None:
    for seed in seeds(6):
        graph = random_dag(seed)
        plan = baseline_named(name)(graph).plan
        check_plan(graph, plan)
        legality.check_plan(graph, legalise(graph, plan)[0])


def test_a_rule_that_is_off_refuses_nothing_there_and_in_loops() -> None:
    for workload, name, rule in (
        ("attention", "xla-2022", "not-loop-fusible"),
        ("shallow_water", "xla-2026", "cost-model"),
        ("deposit", "inductor", "accumulated-reads"),
    ):
        graph = normal_form(zoo_graph(workload, "small"))
        whole, less = baseline_named(name)(graph), baseline_named(without(name, rule))(graph)
        assert rule in {d.rule for d in whole.decisions if not d.fused}
        assert rule not in {d.rule for d in less.decisions if not d.fused}
        assert baseline_plan(graph, name) != baseline_plan(graph, without(name, rule))


def test_only_one_rule_is_what_all_others_off_is() -> None:
    variant = baseline_named(only("inductor", "tiling"))
    assert isinstance(variant, RuleVariant)
    assert variant.off == set(SWITCHABLE["inductor"].rules) - {"tiling"}
    assert variant == baseline_named(without("inductor", "+".join(sorted(variant.off))))
    assert is_baseline(only("inductor")) and not is_baseline("best")


@pytest.mark.parametrize(
    "name, said",
    [
        ("tvm:without=size", "'tvm:without=size' is no planner without some of its rules"),
        ("xla-2022:but=budget", "is no planner without some of its rules"),
        ("xla-2022:without=nothing", "xla-2022 has no rule 'nothing' to leave out"),
        ("xla-2022:without=", "xla-2022 has to be told what to leave out"),
    ],
)
def test_what_is_no_planner_is_one_sentence(name: str, said: str) -> None:
    with pytest.raises(AutofuseError, match=said):
        baseline_named(name)
