"""Bundles inside the programs of other systems: JAX, PyTorch, ONNX."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autofuse
from autofuse.backends.registry import CPU_BACKEND
from autofuse.devices import device_named
from autofuse.errors import AutofuseError
from autofuse.graph.canonical import canonical, digest, text
from autofuse.graph.types import Graph
from autofuse.records import Cost, Measurement
from autofuse.serving.make import Contents, make_bundle
from autofuse.simplify import normal_form
from autofuse.tuning import plan_named
from autofuse.tuning.evaluate import code_of
from tests.support.tuning_records import result, timing
from tuning_db import Store

X = np.random.default_rng(5).random((6, 8), np.float32)


@pytest.fixture
def db(tmp_path: Path) -> str:
    """An empty database."""
    return str(tmp_path / "empty.db")


def bundle_with(graph: Graph, folder: Path) -> str:
    """A bundle, without binaries, of the unfused plan of a graph."""
    form = normal_form(graph)
    plan, env = plan_named(form, "unfused", device_named("cpu")), CPU_BACKEND.environment()
    one = Measurement(
        digest(form), plan.to_json(), plan.digest, "unfused", 3, (), timing(), None, 1e-7, Cost(),
        "final", code_of(CPU_BACKEND, form, plan),
    )  # fmt: skip
    contents = Contents("0", "")
    with Store.open(folder / "known.db") as store:
        store.add_workload(digest(form), text(form), "known", len(form.nodes))
        session = store.start_session(env, digest(form), "random", 0, 1.0)
        store.add_measurement(session, env, one)
        store.finish_session(session, replace(result(plan.digest), verdicts=(), failed=()))
        make_bundle(contents, store, {"known": graph}, binaries=False)
    (folder / "known.bundle").write_bytes(contents.finished(None))
    return str(folder / "known.bundle")


def test_a_jax_function_is_served_from_a_bundle(tmp_path: Path, db: str) -> None:
    jax = pytest.importorskip("jax")  # an extra of its own

    def score(x: Any) -> Any:
        return jax.numpy.exp(x) + 1.0

    plan = autofuse.jax_jit(score, db=db).plan_of(X)
    bundle = bundle_with(canonical(plan.graph), tmp_path)
    served = autofuse.jax_jit(bundle=bundle, db=db, on_miss="error", tune=30)(score)
    np.testing.assert_allclose(served(X), np.exp(X) + 1.0, rtol=1e-6)
    assert served.origin(X) == "bundle (unfused)"
    refusing = autofuse.jax_jit(bundle=bundle, db=db, on_miss="error")(score)
    with pytest.raises(AutofuseError, match="bundle: new graph; database: new graph"):
        refusing(X[:3])
    with pytest.raises(AutofuseError, match="tunes for so many seconds"):
        autofuse.jax_jit(score, on_miss="tune")


def test_islands_of_torch_are_served_from_a_bundle(tmp_path: Path, db: str) -> None:
    torch = pytest.importorskip("torch")  # an extra of its own
    from autofuse.interop.torch import plans as torch_plans
    from autofuse.torch import explain

    def score(x: Any) -> Any:
        return torch.exp(x) * 2.0 + 1.0

    x = torch.from_numpy(X)
    unknown = explain(score, x, options={"db": db, "on_miss": "error"})
    assert "no plan: no plan is known for this graph" in str(unknown)
    explain(score, x, options={"db": db})
    (plan,) = [p for key, p in torch_plans._plans.items() if db in key]
    bundle = bundle_with(plan.graph, tmp_path)
    options = {"db": db, "bundle": bundle, "on_miss": "error", "max_autotune": False}
    assert "bundle (unfused)" in str(explain(score, x, options=options))
    torch._dynamo.reset()
    fast = torch.compile(score, backend="autofuse", options=options)
    torch.testing.assert_close(fast(x), score(x))


def test_a_model_of_onnx_is_served_from_a_bundle(tmp_path: Path, db: str) -> None:
    pytest.importorskip("onnx")  # an extra of its own
    graph = autofuse.trace(lambda x: autofuse.xp.exp(x) + 1.0, autofuse.spec((6, 8)))
    autofuse.save_onnx(graph, tmp_path / "model.onnx")
    model = autofuse.load(tmp_path / "model.onnx")
    assert not isinstance(model, Graph)
    bundle = bundle_with(model.graph, tmp_path)
    plan = model.compile(bundle=bundle, db=db, device="cpu", on_miss="error")
    assert plan.origin == "bundle (unfused)"
    found = model.run([X], bundle=bundle, db=db, device="cpu", on_miss="error")
    np.testing.assert_allclose(*found.values(), np.exp(X) + 1.0, rtol=1e-6)
