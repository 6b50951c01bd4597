"""PyTorch's own code serves where it is faster, for an island and for a whole program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")  # an extra of its own

from torch import nn  # noqa: E402 - after torch

from autofuse.interop.torch import choice as torch_choice  # noqa: E402 - after torch
from autofuse.interop.torch import plans as torch_plans  # noqa: E402 - after torch
from autofuse.interop.torch.device import HOST, IslandPlace  # noqa: E402 - after torch
from autofuse.torch import explain  # noqa: E402 - after torch

HERE = IslandPlace(HOST)
OWN, INDUCTOR = "torch's own program", "TorchInductor's program"


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    monkeypatch.setenv("AUTOFUSE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(torch_plans, "tune", lambda *_, **__: None)
    monkeypatch.setattr("autofuse.interop.torch.backend.faster_island", lambda *_: None)


def says(monkeypatch: pytest.MonkeyPatch, **ratios: float) -> list[str]:
    """Programs take this many times as long as their rivals; who was timed is appended."""
    asked: list[str] = []

    def told(ours: Any, rivals: dict[str, Any], turn: Any) -> dict[str, float]:
        asked.extend(rivals)
        return {name: ratios[name.split("'")[0]] for name in rivals}

    monkeypatch.setattr(torch_choice, "_ratios", told)
    return asked


class Counting(nn.Module):
    """Each call writes to an input."""

    def forward(self, x: Any, count: Any) -> Any:
        count.add_(1)
        return torch.tanh(x * 2 + 1) * count


def options(tmp_path: Path, **more: Any) -> dict[str, Any]:
    return {"max_autotune": True, "db": str(tmp_path / "t.db"), **more}


@pytest.mark.parametrize("ratio", [0.9, 1.5])
def test_a_program_of_torch_serves_where_it_is_faster(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ratio: float
) -> None:
    asked = says(monkeypatch, torch=ratio)
    x, count = torch.rand(8), torch.zeros(1)
    with torch.no_grad():
        told = explain(Counting(), x, count, options=options(tmp_path))
        compiled = torch.compile(Counting(), backend="autofuse", options=options(tmp_path))
        torch.testing.assert_close(compiled(x, count), torch.tanh(x * 2 + 1) * 2)
    # The first run, and this one, whose verdict was kept; what was timed did not count.
    assert count.item() == 2.0
    assert asked == [OWN]
    served = f"inference: {OWN} is 1.50 times as fast, and runs"
    assert (str(told.graphs[0]) == served) == (ratio > 1)


def test_what_a_program_writes_to_is_restored() -> None:
    count, seen = torch.zeros(1), []

    def program(x: Any, count: Any) -> None:
        seen.append(count.item())
        count.add_(x)

    turn = torch_choice._turn(program, (torch.ones(1), count), HERE)
    assert turn.seconds(program) > 0
    assert set(seen) == {0.0}
    assert count.item() == 0.0


def test_what_shares_memory_is_not_timed() -> None:
    x = torch.rand(8)
    assert torch_choice._are_apart((x, torch.rand(8), 3, torch.empty(0), torch.empty(0)))
    assert not torch_choice._are_apart((x, x[2:]))


def test_a_rival_has_to_be_clearly_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing() -> torch_choice._Turn:
        return torch_choice._Turn((), (), HERE)

    says(monkeypatch, torch=1.01)
    rivals = {OWN: lambda: torch.tanh}
    assert torch_choice._fastest("a", torch.tanh, rivals, nothing, HERE) is None
    says(monkeypatch, torch=1.2)
    assert torch_choice._fastest("a", torch.tanh, rivals, nothing, HERE) is None  # it is kept
    found = torch_choice._fastest("b", torch.tanh, rivals, nothing, HERE)
    assert str(found) == f"{OWN} is 1.20 times as fast"


@pytest.mark.slow
def test_inductor_serves_where_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = says(monkeypatch, torch=1.1, TorchInductor=1.3)
    x, count = torch.rand(8), torch.zeros(1)
    chosen = options(tmp_path, inductor=True)
    with torch.no_grad():
        told = explain(Counting(), x, count, options=chosen)
    assert asked == [OWN, INDUCTOR]
    assert INDUCTOR in str(told)
    assert count.item() == 1.0
