"""What constants alone decide runs once, in kernels of its own."""

from __future__ import annotations

import numpy as np
import pytest

import autofuse
from autofuse.baselines import BASELINES
from autofuse.devices import device_named
from autofuse.enumerate.enumeration import enumerate_groups
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import canonical
from autofuse.graph.reference import evaluate, random_inputs
from autofuse.graph.settled import settled
from autofuse.graph.types import Graph
from autofuse.ops.dtypes import DType
from autofuse.plan.fusion.prepared import mixes, prepared
from autofuse.plan.program.binding import groups_once
from autofuse.tuning import plan_named
from tests.support.weighted import dequantising

SHAPE = (6, 5, 16)


def normalised() -> Graph:
    """Rows less a mean, over a deviation, and activated: two of these, with weights of their own,
    the first deviation also returned."""
    b = GraphBuilder()
    x = b.input("x", SHAPE, DType.F32)
    eps = b.constant(1e-5, DType.F32, (16,))
    found = []
    for k in range(2):
        mean = b.input(f"mean{k}", (16,), DType.F32, constant=True)
        variance = b.input(f"variance{k}", (16,), DType.F32, constant=True, low=0.5, high=1.5)
        found.append(b.add("rsqrt", b.add("add", variance, eps)))
        mean, scale = (b.add("broadcast", v, shape=SHAPE, dims=(2,)) for v in (mean, found[-1]))
        x = b.add("tanh", b.add("mul", b.add("sub", x, mean), scale))
    return canonical(b.build([x, found[0]]))


# Unfused, a literal that is repeated is a kernel of a call, and so is what reads it.
@pytest.mark.parametrize("name", ["untuned", *(name for name in BASELINES if name != "unfused")])
def test_no_kernel_of_a_call_computes_them(name: str) -> None:
    graph = normalised()
    plan = plan_named(graph, name, device_named("cpu"), simplify=False).plan
    assert not any(mixes(graph, group.nodes) for group in plan.groups)
    once = {n for k in groups_once(graph, plan) for n in plan.groups[k].nodes}
    assert prepared(graph) <= once


def test_values_are_those_of_the_reference() -> None:
    graph = normalised()
    inputs = random_inputs(graph, 3)
    weights = dict(zip(graph.input_names[1:], inputs[1:], strict=True))
    plan = autofuse.compile(graph, device="cpu", plan="xla-2022", constants=weights)
    for found, wanted in zip(plan(inputs[0]), evaluate(graph, inputs), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=1e-6)


def test_candidates_keep_them_apart() -> None:
    graph = normalised()
    found = enumerate_groups(graph)
    assert not any(mixes(graph, group.nodes) for group in found.groups)
    assert found.counts["dominated: what runs once"] > 0


def test_weights_that_are_stored_narrow_stay_so() -> None:
    """Computed once they would be read as what they become, which is larger."""
    graph = canonical(dequantising())
    assert len(settled(graph)) > 3 and prepared(graph) == frozenset()


def test_halves_of_bytes_that_take_more_together_are_not_prepared() -> None:
    """One of them would be as small as the bytes that it is computed from."""
    for halves, wanted in ((1, 1), (2, 0)):
        b = GraphBuilder()
        x = b.input("x", (4, 8), DType.F32)
        w = b.input("w", (4, 8), DType.U8, constant=True)
        for k in range(halves):
            bits = b.constant((15, 240)[k], DType.U8, (4, 8))
            x = b.add("mul", x, b.add("cast", b.add("and", w, bits), dtype=DType.F32))
        graph = canonical(b.build([x]))
        made = [n for n in prepared(graph) if graph[n].op == "and"]
        assert len(made) == wanted
