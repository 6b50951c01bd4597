"""A kernel rendered for a device."""

from __future__ import annotations

from autofuse.graph.types import Graph
from autofuse.kernel.ir.types import Kernel
from autofuse.kernel.lower import extract, lower
from autofuse.plan.fusion.groups import group_of, is_source
from autofuse.plan.types import LaunchConfig, Setting


def kernel(graph: Graph, **settings: Setting) -> Kernel:
    nodes = [n for n in range(len(graph.nodes)) if not is_source(graph, n)]
    group, _ = extract(graph, group_of(graph, nodes))
    tile = int(settings.get("threads", 256)) * int(settings.pop("items", 4))
    return lower(group, LaunchConfig.of(tile=tile, **settings), "K")
