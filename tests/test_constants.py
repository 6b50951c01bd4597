"""Inputs that are declared constant: bound once, what depends on them alone computed once, and the
right operands of products packed once."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autofuse
from autofuse import AutofuseError
from autofuse.backends.base import LaunchError
from autofuse.backends.ccompiler import compile_program
from autofuse.backends.cpu import backend as cpu
from autofuse.cost.bounds import NOMINAL, ONCE_US, candidate_bytes, group_bound_us, peak_bytes
from autofuse.cost.traffic import plan_traffic
from autofuse.devices import device_named
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import canonical, digest
from autofuse.graph.reference import evaluate, random_inputs
from autofuse.graph.settled import constant_inputs, settled
from autofuse.graph.types import Graph
from autofuse.measure.worker.session import Worker
from autofuse.measure.workload import Workload
from autofuse.ops.dtypes import DType
from autofuse.ops.types import GraphError
from autofuse.plan.fusion.groups import group_of
from autofuse.plan.program.binding import may_run_once
from autofuse.plan.types import candidate_from_json
from autofuse.tuning.plans import plan_named
from search_spaces import CpuLaunchSpace
from search_spaces.launch import first_option
from tests.support.cli_tools import call
from tests.support.tile_programs import whole
from tests.support.weighted import (
    built,
    dequantising,
    each_alone,
    expected,
    in_one,
    layer,
    packed_launch,
    split,
    weighted,
    weights,
)

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
    pytest.importorskip("jax")  # an extra of its own
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
    once = [g for g in plan.groups if may_run_once(graph, g.nodes)]
    assert once and all(bounds[g.nodes] == ONCE_US for g in once)
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


def test_a_compiled_function_for_cuda_takes_constants_too() -> None:
    x = np.ones((4, 8), np.float32)
    fast = autofuse.compile(layer(), device="cuda-emulated", plan="fused", constants=weights())
    assert np.allclose(fast(x)[0], expected(x, weights()), atol=1e-5)
    turned = autofuse.compile(layer(), device="cuda-emulated", plan="unfused", constants=weights())
    assert np.allclose(turned(x)[0], expected(x, weights()), atol=1e-5)
    assert turned.prepared_bytes >= 4 * 16 * 8 and turned.candidate != fast.candidate


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
    result = autofuse.tune(graph, name="weights", device="cpu", db=db, budget_s=5)
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
            [
                g.nodes
                for g in plan_named(canonical(layer(c)), name, device_named("cpu")).plan.groups
            ]
            for c in (False, True)
        )
        assert plain == fixed


# The command line


def test_show_and_run_tell_what_is_prepared_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, db = str(tmp_path / "layer.json"), str(tmp_path / "db")
    autofuse.save(layer(), path)
    common = ("--plan", "fused", "--device", "cpu", "--db", db)
    shown = call(capsys, "show", path, *common)
    assert re.search(
        r"constants \(w, b\) are prepared once: 1 kernel, .* kept for calls", shown.out
    )
    ran = call(capsys, "run", path, *common)
    assert ran.code == 0 and re.search(r"constants \(w, b\) bound once: .* kept", ran.out)
    unfused = ("--plan", "unfused", "--no-simplify", "--device", "cpu", "--db", db)
    data = json.loads(call(capsys, "show", path, *unfused, "--format", "json").out)
    assert [group["once"] for group in data["groups"]].count(True) == 2
    assert data["plan"]["constants"]["prepared_bytes"] >= 4 * 16 * 8


def test_of_hundreds_of_constants_a_few_are_named() -> None:
    given_ = (autofuse.spec(4, constant=True) for _ in range(9))
    graph = autofuse.trace(lambda first, *others: sum(others, start=first), *given_)
    with pytest.raises(AutofuseError, match="and 4 more") as told:
        autofuse.compile(graph, device="cpu", plan="fused")
    assert len(str(told.value)) < 200
