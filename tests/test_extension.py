"""Extending autofuse: an op, a launch parameter, a device kind, a baseline and a searcher, each one
definition and one line in its registry, through the checks that the built-in ones pass."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import test_baselines
import test_op_bodies
from batching import Case, build, verdict
from expr_eval import draw
from test_ops_on_cpu import LAUNCHES, one_op, whole
from test_tune import after, check_complete, toy, tune_toy
from toy_device import toy_kind, workload

from autofuse.backends import cpu
from autofuse.baselines import BASELINES, Baseline, BaselineResult, unfused
from autofuse.devices import DEVICES, present_device
from autofuse.errors import AutofuseError
from autofuse.frontends.jsonfile import dumps, loads
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import canonical
from autofuse.graph.reference import evaluate
from autofuse.graph.types import Graph
from autofuse.kernel.ir import Kernel
from autofuse.kernel.render import render_c
from autofuse.measure.check import reference_of
from autofuse.ops import spec as table
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Call
from autofuse.ops.spec import Family, Index, OpSpec, Pull, Sample
from autofuse.ops.types import OpCall, TensorType
from autofuse.plan.parameters import (
    C_LAUNCH,
    LaunchParameter,
    LaunchSettingError,
    launch_parameters_page,
)
from autofuse.plan.types import Candidate, FusionPlan, LaunchConfig, candidate_from_json
from autofuse.search import SEARCHERS
from autofuse.search.conformance import check_searcher
from autofuse.search.protocol import Option, Outcome, Problem, Proposal
from autofuse.search.space import Space, draw_new
from autofuse.tuning import best_plan, compare, compile, plan_named
from autofuse.tuning.launches import LaunchProblem, proposals
from search_spaces import CpuLaunchSpace, FusionSpace
from search_spaces.launch import first_option

__all__ = ["toy"]  # a fixture
F32 = TensorType((5, 7), DType.F32)


# --- an op: one OpSpec row ------------------------------------------------------------------------


def square_body(call: OpCall, index: Index, pull: Pull) -> tuple[Call, ...]:
    x = pull.let(pull(0, index))
    return (Call("mul", (x, x), x.dtype),)


SQUARE = OpSpec(
    name="toy_square",
    family=Family.ELEMENTWISE,
    infer=lambda call: (call.ins[0],),
    reference=lambda arrays, call: (arrays[0] * arrays[0],),
    flops=lambda call: float(call.ins[0].size),
    samples=lambda: [Sample((F32,)), Sample((TensorType((3,), DType.F64),))],
    body=square_body,
    axes=lambda call: (tuple(range(call.ins[0].rank)),),
)


@pytest.fixture
def square() -> Iterator[OpSpec]:
    table.register(SQUARE)
    yield SQUARE
    del table._REGISTRY[SQUARE.name]


def test_an_op_is_one_row(square: OpSpec) -> None:
    for sample in square.samples():
        test_op_bodies.test_reference_gives_the_inferred_types(square, sample)
        test_op_bodies.test_body_agrees_with_reference(square, sample)
        test_op_bodies.test_body_agrees_at_literal_indices(square, sample)
        test_op_bodies.test_axis_map_holds_for_every_pull(square, sample)
        graph, inputs = one_op(square, sample), draw(sample)
        cases = [Case(graph, whole(graph, launch), square.name) for launch in LAUNCHES]
        for artifact in build(cases):
            result = verdict(artifact, inputs, reference_of(graph, inputs))
            assert result.ok, result.message


@pytest.mark.parametrize("plan", ["fused", *BASELINES])
def test_a_new_op_is_planned_compiled_and_run(square: OpSpec, toy: None, plan: str) -> None:
    b = GraphBuilder()
    x = b.input("x", (24, 8), DType.F32)
    graph = b.build([b.add("reduce_sum", b.add(square.name, b.add("exp", x)), axes=(1,))])
    data = np.linspace(-1, 1, 24 * 8, dtype=np.float32).reshape(24, 8)
    (found,) = compile(graph, device="toy", plan=plan)(data)
    np.testing.assert_allclose(found, (np.exp(data) ** 2).sum(1), rtol=1e-5)


def test_a_new_op_is_known_by_name_everywhere(square: OpSpec) -> None:
    b = GraphBuilder()
    graph = b.build([b.add(square.name, b.input("x", (3,), DType.F64))])
    (found,) = evaluate(graph, (np.array([1.0, 2.0, 3.0]),))
    assert found.tolist() == [1.0, 4.0, 9.0]
    assert loads(dumps(graph)) == graph


# --- a launch parameter: one LaunchParameter row, and what reads it ------------------------------

COLOUR = LaunchParameter("colour", str, ("none", "red"), "none", "Of the text.", ("row", "item"))


def test_a_launch_parameter_is_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = canonical(workload())
    space, (group,) = CpuLaunchSpace(), FusionSpace(graph).choose(first_option).groups
    before = space.default(graph, group)
    monkeypatch.setitem(C_LAUNCH, COLOUR.name, COLOUR)

    def coloured(kernel: Kernel) -> str:
        return f"/* {COLOUR.of(LaunchConfig(kernel.facts))} */\n{render_c(kernel)}"

    monkeypatch.setattr(cpu, "render_c", coloured)
    assert space.default(graph, group) == before, "what is known keeps its name"
    found = {proposal.payload for proposal in proposals(LaunchProblem(graph, group, space))}
    assert {launch.get("colour", "none") for launch in found if launch} == {"none", "red"}
    red = LaunchConfig.of(**dict(before.settings), colour="red")
    assert red in found
    candidate = Candidate(FusionPlan((group,)), (red,), ((),))
    assert candidate_from_json(candidate.to_json()) == candidate
    assert any("/* red */" in source.text for source in cpu.program(graph, candidate).sources)
    data = np.linspace(-1, 1, 24 * 40, dtype=np.float32).reshape(24, 40)
    (shares,) = compile(graph, device="cpu", plan=candidate)(data)
    np.testing.assert_allclose(shares.sum(1), np.ones(24), rtol=1e-5)
    with pytest.raises(LaunchSettingError, match="colour='blue' is none of"):
        cpu.program(graph, replace(candidate, launches=(LaunchConfig.of(colour="blue"),)))
    assert any("| `colour` | none, red |" in line for line in launch_parameters_page())


# --- a baseline: Graph -> plan --------------------------------------------------------------------


def copied(graph: Graph) -> BaselineResult:
    """Nothing fused, and no decision to explain."""
    return BaselineResult(FusionPlan(unfused(graph).plan.groups))


@pytest.fixture
def baseline(monkeypatch: pytest.MonkeyPatch) -> Baseline:
    monkeypatch.setitem(BASELINES, "toy", copied)
    return copied


def test_a_baseline_is_one_function(
    two_baselines: None, baseline: Baseline, toy: None, tmp_path: Path
) -> None:
    test_baselines.test_plans_of_random_graphs_are_valid("toy")
    test_baselines.test_plans_do_not_depend_on_node_order_or_names("toy")
    db = tmp_path / "t.db"
    result = tune_toy(db, stop=after(4))
    check_complete(result, db, workload())
    assert list(result.baselines) == [*BASELINES] == ["unfused", "xla-2022", "toy"]
    # The same plan under two names is one candidate, measured once.
    assert result.measured <= 4
    assert plan_named(workload(), "toy", device="toy").origin == "toy"


# --- a searcher: ask and tell ---------------------------------------------------------------------


class Wanderer:
    """Seeds, then uniform draws: the least that is a searcher."""

    def __init__(self, seed: int) -> None:
        self.random, self.space = random.Random(seed), Space()
        self.seen: set[str] = set()
        self.seeds: deque[Mapping[str, Option]] | None = None

    def ask(self, problem: Problem) -> Proposal | None:
        if self.seeds is None:
            self.seeds = deque(problem.seeds())
        if self.seeds:
            return self.space.propose_fixed(problem, self.seeds.popleft())
        return draw_new(problem, self.space, self.random, self.seen, 100)

    def tell(self, proposal: Proposal, outcome: Outcome) -> None:
        self.seen.add(proposal.key)


def create(seed: int, options: Mapping[str, str]) -> Wanderer:
    if options:
        raise AutofuseError(f"strategy 'toy' has no option '{min(options)}'")
    return Wanderer(seed)


def test_a_searcher_is_one_factory(
    monkeypatch: pytest.MonkeyPatch, toy: None, tmp_path: Path
) -> None:
    monkeypatch.setitem(SEARCHERS, "toy", create)
    check_searcher(SEARCHERS["toy"])
    result = tune_toy(tmp_path / "t.db", "toy")
    check_complete(result, tmp_path / "t.db", workload())
    assert result.strategy == "toy" and result.measured >= 15
    with pytest.raises(AutofuseError, match="no option 'x'"):
        tune_toy(tmp_path / "t.db", "toy", options={"x": "1"})


# --- a device: one DeviceKind ---------------------------------------------------------------------


def test_a_device_is_one_record(toy: None, tmp_path: Path) -> None:
    assert present_device("toy") is DEVICES["toy"]
    db = str(tmp_path / "t.db")
    result = tune_toy(tmp_path / "t.db", stop=after(6))
    assert result.device == "toy"
    known = best_plan(workload(), device="toy", db=db)
    assert known is not None and known.measurement.timing is not None
    launches = {str(launch) for launch in known.candidate.launches}
    assert launches <= {"threads=1,tile=16", "threads=1,tile=64"}
    assert best_plan(workload(), device="cpu", db=db) is None, "another device's times"
    compared = compare(workload(), device="toy", db=db).to_json()
    assert compared["device"] == "toy"
    assert all(row["verified"] for row in compared["plans"].values())
    plan = compile(workload(), device="toy", db=db)
    assert plan.origin.startswith("best")
    data = np.linspace(-1, 1, 24 * 40, dtype=np.float32).reshape(24, 40)
    np.testing.assert_allclose(plan(data)[0].sum(1), np.ones(24), rtol=1e-5)


def test_a_device_called_cuda_is_usable_once_it_is_registered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(AutofuseError, match="cannot be used"):
        present_device("cuda")
    monkeypatch.setitem(DEVICES, "cuda", toy_kind())
    assert present_device("cuda").name == "toy"
