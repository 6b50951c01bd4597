"""What the CUDA launch space offers for a whole graph."""

from __future__ import annotations

from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph
from autofuse.plan.fusion.groups import group_of, is_source
from autofuse.plan.types import FusionGroup, Setting
from search_spaces import CudaLaunchSpace

SPACE = CudaLaunchSpace()


def folded(rows: int, length: int, dtype: str = "f32") -> Graph:
    b = GraphBuilder()
    x = b.input("x", (rows, length), dtype)
    spread = b.add("broadcast", b.add("reduce_max", x, axes=(1,)), shape=(rows, length), dims=(0,))
    return canonical(b.build([b.add("sub", x, spread)]))


def whole(graph: Graph) -> FusionGroup:
    return group_of(graph, [n for n in range(len(graph.nodes)) if not is_source(graph, n)])


def offered(graph: Graph, space: CudaLaunchSpace = SPACE) -> dict[str, tuple[Setting, ...]]:
    """Every parameter asked for by default, with its options."""
    found: dict[str, tuple[Setting, ...]] = {}

    def note(name: str, options: tuple[Setting, ...]) -> Setting:
        found[".".join(name.split(".")[1:-1])] = options
        return options[0]

    space.choose(graph, whole(graph), note, "p")
    return found
