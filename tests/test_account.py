"""Stored texts read back, and what plans cost apart from time."""

from __future__ import annotations

import re

import numpy as np
import pytest

from autofuse.cost.account import account
from autofuse.cost.bounds import peak_bytes
from autofuse.cost.traffic import Traffic, plan_traffic
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import canonical, text
from autofuse.graph.readback import read_text
from autofuse.graph.types import Graph
from autofuse.ops.dtypes import DType
from autofuse.ops.types import GraphError
from autofuse.plan.types import Candidate
from autofuse.tuning.plans import baseline_candidate
from autofuse.zoo import ZOO, zoo_graph
from search_spaces import CpuLaunchSpace


def candidate(graph: Graph, rules: str) -> Candidate:
    return baseline_candidate(graph, rules, CpuLaunchSpace())[0]


def without_data(said: str) -> str:
    """A text has arrays by hash only."""
    return re.sub(r"sha256:\w+#\w+", "array", said)


@pytest.mark.parametrize("name", ZOO)
def test_a_text_read_back_says_the_same_and_counts_the_same(name: str) -> None:
    graph = canonical(zoo_graph(name, "small"))
    again = read_text(text(graph))
    assert without_data(text(again)) == without_data(text(graph))
    for rules in ("unfused", "xla-2022", "inductor"):
        one = candidate(graph, rules)
        found = account(again, one)
        assert found == account(graph, one)
        assert Traffic(found.read_bytes, found.written_bytes, found.flops) == plan_traffic(
            graph, one.plan
        )
        assert found.peak_bytes == peak_bytes(graph, one.plan)
        assert sum(t.bytes for t in found.trips) == found.bytes


def test_recomputation_and_launches_are_counted() -> None:
    graph = canonical(zoo_graph("softmax", "small"))
    unfused, xla = (
        account(graph, candidate(graph, "unfused")),
        account(graph, candidate(graph, "xla-2022")),
    )
    assert (unfused.recomputed, unfused.recomputed_flops) == (0, 0.0)
    assert xla.recomputed > 0 and xla.recomputed_flops > 0
    assert xla.flops - xla.recomputed_flops == unfused.flops
    assert unfused.launches == unfused.kernels > xla.launches == xla.kernels


def test_a_reissued_loop_counts_every_trip() -> None:
    graph = canonical(zoo_graph("cartpole_naive", "small"))
    found = account(graph, candidate(graph, "xla-2022"))
    assert found.launches > found.kernels > 1
    assert any(" in loop %" in t.place and "iterations)" in t.place for t in found.trips)


def test_array_constants_keep_their_type_and_stay_apart() -> None:
    b = GraphBuilder()
    x = b.input("x", (3,), DType.F32)
    one, two = (b.constant(np.array([1.0, 2.0, last]), DType.F32) for last in (3.0, 4.0))
    graph = canonical(b.build([b.add("mul", b.add("add", x, one), two)]))
    again = read_text(text(graph))
    assert [n.types for n in again.nodes] == [n.types for n in graph.nodes]
    assert len({n.attrs for n in again.nodes if n.op == "constant"}) == 2


@pytest.mark.parametrize(
    "broken",
    ["nonsense", "%1 = neg(%0) : f32[2]", "%0 = neg(%0) : f32[2]", "%0 = nonsense() : f32[2]",
     "%0 = input() {position=} : f32[2]", "%0 = input() {position=0} : q7[2]",
     "%0 = input() {position=0} : f32[2]\nreturn %3", "%0 = input() {shape=[1,2} : f32[2]",
     "%0 = input() {dtype='f32', shape=" + "[" * 5000 + "} : f32[2]"],
)  # fmt: skip
def test_what_is_no_canonical_text_is_refused(broken: str) -> None:
    with pytest.raises(GraphError, match=r"not the canonical text|unknown op"):
        read_text(broken)
