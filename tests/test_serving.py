"""Where a plan comes from: each place that is asked, in order, and what is said of those before."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import autofuse
from autofuse.backends.base import INTERFACE
from autofuse.backends.registry import CPU_BACKEND
from autofuse.devices import device_named
from autofuse.errors import AutofuseError
from autofuse.graph.canonical import digest
from autofuse.plan.types import Candidate
from autofuse.runtime.loaded import LoadedPlan
from autofuse.serving import binary, compiling
from autofuse.serving.bundle import Bundle, open_bundle, this_host
from autofuse.serving.keys import BundleError, Secret
from autofuse.serving.make import Contents, make_bundle
from autofuse.tuning import plan_named
from autofuse.tuning.serve.borrowed import distance
from benchmarks.serving import bench_lookups, bundle_of
from tests.support.bundles import GRAPH, SECRET, bundle_at, remember
from tests.support.cli_tools import call, toy
from tuning_db import Store

HERE = CPU_BACKEND.environment()
THERE = replace(HERE, must=tuple((k, "another" if k == "model" else v) for k, v in HERE.must))


@pytest.fixture(scope="module")
def plan() -> Candidate:
    return plan_named(toy(), "unfused", device_named("cpu"))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, plan: Candidate) -> Path:
    """`here.bundle` with a binary, `bare.bundle` without, `there.bundle` of another device,
    `key`."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "key").write_bytes(SECRET)
    (folder / "key").chmod(0o600)
    db = remember(folder / "here.db", plan, HERE)
    bundle_at(folder / "here.bundle", db, texts=True)
    bundle_at(folder / "bare.bundle", db, binaries=False)
    bundle_at(folder / "there.bundle", remember(folder / "there.db", plan, THERE))
    return folder


@pytest.fixture
def opened(files: Path) -> Iterator[Bundle]:
    with open_bundle(files / "here.bundle", key=files / "key") as bundle:
        yield bundle


@pytest.fixture
def empty(tmp_path: Path) -> str:
    return str(tmp_path / "empty.db")


def is_right(plan: LoadedPlan) -> None:
    x, bias = (np.random.default_rng(3).random(t.shape, np.float32) for t in GRAPH.input_types)
    scaled, top = plan(x, bias)
    wanted = np.exp(x) + bias
    np.testing.assert_allclose(scaled, wanted / wanted.sum(axis=1, keepdims=True), rtol=1e-5)
    np.testing.assert_array_equal(top, x.max(axis=1))


def test_a_bundle_serves_without_database_and_compiler(
    opened: Bundle, plan: Candidate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("AUTOFUSE_CACHE", str(tmp_path / "cache"))
    db = str(tmp_path / "none" / "x.db")  # in a folder that is not there: opening it would fail
    served = autofuse.compile(toy(), device="cpu", bundle=opened, db=db, on_miss="error")
    assert (served.origin, served.candidate, served.notes) == ("bundle (unfused)", plan, ())
    is_right(served)
    assert list(tmp_path.iterdir()) == []
    assert served.graph == GRAPH


def test_a_plan_is_loaded_by_its_name(opened: Bundle) -> None:
    loaded = opened.load("toy")
    assert loaded.signature.free == ("x", "bias") and loaded.origin == "bundle (unfused)"
    is_right(loaded)
    with pytest.raises(AutofuseError, match="takes 2 arrays"):
        loaded(np.zeros(3))
    with pytest.raises(AutofuseError, match=r"input 0 must be f32\[32,48\]"):
        loaded(np.zeros(3, np.float32), np.zeros(48, np.float32))
    with pytest.raises(BundleError, match="no workload called 'other'"):
        opened.load("other")


def test_a_process_that_serves_imports_little(files: Path) -> None:
    code = (
        "import sys, autofuse\n"
        "with autofuse.open_bundle(sys.argv[1], key=sys.argv[2]) as bundle: bundle.load('toy')\n"
        "print([m for m in ('autofuse.ops', 'autofuse.graph', 'subprocess', 'scipy', 'sqlalchemy',"
        " 'networkx', 'optuna', 'platformdirs') if m in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, files / "here.bundle", files / "key"],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.stderr, done.stdout.splitlines()) == ("", ["[]"])


# What a graph of elementwise ops and reductions has no use for, up to its first call.
NEEDLESS = (
    "scipy", "sqlalchemy", "networkx", "optuna", "ml_dtypes", "tuning_db", "autofuse.tuning",
    "autofuse.enumerate", "autofuse.simplify", "autofuse.plan.types", "autofuse.ops.contraction",
    "autofuse.ops.convolution", "autofuse.ops.fourier", "autofuse.ops.random",
    "autofuse.ops.scatter", "autofuse.ops.sorting", "autofuse.ops.updates",
    "autofuse.ops.window_reduction", "autofuse.ops.terms", "autofuse.ops.library_forms",
)  # fmt: skip


def test_a_look_up_by_graph_imports_no_more_than_its_ops(files: Path) -> None:
    code = (
        "import sys, autofuse\n"
        "from autofuse import spec, trace, xp\n"
        "graph = trace(lambda x: xp.softmax(x), spec((8, 16)))\n"
        "print(sorted({*sys.argv[4:]} & {*sys.modules}))\n"
        "plan = autofuse.compile(autofuse.load(sys.argv[3]), device='cpu', on_miss='error',"
        " bundle=autofuse.open_bundle(sys.argv[1], key=sys.argv[2]))\n"
        "import numpy\n"
        "plan(*(numpy.ones(t.shape, t.dtype.numpy) for t in plan.signature.types))\n"
        "print(sorted({*sys.argv[4:]} & {*sys.modules}))\n"
        "print(len(plan.candidate.plan.groups) > 0, 'autofuse.plan.types' in sys.modules)\n"
    )
    autofuse.save(toy(), files / "toy.json")
    paths = (files / n for n in ("here.bundle", "key", "toy.json"))
    done = subprocess.run(
        [sys.executable, "-c", code, *paths, *NEEDLESS],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.stderr, done.stdout.splitlines()) == ("", ["[]", "[]", "True True"])


def test_without_a_key_no_binary_is_run(files: Path, empty: str) -> None:
    served = autofuse.compile(toy(), device="cpu", bundle=files / "here.bundle", db=empty)
    assert served.origin == "bundle (unfused)"
    assert served.notes == (
        "compiled here: binaries are run only from a bundle whose key or digest is given",
    )
    with pytest.raises(BundleError, match="binaries are run only"):
        open_bundle(files / "here.bundle").load("toy")


def test_a_binary_of_another_interface_is_not_run(
    opened: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binary, "INTERFACE", 99)
    served = autofuse.compile(toy(), device="cpu", bundle=opened)
    assert f"its binary is called by interface {INTERFACE}, not 99" in served.notes[0]
    is_right(served)


def test_the_order_of_places(files: Path, empty: str, plan: Candidate, opened: Bundle) -> None:
    """Pinned plan, bundle, database, nearest device, bounds."""
    known, bundle = str(files / "here.db"), files / "there.bundle"
    pinned = autofuse.compile(toy(), device="cpu", bundle=opened, db=known, plan="fused")
    assert pinned.origin == "fused"
    assert autofuse.compile(toy(), device="cpu", bundle=opened, db=known).origin.startswith(
        "bundle"
    )
    found = autofuse.compile(toy(), device="cpu", bundle=bundle, db=known)
    assert found.origin == "best (unfused)"
    assert found.notes[0].startswith("bundle: other device: model is ")
    lent = autofuse.compile(toy(), device="cpu", bundle=bundle, db=empty)
    assert lent.origin.startswith("borrowed from another, ") and lent.candidate == plan
    assert lent.notes[1] == "database: new graph"
    is_right(lent)
    last = autofuse.compile(toy(), device="cpu", db=empty)
    assert last.origin.startswith("untuned") and last.notes == ("database: new graph",)


def test_a_database_lends_plans_of_other_devices(files: Path) -> None:
    found = autofuse.compile(toy(), device="cpu", db=str(files / "there.db"))
    assert found.origin.startswith("borrowed from another")
    assert found.notes == ("database: other device: it was tuned on another one (cpu)",)


def test_a_borrowed_plan_that_is_wrong_here_is_not_served(
    files: Path, monkeypatch: pytest.MonkeyPatch, empty: str
) -> None:
    from autofuse.tuning.serve import borrowed

    monkeypatch.setattr(borrowed, "_failure", lambda *_: "output 0 is wrong")
    found = autofuse.compile(toy(), device="cpu", bundle=files / "there.bundle", db=empty)
    assert found.origin.startswith("untuned")
    assert found.notes[-1].endswith("is not borrowed: output 0 is wrong")


def test_every_miss_says_why(files: Path, empty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def why(graph: autofuse.Graph, name: str) -> str:
        with pytest.raises(AutofuseError) as error:
            autofuse.compile(
                graph, device="cpu", bundle=files / f"{name}.bundle", db=empty, on_miss="error"
            )
        return str(error.value)

    other = autofuse.trace(lambda x: x + 1, autofuse.spec(3))
    assert why(other, "here").endswith("bundle: new graph; database: new graph")
    assert "bundle: other device: model is" in why(toy(), "there")
    with pytest.raises(AutofuseError, match="other device: its plans are for cpu, not cuda"):
        autofuse.compile(
            toy(), target="sm_90:H100", bundle=files / "here.bundle", db=empty, on_miss="error"
        )
    monkeypatch.setattr(compiling, "__version__", "another")
    monkeypatch.setattr(compiling, "_normal_form", lambda graph, simplify: other)
    assert "bundle: other generator: this graph was simplified otherwise" in why(toy(), "here")


def test_what_is_stale_is_served_and_said_or_tuned_anew(
    files: Path, tmp_path: Path, plan: Candidate
) -> None:
    old = replace(HERE, stale=(*((k, v) for k, v in HERE.stale if k != "kernel"), ("kernel", "1")))
    db = remember(tmp_path / "old.db", plan, old)
    bundle = open_bundle(bundle_at(tmp_path / "old.bundle", db), key=files / "key")
    served = autofuse.compile(toy(), device="cpu", bundle=bundle, on_miss="error", db=db)
    assert served.notes == ("stale: kernel changed since it was measured",)
    tuned = autofuse.compile(
        toy(), device="cpu", bundle=bundle, on_miss="tune", db=str(files / "here.db"), budget_s=1
    )
    assert tuned.origin == "best (unfused)", "the database knows it by now"
    assert tuned.notes == ("bundle: stale: kernel changed since it was measured",)


def test_other_code_than_was_timed_is_stale(files: Path, tmp_path: Path, plan: Candidate) -> None:
    path = tmp_path / "b"
    contents = Contents("0", "")
    with Store.open(remember(tmp_path / "t.db", plan, HERE, code="other")) as store:
        make_bundle(contents, store, {"toy": toy()})
    path.write_bytes(contents.finished(None))
    assert contents.notes == ["toy has no binary: other code would be built than was timed"]
    served = autofuse.compile(toy(), device="cpu", bundle=path)
    assert served.notes[-1] == "stale: code changed since it was measured"


def test_on_miss_tune_tunes(tmp_path: Path) -> None:
    db = str(tmp_path / "t.db")
    found = autofuse.compile(toy(), device="cpu", db=db, on_miss="tune", budget_s=1.0)
    assert found.origin.startswith("best (") and found.notes[0] == "database: new graph"
    with pytest.raises(AutofuseError, match="on_miss is one of"):
        autofuse.compile(toy(), device="cpu", db=db, on_miss="guess")


def test_the_command_line_makes_what_is_served(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    autofuse.save(toy(), tmp_path / "toy.json")
    made, key = tmp_path / "made.bundle", files / "key"
    source = (tmp_path / "toy.json", "--db", files / "here.db", "--key", key, "--texts")
    told = call(capsys, "bundle", "make", made, *source, "--format", "json").json
    assert told["workloads"] == 1 and told["authentic"]
    shown = call(capsys, "bundle", "show", made, "--format", "json").json
    (row,) = shown["workloads"][0]["plans"]
    assert row["binary"] and "entry" in row["texts"] and row["timing"]["median_us"] == 10.0
    assert shown["digest"] == told["digest"]
    every = call(capsys, "bundle", "make", made, "--db", files / "there.db", "--format", "json")
    assert every.json["workloads"] == 1 and not every.json["signed"]


def test_devices_are_ordered_by_how_near_they_are() -> None:
    here = {"arch": "sm_90", "model": "H100", "sms": "132"}
    near = [
        {"arch": "sm_90", "model": "H100", "sms": "132"},
        {"arch": "sm_90", "model": "H100", "sms": "114"},
        {"arch": "sm_90", "model": "H200", "sms": "132"},
        {"arch": "sm_80", "model": "A100", "sms": "132"},
        {"arch": "sm_80", "model": "A100", "sms": "none"},
    ]
    mixed = [near[k] for k in (4, 2, 0, 3, 1)]
    assert sorted(mixed, key=lambda there: distance(here, there)) == near


def test_a_bundle_says_what_it_has(opened: Bundle, files: Path) -> None:
    assert opened.has(digest(GRAPH)) and not opened.has("0" * 32)
    with open_bundle(files / "there.bundle") as other:
        assert not other.has(digest(GRAPH)), "its plan is for another device"


def test_processes_look_plans_up_together(tmp_path: Path) -> None:
    data, workloads = bundle_of(150, Secret(SECRET))
    path, key = tmp_path / "b", tmp_path / "key"
    path.write_bytes(data)
    key.write_bytes(SECRET)
    key.chmod(0o600)
    found = bench_lookups(path, key, workloads, 4)
    assert found["open_wall_ms"].n == 4 and found["look_up_wall_ms"].n == 32
    with open_bundle(path, key=key) as bundle:
        assert bundle.verify() == 150 and bundle.load("softmax").device == this_host().device
