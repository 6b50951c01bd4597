"""Extending autofuse: op, launch parameter, device kind, baseline, searcher, front end.

Each is one definition and one line in its registry, through the checks that the built-in ones pass.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import test_baselines
import test_op_bodies
from batching import Case, build, verdict
from cli_tools import call, refused
from expr_eval import draw
from scipy import special
from test_ops_on_cpu import LAUNCHES, one_op, whole
from test_tune import after, check_complete, toy, tune_toy
from toy_device import toy_kind, workload

from autofuse.backends import cpu
from autofuse.baselines import BASELINES, Baseline, BaselineResult, unfused
from autofuse.devices import DEVICES, present_device
from autofuse.errors import AutofuseError
from autofuse.frontends.errors import FrontendError
from autofuse.frontends.jsonfile import dumps, loads
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import canonical
from autofuse.graph.composites import gelu, layer_norm, mean, softmax
from autofuse.graph.reference import evaluate
from autofuse.graph.types import Graph, Value
from autofuse.graph.writer import GraphWriter, Operand
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
from autofuse.sources import SOURCES, load_source
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


# --- a front end: text -> Graph -------------------------------------------------------------------


class StackProgram:
    """A tiny stack language. Words: NAME:2x3 declares and pushes an input, a number is pushed, and
    every other word is a function of what is on the stack."""

    BINARY: ClassVar = {"+": "add", "-": "sub", "*": "mul", "/": "div"}
    COMPOSITES: ClassVar = {"softmax": softmax, "gelu": gelu, "norm": layer_norm, "mean": mean}

    def __init__(self) -> None:
        self.writer, self.stack = GraphWriter(), list[Operand]()

    def pop(self, word: str) -> Operand:
        if not self.stack:
            raise FrontendError(f"the stack is empty at '{word}'")
        return self.stack.pop()

    def run(self, word: str) -> Operand:
        if word in self.BINARY:
            right, left = self.pop(word), self.pop(word)
            return self.writer.map(self.BINARY[word], left, right)
        if word in self.COMPOSITES:
            value = self.pop(word)
            if not isinstance(value, Value):
                raise FrontendError(f"'{word}' needs an array, not {value}")
            return self.COMPOSITES[word](self.writer, value)
        name, colon, shape = word.partition(":")
        if colon and all(n.isdigit() for n in shape.split("x")):
            return self.writer.input(name, tuple(map(int, shape.split("x"))), DType.F32)
        try:
            return float(word)
        except ValueError:
            raise FrontendError(f"'{word}' is not a word") from None


def load_stack(path: str) -> Graph:
    program = StackProgram()
    for word in Path(path).read_text(encoding="utf-8").split():
        program.stack.append(program.run(word))
    return program.writer.build([v for v in program.stack if isinstance(v, Value)])


@pytest.fixture
def stack_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SOURCES, ".toy", load_stack)


def test_a_front_end_is_one_loader(
    stack_files: None,
    two_baselines: None,
    toy: None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path, db = tmp_path / "model.toy", tmp_path / "t.db"
    path.write_text("x:24x40 3 * bias:40 + softmax")
    name, graph = load_source(str(path))
    assert name == "model"
    rng = np.random.default_rng(0)
    x, bias = rng.normal(size=(24, 40)), rng.normal(size=40)
    (found,) = evaluate(graph, [x, bias])
    np.testing.assert_allclose(found, special.softmax(x * 3 + bias, axis=-1), rtol=1e-5)
    where = ("--device", "toy", "--db", db)
    tuned = call(capsys, "tune", path, *where, "--budget", 3, "--format", "json")
    assert tuned.code == 0 and tuned.json["verified"] is True
    assert call(capsys, "query", path, *where).code == 0


@pytest.mark.parametrize(
    ("program", "message"),
    [("x:3 what", "'what' is not a word"), ("1 +", "the stack is empty at '+'"),
     ("x:2 y:3 +", "do not broadcast"), ("1 gelu", "needs an array"), ("7", "no outputs")],
)  # fmt: skip
def test_a_new_front_end_is_refused_in_one_sentence(
    stack_files: None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    program: str,
    message: str,
) -> None:
    path = tmp_path / "bad.toy"
    path.write_text(program)
    refused(call(capsys, "show", path), message)
