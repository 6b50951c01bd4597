"""The smallest graph that still fails in the same way: delta debugging on outputs and nodes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from autofuse.frontends.json.file import dumps
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.surgery.prune import prune
from autofuse.graph.types import Graph, Node, Value
from autofuse.ops.types import GraphError
from benchmarks.fuzz.graphs import random_graph
from benchmarks.fuzz.trial import Building, Found, trial

MOST_TRIALS = 150


def shrunk(found: Found) -> str:
    """The smallest graph found that fails as `found` does, as a graph file, after its cause."""
    if found.kind == "crashed":
        return f"seed {found.seed}: {found.cause}\n{dumps(random_graph(found.seed))}"
    plan = next((w for w in ("untuned", "rule", "partition") if w in found.stage), "untuned")
    graph = minimised(random_graph(found.seed), lambda g: _alike(found, g, plan))
    return f"seed {found.seed}: {found.kind} at {found.stage}: {found.cause}\n{dumps(graph)}"


def _alike(found: Found, graph: Graph, plan: str) -> bool:
    heard: list[Found] = []

    def tell(what: str, said: object) -> None:
        if isinstance(said, Found):
            heard.append(said)

    trial([found.seed], tell, Building("-O0", (plan,)), make=lambda seed: graph)
    return any(_key(one) == _key(found) for one in heard)


def _key(found: Found) -> tuple[str, str]:
    """Numbers of nodes and places differ from graph to graph."""
    return found.kind, "" if found.kind == "wrong" else re.sub(r"%?\d+", "N", found.cause)


def minimised(graph: Graph, fails: Callable[[Graph], bool]) -> Graph:
    """Fewer outputs, then nodes replaced by inputs of their types, as long as it fails."""
    left, again = MOST_TRIALS, True
    while again and left > 0:
        again = False
        for smaller in _smaller(graph):
            left -= 1
            if left <= 0:
                break
            if fails(smaller):
                graph, again = smaller, True
                break
    return graph


def _smaller(graph: Graph) -> Iterator[Graph]:
    """Simpler graphs, the simplest first."""
    if len(graph.outputs) > 1:
        for value in graph.outputs:
            yield _of(graph, [value], {})
    for n in range(len(graph.nodes)):
        if _stands_alone(graph[n]) and tuple(graph.outputs) != (Value(n),):
            yield _of(graph, [Value(n)], {})
    ends = {v.node for v in graph.outputs}
    for n in reversed(range(len(graph.nodes))):
        if graph[n].op != "input" and n not in ends:
            yield _of(graph, graph.outputs, {n: True})


def _stands_alone(node: Node) -> bool:
    return node.op not in ("input", "constant") and len(node.types) == 1


def _range(node: Node) -> dict[str, Any]:
    """Of an input."""
    named = node.attrs if node.op == "input" else ()
    return {k: v for k, v in named if k in ("low", "high")}


def _of(graph: Graph, outputs: Sequence[Value], as_inputs: dict[int, bool]) -> Graph:
    """The graph of some outputs alone, with some nodes as inputs."""
    b = GraphBuilder()
    made: dict[Value, Value] = {}
    count = 0
    for n, node in enumerate(graph.nodes):
        if node.op == "input" or n in as_inputs:
            attrs = _range(node)
            for k, type_ in enumerate(node.types):
                made[Value(n, k)] = b.input(f"x{count}", type_.shape, type_.dtype, **attrs)
                count += 1
            continue
        try:
            values = b.add_multi(node.op, *(made[v] for v in node.inputs), **dict(node.attrs))
        except GraphError as error:
            raise AssertionError(f"a part of a valid graph is not valid: {error}") from error
        made.update((Value(n, k), v) for k, v in enumerate(values))
    return prune(b.build([made[v] for v in outputs]))
