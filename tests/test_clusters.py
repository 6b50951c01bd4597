"""Liveness, reachability, connected parts and clusters against plain definitions, and barriers."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import canonical
from autofuse.ops.dtypes import DType
from autofuse.ops.spec import Family, all_specs
from autofuse.plan.fusion.barriers import WHOLE_ARRAYS, may_be_library, stands_alone
from autofuse.plan.fusion.clusters import (
    Clusters,
    UnionFind,
    ancestors,
    bits,
    connected,
    is_convex,
    live,
    mask_of,
    reach,
)
from autofuse.plan.fusion.groups import is_source, needed_outputs
from autofuse.plan.fusion.legality import Refusal, check_group
from autofuse.plan.types import PlanError
from search_spaces import FusionSpace
from tests.support.random_graphs import ALL_MOVES, random_graph

COUNT = 9
# Which of the earlier items each item reads from, and pairs to merge one after another.
NEEDS = st.lists(st.integers(0, 2**COUNT - 1), min_size=COUNT, max_size=COUNT).map(
    lambda masks: {k: list(bits(mask & (1 << k) - 1)) for k, mask in enumerate(masks)}
)
PAIRS = st.lists(st.tuples(st.integers(0, COUNT - 1), st.integers(0, COUNT - 1)), max_size=12)


def path_leaves_and_returns(needs: dict[int, list[int]], home: dict[int, int], union: set[int]):
    """Whether some other cluster needs one of `union` and is needed by one of it."""
    near = {(home[a], home[b]) for b, before in needs.items() for a in before}
    seen: set[int] = set()
    stack = [b for a, b in near if a in union and b not in union]
    while stack:
        at = stack.pop()
        if at in union:
            return True
        if at not in seen:
            seen.add(at)
            stack += [b for a, b in near if a == at and b != at]
    return False


@given(NEEDS, PAIRS)
def test_clusters_merge_where_no_path_leaves_and_returns(needs, pairs) -> None:
    clusters = Clusters(needs)
    for x, y in pairs:
        a, b = clusters.home[x], clusters.home[y]
        if a == b:
            continue
        expected = not path_leaves_and_returns(needs, clusters.home, {a, b})
        assert clusters.can_merge(a, b) == clusters.can_merge(b, a) == expected
        if not expected:
            third = clusters.between(a, b)
            ways = ((a, b), (b, a))
            assert any(
                clusters.needed_by(s, third) and clusters.needed_by(third, g) for s, g in ways
            )
            continue
        assert clusters.merge(a, b) == min(a, b)
        check_state(clusters, needs)


def check_state(clusters: Clusters, needs: dict[int, list[int]]) -> None:
    """Members, neighbours and reachability are those of clusters made at once."""
    assert sorted(n for items in clusters.members.values() for n in items) == sorted(needs)
    again = Clusters(needs, clusters.members.values())
    assert (again.home, again.members) == (clusters.home, clusters.members)
    for c, members in clusters.members.items():
        assert c == min(members) and members == sorted(members)
        assert clusters.preds(c) == again.preds(c)
        assert clusters.succs(c) == {d for d in clusters.members if c in clusters.preds(d)}
        for d in clusters.members:
            assert clusters.needed_by(c, d) == again.needed_by(c, d)


def test_sets_that_wait_for_each_other_are_no_clusters() -> None:
    with pytest.raises(PlanError, match="wait for each other in a circle"):
        Clusters({0: [], 1: [0], 2: [1]}, [(0, 2)])


def test_what_is_no_item_is_left_out() -> None:
    clusters = Clusters({5: [1, 2], 7: [5, 3]}, [(7,)])
    assert clusters.preds(7) == {5} and clusters.preds(5) == set()
    assert clusters.needed_by(5, 7) and not clusters.needed_by(7, 5)


@given(NEEDS)
def test_reach_is_transitive(needs) -> None:
    found = reach(needs.items())
    for item, before in needs.items():
        assert found[item] >> item & 1
        assert found[item] == mask_of([item, *(k for b in before for k in bits(found[b]))])


@given(PAIRS)
def test_connected_parts(links) -> None:
    parts = connected(range(COUNT), links)
    assert sorted(n for part in parts for n in part) == list(range(COUNT))
    assert all(a[0] < b[0] for a, b in pairwise(parts))
    home = {n: part for part in parts for n in part}
    assert all(home[a] == home[b] for a, b in links)
    # No fewer parts than links can join, and each is spanned by links of its own.
    for part in parts:
        reached, grown = set[int](), {part[0]}
        while grown != reached:
            reached = grown
            grown = reached | {n for link in links if reached & set(link) for n in link}
        assert reached == set(part)


def test_a_set_keeps_the_name_of_the_one_joined() -> None:
    sets = UnionFind([-3, 1, 2, 8])
    sets.join(8, -3)
    sets.join(1, 8)
    assert [sets.find(n) for n in (-3, 1, 2, 8)] == [-3, -3, 2, -3]


@pytest.mark.parametrize("seed", range(5))
def test_live_nodes_are_what_outputs_need(seed: int) -> None:
    graph = random_graph(seed, 30, moves=ALL_MOVES)
    up = ancestors(graph)
    needed = {n for v in graph.outputs for n in bits(up[v.node])}
    assert live(graph) == tuple(n for n in sorted(needed) if not is_source(graph, n))


def test_a_group_around_another_kernel_is_not_convex() -> None:
    b = GraphBuilder()
    first = b.add("sin", b.input("x", (4,), DType.F32))
    last = b.add("add", first, b.add("cos", first))
    graph = b.build([last])
    assert not is_convex(graph, (1, 3), needed_outputs(graph, (1, 3)))
    assert is_convex(graph, (2, 3), needed_outputs(graph, (2, 3)))


def product_between(dtype: DType):
    b = GraphBuilder()
    x = b.add("abs", b.input("x", (8, 8), dtype))
    roles = {"lhs_contract": [1], "rhs_contract": [0], "lhs_batch": [], "rhs_batch": []}
    return canonical(b.build([b.add("neg", b.add("dot_general", x, x, **roles))]))


def test_one_predicate_says_what_stands_alone() -> None:
    graph = product_between(DType.I64)
    node = next(n for n in live(graph) if graph[n].op == "dot_general")
    barrier = stands_alone(graph, node)
    reason = f"%{node} dot_general of i64 is a kernel of its own"
    assert barrier == Refusal("library", reason)
    nodes = live(graph)
    assert check_group(graph, nodes, needed_outputs(graph, nodes)) == barrier
    assert FusionSpace(graph).barriers == {node} and FusionSpace(graph).edges == ()


def test_a_product_of_floats_is_no_barrier() -> None:
    graph = product_between(DType.F32)
    nodes = live(graph)
    assert not any(stands_alone(graph, n) for n in nodes)
    assert [n for n in nodes if may_be_library(graph, n)] == [nodes[1]]
    assert isinstance(check_group(graph, nodes, needed_outputs(graph, nodes)), tuple)
    assert not FusionSpace(graph).barriers and FusionSpace(graph).edges


def test_every_family_says_whether_it_needs_whole_arrays() -> None:
    families = {spec.family for spec in all_specs()}
    assert set(WHOLE_ARRAYS) <= families
    assert families - set(WHOLE_ARRAYS) >= {Family.ELEMENTWISE, Family.REDUCTION, Family.SCAN}
