"""Draws of inputs: what a fault hides in on one of them shows on another."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from autofuse import spec, trace, xp
from autofuse.frontends.array_api.array import TracedArray
from autofuse.graph.domains import input_ranges
from autofuse.graph.reference import evaluate
from autofuse.graph.types import Graph
from autofuse.measure.check.compare import check, reference_of
from autofuse.measure.check.draws import extra_draws, reference_seconds
from autofuse.measure.workload import Workload, draw_inputs
from autofuse.zoo import zoo_graph

LONG = 1 << 18
Fault = Callable[[np.ndarray], np.ndarray]


def summed(x: np.ndarray) -> np.ndarray:
    return np.asarray(x.sum(dtype=np.float32), np.float32)


FOLDS: dict[str, tuple[Graph, Fault]] = {
    "sum": (trace(xp.sum, spec((LONG,))), summed),
    "max": (trace(xp.max, spec((LONG,))), lambda x: np.asarray(x.max())),
    "min": (trace(xp.min, spec((LONG,))), lambda x: np.asarray(x.min())),
}


def refused_on(graph: Graph, program: Fault) -> list[str]:
    """The draws on which a program of one input does not pass."""
    found = []
    for name, workload in (("random", Workload(graph)), *extra_draws(Workload(graph))):
        (x,) = draw_inputs(workload)
        with np.errstate(all="ignore"):
            output = program(x)
        if not check((output,), reference_of(graph, (x,))).ok:
            found.append(name)
    return found


@pytest.mark.parametrize("fold", FOLDS)
def test_a_lost_last_term_of_many_is_seen(fold: str) -> None:
    graph, right = FOLDS[fold]
    assert refused_on(graph, right) == []
    assert refused_on(graph, lambda x: right(x[:-1]))
    assert refused_on(graph, lambda x: right(x[1:]))


def test_draws_keep_to_where_ops_are_defined() -> None:
    def made(x: TracedArray, y: TracedArray) -> TracedArray:
        return xp.log(x) + xp.sqrt(y * 1.0)

    graph = trace(made, spec((40, 30)), spec(()))
    ranges = input_ranges(graph, -1.0, 1.0)
    draws = extra_draws(Workload(graph, 3))
    assert len(draws) == 6 and len({name for name, _ in draws}) == 6
    for name, workload in draws:
        for node, array in zip(graph.inputs, draw_inputs(workload), strict=True):
            low, high = ranges[node]
            assert np.all((array >= low) & (array <= high)), name
        assert np.all(np.isfinite(evaluate(graph, draw_inputs(workload))[0]))


def test_draws_follow_from_the_seed_and_from_nothing_else() -> None:
    graph = zoo_graph("softmax", "small")
    one, two = (extra_draws(Workload(graph, 5)) for _ in "12")
    for (name, a), (other, b) in zip(one, two, strict=True):
        assert name == other
        for x, y in zip(draw_inputs(a), draw_inputs(b), strict=True):
            assert np.array_equal(x, y, equal_nan=True)


def test_there_are_none_where_they_are_dear_or_make_no_sense() -> None:
    graph = trace(xp.sum, spec((LONG,)))
    assert extra_draws(Workload(graph, arrays=(np.ones(LONG, np.float32),))) == ()
    large = trace(lambda a, b: a @ b, spec((4096, 4096)), spec((4096, 4096)))
    assert reference_seconds(large) > 1.0 and extra_draws(Workload(large)) == ()
