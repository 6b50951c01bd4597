"""Planners without some of their rules: names, what cannot be off, and plans that stay valid."""

from __future__ import annotations

import pytest

from autofuse import spec, trace, xp
from autofuse.baselines import baseline_named, is_baseline
from autofuse.baselines.switches import NEVER_OFF, SWITCHABLE, RuleVariant, only, without
from autofuse.errors import AutofuseError
from autofuse.plan.fusion import legality
from autofuse.plan.fusion.legalise import legalise
from autofuse.simplify import normal_form
from autofuse.tuning.plans import baseline_plan
from autofuse.zoo import zoo_graph
from tests.support.checked_plans import check_plan, random_dag
from tests.support.seeds import seeds

VARIANTS = [
    name
    for planner, found in SWITCHABLE.items()
    for name in (
        only(planner),
        *(how(planner, rule) for rule in found.rules for how in (without, only)),
    )
]


def test_a_rule_is_off_wherever_it_is_asked_or_never() -> None:
    assert {"budget", "do-not-duplicate", "parameter"} <= set(SWITCHABLE["xla-2022"].rules)
    assert {"cost-model", "code-size", "variadic"} <= set(SWITCHABLE["xla-2026"].rules)
    assert {"random", "tiling", "large-body"} <= set(SWITCHABLE["inductor"].rules)
    for found in SWITCHABLE.values():
        assert len(set(found.rules)) == len(found.rules)
        assert not NEVER_OFF.keys() & set(found.rules)


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


def test_loops_of_other_sizes_have_no_tiling_in_common() -> None:
    graph = trace(lambda x: (xp.exp(x[:4, :4]), xp.exp(x.T)), spec((64, 48)))
    check_plan(graph, baseline_named(only("inductor", "tiling"))(graph).plan)


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
