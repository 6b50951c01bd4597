"""Inputs that are declared constant: bound once, what depends on them alone computed once, and the
right operands of products packed once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autofuse
from autofuse import AutofuseError, spec, trace, xp
from autofuse.backends import cpu
from autofuse.backends.base import LaunchError
from autofuse.backends.ccompiler import compile_program
from autofuse.backends.cuda.emulated import EmulatedPlan, build_emulated
from autofuse.backends.cuda.program import cuda_program
from autofuse.backends.emulator.emulator import ORDERS
from autofuse.backends.library import LoadedLibrary, load
from autofuse.cost.bounds import NOMINAL, candidate_bytes, group_bound_us, peak_bytes
from autofuse.cost.traffic import plan_traffic
from autofuse.devices import device_named
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import canonical, digest
from autofuse.graph.reference import evaluate, random_inputs
from autofuse.graph.settled import constant_inputs, settled
from autofuse.graph.types import Graph
from autofuse.measure.session import Worker
from autofuse.measure.workload import Workload
from autofuse.ops.dtypes import DType
from autofuse.ops.types import GraphError
from autofuse.plan.groups import group_of, is_source, ordered_plan
from autofuse.plan.packing import packing_of
from autofuse.plan.parameters import MICRO, LaunchConfig
from autofuse.plan.schedule import Run, schedule
from autofuse.plan.types import Candidate, FusionPlan, candidate_from_json
from autofuse.tuning.plans import plan_named
from search_spaces import CpuLaunchSpace
from search_spaces.launch import first_option
from tests.tile_programs import PROGRAMS, whole

TOLERANCE = {"f32": 2e-5, "f64": 1e-12, "f16": 2e-3, "bf16": 2e-2}
SETTINGS = st.fixed_dictionaries(
    {
        "micro": st.sampled_from(MICRO.choices),
        "row_block": st.sampled_from((8, 20, 128)),
        "column_block": st.sampled_from((0, 64)),
        "term_block": st.sampled_from((0, 32)),
        "pack": st.booleans(),
        "vector_bits": st.sampled_from((512, 256)),
        "threads": st.sampled_from((1, 2)),
    }
)


def weighted(name: str, dtype: str = "f32") -> Graph:
    """A program of the tile schedule whose operands but the first are constants."""
    fn, (first, *others) = PROGRAMS[name]
    weights = (spec(shape, dtype, constant=True) for shape in others)
    return canonical(trace(fn, spec(first, dtype), *weights))


def packed_launch(**chosen: int | str | bool) -> LaunchConfig:
    plain: dict[str, int | str | bool] = {
        "threads": 1, "impl": "loops", "micro": "6x64", "row_block": 128, "pack": True,
        "stage": True, "prepack": True,
    }  # fmt: skip
    return LaunchConfig.of(**{**plain, **chosen})


def in_one(graph: Graph, launch: LaunchConfig) -> Candidate:
    return Candidate(FusionPlan((whole(graph),)), (launch,))


def each_alone(graph: Graph, launch: LaunchConfig = packed_launch()) -> Candidate:  # noqa: B008
    nodes = [n for n in range(len(graph.nodes)) if not is_source(graph, n)]
    plan = ordered_plan(graph, [group_of(graph, [n]) for n in nodes])
    return Candidate(plan, (launch,) * len(plan.groups))


def built(graph: Graph, candidate: Candidate) -> LoadedLibrary:
    return load(compile_program(cpu.program(graph, candidate)).artifact)


def split(graph: Graph, inputs: tuple[np.ndarray, ...]) -> tuple[list[Any], list[Any]]:
    """What is constant, and the rest."""
    fixed = constant_inputs(graph)
    rest = [a for k, a in enumerate(inputs) if k not in fixed]
    return [inputs[k] for k in fixed], rest


def error(graph: Graph, candidate: Candidate) -> float:
    """The largest error of two calls with one preparation, against the float64 reference."""
    library, worst = built(graph, candidate), 0.0
    inputs = random_inputs(graph, 3)
    library.prepare(split(graph, inputs)[0])
    for seed in (3, 4):
        fresh = random_inputs(graph, seed)
        fixed = constant_inputs(graph)
        inputs = tuple(inputs[k] if k in fixed else a for k, a in enumerate(fresh))
        found = library.run(split(graph, inputs)[1])
        for got, want in zip(found, evaluate(graph, inputs), strict=True):
            apart = np.abs(got.astype(np.float64) - want)
            worst = max(worst, float(np.max(apart) / max(1.0, float(np.max(np.abs(want))))))
    return worst


# Right results


@pytest.mark.parametrize("name", PROGRAMS)
@settings(max_examples=2, deadline=None)
@given(chosen=SETTINGS)
def test_every_program_with_weights_is_right_under_every_setting(
    name: str, chosen: dict[str, int | str | bool]
) -> None:
    graph = weighted(name)
    assert error(graph, in_one(graph, packed_launch(**chosen))) < TOLERANCE["f32"]


@pytest.mark.parametrize("dtype", ["f64", "f16", "bf16"])
@pytest.mark.parametrize("name", ["epilogue", "convolution_last", "two_layers"])
def test_every_type_is_right(name: str, dtype: str) -> None:
    graph = weighted(name, dtype)
    candidate = in_one(graph, packed_launch(term_block=32, row_block=20))
    assert packing_of(graph, candidate.plan.groups[0], candidate.launches[0]) is not None
    assert error(graph, candidate) < TOLERANCE[dtype]


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.tuples(st.integers(1, 70), st.integers(2, 150), st.integers(1, 60)),
    batch=st.integers(1, 3),
    turned=st.booleans(),
    chosen=SETTINGS,
)
def test_products_of_any_size_are_right(
    sizes: tuple[int, int, int], batch: int, turned: bool, chosen: dict[str, int | str | bool]
) -> None:
    rows, columns, terms = sizes
    lying = (batch, columns, terms) if turned else (batch, terms, columns)

    def fn(a: Any, b: Any) -> Any:
        return a @ (b.mT if turned else b) * 2

    graph = canonical(trace(fn, spec((batch, rows, terms)), spec(lying, constant=True)))
    assert error(graph, in_one(graph, packed_launch(**chosen))) < TOLERANCE["f32"]


def quantised(x: Any, w: Any, scale: Any) -> Any:
    return np.maximum(x @ (xp.astype(w, "f32") * scale).mT, 0)


def dequantising(constant: bool = True, rows: int = 5) -> Graph:
    weight = spec((96, 40), "i8", constant=constant), spec((96, 1), constant=constant)
    return canonical(trace(quantised, spec((rows, 40)), *weight))


def test_work_on_weights_is_done_once_in_groups_of_its_own_or_while_packing() -> None:
    graph = dequantising()
    for candidate in (each_alone(graph), in_one(graph, packed_launch())):
        assert error(graph, candidate) < TOLERANCE["f32"]
        made = schedule(graph, candidate)
        assert made.binding.read == ()  # calls read what was prepared, not the weights
        assert all(isinstance(step, Run) for step in made.steps)
        assert 4 * 96 * 40 <= made.binding.held <= 2 * 4 * 96 * 40


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_a_right_operand_of_a_library_call_is_turned_once(dtype: str) -> None:
    def fn(x: Any, w: Any) -> Any:
        return x @ np.exp(w)

    graph = canonical(trace(fn, spec((9, 20), dtype), spec((20, 33), dtype, constant=True)))
    candidate = each_alone(graph, LaunchConfig.of(threads=1, impl="blas"))
    assert len(schedule(graph, candidate).prepare) == 1 == len(schedule(graph, candidate).steps)
    assert error(graph, candidate) < TOLERANCE[dtype]


def test_results_that_depend_on_constants_alone_are_copied_to_each_call() -> None:
    def fn(x: Any, w: Any) -> Any:
        return {"w": w, "twice": w * 2, "y": x + w}

    graph = canonical(trace(fn, spec(8), spec(8, constant=True)))
    assert error(graph, each_alone(graph)) == 0.0


def test_a_loop_over_constants_runs_once() -> None:
    def fn(x: Any, w: Any) -> Any:
        return x + xp.fori_loop(4, lambda _, state: state * w, w)

    graph = canonical(trace(fn, spec(6), spec(6, constant=True)))
    assert error(graph, each_alone(graph)) < TOLERANCE["f32"]
    assert len(schedule(graph, each_alone(graph)).steps) == 1


def test_what_a_call_needs_first_is_not_done_before() -> None:
    """A settled value that a mixed group writes is there only in the call; so is what reads it."""

    def fn(x: Any, w: Any) -> Any:
        turned = np.exp(w)
        return {"a": x + turned, "b": x @ np.tanh(turned)}

    graph = canonical(trace(fn, spec((16, 16)), spec((16, 16), constant=True)))
    ops = {node.op: n for n, node in enumerate(graph.nodes)}
    pairs = (("exp", "add"), ("tanh", "dot_general"))
    groups = [group_of(graph, [ops[name] for name in pair]) for pair in pairs]
    candidate = Candidate(ordered_plan(graph, groups), (packed_launch(),) * 2)
    made = schedule(graph, candidate)
    assert made.prepare == () and made.binding.held == 0
    assert [step.packs for step in made.steps if isinstance(step, Run)] == [False, True, False]
    assert error(graph, candidate) < TOLERANCE["f32"]


# On CUDA


@pytest.mark.parametrize("make", [each_alone, in_one])
def test_cuda_prepares_too_but_packs_in_its_kernels(
    make: Callable[[Graph, LaunchConfig], Candidate],
) -> None:
    graph = dequantising(rows=3)
    candidate = make(graph, packed_launch(threads=64, row_block=4, micro="4x64"))
    built_ = build_emulated(cuda_program(graph, candidate))
    plan = EmulatedPlan(built_.artifact, orders=ORDERS[:1])
    inputs = random_inputs(graph, 1)
    constants, rest = split(graph, inputs)
    with pytest.raises(LaunchError, match="constants have not been bound"):
        plan.run(rest)
    plan.prepare(constants)
    for _ in "12":
        (found,) = plan.run(rest)
        assert np.max(np.abs(found - evaluate(graph, inputs)[0])) < 1e-4


# What is written, and what it is known by


def test_the_declaration_is_part_of_the_digest_and_of_graph_files(tmp_path: Path) -> None:
    plain, fixed = dequantising(constant=False), dequantising()
    assert digest(plain) != digest(fixed) == digest(dequantising())
    assert settled(plain) == frozenset() and constant_inputs(fixed) == (1, 2)
    path = tmp_path / "graph.json"
    autofuse.save(fixed, path)
    text = path.read_text(encoding="utf-8")
    assert text.count('"constant": true') == 2
    assert digest(autofuse.load(path)) == digest(fixed)
    path.write_text(text.replace(', "constant": true', ""), encoding="utf-8")
    assert digest(autofuse.load(path)) == digest(plain)
    path.write_text(text.replace('"constant": true', '"constant": false'), encoding="utf-8")
    assert digest(autofuse.load(path)) == digest(plain)
    path.write_text(text.replace('"constant": true', '"constant": 1'), encoding="utf-8")
    with pytest.raises(GraphError, match="'constant' is true or left out, got 1"):
        autofuse.load(path)


def test_an_input_of_a_loop_body_cannot_be_constant() -> None:
    body, outer = GraphBuilder(), GraphBuilder()
    body.input("t", (), DType.I32)
    inner = body.build([body.input("s", (4,), DType.F32, constant=True)])
    with pytest.raises(GraphError, match="an input of a loop body cannot be declared constant"):
        outer.add("loop", outer.input("x", (4,), DType.F32), body=inner, trip=2, carries=1)


def test_arguments_of_a_jax_function_may_be_constants() -> None:
    pytest.importorskip("jax")
    x, params = (
        np.ones((2, 3), np.float32),
        {"w": np.ones((3, 4), np.float32), "b": np.ones(4, "f")},
    )

    def layer(x: Any, params: Any) -> Any:
        return x @ params["w"] + params["b"]

    graph = autofuse.from_jax(layer, x, params, constant_argnums=-1)
    assert [graph.input_names[k] for k in constant_inputs(graph)] == ["params_b", "params_w"]
    assert constant_inputs(autofuse.from_jax(layer, x, params, constant_argnums=(0,))) == (0,)
    assert constant_inputs(autofuse.from_jax(layer, x, params)) == ()
    with pytest.raises(AutofuseError, match="constant_argnums has 2, but there are 2 arguments"):
        autofuse.from_jax(layer, x, params, constant_argnums=2)


def test_panels_of_any_tile_belong_to_the_setting_and_to_the_code() -> None:
    graph = canonical(weighted("epilogue"))
    codes = set()
    for prepack in (True, False):
        made = in_one(graph, packed_launch(prepack=prepack))
        assert candidate_from_json(made.to_json()) == made
        codes |= set(device_named("cpu").backend.codes(graph, made))
    assert len(codes) == 2


# What it costs


def test_memory_limits_count_what_is_prepared() -> None:
    graph = dequantising()
    alone, packed = each_alone(graph), in_one(graph, packed_launch())
    nbytes = 4 * 96 * 40
    assert peak_bytes(graph, packed.plan) < nbytes <= peak_bytes(graph, alone.plan)
    assert candidate_bytes(graph, packed) >= nbytes
    assert candidate_bytes(graph, in_one(graph, packed_launch(prepack=False))) < nbytes


def test_no_call_is_charged_for_what_runs_once() -> None:
    graph, plain = dequantising(rows=500), dequantising(False, rows=500)
    plan = each_alone(graph).plan
    bounds = {g.nodes: group_bound_us(graph, g, NOMINAL) for g in plan.groups}
    once = [g for g in plan.groups if settled(graph).issuperset(g.nodes)]
    assert once and all(bounds[g.nodes] == 0.0 for g in once)
    assert plan_traffic(graph, plan).bytes < plan_traffic(plain, each_alone(plain).plan).bytes
    fused = in_one(graph, packed_launch()).plan.groups[0]
    assert group_bound_us(graph, fused, NOMINAL) <= group_bound_us(plain, fused, NOMINAL)


def test_prepacking_is_offered_first_and_only_where_it_can_be() -> None:
    def asked(graph: Graph) -> dict[str, tuple[Any, ...]]:
        found: dict[str, tuple[Any, ...]] = {}

        def note(name: str, options: tuple[Any, ...]) -> Any:
            found[name.split(".")[2]] = options
            return "loops" if "loops" in options else first_option(name, options)

        CpuLaunchSpace().choose(graph, whole(graph), note, "p")
        return found

    assert asked(weighted("epilogue"))["prepack"] == asked(weighted("product"))["prepack"]
    assert asked(weighted("epilogue"))["prepack"] == (True, False)
    assert "prepack" not in asked(dequantising(constant=False))
    turned = weighted("second_transposed")
    (move,) = (n for n in range(len(turned.nodes)) if turned[n].op == "transpose")
    questions: list[str] = []

    def ask(name: str, options: tuple[Any, ...]) -> Any:
        questions.append(name)
        return options[0]

    CpuLaunchSpace().choose(turned, group_of(turned, [move]), ask, "p")
    assert questions == []  # it runs once: nothing about it is worth a measurement


# Compiled functions


def layer(constant: bool = True) -> Graph:
    def fn(x: Any, w: Any, b: Any) -> Any:
        return np.tanh(x @ w.T + b)

    return trace(fn, spec((4, 8)), spec((16, 8), constant=constant), spec(16, constant=constant))


def weights(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {"w": rng.random((16, 8), np.float32), "b": rng.random(16, np.float32)}


def expected(x: np.ndarray, given_: dict[str, np.ndarray]) -> np.ndarray:
    return np.tanh(x @ given_["w"].T + given_["b"])


@pytest.mark.parametrize("plan", ["unfused", "fused", "xla-2026", None])
def test_a_compiled_function_takes_the_other_inputs_only(plan: str | None, tmp_path: Path) -> None:
    given_, x = weights(), np.random.default_rng(9).random((4, 8), np.float32)
    db = str(tmp_path / "db")
    fast = autofuse.compile(layer(), device="cpu", plan=plan, db=db, constants=given_)
    want = expected(x, given_)
    assert np.allclose(fast(x)[0], want, atol=1e-6)
    for array in given_.values():
        array.fill(np.nan)  # constants were copied: this changes nothing
    assert np.allclose(fast(x)[0], want, atol=1e-6)
    assert fast.prepared_bytes > 0 and fast.prepare_s > 0
    other = autofuse.compile(layer(), device="cpu", plan=plan, db=db, constants=weights(1))
    assert np.allclose(other(x)[0], expected(x, weights(1)), atol=1e-6)
    assert np.allclose(fast(x)[0], want, atol=1e-6)  # nothing is shared between the two
    with pytest.raises(AutofuseError, match=r"takes 1 arrays \(x\) besides its constants"):
        fast(x, x)


def test_strided_weights_are_read_as_they_are_meant() -> None:
    given_, x = weights(), np.ones((4, 8), np.float32)
    turned = {"w": np.asfortranarray(given_["w"]), "b": np.repeat(given_["b"], 2)[::2]}
    fast = autofuse.compile(layer(), device="cpu", plan="fused", constants=turned)
    assert np.allclose(fast(x)[0], expected(x, given_), atol=1e-6)


@pytest.mark.parametrize(
    ("given_", "text"),
    [
        (None, r"constants that were not given: w, b \(give them as constants="),
        ({"w": weights()["w"]}, "constants that were not given: b"),
        (weights() | {"x": np.ones((4, 8), "f")}, "'x' is no constant, it is given to each call"),
        (weights() | {"v": np.ones(3)}, r"'v' is no constant, it is no input .*constants: w, b"),
        (weights() | {"b": np.ones(16)}, r"constant 'b' must be f32\[16\], not float64\[16\]"),
        (weights() | {"b": np.ones((1, 16), "f")}, r"must be f32\[16\], not float32\[1,16"),
        (weights() | {"b": [1.0] * 16}, "constant 'b' is a list, not an array"),
    ],
)  # fmt: skip
def test_constants_that_do_not_fit_are_named(given_: dict[str, Any] | None, text: str) -> None:
    with pytest.raises(AutofuseError, match=text):
        autofuse.compile(layer(), device="cpu", plan="fused", constants=given_)


def test_a_graph_without_constants_takes_none() -> None:
    with pytest.raises(AutofuseError, match=r"'w' is no constant.*\(it declares none\)"):
        autofuse.compile(layer(constant=False), device="cpu", plan="fused", constants=weights())


def test_a_program_says_that_its_constants_were_not_bound() -> None:
    graph = canonical(layer())
    library = built(graph, in_one(graph, packed_launch()))
    with pytest.raises(LaunchError, match="constants have not been bound"):
        library.run([np.ones((4, 8), np.float32)])


def test_a_second_call_packs_nothing() -> None:
    graph = canonical(layer())
    library = built(graph, in_one(graph, packed_launch()))
    constants, rest = split(graph, random_inputs(graph, 0))
    library.prepare(constants)
    assert library.held is not None
    library.run(rest)
    before = library.held.copy()
    library.held.view(np.float32)[...] = 0.0  # what calls read from now on
    (found,) = library.run(rest)
    bias = constants[1]
    assert np.allclose(found, np.broadcast_to(np.tanh(bias), found.shape), atol=1e-6)
    assert before.any() and not library.held.any()


# Measuring and tuning


def test_a_plan_with_weights_is_checked_and_timed_like_any_other() -> None:
    graph = dequantising(rows=16)
    good = compile_program(cpu.program(graph, in_one(graph, packed_launch()))).artifact
    with Worker(Workload(graph)) as worker:
        reply = worker.measure(good)
        assert reply.failure is None and reply.timing is not None
        alone = each_alone(graph)
        artifact = compile_program(cpu.program(graph, alone)).artifact
        profile = worker.profile(artifact, len(alone.plan.groups))
    assert profile.failure is None


def test_a_graph_with_weights_is_tuned_without_their_values(tmp_path: Path) -> None:
    graph, db = dequantising(rows=64), str(tmp_path / "db")
    result = autofuse.tune(graph, name="weights", device="cpu", db=db, budget_s=12)
    assert result.best_us > 0
    inputs = random_inputs(graph, 5)
    constants, rest = split(graph, inputs)
    names = [graph.input_names[k] for k in constant_inputs(graph)]
    fast = autofuse.compile(
        graph, device="cpu", db=db, constants=dict(zip(names, constants, strict=True))
    )
    assert fast.origin.startswith("best")
    assert np.max(np.abs(fast(*rest)[0] - evaluate(graph, inputs)[0])) < 1e-4


def test_baselines_plan_a_graph_with_weights_by_their_own_rules() -> None:
    for name in ("xla-2022", "inductor", "tvm"):
        plain, fixed = (
            [g.nodes for g in plan_named(canonical(layer(c)), name, device="cpu").plan.groups]
            for c in (False, True)
        )
        assert plain == fixed
