"""Learned kernel times: what is learned, what it is for, and that it is never called proved."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from made_up_space import LAUNCHES, made_up_space
from toy_device import LONG_S, QUICK, toy_kind, workload
from tuning_records import ENV, WORKLOAD, kernel

import autofuse.frontends.array_api as xp
from autofuse.cli import main
from autofuse.cost.features import COLUMNS
from autofuse.devices import DEVICES
from autofuse.errors import AutofuseError
from autofuse.frontends import spec, trace
from autofuse.peers.types import BenchError
from autofuse.simplify import normal_form
from autofuse.tuning import learned, strategies, tune, tuner
from autofuse.tuning import model as strategy
from autofuse.tuning.bench import Findings
from autofuse.tuning.exact import Goal
from autofuse.tuning.learned import HeldOut, KernelSample, Lesson, Model, fit, held_out, lessons_of
from autofuse.zoo import zoo_graph
from benchmarks import models
from benchmarks.lessons import lessons, lessons_of_others
from benchmarks.replay import ReplayBench, ReplayDevice, replay_model
from benchmarks.searchers import Options
from benchmarks.spaces import RecordedSpace, save
from tuning_db import Store


def made_up(count: int, workloads: int = 6) -> list[Lesson]:
    """Kernels whose ratio of time to bound depends on two features."""
    rng = np.random.default_rng(0)
    found: list[Lesson] = []
    for k in range(count):
        features = dict(zip(COLUMNS, rng.uniform(0, 10, len(COLUMNS)).tolist(), strict=True))
        bound = float(rng.uniform(1, 100))
        us = bound * (1 + features["special"] + (20 if features["reduced"] > 5 else 0))
        found.append(Lesson(f"k{k}", f"w{k % workloads}", KernelSample(features, bound), us))
    return found


def test_what_was_learned_ranks_kernels_that_were_not_seen() -> None:
    every = made_up(400)
    taught, kept = every[:300], every[300:]
    model = fit(taught)
    predicted = model.predict([lesson.sample for lesson in kept])
    found = learned.rank_correlation(predicted, [lesson.us for lesson in kept])
    assert found is not None and found > 0.9 and model.trained_on == 300
    assert all(us >= one.sample.bound_us for us, one in zip(predicted, kept, strict=True))
    again = fit(taught).predict([lesson.sample for lesson in kept])
    assert list(again) == list(predicted)


def test_held_out_kernels_say_how_good_a_model_is() -> None:
    found = held_out(made_up(200))
    assert found is not None and (found.by, found.kernels) == ("workload", 200)
    assert found.rank_correlation is not None and found.bound_rank_correlation is not None
    assert found.rank_correlation > found.bound_rank_correlation
    assert 0 < found.low < 1
    alone = held_out(made_up(200, workloads=1))
    assert alone is not None and alone.by == "kernel"
    assert held_out(made_up(10)) is None


def test_few_kernels_give_a_typical_ratio() -> None:
    few = made_up(5)
    model = fit(few)
    assert model.forest is None
    ratios = [one.us / one.sample.bound_us for one in few]
    assert model.predict([KernelSample({}, 2.0)])[0] == pytest.approx(2 * np.median(ratios))
    assert list(fit([]).predict([KernelSample({}, 3.0), KernelSample({}, 0.0)])) == pytest.approx(
        [3, 0], abs=1e-5
    )


def test_rank_correlation_needs_something_to_rank() -> None:
    assert learned.rank_correlation([1, 2, 3], [10, 20, 30]) == pytest.approx(1)
    assert learned.rank_correlation([1, 2], [1, 2]) is None
    assert learned.rank_correlation([1, 1, 1], [1, 2, 3]) is None


def test_the_database_teaches_what_was_stored_with_features(tmp_path: Path) -> None:
    one = replace(kernel("g"), facts=(("read", 3.0),), bound_us=5.0, cache="cold")
    with Store.open(tmp_path / "t.db") as store:
        store.add_workload(WORKLOAD, "text", "w", 3)
        own = store.start_session(ENV, WORKLOAD, "exact", 0, 1.0)
        store.add_kernel(own, ENV, one)
        store.add_kernel(None, ENV, replace(one, launch="{}"))
        store.add_kernel(None, ENV, replace(one, group="bare", facts=()))
        store.add_kernel(None, ENV, replace(one, group="loose"))
        store.add_kernel(None, replace(ENV, must=(("isa", "other"),)), replace(one, group="far"))
        history = store.kernel_history(ENV)
        assert [m.group for _, m in store.kernel_history(ENV, 1)] == ["loose"]
    assert [(w, m.group) for w, m in history] == [(WORKLOAD, "g"), ("", "g"), ("", "loose")]
    found = lessons_of(history, "cold")
    assert [(x.key, x.workload) for x in found] == [("g", WORKLOAD), ("loose", "")]
    assert found[0].sample == KernelSample({"read": 3.0}, 5.0)
    assert lessons_of(history, "warm") == []


# --- the strategy ---------------------------------------------------------------------------


def by_shape(key: str, launch: int) -> float:
    """Times that no features explain, far above the bounds."""
    return 1.5 + (int(key[:6], 16) % 100) / 20


@pytest.fixture(scope="module")
def spaces() -> list[RecordedSpace]:
    graphs = [(n, normal_form(zoo_graph(n, "small"))) for n in ("softmax", "layer_norm_gelu")]
    return [made_up_space(n, g, launches=LAUNCHES[:1], factor=by_shape) for n, g in graphs]


def searched(space: RecordedSpace, taught: list[Lesson]) -> tuple[Findings, ReplayDevice]:
    device = ReplayDevice(space)
    return replay_model(ReplayBench(device, 0, lambda: False), False, taught), device


def told(own: Findings) -> dict[str, Any]:
    return cast(dict[str, Any], own.model)


def test_a_model_that_overrates_everything_proves_nothing(
    spaces: list[RecordedSpace], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It skips nearly all kernels, and the gap says that the true bounds leave it open."""

    class Gloomy(Model):
        def predict(self, samples: Any) -> Any:
            return 1000 * np.array([s.bound_us for s in samples])

    monkeypatch.setattr(strategy, "fit", lambda *_: Gloomy(99, 1.0, "some"))
    monkeypatch.setattr(strategy, "held_out", lambda *_: HeldOut("kernel", 99, 0.5, 0.4, 1.0))
    own, _ = searched(spaces[1], [])
    assert (
        own.search_floor_us is not None
        and own.search_gap is not None
        and own.planned_us is not None
    )
    assert own.search_floor_us <= spaces[1].optimum_us * (1 + 1e-9)
    assert own.search_gap > 0.05 and own.search_gap == pytest.approx(
        1 - own.search_floor_us / own.planned_us
    )
    assert own.certificate == "learned, whole" and told(own)["rank_correlation"] == 0.5
    assert told(own)["skipped"] > 0 and any("proves nothing" in note for note in own.notes)


def test_a_model_that_is_right_finds_the_optimum_and_skips(spaces: list[RecordedSpace]) -> None:
    """Every kernel takes three times its bound: what the other graph teaches holds here."""
    one, other = (
        made_up_space(s.name, s.graph, launches=LAUNCHES[:1], factor=lambda *_: 3.0) for s in spaces
    )
    own, device = searched(one, list(lessons(other)))
    assert own.planned_us == pytest.approx(one.optimum_us, rel=1e-6)
    shared = one.best_us.keys() & other.best_us.keys()
    assert told(own)["trained_on"] == len(lessons(other)) - len(shared) > learned.LEAST
    assert len(device.compiled) == len(one.best_us) - told(own)["skipped"] < len(one.best_us)


def test_without_lessons_it_learns_as_it_goes(spaces: list[RecordedSpace]) -> None:
    own, _ = searched(spaces[1], [])
    assert told(own)["trained_on"] == 0 and told(own)["rank_correlation"] is None
    assert told(own)["here"]["kernels"] > 0
    assert own.planned_us is not None and own.planned_us <= 1.5 * spaces[1].optimum_us


def test_bench_tells_what_a_model_saves(spaces: list[RecordedSpace], tmp_path: Path) -> None:
    paths = [tmp_path / f"{space.name}.jsonl.gz" for space in spaces]
    for space, path in zip(spaces, paths, strict=True):
        save(space, path)
    results = models.bench_models(paths, Options(seeds=1))
    assert [r.name for r in results] == [s.name for s in spaces]
    assert [r.lessons for r in results] == [len(lessons(s)) for s in reversed(spaces)]
    assert all(r.exact.share == 1 and r.exact.final == pytest.approx(1) for r in results)
    assert len(models.table(results).splitlines()) == 4
    models.write_models(results, tmp_path / "r.json")
    assert '"whole_ratio"' in (tmp_path / "r.json").read_text()
    with pytest.raises(BenchError, match="at least two"):
        models.bench_models(paths[:1], Options(seeds=1))


def test_lessons_come_from_the_others_and_the_same_cache_state(spaces: list[RecordedSpace]) -> None:
    warm = replace(spaces[1], cache="warm")
    assert [len(each) for each in lessons_of_others([spaces[0], warm])] == [0, 0]
    taught = lessons_of_others(spaces)
    assert {lesson.workload for lesson in taught[0]} == {spaces[1].name}


def test_tuning_by_a_model_on_a_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(DEVICES, "toy", toy_kind())
    monkeypatch.setattr(tuner, "Sampling", lambda *_, **__: QUICK)
    monkeypatch.setattr(learned, "LEAST", 1)
    db = str(tmp_path / "t.db")
    other = trace(lambda x: xp.tanh(x) + 1, spec((24, 40)))
    tune(other, device="toy", db=db, budget_s=LONG_S, search_gap=0.9)
    result = tune(
        workload(), device="toy", db=db, budget_s=LONG_S, strategy="model", search_gap=0.5
    )
    assert result.verified and result.best_us <= min(result.baseline_us.values())
    data = result.to_json()
    assert data["certificate"] == "learned, whole" and data["model"]["trained_on"] >= 1
    assert (
        result.search_gap is not None
        and result.search_floor_us is not None
        and result.planned_us is not None
    )
    assert result.search_gap == pytest.approx(1 - result.search_floor_us / result.planned_us)


# --- scikit-learn ---------------------------------------------------------------------------


def test_without_scikit_learn_there_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.ensemble", None)
    with pytest.raises(AutofuseError, match=r"needs scikit-learn: pip install autofuse\[model\]$"):
        fit([])
    monkeypatch.setattr(sys, "argv", [
        "autofuse", "tune", "zoo:softmax:small", "--strategy", "model", "--device", "cpu",
        "--db", str(tmp_path / "t.db"),
    ])  # fmt: skip
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "scikit-learn" in line


def test_the_model_has_no_options() -> None:
    with pytest.raises(AutofuseError, match="'model' has no option 'sampler'"):
        strategies.strategy_named("model", 0, Goal(), {"sampler": "tpe"})
