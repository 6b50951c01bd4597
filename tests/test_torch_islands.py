"""Where graphs of PyTorch are cut into islands."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")  # an extra of its own
aten = torch.ops.aten

from autofuse.interop.torch.islands import Cut, cut, joined  # noqa: E402 - after torch


def refused(*ops: object) -> Callable[[object], str | None]:
    return lambda node: "told so" if node.target in ops else None


def computed(island, given):
    """The results of an island, node by node."""
    values = dict(zip(island.inputs, given, strict=True))
    for node in island.nodes:
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
        values[node] = node.target(*args, **kwargs)
    return tuple(values[n] for n in island.outputs)


def rejoined(gm, found: Cut):
    calls = {i: (lambda *given, i=i: computed(i, given)) for i in found.islands}
    for call in calls.values():
        call.__name__ = "island"
    return joined(gm, found, calls)


def traced(function, *inputs):
    from torch.fx.experimental.proxy_tensor import make_fx

    return make_fx(function)(*inputs)


def test_what_no_path_parts_is_one_island() -> None:
    def function(x, y):
        return (x + y).exp() * y, y.sin()

    gm = traced(function, torch.ones(3), torch.ones(3))
    found = cut(gm.graph, refused())
    assert [len(i.nodes) for i in found.islands] == [4]
    assert not found.left


def test_a_node_that_is_left_parts_what_is_before_it_from_what_is_after() -> None:
    def function(x):
        return torch.erfinv(x.sin()).cos() + x.sin().cos()

    x = torch.rand(3)
    gm = traced(function, x)
    found = cut(gm.graph, refused(aten.erfinv.default))
    assert [len(i.nodes) for i in found.islands] == [3, 2]
    assert [(one.op, one.reason) for one in found.left] == [("aten.erfinv.default", "told so")]
    torch.testing.assert_close(rejoined(gm, found)(x), function(x))


def test_results_of_a_node_that_is_left_are_picked_beside_it() -> None:
    def function(x):
        values, places = torch.topk(x.sin(), 2)
        return values.cos() * 2, places

    x = torch.rand(5)
    gm = traced(function, x)
    found = cut(gm.graph, refused(aten.topk.default))
    assert [one.op for one in found.left] == ["aten.topk.default"]
    assert all(n.target is not operator.getitem for i in found.islands for n in i.nodes)
    torch.testing.assert_close(rejoined(gm, found)(x), function(x))


def test_views_of_what_is_there_are_not_copied() -> None:
    def function(x, w):
        return torch.mm(x.exp() + 1, w.t()).sin() * 2

    x, w = torch.rand(2, 3), torch.rand(4, 3)
    gm = traced(function, x, w)
    found = cut(gm.graph, refused(aten.mm.default))
    assert [[str(n.target) for n in i.outputs] for i in found.islands] == [
        ["aten.add.Tensor"], ["aten.mul.Tensor"],
    ]  # fmt: skip
    assert [str(n.target) for n in found.views] == ["aten.t.default"]
    torch.testing.assert_close(rejoined(gm, found)(x, w), function(x, w))


def test_other_islands_stay_as_they_are() -> None:
    def function(x):
        return torch.erfinv(x.sin() * 0.5).cos().view(3, 1) * 2

    x = torch.rand(3)
    gm = traced(function, x)
    found = cut(gm.graph, refused(aten.erfinv.default))
    torch.testing.assert_close(joined(gm, found, {})(x), function(x))


OPS = (torch.sin, torch.add, torch.t, torch.mul, torch.erf, torch.clone)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 30), st.integers(0, 30)), min_size=1,
                max_size=24), st.data())  # fmt: skip
def test_a_cut_graph_computes_the_same(steps: list[tuple[int, int, int]], data) -> None:
    def function(x, y):
        values = [x, y]
        for op, a, b in steps:
            left, right = values[a % len(values)], values[b % len(values)]
            values.append(OPS[op](left, right) if op in (1, 3) else OPS[op](left))
        return values[-1], values[len(values) // 2] * 1.0

    x, y = torch.rand(2, 2), torch.rand(2, 2)
    gm = traced(function, x, y)
    gm.graph.eliminate_dead_code()
    kinds = (aten.sin.default, aten.add.Tensor, aten.erf.default, aten.t.default)
    # On one of two devices, of which the second also reads what is on the first.
    ranks: dict[object, int] = {}
    for node in gm.graph.nodes:
        own = data.draw(st.integers(0, 1)) if node.op == "call_function" else 0
        ranks[node] = max([own, *(ranks[n] for n in node.all_input_nodes)])
    left = refused(*data.draw(st.sets(st.sampled_from(kinds))))
    found = cut(gm.graph, left, ranks.__getitem__)
    places = [(i.level, i.rank) for i in found.islands]
    assert places == sorted(set(places))
    assert all(ranks[n] == i.rank for i in found.islands for n in i.nodes)
    chosen = {i for i in found.islands if data.draw(st.booleans())}
    some = replace(found, islands=tuple(i for i in found.islands if i in chosen))
    for got, want in zip(rejoined(gm, some)(x, y), function(x, y), strict=True):
        torch.testing.assert_close(got, want)
