"""Both forms of a program are compared only where that is quick: loops end where data say so."""

from __future__ import annotations

from typing import Any

import pytest

from autofuse.errors import AutofuseError
from autofuse.graph import reference
from autofuse.graph.loops import WhileWriter
from autofuse.graph.types import Graph
from autofuse.graph.writer import GraphWriter
from autofuse.ops.dtypes import DType
from autofuse.simplify import agreement


def _counting(trips: int) -> Graph:
    w = GraphWriter()
    loop = WhileWriter(w, w.constant(True, DType.BOOL))
    i = loop.state(w.constant(0, DType.I32))
    x = loop.state(w.input("x", (3,), DType.F32))
    body = loop.body
    after = body.add(i, 1)
    states = (after, body.add(body.mul(x, 1.0), 0.5))
    return w.build([loop.end(body.map("lt", after, trips), states)[1]])


@pytest.mark.parametrize("trips", [8, 1 << 18])
def test_a_long_loop_is_not_compared(trips: int, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    real = reference.kept

    def counted(*args: Any) -> Any:
        taken.append(1)
        return real(*args)

    monkeypatch.setattr(reference, "kept", counted)
    agreement.disagreement.cache_clear()
    forms = agreement.forms_of(_counting(trips))
    assert forms.graph != forms.written and not forms.notes
    assert 0 < len(taken) <= max(4 * trips if trips < 100 else 0, agreement.MOST_TRIPS)


def test_trips_are_counted_over_all_loops() -> None:
    graph = _counting(8)
    inputs = reference.random_inputs(graph, 0)
    with reference.trips_up_to(20):
        reference.evaluate(graph, inputs)
        reference.evaluate(graph, inputs)
        with pytest.raises(AutofuseError, match="goes on"):
            reference.evaluate(graph, inputs)
    reference.evaluate(graph, inputs)
