"""Reductions of a few terms, or to a few totals, inside a row: lanes walk along what is long."""

from __future__ import annotations

import numpy as np
import pytest

import autofuse
from autofuse import xp
from autofuse.frontends.array_api.array import TracedArray
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph
from autofuse.kernel.ir.types import Loop, statements
from autofuse.kernel.lower import lower
from autofuse.measure.check.compare import check, reference_of
from autofuse.plan.fusion.groups import group_of
from autofuse.plan.types import Candidate, FusionPlan, LaunchConfig
from tests.support.emulation import library_of, one_kernel, run_kernel

Array = TracedArray
REDUCED = {"sum": xp.sum, "max": xp.max, "argmax": xp.argmax, "prod": xp.prod}


def pairs(few: int, name: str) -> Graph:
    """For each row of x: a reduction over few terms for each of many, and over many for few."""

    def fn(x: Array, weight: Array) -> dict[str, Array]:
        apart = xp.tanh(x[None] - x[:, None])
        near = REDUCED[name](apart, axis=2) * weight
        total = REDUCED["sum" if name == "argmax" else name](apart * near[:, :, None], axis=1)
        return {"near": xp.sum(near, axis=1), "total": total}

    return canonical(autofuse.trace(fn, autofuse.spec((40, few)), autofuse.spec(40)))


@pytest.mark.wide(4)
@pytest.mark.parametrize("name", REDUCED)
@pytest.mark.parametrize("few", [2, 4, 5])
def test_sums_of_pairs(few: int, name: str) -> None:
    graph = pairs(few, name)
    nodes = [n for n, node in enumerate(graph.nodes) if node.op not in ("input", "constant")]
    group, launch = group_of(graph, nodes), LaunchConfig.of(threads=1)
    rng = np.random.default_rng(few)
    inputs = [rng.standard_normal((40, few), np.float32), rng.random(40, np.float32)]
    reference = reference_of(graph, inputs)
    plan = Candidate(FusionPlan((group,)), (launch,), ((),))
    result = check(autofuse.compile(graph, device="cpu", plan=plan)(*inputs), reference)
    assert result.ok, result.message
    made = one_kernel(graph)
    result = check(run_kernel(library_of([made]), made, inputs), reference)
    assert result.ok, result.message


def lanes(graph: Graph) -> list[int]:
    loops = (s for s in statements(lower(graph, LaunchConfig()).body) if isinstance(s, Loop))
    return [s.var.extent or 0 for s in loops if s.kind == "lane"]


def test_lanes_walk_along_what_is_long() -> None:
    assert lanes(pairs(3, "sum")).count(3) == 1, "only what is written at the end"
    assert lanes(pairs(5, "sum")).count(5) > 1
