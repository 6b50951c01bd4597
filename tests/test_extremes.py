"""max, min and clamp: NaN on either side, infinities, and loops that become vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autofuse
from autofuse.backends.cpu.backend import program as c_program
from autofuse.frontends import array_api as xp
from autofuse.frontends import spec, trace
from autofuse.graph.types import Graph
from autofuse.simplify import normal_form
from autofuse.tuning.plans import plan_named

NAN, INF = np.nan, np.inf
EDGES = np.array([NAN, INF, -INF, -1.0, 0.0, 0.5, 6.0, 7.0], np.float32)


def both(arrays: Any) -> dict[str, Any]:
    x, y = arrays
    return {"most": xp.maximum(x, y), "least": xp.minimum(x, y)}


def clamped(arrays: Any) -> dict[str, Any]:
    (x,) = arrays
    return {"y": xp.minimum(xp.maximum(x * 2, 0.0), 6.0)}


def text(graph: Graph) -> str:
    """The C text of all kernels, without what they begin with."""
    sources = c_program(graph, plan_named(graph, "fused")).sources
    texts = [source.text for source in sources if source.name.startswith("k_")]
    return "".join(each[each.rindex("void k_") :] for each in texts)


def test_extremes_of_edges_are_those_of_numpy() -> None:
    x, y = (np.ascontiguousarray(a) for a in np.broadcast_arrays(EDGES[:, None], EDGES))
    plan = autofuse.compile(trace(both, (spec((8, 8)), spec((8, 8)))), device="cpu")
    most, least = plan(x, y)
    np.testing.assert_array_equal(most, np.maximum(x, y))
    np.testing.assert_array_equal(least, np.minimum(x, y))


@pytest.mark.parametrize("bound", [0.0, NAN])
def test_extremes_with_a_number_are_those_of_numpy(bound: float) -> None:
    def program(arrays: Any) -> dict[str, Any]:
        return {"most": xp.maximum(arrays[0], bound), "least": xp.minimum(bound, arrays[0])}

    graph = trace(program, (spec(8),))
    most, least = autofuse.compile(graph, device="cpu")(EDGES)
    np.testing.assert_array_equal(most, np.maximum(EDGES, np.float32(bound)))
    np.testing.assert_array_equal(least, np.minimum(np.float32(bound), EDGES))


def test_a_clamp_asks_nothing_of_its_own_result() -> None:
    """GCC makes branches, and no vectors, of a maximum whose result is tested for NaN."""
    kernel = text(normal_form(trace(clamped, (spec(64),))))
    assert "6.0f" in kernel
    assert "af_isnan" not in kernel
