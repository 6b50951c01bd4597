"""Windows: tiles cover the graph once, cuts lie where little is live, the parts make one plan."""

import pytest

from autofuse.cover import Measured, plan
from autofuse.enumerate.enumeration import enumerate_groups
from autofuse.enumerate.supernodes import supernodes_of
from autofuse.enumerate.windows import live_bytes, windows
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import canonical
from autofuse.ops.dtypes import DType
from autofuse.plan.fusion.groups import is_source
from autofuse.plan.fusion.legality import check_plan
from autofuse.tuning.search.cover import cover_problem, plan_of_windows
from autofuse.zoo.networks import transformer
from benchmarks.planning import mixed
from tests.support.random_graphs import random_graph

GRAPHS = {
    "random": canonical(random_graph(5, 150)),
    "mixed": canonical(mixed(150)),
    "transformer": canonical(transformer(3, 32, 32, 2)),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_tiles_own_every_supernode_once(name):
    graph = GRAPHS[name]
    supernodes = supernodes_of(graph)
    tiles = [w for w in windows(graph, 60, 20) if w.kind == "tile"]
    owners = [
        sum(set(supernode.own) <= tile.nodes for tile in tiles) for supernode in supernodes.items
    ]
    assert len(tiles) > 1 and all(count >= 1 for count in owners)
    assert sum(len(t.nodes - supernodes.rematerialised) for t in tiles) <= len(graph.nodes)


@pytest.mark.parametrize("name", GRAPHS)
def test_windows_stay_under_the_limit(name):
    graph = GRAPHS[name]
    supernodes = supernodes_of(graph)
    for window in windows(graph, 60, 20):
        assert len(window.nodes - supernodes.rematerialised) <= 60


@pytest.mark.parametrize("name", GRAPHS)
def test_what_a_tile_may_read_earlier_tiles_produce(name):
    graph = GRAPHS[name]
    produced = set()
    for window in windows(graph, 60, 20):
        if window.kind == "tile":
            assert set(window.given) <= produced
            produced |= set(window.produced)
    assert {v for v in graph.outputs if not is_source(graph, v.node)} <= produced


@pytest.mark.parametrize("name", GRAPHS)
def test_plans_of_tiles_make_a_plan_of_the_graph(name):
    graph = GRAPHS[name]
    found = enumerate_groups(graph)
    chosen = []
    for window in windows(graph, 60, 0, found.supernodes):
        cover = cover_problem(found, window)
        result = plan(cover.problem, lambda piece: Measured(piece.bound_us))
        chosen.append(cover.groups(result.plan))
    check_plan(graph, plan_of_windows(graph, chosen))


@pytest.mark.parametrize("name", GRAPHS)
def test_seams_straddle_every_cut(name):
    found = windows(GRAPHS[name], 60, 20)
    tiles = [w for w in found if w.kind == "tile"]
    seams = [w for w in found if w.kind == "seam"]
    assert len(seams) == len(tiles) - 1
    for seam, before, after in zip(seams, tiles, tiles[1:], strict=False):
        assert seam.nodes & before.nodes and seam.nodes & after.nodes


def test_a_small_graph_is_one_tile():
    graph = GRAPHS["random"]
    (only,) = windows(graph, 10_000)
    assert only.kind == "tile" and only.given == ()
    assert set(only.produced) == {v for v in graph.outputs if not is_source(graph, v.node)}


def bottleneck():
    """Wide work, one small value, wide work again."""
    b = GraphBuilder()
    x, y = (b.input(name, (64, 64), DType.F32) for name in "xy")
    for _ in range(20):
        x, y = b.add("transpose", b.add("add", x, y), perm=(1, 0)), b.add("mul", x, y)
    small = b.add("reduce_sum", b.add("add", x, y), axes=(0, 1))
    x = y = b.add("broadcast", small, shape=(64, 64), dims=())
    for _ in range(20):
        x, y = b.add("transpose", b.add("add", x, y), perm=(1, 0)), b.add("mul", x, y)
    return canonical(b.build([x, y]))


def test_cuts_are_where_least_is_live():
    graph = bottleneck()
    first, second = (w for w in windows(graph, 80, 0) if w.kind == "tile")
    assert [str(graph.type_of(v)) for v in second.given] == ["f32[]"]
    assert set(second.given) <= set(first.produced)
    assert min(live_bytes(supernodes_of(graph))[1:]) == 4
