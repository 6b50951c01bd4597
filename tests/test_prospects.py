"""Which plan a search measures next, and what a new kernel is launched like."""

from __future__ import annotations

import math

import pytest

from autofuse.cost.bounds import NOMINAL
from autofuse.cost.expected import expected_us
from autofuse.cost.kinds import kind_of_work
from autofuse.cover import CoverProblem, Piece, Prepared, no_limit
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph, Value
from autofuse.plan.types import FusionGroup, LaunchConfig
from autofuse.tuning.plans import baseline_plan
from autofuse.tuning.search.allocation import Allocation, Outlook
from autofuse.tuning.search.exact import ExactSearch, Goal
from autofuse.tuning.search.launches import KernelTimes, LaunchProblem, adopted, parameter_of
from autofuse.tuning.search.profiling import Kernels
from autofuse.tuning.search.prospects import UNJUDGED, expectations, prospect
from autofuse.zoo import zoo_graph
from search_spaces import CpuLaunchSpace
from search_spaces.tile_facts import TILE_PARAMETERS
from tests.support.exact_problems import least_cost
from tests.support.slow_bench import SlowBench
from tests.support.tile_programs import whole

CPU = CpuLaunchSpace()
MLP = canonical(zoo_graph("mlp"))
PAIR = whole(MLP)
FIRST, SECOND = baseline_plan(MLP, "tvm")[0].groups


def piece(key: str, reads: str, writes: str, bound_us: float) -> Piece:
    return Piece(key, frozenset(reads), frozenset(writes), bound_us)


# a -> b by two kernels or by one, whose bound is as good.
CHOICE = CoverProblem(
    (piece("one", "", "a", 5.0), piece("two", "a", "b", 5.0), piece("both", "", "b", 10.0)),
    frozenset("b"),
    frozenset(),
)
GUESSES = {"one": 6.0, "two": 6.0, "both": 30.0}
KINDS = dict.fromkeys(GUESSES, "")


def test_the_first_plan_is_the_one_of_which_least_time_is_expected() -> None:
    found = prospect(Prepared(CHOICE), GUESSES, {}, KINDS, no_limit)
    assert set(found.plan) == {0, 1} and math.isinf(found.outlook.incumbent_us)
    assert least_cost(CHOICE, GUESSES) == 12.0
    failed = prospect(Prepared(CHOICE), GUESSES, {"one": None}, KINDS, no_limit)
    assert failed.plan == (2,), "what does not work is in no plan"


def test_little_is_expected_of_what_is_expected_to_be_slow_whatever_its_bound() -> None:
    costs = {"one": 9.0, "two": 9.0}
    found = prospect(Prepared(CHOICE), GUESSES, costs, KINDS, no_limit).outlook
    hopeful = prospect(Prepared(CHOICE), {**GUESSES, "both": 10.0}, costs, KINDS, no_limit)
    assert found.incumbent_us == 18.0 and found.gain_us < 0.01 * 18.0
    assert hopeful.outlook.gain_us > 1.0 and hopeful.plan == (2,)


def test_other_plans_are_those_of_other_hopes_each_once() -> None:
    pieces = (*CHOICE.pieces, piece("three", "", "b", 1.0))
    more = CoverProblem(pieces, frozenset("b"), frozenset())
    guesses = {**GUESSES, "both": 17.0, "three": 16.5}
    kinds = {**KINDS, "one": "seen", "two": "seen", "three": ""}
    costs = {"one": 9.0, "two": 9.0}
    found = prospect(Prepared(more), guesses, costs, kinds, no_limit)
    plans = [found.plan, *(plan for _, plan in found.others)]
    assert len({frozenset(plan) for plan in plans}) == len(plans) <= 3
    gains = [found.outlook.gain_us, *(gain for gain, _ in found.others)]
    assert gains == sorted(gains, reverse=True)


def test_a_plan_is_worth_more_than_a_round_as_far_as_expectations_are_believed() -> None:
    allocation, outlook = Allocation(None), Outlook(100.0, 5.0)
    assert allocation.is_worth(3.0, outlook) and not allocation.is_worth(1.0, outlook)
    allocation.is_promising(outlook)
    allocation.is_promising(outlook)  # nothing came of it
    assert not allocation.is_worth(3.0, outlook)


def test_a_plan_is_promising_while_more_is_expected_of_it_than_of_a_round() -> None:
    allocation = Allocation(None)
    assert allocation.is_promising(Outlook()), "there is no plan yet"
    assert allocation.is_promising(Outlook(100.0, 5.0))
    # Nothing came of it: half of the next expectation is believed.
    assert allocation.expectations.trust == 1.0
    assert not allocation.is_promising(Outlook(100.0, 3.0))
    assert allocation.expectations.trust == 0.5


def test_expectations_are_of_graphs_with_products_and_cautious_without_time() -> None:
    bounds = {"pair": 10.0, "first": 5.0}
    samples = {"pair": PAIR, "first": FIRST}
    none = expectations(MLP, samples, bounds, CPU, NOMINAL, lambda: True)
    assert none == {"pair": UNJUDGED * 10.0, "first": UNJUDGED * 5.0}
    found = expectations(MLP, samples, bounds, CPU, NOMINAL, lambda: False)
    assert found["first"] == expected_us(MLP, FIRST, CPU.default(MLP, FIRST), NOMINAL)
    softmax = canonical(zoo_graph("softmax", "small"))
    assert expectations(softmax, {}, {}, CPU, NOMINAL, lambda: False) == {}


def as_expected(graph: Graph, group: FusionGroup, launch: LaunchConfig) -> float:
    return 1.3 * expected_us(graph, group, CPU.default(graph, group), NOMINAL)


def test_the_search_begins_with_the_likely_plan_and_goes_on_with_its_launches() -> None:
    bench = SlowBench(MLP, 40.0, 1e-4, as_expected)
    found = ExactSearch(bench, Goal()).run()
    first = bench.tried[0].plan
    assert set(first.groups) == {FIRST, SECOND}
    pairs = [k for k, one in enumerate(bench.tried) if PAIR in one.plan.groups]
    again = [k for k, one in enumerate(bench.tried[1:], 1) if one.plan == first]
    assert again, "its launch configurations are tried"
    assert not pairs or pairs[0] > again[0], "before what only its bound speaks for"
    assert found.proof.planned_us == pytest.approx(
        sum(as_expected(MLP, g, LaunchConfig()) for g in first.groups)
    )


def kernels_of(*groups: FusionGroup) -> Kernels:
    keys = {group: str(k) for k, group in enumerate(groups)}
    return Kernels(SlowBench(MLP, 1.0, 0.0), keys, dict.fromkeys(keys.values(), 1.0))


def test_a_new_kernel_is_launched_as_its_product_was_best_launched_elsewhere() -> None:
    product = next(g for g in baseline_plan(MLP, "xla-2022")[0].groups if len(g.nodes) == 1)
    alone = FusionGroup(product.nodes, product.outputs)
    assert set(alone.nodes) < set(FIRST.nodes)
    kernels = kernels_of(FIRST, SECOND, alone)
    default = dict(CPU.default(MLP, FIRST).settings)
    best = LaunchConfig.of(**{**default, "micro": "8x48", "row_block": 256})
    plan = baseline_plan(MLP, "tvm")[0]
    at = plan.groups.index(FIRST)
    assert dict(kernels.candidate(plan, {}).launches[at].settings) == default
    own = CPU.default(MLP, alone)
    loops = LaunchConfig.of(**{**dict(best.settings), "impl": "loops"})
    kernels.by_key["2"] = KernelTimes({own: 9.0, loops: 5.0})
    launched = dict(kernels.candidate(plan, {}).launches[at].settings)
    assert (launched["micro"], launched["row_block"]) == ("8x48", 256)
    # The other product has other extents.
    other = plan.groups.index(SECOND)
    assert kernels.candidate(plan, {}).launches[other] == CPU.default(MLP, SECOND)
    kernels.by_key["0"] = KernelTimes({CPU.default(MLP, FIRST): 3.0})
    assert dict(kernels.candidate(plan, {}).launches[at].settings) == default, "it has its own"


def test_settings_of_tiles_are_tried_first() -> None:
    group = FIRST
    asked = [[*change] for change in LaunchProblem(MLP, group, CPU).seeds()[1:]]
    names = [parameter_of(name) for (name,) in asked]
    tiles = [name in TILE_PARAMETERS for name in names]
    assert tiles == sorted(tiles, reverse=True) and tiles.count(True) >= 4
    assert names[-1] == "threads" or "threads" not in names
    assert parameter_of("pad") == "pad", "a space may name its questions otherwise"


def test_kernels_with_the_same_products_are_of_one_kind() -> None:
    alone = FusionGroup(FIRST.nodes[:3], (Value(FIRST.nodes[2]),))
    kinds = [kind_of_work(MLP, group) for group in (FIRST, SECOND, PAIR, alone)]
    assert kinds[0] == kinds[3] and len(set(kinds)) == 3


def test_only_settings_that_a_kernel_is_offered_are_adopted() -> None:
    default = CPU.default(MLP, FIRST)
    odd = LaunchConfig.of(micro="1x64", row_block=7, stage=1, tile=64)
    assert adopted(MLP, FIRST, CPU, odd) == default
    known = {k: v for k, v in default.settings if k != "across"} | {"pack": False}
    lying = LaunchConfig.of(across=False, pack=False)
    assert adopted(MLP, FIRST, CPU, lying) == LaunchConfig.of(**known)
