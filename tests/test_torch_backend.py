"""What users ask of `torch.compile(backend="autofuse")`: options, tuning, explanations."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")  # an extra of its own

from torch import nn  # noqa: E402 - after torch

from autofuse.errors import AutofuseError  # noqa: E402 - after torch
from autofuse.interop.torch import choice as torch_choice  # noqa: E402 - after torch
from autofuse.interop.torch import plans as torch_plans  # noqa: E402 - after torch
from autofuse.interop.torch.backend import reports  # noqa: E402 - after torch
from autofuse.interop.torch.choice import Rival  # noqa: E402 - after torch
from autofuse.interop.torch.options import TorchOptions, options_of  # noqa: E402 - after torch
from autofuse.interop.torch.report import GraphReport  # noqa: E402 - after torch
from autofuse.torch import explain  # noqa: E402 - after torch


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def model() -> Any:
    return nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 3)).eval()


@pytest.mark.parametrize(
    ("mode", "options", "sentence"),
    [
        ("reduce-overhead", {}, "no mode 'reduce-overhead' .its modes: default, max-autotune"),
        (
            None,
            {"budget": 3},
            "no option 'budget' .its options: budget_s, bundle, db, device, freeze, inductor, ",
        ),
        (None, {"budget_s": 0}, "budget_s must be positive, not 0"),
        (None, {"budget_s": "long"}, "budget_s is a number of seconds, not 'long'"),
        (None, {"on_miss": "tune"}, "on_miss is default or error, not 'tune'"),
        (None, {"bundle": "/nowhere"}, "cannot open the bundle /nowhere: No such file"),
        (None, {"max_memory": -1}, "max_memory is a number of bytes, not -1"),
        (None, {"inductor": "yes"}, "inductor is True or False, not 'yes'"),
        (None, {"freeze": 1}, "freeze is True or False, not 1"),
    ],
)
def test_wrong_options_are_one_sentence(mode: Any, options: Any, sentence: str) -> None:
    with pytest.raises(AutofuseError, match=sentence):
        options_of(mode, options)


def test_options_have_defaults() -> None:
    assert options_of(None, None) == TorchOptions()
    assert options_of("max-autotune", None) == TorchOptions(max_autotune=True)
    assert options_of(None, {"budget_s": 5}) == TorchOptions(budget_s=5)


def test_frozen_parameters_are_constants() -> None:
    made, x = model(), torch.rand(4, 6)
    frozen = torch.compile(made, backend="autofuse", options={"freeze": True})
    with torch.no_grad():
        before = made(x)
        torch.testing.assert_close(frozen(x), before)
        made[0].weight.mul_(2)
        torch.testing.assert_close(frozen(x), before)
        torch._dynamo.reset()
        torch.testing.assert_close(torch.compile(made, backend="autofuse")(x), made(x))


def test_what_is_tuned_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tuned: list[float] = []
    tune = torch_plans.tune

    def counting(graph: Any, **more: Any) -> Any:
        tuned.append(more["budget_s"])
        return tune(graph, **more)

    monkeypatch.setattr(torch_plans, "tune", counting)
    monkeypatch.setattr(torch_choice, "_ratios", lambda *_: {"torch's own program": 1.0})
    monkeypatch.setattr("autofuse.interop.torch.backend.faster_island", lambda *_: None)
    made, x = model(), torch.rand(4, 6)
    options = {"max_autotune": True, "budget_s": 4, "db": str(tmp_path / "t.db")}
    for _ in range(2):
        torch._dynamo.reset()
        compiled = torch.compile(made, backend="autofuse", options=options)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), made(x))
    assert len(tuned) == 1
    assert 0 < tuned[0] <= 4


def test_code_of_torch_that_is_faster_stays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(torch_plans, "tune", lambda *_, **__: None)
    monkeypatch.setattr(
        "autofuse.interop.torch.backend.faster_island", lambda *_: Rival("torch's own code", 1.5)
    )
    made, x = model(), torch.rand(4, 6)
    options = {"max_autotune": True, "db": str(tmp_path / "t.db")}
    compiled = torch.compile(made, backend="autofuse", options=options)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), made(x))


# A checkout on a path has no entry points.
FROM_A_CHECKOUT = """
import importlib.metadata as metadata
real = metadata.entry_points
metadata.entry_points = lambda **k: () if k.get("group") == "torch_dynamo_backends" else real(**k)
import torch, autofuse.torch
from torch._dynamo.backends import registry
registry._discover_entrypoint_backends = lambda: None
print(registry.lookup_backend("autofuse") is autofuse.torch.backend)
"""


def test_the_backend_has_its_name_where_nothing_is_installed() -> None:
    command = [sys.executable, "-c", FROM_A_CHECKOUT]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.stdout.strip() == "True", said.stderr[-300:]


def test_the_backend_has_its_name_where_it_is_installed() -> None:
    """The entry point is looked up after the import, and registers what it names."""
    text = (
        "import autofuse.torch, torch; from torch._dynamo.backends import registry as r; "
        "print(r.lookup_backend('autofuse') is autofuse.torch.backend)"
    )
    command = [sys.executable, "-c", text]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.stdout.strip() == "True", said.stderr[-300:]


def test_a_model_is_explained_by_a_pytorch_that_isolates_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """2.11, whose torch.compile has no `isolate_recompiles`."""
    real = torch.compile

    def older(model: Any, *, backend: Any) -> Any:
        return real(model, backend=backend)

    monkeypatch.setattr(torch, "compile", older)
    assert explain(model(), torch.randn(4, 6)).graphs


def test_a_model_is_explained() -> None:
    def function(x: Any) -> Any:
        y = torch.special.bessel_j1(torch.sin(x) * 2)
        return torch.cos(y) * y

    told = explain(function, torch.rand(8))
    (graph,) = told.graphs
    assert [island.ops for island in graph.islands] == [2, 2]
    assert [(left.op, left.count) for left in graph.left] == [("aten.special_bessel_j1.default", 1)]
    assert "left to torch: aten.special_bessel_j1.default" in str(told)
    assert not told.breaks


def test_a_model_that_is_compiled_is_explained_again_and_again() -> None:
    made, x = model(), torch.rand(4, 6)
    torch.compile(made, backend="autofuse")(x)
    with torch._dynamo.config.patch(recompile_limit=2):
        assert [len(explain(made, x).graphs) for _ in range(3)] == [2] * 3
        compiled = torch.compile(made, backend="autofuse", fullgraph=True)
        assert compiled(torch.rand(5, 6)).shape[0] == 5


def test_a_second_size_leaves_no_more_to_torch() -> None:
    found: list[GraphReport] = []
    token = reports.set(found)
    try:
        compiled = torch.compile(model(), backend="autofuse")
        with torch.no_grad():
            for rows in (4, 5):
                compiled(torch.rand(rows, 6))
    finally:
        reports.reset(token)
    first, second = found
    assert second.nodes == first.nodes and second.left == first.left == ()


def test_gradients_and_breaks_are_explained() -> None:
    def function(x: Any) -> Any:
        y = torch.tanh(x) * 3
        torch._dynamo.graph_break()
        return torch.exp(y) + y

    told = explain(function, torch.rand(8, requires_grad=True))
    assert sorted(graph.name for graph in told.graphs) == ["backward"] * 2 + ["forward"] * 2
    assert len(told.breaks) == 1
    assert "graph break" in str(told)
