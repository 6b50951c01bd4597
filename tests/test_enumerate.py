"""Candidate kernels: legal, complete enough to be feasible, shared where structure repeats."""

import pytest

from autofuse.enumerate.enumeration import EnumerateOptions, enumerate_groups
from autofuse.enumerate.structure import Structures
from autofuse.enumerate.supernodes import supernodes_of
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import canonical, group_digest
from autofuse.graph.types import Value
from autofuse.ops.dtypes import DType
from autofuse.plan.fusion.clusters import bits, live
from autofuse.plan.fusion.groups import group_of, is_source, ordered_plan, reads
from autofuse.plan.fusion.legality import Refusal, check_group, check_plan, refusal_of
from autofuse.plan.schedules.forms import single_form
from autofuse.plan.schedules.halo import kept_values
from autofuse.plan.types import FusionGroup, FusionPlan, LoopBody
from autofuse.tuning.search.cover import cover_problem
from autofuse.zoo import ZOO, zoo_graph
from autofuse.zoo.networks import transformer
from search_spaces import FusionSpace
from tests.support.random_graphs import random_graph
from tests.support.seeds import seeds
from tests.support.stencils import STEPS, Step
from tests.support.stencils import chain as stencils


def mixed(seed):
    return canonical(random_graph(seed, 25))


def chain(length=5, shape=(64, 64)):
    b = GraphBuilder()
    x = b.input("x", shape, "f32")
    for _ in range(length):
        x = b.add("transpose", b.add("exp", x), perm=(1, 0))
    return canonical(b.build([x]))


def shared_producer():
    """p = x + 1 read by two reductions along different axes."""
    b = GraphBuilder()
    x = b.input("x", (300, 400), "f32")
    one = b.add("broadcast", b.constant(1.0, DType.F32), shape=(300, 400), dims=())
    p = b.add("add", x, one)
    return canonical(
        b.build([b.add("reduce_sum", p, axes=(0,)), b.add("reduce_sum", p, axes=(1,))])
    )


@pytest.mark.parametrize("seed", seeds(12))
def test_every_group_is_legal(seed):
    graph = mixed(seed)
    found = enumerate_groups(graph)
    assert len(set(found.groups)) == len(found.groups)
    for group in found.groups:
        verdict = check_group(graph, group.nodes, group.outputs)
        assert not isinstance(verdict, Refusal), f"{group}: {verdict}"


@pytest.mark.parametrize("seed", seeds(12))
@pytest.mark.parametrize("join", [True, False])
def test_supernodes_alone_are_a_plan(seed, join):
    graph = mixed(seed)
    supernodes = supernodes_of(graph, join)
    groups = [
        FusionGroup(tuple(sorted(a.full)), tuple(sorted(e.value for e in a.exports)))
        for a in supernodes.items
    ]
    check_plan(graph, ordered_plan(graph, groups))
    assert set(groups) <= set(enumerate_groups(graph, EnumerateOptions(join=join)).groups)


def test_supernodes_are_in_topological_order():
    for seed in seeds(8):
        supernodes = supernodes_of(mixed(seed))
        assert all(p < k for k, mask in enumerate(supernodes.preds) for p in bits(mask))


def test_without_joining_every_node_is_its_own():
    graph = chain()
    assert [a.own for a in supernodes_of(graph, join=False).items] == [(n,) for n in range(1, 11)]


@pytest.mark.parametrize("seed", seeds(6))
def test_included_plans_are_candidates(seed):
    graph = mixed(seed)
    fused = FusionSpace(graph).choose(lambda _, options: options[0])
    alone = FusionSpace(graph).choose(lambda _, options: options[-1])
    found = enumerate_groups(graph, EnumerateOptions(max_groups=1), include=[fused, alone])
    assert {*fused.groups, *alone.groups} <= set(found.groups)
    cover = cover_problem(found)
    pieces = cover.pieces_of(fused)
    assert pieces is not None
    assert cover.plan(pieces) == ordered_plan(graph, fused.groups)


def test_a_softmax_can_be_one_kernel_or_several():
    graph = canonical(zoo_graph("softmax", "small"))
    found = enumerate_groups(graph)
    sizes = {len(g.nodes) for g in found.groups}
    live = sum(not is_source(graph, n) for n in range(len(graph.nodes)))
    assert max(sizes) == live and min(sizes) < live
    best = min(zip(found.bounds_us, found.groups, strict=True), key=lambda x: -len(x[1].nodes))
    assert best[1].outputs == graph.outputs


def test_a_cheap_producer_may_be_computed_in_both_readers():
    graph = shared_producer()
    found = enumerate_groups(graph)
    p = next(n for n, node in enumerate(graph.nodes) if node.op == "add")
    for reduction in (v.node for v in graph.outputs):
        both = [g for g in found.groups if {p, reduction} <= set(g.nodes)]
        assert {Value(p) in g.outputs for g in both if len(g.outputs) <= 2} == {True, False}
    plan = cheapest(found)
    assert len(plan.groups) == 2
    assert all(p in g.nodes and Value(p) not in g.outputs for g in plan.groups)


def cheapest(found):
    """The least plan by bounds, by trying every pair of groups."""
    every = zip(found.bounds_us, found.groups, strict=True)
    free = [(cost, g) for cost, g in every if all(
        is_source(found.graph, v.node) for v in reads(found.graph, g.nodes)
    )]  # fmt: skip
    pairs = [
        (a + b, (g, h))
        for a, g in free
        for b, h in free
        if g != h and set(found.graph.outputs) <= {*g.outputs, *h.outputs}
    ]
    return FusionPlan(min(pairs, key=lambda x: x[0])[1])


def test_no_recomputation_when_it_is_switched_off():
    graph = shared_producer()
    found = enumerate_groups(graph, EnumerateOptions(duplicate_flops=0))
    p = next(n for n, node in enumerate(graph.nodes) if node.op == "add")
    users = set(graph.users[p])
    for group in found.groups:
        assert p not in group.nodes or Value(p) in group.outputs or users <= set(group.nodes)


def test_small_independent_groups_are_packed():
    b = GraphBuilder()
    outs = [b.add("exp", b.input(f"x{k}", (k + 3,), "f32")) for k in range(6)]
    graph = canonical(b.build(outs))
    sizes = {len(g.nodes) for g in enumerate_groups(graph).groups}
    assert {1, 2, 4} <= sizes
    assert {
        len(g.nodes) for g in enumerate_groups(graph, EnumerateOptions(horizontal=0)).groups
    } == {1}


def test_counts_account_for_what_happened():
    found = enumerate_groups(canonical(random_graph(3, 60)))
    assert found.counts["kept"] == len(found.groups)
    assert found.counts["classes"] == len(set(found.classes))
    assert any(name.startswith("illegal: ") for name in found.counts)
    assert found.counts["enumerated"] > len(found.supernodes.items)


def test_limits_bite_and_say_so():
    graph = canonical(random_graph(3, 60))
    few = enumerate_groups(graph, EnumerateOptions(max_per_seed=2, horizontal=0))
    many = enumerate_groups(graph, EnumerateOptions(horizontal=0))
    assert few.counts["enumerated"] < many.counts["enumerated"]
    capped = enumerate_groups(graph, EnumerateOptions(max_groups=70))
    assert capped.counts["limit: max_groups"] > 0


def test_repeated_layers_share_their_classes():
    found = {n: enumerate_groups(canonical(transformer(n, 32, 32, 2))) for n in (6, 12)}
    assert len(found[12].groups) > 1.9 * len(found[6].groups)
    small, large = ({e.digest(k) for k in range(len(e.groups))} for e in found.values())
    # A beam grows the largest groups, of most of a layer, a little differently in each place.
    assert len(small & large) > 0.9 * max(len(small), len(large))


@pytest.mark.parametrize("seed", seeds(6))
def test_equal_classes_are_equal_digests(seed):
    graph = mixed(seed)
    found = enumerate_groups(graph)
    by_class = {}
    for k, group in enumerate(found.groups):
        own = group_digest(graph, group.nodes, group.outputs)
        assert by_class.setdefault(found.classes[k], own) == own == found.digest(k)


@pytest.mark.parametrize("seed", seeds(20))
def test_the_quick_verdict_is_the_slow_one(seed):
    graph = mixed(seed)
    shapes = Structures(graph)
    for group in enumerate_groups(graph).groups:
        for outputs in (group.outputs, group.outputs[:1], group.outputs[-1:]):
            key = shapes.key(group.nodes, outputs)
            slow = check_group(graph, group.nodes, outputs, placed=True)
            quick = shapes.verdict(key, group.nodes, outputs)
            assert quick == (slow if isinstance(slow, Refusal) else None)


def reissued(graph):
    """The first plan for the body of each counted loop."""
    bodies = {n: graph.call(n)["body"] for n, node in enumerate(graph.nodes) if node.op == "loop"}
    return {n: FusionSpace(b).choose(lambda _, options: options[0]) for n, b in bodies.items()}


def test_loops_are_offered_whole_and_reissued():
    graph = canonical(zoo_graph("cartpole_noconcat", "small"))
    ((loop, plan),) = reissued(graph).items()
    found = enumerate_groups(graph, bodies={loop: [LoopBody(plan)]})
    kinds = {g.body for g in found.groups if loop in g.nodes}
    assert kinds == {None, plan}
    whole, again = (
        min(b for b, g in zip(found.bounds_us, found.groups, strict=True) if g.body == kind)
        for kind in (None, plan)
    )
    assert whole < again


@pytest.mark.wide(14)
@pytest.mark.parametrize("name", sorted(ZOO))
def test_the_zoo_is_feasible(name):
    graph = canonical(zoo_graph(name, "small"))
    bodies = {n: [LoopBody(plan)] for n, plan in reissued(graph).items()}
    cover = cover_problem(enumerate_groups(graph, bodies=bodies))
    written = {v for piece in cover.problem.pieces for v in piece.writes}
    assert cover.problem.required <= written
    assert all(piece.reads <= written for piece in cover.problem.pieces)


def product_with_ones():
    """x @ ones + ones: a rematerialisable node read by a kernel of its own and by another one."""
    b = GraphBuilder()
    x = b.input("x", (8, 8), DType.I64)
    ones = b.add("broadcast", b.constant(1, DType.I64), shape=(8, 8), dims=())
    dot = {"lhs_contract": (1,), "rhs_contract": (0,), "lhs_batch": (), "rhs_batch": ()}
    return canonical(b.build([b.add("add", b.add("dot_general", x, ones, **dot), ones)]))


def test_library_calls_read_free_nodes_from_memory():
    graph = product_with_ones()
    plan = FusionSpace(graph).choose(lambda _, options: options[0])
    check_plan(graph, plan)
    sizes = sorted(len(g.nodes) for g in plan.groups)
    assert sizes == [1, 1, 2]
    assert set(plan.groups) <= set(enumerate_groups(graph).groups)


def test_keys_tell_a_late_result_from_the_next_node():
    """Result 64 of the first node of a group, and the first result of its second node."""
    body = GraphBuilder()
    body.input("i", (), DType.I32)
    states = [body.input(f"s{k}", (4,), DType.F32) for k in range(65)]
    b = GraphBuilder()
    starts = [b.input(f"x{k}", (4,), DType.F32) for k in range(65)]
    results = b.add_multi("loop", *starts, body=body.build(states), trip=2, carries=65)
    last = b.add("neg", results[0])
    graph = b.build([last, results[64]])
    nodes, shapes = (last.node - 1, last.node), Structures(graph)
    assert shapes.key(nodes, (results[64],)) != shapes.key(nodes, (last,))


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_no_candidate_is_a_group_that_legality_refuses(step: Step) -> None:
    graph = stencils(step, (64, 64), 7)
    found = enumerate_groups(graph).groups
    whole = group_of(graph, live(graph))
    form = single_form(graph, whole.nodes, whole.outputs)
    assert form is not None
    # All in one kernel is refused, or has tiles in which each value is computed once.
    refused = refusal_of(graph, whole.nodes, whole.outputs) is not None
    assert refused != bool(kept_values(graph, form))
    for group in found:
        verdict = check_group(graph, group.nodes, group.outputs)
        assert not isinstance(verdict, Refusal)
        assert refusal_of(graph, group.nodes, group.outputs) is None
