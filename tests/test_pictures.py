"""Plans drawn from graphs and from what the database keeps of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from autofuse.baselines import BASELINES
from autofuse.commands.pictures import graph_svg
from autofuse.commands.report_data import workload_reports
from autofuse.errors import GraphError
from autofuse.graph import Graph, canonical, text
from autofuse.graph.readback import read_text
from autofuse.graph.types import Value
from autofuse.plan.types import FusionGroup, FusionPlan
from autofuse.zoo import ZOO
from tests.support.tuning_records import filled
from tuning_db import Store

NAMES = ["softmax", "attention", "cartpole_naive", "cartpole_norng"]


def nameless(graph: Graph) -> Graph:
    """The same with no names, which a stored text leaves out."""
    nodes = []
    for node in graph.nodes:
        attrs = tuple((k, nameless(v) if isinstance(v, Graph) else v) for k, v in node.attrs)
        nodes.append(replace(node, name="", attrs=attrs))
    return Graph(tuple(nodes), graph.inputs, graph.outputs)


@pytest.mark.parametrize("name", ZOO)
def test_the_stored_text_says_all_that_is_drawn(name: str) -> None:
    graph = canonical(ZOO[name].builder("small"))
    plan = BASELINES["xla-2022"](graph).plan
    assert graph_svg(read_text(text(graph)), plan, "p") == graph_svg(nameless(graph), plan, "p")


@pytest.mark.parametrize("baseline", BASELINES)
@pytest.mark.parametrize("name", NAMES)
def test_every_kernel_of_a_plan_is_drawn(name: str, baseline: str) -> None:
    graph = canonical(ZOO[name].builder("small"))
    plan = BASELINES[baseline](graph).plan
    kernels = sum(1 if g.body is None else len(g.body.groups) for g in plan.groups)
    picture = graph_svg(graph, plan, "p")
    assert ElementTree.fromstring(picture).tag.endswith("svg")
    assert f"nodes in {kernels} kernels" in picture
    assert f">K{kernels - 1}<" in picture


def test_a_plan_of_another_graph_is_refused() -> None:
    graph = canonical(ZOO["softmax"].builder("small"))
    inner = FusionPlan((FusionGroup((1,), (Value(1),)),))
    for group in (FusionGroup((999,), (Value(999),)), FusionGroup((2,), (Value(2),), inner)):
        with pytest.raises((LookupError, GraphError)):
            graph_svg(graph, FusionPlan((group,)), "p")


def test_what_cannot_be_read_is_reported_without_a_picture(tmp_path: Path) -> None:
    """The text and the plans of this database are made up: none of another version is readable."""
    with Store.open(tmp_path / "t.db") as store:
        filled(store)
        (workload,) = store.workloads()
        (report, *_) = workload_reports(store, workload)
        assert report.plan_svg == ""
