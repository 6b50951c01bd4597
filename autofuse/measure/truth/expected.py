"""What a program must give: the one place that says how that is computed, and whether in time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autofuse.graph.reference import evaluate
from autofuse.graph.types import Graph
from autofuse.ops.spec import Family

# Nanoseconds of NumPy for an operation, for one of a product, and for a call (measured on Zen 4:
# 0.6 to 6, 0.2 to 0.6, 2,000 to 10,000).
_EACH_NS, _PRODUCT_NS, _CALL_NS = 3.0, 0.4, 5000.0


def expected(
    graph: Graph, inputs: Sequence[np.ndarray], limit_s: float
) -> tuple[np.ndarray, ...] | None:
    """The outputs of `graph` in float64 (whole numbers exactly), or None where computing them is
    expected to take more than `limit_s` seconds."""
    if expected_s(graph) > limit_s:
        return None
    with np.errstate(all="ignore"):
        return evaluate(graph, inputs)


def expected_s(graph: Graph) -> float:
    """Seconds that `expected` takes, about; of a loop whose end data decide all its iterations."""
    found = 0.0
    for i, node in enumerate(graph.nodes):
        attrs = dict(node.attrs)
        body = attrs.get("body")
        if isinstance(body, Graph):
            found += int(attrs.get("trip", attrs.get("max_trips", 1))) * expected_s(body)
            continue
        each = _PRODUCT_NS if node.spec.family is Family.CONTRACTION else _EACH_NS
        work = 0.0 if node.spec.family is Family.SOURCE else node.spec.flops(graph.call(i))
        found += (_CALL_NS + each * work + _EACH_NS * sum(t.size for t in node.types)) / 1e9
    return found
