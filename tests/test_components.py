"""Connected parts, as networkx finds them."""

from __future__ import annotations

from typing import Literal

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autofuse.cover.components import components

LINKS = st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=25)


@pytest.mark.parametrize("connection", ["weak", "strong"])
@given(links=LINKS)
def test_parts_are_those_of_networkx(
    connection: Literal["weak", "strong"], links: list[tuple[int, int]]
) -> None:
    graph = nx.DiGraph(links)
    graph.add_nodes_from(range(12))
    named = {"weak": nx.weakly_connected_components, "strong": nx.strongly_connected_components}
    labels = components(12, links, connection).tolist()
    found = {frozenset(i for i in range(12) if labels[i] == label) for label in set(labels)}
    assert found == {frozenset(part) for part in named[connection](graph)}
