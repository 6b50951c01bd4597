"""The traffic model on graphs small enough to count by hand."""

from __future__ import annotations

from autofuse.baselines import unfused
from autofuse.cost.traffic import Traffic, group_traffic, plan_traffic, read_bytes
from autofuse.graph import Graph, GraphBuilder, Value, canonical
from autofuse.ops.dtypes import DType
from autofuse.plan.fusion.groups import group_of
from autofuse.plan.types import FusionGroup
from autofuse.zoo import zoo_graph

F32 = 4


def whole(graph: Graph) -> FusionGroup:
    return group_of(
        graph, [i for i, n in enumerate(graph.nodes) if n.op not in ("input", "constant")]
    )


def test_a_value_used_twice_is_read_once() -> None:
    b = GraphBuilder()
    x = b.input("x", (8, 16), DType.F32)
    graph = b.build([b.add("add", b.add("neg", x), b.add("exp", x))])
    traffic = group_traffic(graph, whole(graph))
    assert (traffic.read_bytes, traffic.written_bytes) == (8 * 16 * F32, 8 * 16 * F32)
    assert traffic.flops >= 3 * 8 * 16


def test_a_slice_reads_what_it_takes() -> None:
    b = GraphBuilder()
    x = b.input("x", (8, 16), DType.F32)
    part = b.add("slice", x, start=(0, 0), stop=(2, 16), stride=(1, 1))
    graph = b.build([b.add("neg", part)])
    assert read_bytes(graph, whole(graph)) == {Value(0): 2 * 16 * F32}


def test_overlapping_slices_read_no_more_than_there_is() -> None:
    b = GraphBuilder()
    x = b.input("x", (10,), DType.F32)
    left = b.add("slice", x, start=(0,), stop=(9,), stride=(1,))
    right = b.add("slice", x, start=(1,), stop=(10,), stride=(1,))
    graph = b.build([b.add("sub", right, left)])
    assert read_bytes(graph, whole(graph)) == {Value(0): 10 * F32}


def test_a_reduction_of_a_slice_reads_the_slice() -> None:
    b = GraphBuilder()
    x = b.input("x", (8, 16), DType.F32)
    part = b.add("slice", x, start=(0, 0), stop=(3, 16), stride=(1, 1))
    graph = b.build([b.add("reduce_sum", part, axes=(1,))])
    traffic = group_traffic(graph, whole(graph))
    assert (traffic.read_bytes, traffic.written_bytes) == (3 * 16 * F32, 3 * F32)


def test_a_re_issued_loop_counts_every_trip() -> None:
    graph = canonical(zoo_graph("cartpole_noconcat", "small"))
    group = next(g for g in unfused(graph).plan.groups if g.body is not None)
    call = graph.call(group.nodes[0])
    assert group.body is not None
    once = plan_traffic(call["body"], group.body)
    assert group_traffic(graph, group) == once * call["trip"]
    assert once.bytes > 0 and once + once == once * 2


def test_fusing_only_removes_traffic() -> None:
    graph = canonical(zoo_graph("swiglu", "small"))
    apart = plan_traffic(graph, unfused(graph).plan)
    fused = group_traffic(graph, whole(graph))
    assert fused.flops == apart.flops
    assert fused == Traffic(128 * 1024 * F32, 128 * 512 * F32, fused.flops)
    assert apart.bytes > 3 * fused.bytes
