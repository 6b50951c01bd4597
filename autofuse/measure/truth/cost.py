"""About how long NumPy takes for a graph: whether compiling pays, no more."""

from __future__ import annotations

from autofuse.graph.types import Graph
from autofuse.measure.truth.plan import trips
from autofuse.ops.control import is_counted
from autofuse.ops.spec import Family

# Seconds of a call, of an element, of an operation of a library, of a special function.
_CALL_S, _ELEMENT_S, _SPECIAL_S = 2e-6, 1.5e-9, 6e-9
# Iterations that a `while` is taken to have, at most.
_LIKELY_TRIPS = 200


def numpy_s(graph: Graph) -> float:
    """Seconds for one run of what compiled code may do; products are NumPy's in any case."""
    total = 0.0
    for node in graph.nodes:
        if node.spec.family is Family.CONTROL:
            most = trips(node) if is_counted(node.op) else min(trips(node), _LIKELY_TRIPS)
            total += most * numpy_s(dict(node.attrs)["body"])
        elif node.spec.family not in (Family.SOURCE, Family.CONTRACTION):
            each = _SPECIAL_S if node.spec.special else _ELEMENT_S
            total += _CALL_S + each * sum(t.size for t in node.types)
        else:
            total += _CALL_S
    return total
