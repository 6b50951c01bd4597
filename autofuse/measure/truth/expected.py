"""What a program must give: the one place that says how that is computed, and whether in time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from autofuse.graph.reference import evaluate
from autofuse.graph.types import Graph
from autofuse.measure.check.compare import RunsOf
from autofuse.measure.truth.build import LateTruthError
from autofuse.measure.truth.compiled import CompiledRuns
from autofuse.measure.truth.cost import compile_s, numpy_s
from autofuse.ops.spec import Family

# By how much compiled loops are faster, at least. What cannot be compiled of them takes its time:
# it may be so many times what was allowed, since to know is worth more than to be early.
_FASTER, _PATIENT = 20.0, 5.0


def expected(
    graph: Graph, inputs: Sequence[np.ndarray], limit_s: float
) -> tuple[np.ndarray, ...] | None:
    """The outputs of `graph` in float64 (whole numbers exactly), or None where computing them takes
    more than `limit_s` seconds, or is expected to."""
    if expected_s(graph) > limit_s:
        return None
    with np.errstate(all="ignore"):
        if not _is_compiled(graph):
            return evaluate(graph, inputs)
        try:
            return CompiledRuns(graph, inputs, 0.0, _PATIENT * limit_s)()
        except LateTruthError:
            return None


def runs_of(limit_s: float) -> RunsOf:
    """What runs a graph several times, with noise; it raises LateTruthError after `limit_s`."""
    return partial(CompiledRuns, limit_s=limit_s)


def _is_compiled(graph: Graph) -> bool:
    """Whether a compiler is done before NumPy, which begins each of many small operations by
    itself."""
    loops = any(node.spec.family is Family.CONTROL for node in graph.nodes)
    return loops and numpy_s(graph) >= compile_s(graph)


def expected_s(graph: Graph) -> float:
    """Seconds that `expected` takes, about, compilers' as far as they count; of a loop whose end
    data decide all its iterations."""
    found = numpy_s(graph, whole=True)
    return max(found / _FASTER, compile_s(graph) / _PATIENT) if _is_compiled(graph) else found
