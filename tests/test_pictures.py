"""Plans drawn from graphs and from what the database keeps of them."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest

from autofuse.baselines import BASELINES
from autofuse.commands.pictures import Drawn, graph_svg, of_graph, of_text, text_svg
from autofuse.graph import canonical, text
from autofuse.zoo import ZOO


def nameless(graph: Drawn) -> Drawn:
    nodes = tuple(
        replace(n, name="", body=None if n.body is None else nameless(n.body)) for n in graph.nodes
    )
    return replace(graph, nodes=nodes)


@pytest.mark.parametrize("name", ZOO)
def test_the_canonical_text_says_all_that_is_drawn(name: str) -> None:
    graph = canonical(ZOO[name].builder("small"))
    assert of_text(text(graph).splitlines()) == nameless(of_graph(graph))


@pytest.mark.parametrize("baseline", BASELINES)
@pytest.mark.parametrize("name", ["softmax", "attention", "cartpole_naive", "cartpole_norng"])
def test_every_kernel_of_a_plan_is_drawn(name: str, baseline: str) -> None:
    graph = canonical(ZOO[name].builder("small"))
    plan = BASELINES[baseline](graph).plan
    kernels = sum(1 if g.body is None else len(g.body.groups) for g in plan.groups)
    for picture in (graph_svg(graph, plan, "p"), text_svg(text(graph), plan, "p")):
        assert ElementTree.fromstring(picture).tag.endswith("svg")
        assert f"nodes in {kernels} kernels" in picture
        assert f">K{kernels - 1}<" in picture
