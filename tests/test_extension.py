"""Extending autofuse: op, baseline, searcher, strategy, simplification, launch parameter,
instruction class, device kind, front end.

Each is one file and at most two lines (a launch parameter, and what one chooses, is a row of its
table as well), really added, and taken through the checks that the built-in ones pass.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import special

from autofuse.backends.cpu import backend as cpu
from autofuse.baselines import BASELINES, baseline_named
from autofuse.baselines.base import explain
from autofuse.devices import DEVICES, device_named, present_device
from autofuse.errors import AutofuseError
from autofuse.frontends import spec, trace
from autofuse.frontends.json.file import dumps, loads
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import canonical
from autofuse.graph.reference import evaluate, random_inputs
from autofuse.measure.check.compare import check, reference_of
from autofuse.ops.dtypes import DType
from autofuse.ops.spec import OpSpec, spec_of
from autofuse.plan.parameters import (
    C_LAUNCH,
    CUDA_LAUNCH,
    HALF_MMA,
    LaunchSettingError,
    check_launch,
)
from autofuse.plan.parameters_page import launch_parameters_page
from autofuse.plan.types import Candidate, FusionPlan, LaunchConfig, candidate_from_json
from autofuse.search import SEARCHERS
from autofuse.search.conformance import check_searcher
from autofuse.simplify import simplify
from autofuse.sources import load_source
from autofuse.tuning import best_plan, compare, compile, plan_named
from autofuse.tuning.job import tuner
from autofuse.tuning.search.launches import LaunchProblem, proposals
from search_spaces import CpuLaunchSpace, FusionSpace
from search_spaces.launch import first_option
from tests.support import op_bodies
from tests.support.batching import Case, build, verdict
from tests.support.checked_plans import check_plans_of_random_graphs, check_plans_of_shuffled_graphs
from tests.support.cli_tools import call, refused
from tests.support.emulation import library_of, one_kernel, run_kernel
from tests.support.expr_eval import draw
from tests.support.extending import EXTENSIONS, HERE, ROOT, extended
from tests.support.op_cases import LAUNCHES, one_op, whole
from tests.support.simplify_cases import check_on_special_numbers
from tests.support.toy_device import QUICK, workload
from tests.support.toy_tuning import after, check_complete, tune_toy

LINES, LINE_LENGTH = 2, 100


# --- what it takes ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", EXTENSIONS)
def test_an_extension_is_one_file_and_two_lines(kind: str) -> None:
    extension = EXTENSIONS[kind]
    rows = 1 if kind in ("A launch parameter", "An instruction class") else 0
    assert len(extension.lines) <= LINES + rows
    for file, line in extension.lines:
        assert (ROOT / file).exists() and len(line) <= LINE_LENGTH
        assert len(ast.parse(line).body) == 1


def test_there_is_no_other_file() -> None:
    there = {str(path.relative_to(HERE)) for path in HERE.rglob("*.py")}
    assert there == {extension.file for extension in EXTENSIONS.values()}


def test_afterwards_all_is_as_before() -> None:
    before = ([*BASELINES], [*DEVICES], cpu.render_c)
    for kind in EXTENSIONS:
        with extended(kind):
            pass
    assert ([*BASELINES], [*DEVICES], cpu.render_c) == before
    with pytest.raises(AutofuseError, match="unknown baseline 'alone'"):
        baseline_named("alone")


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The device kind, quickly timed."""
    monkeypatch.setattr(tuner, "Sampling", lambda cache, **_: replace(QUICK, cache=cache))
    with extended("A device kind"):
        yield


# --- an op ----------------------------------------------------------------------------------------


@pytest.fixture
def square() -> Iterator[OpSpec]:
    with extended("An op"):
        yield spec_of("square")


def test_an_op_is_computed_as_its_row_says(square: OpSpec) -> None:
    for sample in square.samples():
        op_bodies.check_types(square, sample)
        op_bodies.check_body(square, sample)
        op_bodies.check_body(square, sample, literal=True)
        op_bodies.check_axes(square, sample)
        op_bodies.check_pulls(square, sample)
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


# --- a simplification ----------------------------------------------------------------------------


def test_a_simplification_is_applied_told_and_gone() -> None:
    graph = canonical(trace(lambda x: x + x, spec((24, 100))))
    assert simplify(graph).steps == ()
    with extended("A simplification"):
        found = simplify(graph)
        assert [step.rule for step in found.steps] == ["doubled"]
        assert simplify(found.graph).steps == ()
        (node,) = (n for n in found.graph.nodes if len(n.inputs) == 2)
        assert node.op == "mul"
        check_on_special_numbers(graph, found.graph, close=False)
    assert simplify(graph).steps == ()


# --- a launch parameter -------------------------------------------------------------------------


def test_a_launch_parameter_is_offered_kept_and_read() -> None:
    graph = canonical(trace(lambda x: x * 2.0, spec((24, 100))))
    space, (group,) = CpuLaunchSpace(), FusionSpace(graph).choose(first_option).groups
    before = space.default(graph, group)
    with extended("A launch parameter"):
        assert space.default(graph, group) == before, "what is known keeps its name"
        found = {proposal.payload for proposal in proposals(LaunchProblem(graph, group, space))}
        peeling = LaunchConfig.of(**dict(before.settings), peel=True)
        assert {before, peeling} < found
        plan = FusionPlan((group,))
        usual, candidate = (Candidate(plan, (launch,), ((),)) for launch in (before, peeling))
        assert candidate_from_json(candidate.to_json()) == candidate
        texts = [cpu.program(graph, each).sources[0].text for each in (usual, candidate)]
        assert ["l0 < 352" in text for text in texts] == [False, True], "2400 = 2 * 1024 + 352"
        data = np.linspace(-1, 1, 24 * 100, dtype=np.float32).reshape(24, 100)
        (doubled,) = compile(graph, device="cpu", plan=candidate)(data)
        np.testing.assert_array_equal(doubled, data * 2)
        with pytest.raises(LaunchSettingError, match="peel='blue' is none of"):
            cpu.program(graph, replace(candidate, launches=(LaunchConfig.of(peel="blue"),)))
        assert any("| `peel` | no, yes |" in line for line in launch_parameters_page())
    with pytest.raises(LaunchSettingError, match="no kernel has a launch parameter 'peel'"):
        check_launch(C_LAUNCH, peeling)


# --- an instruction class -------------------------------------------------------------------------

# Files that ask for instruction classes by name, so that one more is no row for them. The list only
# shrinks.
CLASSES = {
    "c": ("AMX_MMA",),
    "cuda": (
        "HALF_MMA", "TF32_MMA", "STRICT_MMA", "BYTE_MMA", "GROUP_MMA", "BYTE_GROUP_MMA",
    ),
}  # fmt: skip
BY_NAME = {
    "c": {
        "autofuse/kernel/text/c/printer.py", "autofuse/kernel/tiles/factors.py",
        "autofuse/plan/schedules/pairs.py", "search_spaces/cpu.py",
    },
    "cuda": {
        "autofuse/backends/cuda/devices.py", "autofuse/kernel/text/cuda/fragments.py",
        "autofuse/kernel/tiles/fragment_online.py", "search_spaces/cuda_fragments.py",
        "search_spaces/cuda_multiply.py", "search_spaces/cuda_tiles.py",
        "search_spaces/tile_facts.py",
    },
}  # fmt: skip
ROOMS = ("autofuse", "search_spaces", "tuning_db")
ROWS_OF_CLASSES = {"autofuse/plan/parameters.py", "autofuse/kernel/ir/instructions.py"}


def test_an_instruction_class_multiplies_tiles() -> None:
    graph = canonical(trace(lambda a, b: a @ b + 1, *(spec((40, 40), "bf16") for _ in "ab")))
    usual = LaunchConfig.of(
        impl="loops", mma=HALF_MMA, threads=64, micro="32x64", row_block=64, column_block=64,
        stages=2,
    )  # fmt: skip
    deep = LaunchConfig.of(**{**dict(usual.settings), "mma": "deep"})
    with extended("An instruction class"):
        check_launch(CUDA_LAUNCH, deep)
        texts = {launch: one_kernel(graph, launch) for launch in (usual, deep)}
        runs = {launch: f"(terms + {n - 1}) / {n}" for launch, n in ((usual, 32), (deep, 64))}
        assert all(runs[launch] in one.text for launch, one in texts.items())
        inputs = random_inputs(graph, 3)
        for one in texts.values():
            assert "af_multiply_bf16(sums" in one.text
            found = run_kernel(library_of([one]), one, inputs)
            assert check(found, reference_of(graph, inputs)).ok
    with pytest.raises(LaunchSettingError, match="mma='deep' is none of"):
        check_launch(CUDA_LAUNCH, deep)


@pytest.mark.parametrize("dialect", CLASSES)
def test_what_names_instruction_classes_is_listed(dialect: str) -> None:
    named = set(CLASSES[dialect])
    files = (path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in files}
    found = {
        file
        for file, text in texts.items()
        if any(isinstance(e, ast.Name) and e.id in named for e in ast.walk(ast.parse(text)))
    }
    assert found - ROWS_OF_CLASSES == BY_NAME[dialect]


# --- a baseline -----------------------------------------------------------------------------------


def test_a_baseline_plans_explains_and_is_measured(
    two_baselines: None, toy: None, tmp_path: Path
) -> None:
    with extended("A baseline"):
        check_plans_of_random_graphs(BASELINES["alone"])
        check_plans_of_shuffled_graphs(BASELINES["alone"])
        graph = canonical(workload())
        assert "[alone] no op shares a kernel" in explain(BASELINES["alone"](graph), graph)[-1]
        db = tmp_path / "t.db"
        result = tune_toy(db, stop=after(4))
        check_complete(result, db, workload())
        assert list(result.baselines) == [*BASELINES] == ["unfused", "xla-2022", "alone"]
        # The same plan under two names is one candidate, measured once.
        assert result.measured <= 4
        assert plan_named(workload(), "alone", device_named("toy")).origin == "alone"


# --- a searcher and a strategy --------------------------------------------------------------------


def test_a_searcher_conforms_and_tunes(two_baselines: None, toy: None, tmp_path: Path) -> None:
    with extended("A searcher"):
        check_searcher(SEARCHERS["wanderer"])
        result = tune_toy(tmp_path / "t.db", "wanderer")
        check_complete(result, tmp_path / "t.db", workload())
        assert result.session.strategy == "wanderer" and result.measured >= 15
        with pytest.raises(AutofuseError, match="no option 'x'"):
            tune_toy(tmp_path / "t.db", "wanderer", options={"x": "1"})


def test_a_strategy_spends_the_bench(two_baselines: None, toy: None, tmp_path: Path) -> None:
    db = tmp_path / "t.db"
    with extended("A strategy"):
        result = tune_toy(db, "greedy")
        check_complete(result, db, workload())
        assert (result.session.strategy, result.trials) == ("greedy", 1)
        refusing = tune_toy(db, "greedy", max_memory=0)
        assert any("does not fit" in note for note in refusing.notes) == (refusing.trials == 0)
    with pytest.raises(AutofuseError, match="unknown strategy 'greedy'"):
        tune_toy(db, "greedy")


# --- a device kind --------------------------------------------------------------------------------


def test_a_device_kind_is_tuned_compared_and_used(
    two_baselines: None, toy: None, tmp_path: Path
) -> None:
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
    toy: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(AutofuseError, match="cannot be used"):
        present_device("cuda")
    monkeypatch.setitem(DEVICES, "cuda", DEVICES["toy"])
    assert present_device("cuda").name == "toy"


# --- a front end ----------------------------------------------------------------------------------


@pytest.fixture
def postfix() -> Iterator[None]:
    with extended("A front end"):
        yield


def test_a_front_end_is_a_source_of_every_command(
    postfix: None,
    two_baselines: None,
    toy: None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path, db = tmp_path / "model.postfix", tmp_path / "t.db"
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
    postfix: None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    program: str,
    message: str,
) -> None:
    path = tmp_path / "bad.postfix"
    path.write_text(program)
    refused(call(capsys, "show", path), message)
