"""Small random graphs of which all plans can be tried: small and large arrays, products, loops,
windows written anew, inputs declared constant."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autofuse.graph.types import Graph
from autofuse.ops.types import make_attrs
from autofuse.simplify import normal_form
from tests.support import random_graphs
from tests.support.random_graphs import ALL_MOVES, MOVES, SHAPES, random_graph

# Values of which a few fill the first-level cache, and a few pass it by far.
LARGE, LARGEST = ((1000, 64), (64, 40, 30), (70_000,), (256, 300)), 1 << 17


def small_graph(seed: int) -> Graph:
    """The graph of a seed, in normal form; it may have more nodes than can be tried."""
    large = seed % 2 == 1
    moves = (MOVES, ALL_MOVES)[seed // 2 % 2]
    with pytest.MonkeyPatch.context() as patched:
        if large:
            patched.setattr(random_graphs, "MAX_SIZE", LARGEST)
        graph = random_graph(seed, 4 + seed % 9, LARGE if large else SHAPES, moves)
    return normal_form(_some_constant(graph, seed) if seed % 3 == 0 else graph)


def _some_constant(graph: Graph, seed: int) -> Graph:
    """Each input declared constant or not, by chance; one at least is not."""
    rng, nodes = np.random.default_rng(seed), list(graph.nodes)
    for node in graph.inputs[1:]:
        if rng.random() < 0.5:
            attrs = make_attrs({**dict(nodes[node].attrs), "constant": True})
            nodes[node] = replace(nodes[node], attrs=attrs)
    return Graph(tuple(nodes), graph.inputs, graph.outputs)
