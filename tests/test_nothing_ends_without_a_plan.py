"""Nothing valid ends without a plan: what cannot be planned is told and replaced by the next."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import autofuse
from autofuse import faults
from autofuse.backends.cpu.backend import program
from autofuse.devices import device_named
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.reference import evaluate, random_inputs
from autofuse.graph.types import Graph
from autofuse.ops.dtypes import DType
from autofuse.ops.spec import all_specs
from autofuse.plan.fusion.legality import Refusal, check_group
from autofuse.plan.types import Candidate, FusionGroup, FusionPlan, LaunchConfig
from autofuse.simplify import normal_form
from autofuse.tuning import compiling, plans
from autofuse.tuning.plans import ONE_OP_EACH, untuned_candidate
from autofuse.tuning.serve import served
from benchmarks.fuzz.graphs import random_graph
from benchmarks.fuzz.moves import moves
from benchmarks.fuzz.run import run_fuzz
from tests.support.batching import quick_library

F32, F64, I32 = DType.F32, DType.F64, DType.I32


def looped(table: np.ndarray) -> Graph:
    """Three steps of x = tanh(table @ x - table * x): the table is a constant of the body."""
    inner = GraphBuilder()
    inner.input("step", (), I32)
    state = inner.input("s", (3, 3), F64)
    constant = inner.constant(table, F64)
    product = inner.add(
        "dot_general", constant, state, lhs_contract=(1,), rhs_contract=(0,), lhs_batch=(),
        rhs_batch=(),
    )  # fmt: skip
    new = inner.add("tanh", inner.add("sub", product, inner.add("mul", constant, state)))
    b = GraphBuilder()
    x = b.input("x", (3, 3), F64)
    return b.build(b.add_multi("loop", x, body=inner.build([new]), trip=3, carries=1))


@pytest.mark.parametrize("simplify", [True, False])
def test_a_constant_array_in_a_loop_body(tmp_path: Path, simplify: bool) -> None:
    graph = looped(np.eye(3) + np.arange(9).reshape(3, 3))
    x = np.random.default_rng(0).random((3, 3))
    with faults.strict():
        plan = autofuse.compile(graph, device="cpu", db=str(tmp_path / "t.db"), simplify=simplify)
    np.testing.assert_allclose(plan(x)[0], evaluate(graph, [x])[0], rtol=1e-12)


def test_an_order_or_a_scatter_is_no_part_of_an_item_kernel() -> None:
    """Beside a loop each lane has an item of its own, and nobody walks along a row."""
    inner = GraphBuilder()
    inner.input("step", (), I32)
    state = inner.input("s", (8,), F32)
    b = GraphBuilder()
    x, at = b.input("x", (8,), F32), b.input("at", (3, 1), I32)
    updates = b.input("u", (3, 1), F32)
    x = b.add("exp", x)
    (loop,) = b.add_multi(
        "loop", x, body=inner.build([inner.add("tanh", state)]), trip=3, carries=1
    )
    written = b.add("scatter_add", x, at, updates, axes=(0,), batch=0, drop=True)
    graph = normal_form(b.build([loop, written]))
    nodes = tuple(n for n in range(len(graph.nodes)) if graph[n].op != "input")
    assert isinstance(check_group(graph, nodes, graph.outputs), Refusal)


def test_a_state_that_is_read_transposed_is_no_item_of_its_own() -> None:
    """Axes of one extent are not one axis."""
    inner = GraphBuilder()
    inner.input("step", (), I32)
    state = inner.input("s", (7, 7), F64)
    turned = inner.add("transpose", state, perm=(1, 0))
    new = inner.add("add", inner.add("tanh", state), inner.add("sin", turned))
    b = GraphBuilder()
    x = b.input("x", (7, 7), F64)
    graph = normal_form(b.build(b.add_multi("loop", x, body=inner.build([new]), trip=2, carries=1)))
    verdict = check_group(graph, (1,), graph.outputs)
    assert isinstance(verdict, Refusal) or not verdict[0].parallel
    found = program(graph, untuned_candidate(graph, device_named("cpu")))
    assert found.sources


def test_lanes_choose_by_what_is_known_before_them() -> None:
    """Whether a row lies in the padding follows from a place that is loaded inside the lanes."""
    b = GraphBuilder()
    x, at = b.input("x", (7,), F32), b.input("i", (24, 40), DType.I64, low=-1, high=5)
    y, half = b.input("y", (3, 9, 7), F32), b.constant(0.5, F32)
    product = b.add(
        "dot_general", x, y, lhs_contract=(0,), rhs_contract=(2,), lhs_batch=(), rhs_batch=()
    )
    scaled = b.add("mul", product, b.add("broadcast", half, shape=(3, 9), dims=()))
    padded = b.add("pad", scaled, half, low=(2, 2), high=(0, 1))
    graph = b.build([b.add("gather", padded, at, axis=0)])
    normal = normal_form(graph)
    nodes = tuple(n for n in range(len(normal.nodes)) if normal[n].op not in ("input", "constant"))
    plan = FusionPlan((FusionGroup(nodes, normal.outputs),))
    inputs = random_inputs(graph, 0)
    for launch in (LaunchConfig(), LaunchConfig.of(stage=True, threads=2)):
        with quick_library(normal, Candidate(plan, (launch,))) as library:
            wanted = evaluate(graph, inputs)[0]
            np.testing.assert_allclose(library.run(inputs)[0], wanted, rtol=1e-5)


def test_arrays_without_elements_become_constants() -> None:
    b = GraphBuilder()
    x, y = b.input("x", (0, 8), F32), b.input("y", (4, 8), F32)
    moved = b.add("add", x, b.add("reverse", x, axes=(0,)))
    total = b.add("reduce_sum", moved, axes=(0,))
    at = b.input("at", (0, 1), I32)
    updates = b.input("u", (0, 1, 8), F32)
    written = b.add("scatter_add", y, at, updates, axes=(0,), batch=0, drop=True)
    zero = b.constant(0.0, F32)
    padded = b.add("pad", moved, zero, low=(1, 0), high=(1, 0))
    graph = normal_form(b.build([moved, total, written, padded]))
    assert {node.op for node in graph.nodes} == {"input", "constant", "broadcast"}
    assert graph[graph.outputs[2].node].op == "input"


def test_copies_are_looked_for_without_writing_expressions_out() -> None:
    """A store of what many named values add up to: written out it is a tree of 2^40 leaves."""
    b = GraphBuilder()
    x = b.input("x", (16, 16), F32)
    value = b.add("transpose", x, perm=(1, 0))
    for _ in range(40):
        value = b.add("mul", value, b.add("add", value, value))
    graph = normal_form(b.build([value]))
    assert program(graph, untuned_candidate(graph, device_named("cpu"))).sources


def small() -> Graph:
    b = GraphBuilder()
    x = b.input("x", (4, 5), F32)
    return b.build([b.add("reduce_sum", b.add("exp", x), axes=(1,))])


def broken(*_: object, **__: object) -> object:
    raise AssertionError("a fault of ours")


@pytest.mark.parametrize("failing", [1, 2])
def test_a_planner_that_fails_is_told_and_done_without(
    monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    graph, kind = normal_form(small()), device_named("cpu")
    monkeypatch.setattr(plans, "_untuned", broken)
    if failing == 2:
        monkeypatch.setattr(plans, "baseline_candidate", broken)
    with faults.strict(False), faults.collecting() as told:
        found = untuned_candidate(graph, kind)
    assert any(
        "untuned plan failed" in sentence and "a fault of ours" in sentence for sentence in told
    )
    assert (found.origin == ONE_OP_EACH) == (failing == 2)
    assert program(graph, found).sources
    with faults.strict(), pytest.raises(AssertionError, match="a fault of ours"):
        untuned_candidate(graph, kind)


def test_what_no_plan_can_be_built_for_is_served_by_the_reference(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    graph = small()
    kind = device_named("cpu")
    failing = type(kind.backend)(**{**vars(kind.backend), "program": broken})
    broken_kind = type(kind)(**{**vars(kind), "backend": failing})
    monkeypatch.setattr(compiling, "device_named", lambda *_: broken_kind)
    with faults.strict(False):
        plan = autofuse.compile(graph, device="cpu", db=str(tmp_path / "t.db"))
    x = np.random.default_rng(0).random((4, 5), np.float32)
    np.testing.assert_allclose(plan(x)[0], evaluate(graph, [x])[0], rtol=1e-6)
    assert plan.origin == served.BY_REFERENCE
    assert any("a fault of ours" in note for note in plan.notes)


def test_every_op_is_drawn() -> None:
    assert moves().keys() >= {s.name for s in all_specs()} - {"input", "loop", "while"}
    assert random_graph(5) == random_graph(5)


def test_random_programs_of_every_op() -> None:
    """A sample; `scripts/fuzz_programs` draws as many as are asked for."""
    with faults.strict():
        total = run_fuzz(range(40))
    assert total.graphs == 40
    assert not total.found, "\n".join(f"{f.seed}: {f.stage}: {f.cause}" for f in total.found)
