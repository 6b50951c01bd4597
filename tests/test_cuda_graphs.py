"""CUDA graphs through the driver's functions, on a fake that holds the rules of cuda.h."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from autofuse.backends.cuda.driver import CupyDriver
from autofuse.backends.cuda.geometry import Geometry
from autofuse.backends.cuda.graphs import (
    DriverGraphError,
    GraphApi,
    GraphKernel,
    GraphNode,
    HeldCall,
    UpdateRefused,
    graph_library,
    in_turn,
    join,
)
from tests.support.fake_cupy import FakeCupy, Resources, Stream
from tests.support.fake_graphs import FakeGraphs

SHAPE = Geometry(3, 64)


class Bench:
    """A driver on fakes. A kernel's handle says how many arguments it takes."""

    def __init__(self) -> None:
        self.library, self.cupy = FakeGraphs(), FakeCupy(k=Resources())
        self.driver = CupyDriver(self.cupy, graphs=GraphApi(self.library))
        self.stream = Stream(self.cupy, 7)

    def start(self, function: int, *arguments: int, shape: Geometry = SHAPE) -> HeldCall:
        return HeldCall(self.driver.launch, (SimpleNamespace(ptr=function), shape, arguments))

    def copy(self, *arguments: int) -> HeldCall:
        """Something that is captured."""
        return HeldCall(self._copy, arguments)

    def _copy(self, *arguments: int) -> None:
        assert not gc.isenabled(), "a module that is unloaded now ends the capture"
        self.library.captured(("copy", *arguments))

    def graph(self, *nodes: GraphNode) -> Any:
        return self.driver.graph(self.stream, nodes)

    def launched(self, graph: Any) -> tuple[Any, ...]:
        graph.launch(self.stream)
        return self.library.launched[-1]

    def edges(self) -> list[tuple[list[int], list[int]]]:
        """For each node of the only graph the numbers of those before it, and of early ones."""
        (nodes,) = self.library.graphs.values()
        number = {handle: n for n, handle in enumerate(nodes)}
        return [
            (sorted(number[m] for m in node.after), [number[m] for m in node.early])
            for node in nodes.values()
        ]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_kernels_are_nodes_and_what_else_is_called_is_captured(bench: Bench) -> None:
    first, waits = bench.start(0x102, 11, -12), Geometry(5, 32, 7000, cooperative=True)
    graph = bench.graph(
        GraphNode(first),
        GraphNode(bench.copy(1, 2, 3), (0,)),
        GraphNode(join, (0, 1)),
        GraphNode(bench.start(0x200, shape=waits), (2,)),
    )
    assert bench.launched(graph) == (
        GraphKernel(0x102, SHAPE, (11, -12)),
        (("copy", 1, 2, 3),),
        None,
        GraphKernel(0x200, waits, ()),
    )
    assert bench.edges() == [([], []), ([0], []), ([0, 1], []), ([2], [])]


def test_nothing_of_a_graph_outlives_it(bench: Bench) -> None:
    graph = bench.graph(GraphNode(bench.copy(1)), GraphNode(bench.start(0x101, 5)))
    assert len(bench.library.graphs) == len(bench.library.instances) == 1, "children are cloned"
    del graph
    assert not bench.library.graphs and not bench.library.instances
    assert bench.library.called[-2:] == ["cuGraphExecDestroy", "cuGraphDestroy"]


def test_an_update_changes_what_is_not_equal(bench: Bench) -> None:
    def calls(address: int) -> list[HeldCall]:
        return [bench.start(0x101, 1), bench.start(0x102, 2, address), bench.copy(address)]

    graph = bench.graph(*(GraphNode(call) for call in calls(50)))
    bench.library.called.clear()
    graph.update(calls(60))
    changes = [name for name in bench.library.called if "Exec" in name]
    assert changes == ["cuGraphExecKernelNodeSetParams_v2", "cuGraphExecChildGraphNodeSetParams"]
    expected = (
        GraphKernel(0x101, SHAPE, (1,)),
        GraphKernel(0x102, SHAPE, (2, 60)),
        (("copy", 60),),
    )
    assert bench.launched(graph) == expected
    assert len(bench.library.graphs) == 1, "what was captured for the update is let go"
    bench.library.called.clear()
    graph.update(calls(60))
    assert bench.library.called == []


def test_a_refused_update_is_told_apart_from_a_failed_device(bench: Bench) -> None:
    graph = bench.graph(GraphNode(bench.start(0x101, 1)))
    name = "cuGraphExecKernelNodeSetParams_v2"
    bench.library.codes[name] = 910
    with pytest.raises(UpdateRefused, match=rf"{name} failed \(CUDA error 910\)"):
        graph.update([bench.start(0x101, 2)])
    bench.library.codes[name] = 700
    with pytest.raises(DriverGraphError, match="700") as caught:
        graph.update([bench.start(0x101, 2)])
    assert not isinstance(caught.value, UpdateRefused)


def test_a_library_that_takes_another_way_refuses_the_update(bench: Bench) -> None:
    def other() -> None:
        bench.library.captured(("two kernels",))
        bench.library.captured(("two kernels",))

    graph = bench.graph(GraphNode(bench.copy(1)))
    with pytest.raises(UpdateRefused, match="cuGraphExecChildGraphNodeSetParams"):
        graph.update([other])


def test_a_call_that_fails_does_not_leave_the_stream_capturing(bench: Bench) -> None:
    def fail() -> None:
        raise RuntimeError("no such luck")

    with pytest.raises(RuntimeError, match="no such luck"):
        bench.graph(GraphNode(fail))
    assert bench.library.capturing is None and gc.isenabled()
    gc.collect()
    assert not bench.library.instances


def test_an_early_kernel_has_a_programmatic_edge(bench: Bench) -> None:
    shape = Geometry(3, 64, early=True)
    calls = [bench.start(0x101, n, shape=shape) for n in range(3)]
    nodes = [GraphNode(calls[0]), GraphNode(calls[1], (0,), early=True), GraphNode(calls[2], (1,))]
    kept = bench.graph(*nodes)
    assert bench.edges() == [([], []), ([], [0]), ([1], [])]
    kept.update(calls[::-1])


def test_turns_meet_at_the_gate() -> None:
    def gate() -> None: ...

    def nodes(*after: tuple[int, ...]) -> Sequence[GraphNode]:
        return [GraphNode(join, own) for own in after]

    found = in_turn(nodes((), (), (0, 1), ()), 2, gate)
    assert [n.after for n in found] == [
        (), (0,), (0,), (1, 2), (0,), (3, 4), (5,), (5,), (6, 7), (5,),
    ]  # fmt: skip
    assert [n.call is gate for n in found] == [n in (0, 5) for n in range(10)]
    assert [n.after for n in in_turn([], 3)] == [(), (0,), (1,)]
    early = [GraphNode(join), GraphNode(join, (0,), early=True)]
    again = in_turn(early, 2)
    assert [n.early for n in again] == [False, False, True] * 2
    assert all(a != b for a, b in pairwise(again))


def test_a_driver_that_is_too_old_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    class Old:
        cuGraphCreate = SimpleNamespace()  # noqa: N815 - the library's name

    monkeypatch.setattr("ctypes.CDLL", lambda name: Old())
    with pytest.raises(DriverGraphError, match=r"the driver is older than CUDA 12\.3: ") as caught:
        graph_library.__wrapped__()
    assert "\n" not in str(caught.value)
