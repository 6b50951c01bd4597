"""Launches by default for the many equal kernels of one graph, each asked for once."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial

from autofuse.enumerate.structure import structures_of
from autofuse.graph.settled import settled
from autofuse.graph.types import Graph
from autofuse.plan.types import FusionGroup, LaunchConfig
from search_spaces.launch import Chooser, LaunchSpace


class RecalledLaunches:
    """A launch space that answers once for equal groups of one graph, and as `space` would.

    Groups are equal that are the same graph of their own, read constants at the same places and
    write results of the program at the same places: a launch may follow from no more of what is
    around a kernel."""

    def __init__(self, graph: Graph, space: LaunchSpace) -> None:
        self.graph, self.space = graph, space
        self._shapes = structures_of(graph)
        self._settled, self._results = settled(graph), frozenset(graph.outputs)
        self._found: dict[Hashable, LaunchConfig] = {}

    def kind(self, graph: Graph, group: FusionGroup) -> str:
        return self.space.kind(graph, group)

    def default(self, graph: Graph, group: FusionGroup) -> LaunchConfig:
        return self._once(graph, group, (), partial(self.space.default, graph, group))

    def ruled(
        self, graph: Graph, group: FusionGroup, threads: int, items: int, strided: bool
    ) -> LaunchConfig:
        asked = (threads, items, strided)
        return self._once(graph, group, asked, partial(self.space.ruled, graph, group, *asked))

    def choose(
        self, graph: Graph, group: FusionGroup, chooser: Chooser, prefix: str
    ) -> LaunchConfig:
        return self.space.choose(graph, group, chooser, prefix)

    def _once(
        self, graph: Graph, group: FusionGroup, asked: Hashable, ask: Callable[[], LaunchConfig]
    ) -> LaunchConfig:
        if graph is not self.graph or group.body is not None:
            return ask()  # a loop's body is a graph of its own, and there are few
        key = (
            asked,
            self._shapes.key(group.nodes, group.outputs),
            tuple(v.node in self._settled for n in group.nodes for v in graph[n].inputs),
            tuple(v in self._results for v in group.outputs),
        )
        if key not in self._found:
            self._found[key] = ask()
        return self._found[key]
