"""What a launch space is: parameters of one kernel with their options and a default."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from autofuse.graph.types import Graph
from autofuse.plan.types import FusionGroup, LaunchConfig, Setting

Chooser = Callable[[str, tuple[Setting, ...]], Setting]


class LaunchSpace(Protocol):
    """The launch parameters of one backend."""

    def kind(self, graph: Graph, group: FusionGroup) -> str:
        """Which parameters apply: "item", "row", "loop", "gemm" or "body" (nothing to choose)."""
        ...

    def default(self, graph: Graph, group: FusionGroup) -> LaunchConfig:
        """The configuration used when nothing has been searched."""
        ...

    def ruled(
        self, graph: Graph, group: FusionGroup, threads: int, unroll: int, strided: bool
    ) -> LaunchConfig:
        """The configuration nearest to a GPU's loop kernel with blocks of so many threads, `unroll`
        neighbouring elements each, that go on a grid further when `strided`; the default for other
        kernels and other devices."""
        ...

    def choose(
        self, graph: Graph, group: FusionGroup, chooser: Chooser, prefix: str
    ) -> LaunchConfig:
        """A configuration from a chooser, canonical: settings that cannot matter are fixed."""
        ...
