"""The case study, small: every rung computes the same, and the page says what was found."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from autofuse.casestudy import page as casestudy_page
from autofuse.casestudy import sizes as casestudy_sizes
from autofuse.casestudy import study as casestudy
from autofuse.casestudy.columns import EXACT, JAX, NUMPY, ours
from autofuse.casestudy.rungs import LADDER, POLICY, TRAINING, Rung, ladder, trained
from autofuse.casestudy.sizes import NO_TIME
from autofuse.devices import device_named
from autofuse.frontends.jax.jaxpr import from_jax
from autofuse.graph.canonical import canonical
from autofuse.graph.reference import evaluate, random_inputs
from autofuse.graph.types import Graph
from autofuse.peers import programs_case
from autofuse.peers.verify import check
from autofuse.plan.fusion.groups import group_of
from autofuse.plan.fusion.legality import Refusal, check_group
from autofuse.plan.types import FusionGroup, LaunchConfig
from autofuse.tuning.plans import plan_named
from autofuse.zoo import ZOO, policy, zoo_graph
from tests.support.cli_tools import call, refused

Data = dict[str, Any]


def fused(graph: Graph, **_: object) -> SimpleNamespace:
    """A search that knows the answer."""
    return SimpleNamespace(
        best=plan_named(graph, "fused", device_named("cpu"), simplify=False), total_s=0.5
    )


def once(calls: Mapping[str, Callable[[], Any]], *_: object) -> dict[str, list[float]]:
    """One sample of each: nothing here depends on what is fast."""
    taken: dict[str, list[float]] = {}
    for name, run in calls.items():
        begun = time.perf_counter()
        run()
        taken[name] = [1e6 * (time.perf_counter() - begun)]
    return taken


def two_rungs(n_envs: int, steps: int) -> dict[str, Rung]:
    """The ends of the ladder, and the drawing."""
    found = ladder(n_envs, steps)
    return {name: rung for name, rung in found.items() if name not in LADDER[1:3]}


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Data:
    """Two plans, two libraries and few environments; nothing is searched."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(casestudy, "STRATEGIES", ("xla-2026",))
        patch.setattr(casestudy, "PEERS", (JAX, NUMPY))
        patch.setattr(casestudy, "tune", fused)
        patch.setattr(casestudy, "take_turns", once)
        patch.setattr(casestudy, "ladder", two_rungs)
        folder = tmp_path_factory.mktemp("study")
        return casestudy.casestudy(
            4.0, db=str(folder / "a.db"), n_envs=32, steps=10, sizes=(1,),
            sizes_of_training=(8, 4, 16, 2),
        )  # fmt: skip


@pytest.mark.slow
def test_every_rung_has_every_column(study: Data) -> None:
    assert set(study["rungs"]) == {LADDER[0], LADDER[3], POLICY, TRAINING}
    for row in (*study["rungs"].values(), study["drawing"]):
        assert set(row) == {"xla-2026", EXACT, JAX, NUMPY}
        for cell in row.values():
            assert cell["time_us"] > 0 and cell["rel_error"] < 0.1
            assert cell["q1_us"] <= cell["time_us"] <= cell["q3_us"]
    assert study["agree"] and study["failed"] == [] and study["max_rel_error"] < 0.1


def test_rungs_that_are_given_numbers_draw_them_first(study: Data) -> None:
    assert "given_us" not in study["rungs"]["cartpole_naive"][EXACT]
    cell = study["rungs"][LADDER[3]][EXACT]
    assert cell["given_us"] > 0 and cell["draw_us"] == study["drawing"][EXACT]["time_us"]


def test_one_kernel_does_what_two_a_step_did(study: Data) -> None:
    naive = study["rungs"]["cartpole_naive"]
    assert naive[EXACT]["kernels_per_step"] == pytest.approx(0.1)
    assert naive["xla-2026"]["kernels_per_step"] > 2
    assert naive[EXACT]["bytes_per_step"] < 0.2 * naive["xla-2026"]["bytes_per_step"]
    assert study["rungs"][POLICY][EXACT]["kernels_per_step"] == pytest.approx(0.1)
    assert naive[JAX]["kernels_per_step"] > 1


def test_sizes_are_told_by_number_of_environments(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(casestudy_sizes, "COLUMNS", (EXACT, JAX))
    plans = {name: fused(canonical(zoo_graph(name, "small"))).best for name in LADDER[:1]}
    db, said = str(tmp_path / "a.db"), list[str]()
    found = casestudy_sizes.sizes_swept(plans, (4, 1), db, math.inf, said.append)
    assert list(found) == ["1", "4"] and len(said) == 2
    for row in found.values():
        for columns in row.values():
            assert all(columns[c]["step_us"] > 0 for c in (EXACT, JAX)), columns
            assert columns[EXACT]["kernels_per_step"] == 0.1
    late = casestudy_sizes.sizes_swept(plans, (1,), db, -math.inf, said.append)
    assert late["1"] == {name: {"error": NO_TIME} for name in plans}


def test_the_page_has_every_figure(study: Data) -> None:
    page = casestudy_page.page(study)
    assert page.startswith("# Case study: Cartpole\n")
    assert all(f"| {name} |" in page for name in study["rungs"])
    assert "Results agree" in page and "jax.grad" in page
    late = {**study, "sizes": {"1": {name: {"error": NO_TIME} for name in (LADDER[0], LADDER[3])}}}
    assert "left out" in casestudy_page.page(late)


def test_speeds_are_relative_to_the_naive_program() -> None:
    def rung(**us: float) -> Mapping[str, Mapping[str, Any]]:
        return {name: {"time_us": value} for name, value in us.items()}

    rungs: dict[str, Mapping[str, Mapping[str, Any]]] = {
        "cartpole_naive": {**rung(exact=2.0, unfused=8.0, inductor=3.0), JAX: {"time_us": 10.0}},
        "cartpole_unroll10": {"exact": {"time_us": 4.0, "given_us": 1.0, "draw_us": 3.0}},
    }
    found = casestudy.bars(rungs)
    assert found["naive_over_unroll10"] == 2.0 and found["naive_over_jax"] == 5.0
    assert found["naive_over_unroll10_without_drawing"] == 0.5
    assert found["naive_over_best_rule"] == 1.5
    rungs["cartpole_unroll10"] = {"exact": {"error": "failed"}}
    assert casestudy.bars(rungs)["naive_over_unroll10"] is None


def test_a_wrong_result_is_no_agreement(monkeypatch: pytest.MonkeyPatch) -> None:
    rungs = ladder(8, 10)
    bad = ours(rungs["cartpole_naive"].graph, rungs["cartpole_naive"].inputs, "unfused", None)
    study = casestudy.Study({"cartpole_naive": rungs["cartpole_naive"]}, 1.0, None, lambda _: None)
    monkeypatch.setattr(casestudy, "STRATEGIES", ("unfused",))
    monkeypatch.setattr(casestudy, "PEERS", ())
    twice = replace(bad, fetch=lambda found: tuple(2 * a + 1 for a in found))
    monkeypatch.setattr(casestudy, "_column", lambda *_: twice)
    casestudy._prepare(study)
    assert study.wrong == ["cartpole_naive unfused", "cartpole_naive exact"]
    assert "is wrong" in study.told["cartpole_naive"]["unfused"]["error"]


def test_the_gradients_of_the_zoo_are_those_of_jax() -> None:
    written = canonical(zoo_graph("mlp_train_step", "small"))
    inputs = random_inputs(written, 3)
    differentiated = from_jax(programs_case.jax_train_step, *inputs)
    for one, other in zip(evaluate(written, inputs), evaluate(differentiated, inputs), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-9)
    assert trained((8, 4, 16, 2)).note == "gradients by jax.grad"


def test_a_small_network_fits_into_the_loop_s_kernel_and_a_large_one_does_not() -> None:
    small = canonical(policy.cartpole_policy(256, 10, 16))
    large = canonical(policy.cartpole_policy(256, 10, 17))

    def verdict(graph: Graph) -> object:
        group: FusionGroup = group_of(
            graph, [n for n, node in enumerate(graph.nodes) if node.op == "loop"]
        )
        return check_group(graph, group.nodes, group.outputs)

    assert not isinstance(verdict(small), Refusal)
    refusal = verdict(large)
    assert isinstance(refusal, Refusal) and refusal.rule == "loop-body"
    inputs = random_inputs(small, 1)
    made = ours(small, inputs, "fused", None)
    assert made.kernels == 1
    check(made.fetch(made.call()), evaluate(small, inputs), False)


def test_the_command_refuses_what_it_cannot_do(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    refused(call(capsys, "casestudy", "cartpole", "--budget", "0"), "positive")
    refused(call(capsys, "casestudy", "cartpole", "--device", "cuda-emulated"), "device")
    refused(call(capsys, "casestudy", "cartpole", "--markdown", tmp_path), "is a directory")
    assert call(capsys, "casestudy", "gymnax").code == 2


def test_a_plan_whose_launches_unroll_too_much_is_not_moved() -> None:
    graph = canonical(ZOO[LADDER[3]].make(64, 10))
    fused = plan_named(graph, "fused", device_named("cpu"), simplify=False)
    assert casestudy_sizes._moved(graph, fused) == [fused]
    launches = tuple(
        LaunchConfig.of(**{**dict(c.settings), "loop_unroll": 4}) for c in fused.launches
    )
    assert casestudy_sizes._moved(graph, replace(fused, launches=launches)) == []
