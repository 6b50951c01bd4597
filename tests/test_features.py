"""Features of groups: finite, named, and the same for equal groups however they are written."""

from __future__ import annotations

import math

import pytest

import autofuse.frontends.array_api as xp
from autofuse.cost.bounds import NOMINAL, group_bound_us
from autofuse.cost.features import COLUMNS, Features, group_features, vector
from autofuse.enumerate.enumeration import enumerate_groups
from autofuse.frontends import spec, trace
from autofuse.frontends.array import TracedArray
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph, Value
from autofuse.ops.dtypes import DType
from autofuse.plan.groups import group_of
from autofuse.plan.types import FusionGroup
from autofuse.zoo import zoo_graph
from benchmarks.planning import mixed
from search_spaces import FusionSpace


def features(graph: Graph, group: FusionGroup) -> Features:
    return group_features(graph, group, group_bound_us(graph, group, NOMINAL))


def computed(graph: Graph) -> FusionGroup:
    """Everything the graph computes as one group."""
    nodes = [i for i, n in enumerate(graph.nodes) if n.op not in ("input", "constant")]
    return group_of(graph, nodes)


@pytest.mark.parametrize("name", ["softmax", "mlp", "attention"])
def test_features_are_finite_and_deterministic(name: str) -> None:
    graph = canonical(zoo_graph(name, "small"))
    for group in enumerate_groups(graph).groups:
        found = features(graph, group)
        assert list(found) == list(COLUMNS)
        assert all(math.isfinite(value) for value in found.values())
        assert found == features(graph, group)


def test_equal_groups_have_equal_features() -> None:
    graph = canonical(mixed(12))
    found = enumerate_groups(graph)
    by_class: dict[int, Features] = {}
    for number, group in zip(found.classes, found.groups, strict=True):
        own = features(graph, group)
        assert by_class.setdefault(number, own) == own
    assert len(by_class) < len(found.groups)


def two_ways(swapped: bool) -> Graph:
    """exp(x) * sum(y) with the nodes in one order or the other."""
    builder = GraphBuilder()
    x, y = builder.input("x", (8, 64), DType.F32), builder.input("y", (8, 64), DType.F32)

    def left() -> Value:
        return builder.add("exp", x)

    def right() -> Value:
        return builder.add(
            "broadcast", builder.add("reduce_sum", y, axes=(1,)), shape=(8, 64), dims=(0,)
        )

    if swapped:
        second = right()
        first = left()
    else:
        first, second = left(), right()
    return builder.build([builder.add("mul", first, second)])


def test_node_order_does_not_matter() -> None:
    one, other = two_ways(False), two_ways(True)
    assert [n.op for n in one.nodes] != [n.op for n in other.nodes]
    assert features(one, computed(one)) == features(other, computed(other))


def test_features_say_what_a_kernel_does() -> None:
    graph = canonical(two_ways(False))
    found = features(graph, computed(graph))
    assert found["reductions"] == found["reduced_last"] == found["broadcasts"] == 1
    assert found["reduced"] == pytest.approx(math.log2(1 + 64))
    assert found["read"] == pytest.approx(math.log2(1 + 2 * 8 * 64 * 4))
    assert found["written"] == pytest.approx(math.log2(1 + 8 * 64 * 4))
    assert found["special"] == pytest.approx(math.log2(1 + 15 * 8 * 64), abs=4)
    assert (found["operands"], found["outputs"], found["rank"]) == (2, 1, 2)
    assert found["wide"] == found["narrow"] == 4 and found["floating"] == 1
    assert vector(found) == list(found.values())


def test_a_longer_row_has_larger_features() -> None:
    def softmax(x: TracedArray) -> TracedArray:
        e = xp.exp(x)
        return e / xp.sum(e, axis=1, keepdims=True)

    short, long = (canonical(trace(softmax, spec((8, n)))) for n in (64, 640))
    one, other = features(short, computed(short)), features(long, computed(long))
    assert all(one[name] < other[name] for name in ("bound", "read", "written", "reduced"))
    assert all(one[name] == other[name] for name in ("nodes", "items", "operands", "rank"))


def test_a_loop_that_is_re_issued_has_features() -> None:
    graph = canonical(zoo_graph("cartpole_naive", "small"))
    spaces = FusionSpace(graph)
    for loop, inner in spaces.loops.items():
        body = inner.choose(lambda _, options: options[0])
        found = features(graph, group_of(graph, [loop], body))
        assert found["launches"] > 0 and found["trips"] > 0
        assert all(math.isfinite(value) for value in found.values())
    assert spaces.loops


def test_what_a_stored_kernel_lacks_is_not_a_number() -> None:
    assert all(math.isnan(value) for value in vector({}))
