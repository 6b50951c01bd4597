"""About how long NumPy takes for a graph, and a compiler: whether compiling pays, no more."""

from __future__ import annotations

from autofuse.graph.types import Graph
from autofuse.measure.truth.plan import trips
from autofuse.ops.control import is_counted
from autofuse.ops.spec import Family

# Seconds of a node's call, of an element, of a special function (Zen 3: a body of 1,500 nodes of
# hundreds of elements took 15 us a node), and of an operation of a product (Zen 4: 0.2 to 0.6 ns).
_CALL_S, _ELEMENT_S, _SPECIAL_S, _PRODUCT_S = 12e-6, 1.5e-9, 6e-9, 0.4e-9
# Seconds of writing and compiling: once, and for each node (a body of 3,000 nodes: 6 s).
_COMPILE_S, _COMPILE_NODE_S = 0.1, 2e-3
# By so much an element of code is slower that was not optimised, and runs of a reference.
_UNOPTIMIZED_S, _RUNS = 5e-9, 10
# Iterations that a `while` is taken to have, at most.
_LIKELY_TRIPS = 200


def numpy_s(graph: Graph, whole: bool = False) -> float:
    """Seconds for one run of what compiled code may do; `whole`: of products too, which are NumPy's
    in any case, and of all iterations that a loop may take whose end data decide."""
    total = 0.0
    for i, node in enumerate(graph.nodes):
        if node.spec.family is Family.CONTROL:
            all_trips = whole or is_counted(node.op)
            most = trips(node) if all_trips else min(trips(node), _LIKELY_TRIPS)
            total += most * numpy_s(dict(node.attrs)["body"], whole)
            continue
        total += _CALL_S
        if node.spec.family is Family.CONTRACTION:
            total += whole * _PRODUCT_S * node.spec.flops(graph.call(i))
        elif node.spec.family is not Family.SOURCE:
            each = _SPECIAL_S if node.spec.special else _ELEMENT_S
            total += each * sum(t.size for t in node.types)
            if node.spec.family is not Family.ELEMENTWISE:
                total += _ELEMENT_S * node.spec.flops(graph.call(i))
    return total


def is_brief(graph: Graph) -> bool:
    """Whether code of the graph that nobody optimised loses less time in all runs of a reference
    than optimising it takes."""
    return _RUNS * _UNOPTIMIZED_S * _elements(graph) < compile_s(graph) - _COMPILE_S


def _elements(graph: Graph) -> float:
    """Elements that are computed, those of each iteration."""
    total = 0.0
    for i, node in enumerate(graph.nodes):
        if node.spec.family is Family.CONTROL:
            total += trips(node) * _elements(dict(node.attrs)["body"])
        elif node.spec.family is not Family.SOURCE:
            total += sum(t.size for t in node.types) * node.spec.terms(graph.call(i))
    return total


def compile_s(graph: Graph) -> float:
    """Seconds until a graph's kernels and loops are compiled."""
    return _COMPILE_S + _COMPILE_NODE_S * _compiled_nodes(graph)


def _compiled_nodes(graph: Graph) -> int:
    bodies = (dict(n.attrs)["body"] for n in graph.nodes if n.spec.family is Family.CONTROL)
    computed = sum(node.spec.family is not Family.SOURCE for node in graph.nodes)
    return computed + sum(map(_compiled_nodes, bodies))
