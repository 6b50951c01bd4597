"""Training under `torch.compile(backend="autofuse")`."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch")  # an extra of its own

from torch import nn  # noqa: E402 - after torch

from autofuse.interop.torch import partition as torch_partition  # noqa: E402 - after torch


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


class Attending(nn.Module):
    """A language model of one block."""

    def __init__(self, words: int = 11, width: int = 8) -> None:
        super().__init__()
        self.words, self.norm = nn.Embedding(words, width), nn.LayerNorm(width)
        self.together, self.out = nn.Linear(width, 3 * width), nn.Linear(width, words)

    def forward(self, tokens: Any, wanted: Any) -> Any:
        x = self.words(tokens)
        q, k, v = self.together(self.norm(x)).chunk(3, -1)
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        scores = self.out(x + nn.functional.gelu(attended))
        return nn.functional.cross_entropy(scores.flatten(0, 1), wanted.flatten())


class Convolving(nn.Module):
    """A classifier of images with statistics over the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.out = nn.Linear(4, 3)

    def forward(self, images: Any, wanted: Any) -> Any:
        x = torch.relu(self.norm(self.first(images)))
        x = nn.functional.max_pool2d(x, 2).mean((2, 3))
        return nn.functional.cross_entropy(self.out(x), wanted)


def sample(model: type) -> tuple[Any, Any, Any]:
    if model is Attending:
        return Attending(), torch.randint(0, 11, (2, 5)), torch.randint(0, 11, (2, 5))
    return Convolving(), torch.rand(3, 2, 6, 6), torch.randint(0, 3, (3,))


def losses(model: Any, given: Any, wanted: Any, compiled: bool, **options: Any) -> list[float]:
    model = copy.deepcopy(model)
    step = torch.optim.AdamW(model.parameters(), 1e-2)
    function = torch.compile(model, backend="autofuse", options=options) if compiled else model
    found = []
    for _ in range(4):
        loss = function(given, wanted)
        loss.backward()
        step.step()
        step.zero_grad()
        found.append(loss.item())
    return found


@pytest.mark.parametrize("model", [Attending, Convolving])
def test_losses_are_those_of_eager(model: type) -> None:
    made = sample(model)
    eager = losses(*made, compiled=False)
    assert eager[-1] < eager[0]
    assert losses(*made, compiled=True) == pytest.approx(eager, rel=1e-4)


def test_less_memory_means_fewer_bytes_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[int] = []
    saved_values = torch_partition.saved_values

    def counting(*given: Any) -> Any:
        found = saved_values(*given)
        tensors = [n.meta["val"] for n in found if n.op != "placeholder"]
        kept.append(sum(t.numel() * t.element_size() for t in tensors))
        return found

    monkeypatch.setattr(torch_partition, "saved_values", counting)
    made = sample(Convolving)
    eager = losses(*made, compiled=False)
    assert losses(*made, compiled=True) == pytest.approx(eager, rel=1e-4)
    torch._dynamo.reset()
    limit = kept[0] * 6 // 10
    assert losses(*made, compiled=True, max_memory=limit) == pytest.approx(eager, rel=1e-4)
    assert kept[0] > 0
    assert kept[1] <= limit


def test_a_step_of_an_optimiser_is_a_plan() -> None:
    made = [nn.Parameter(torch.rand(n, 3)) for n in (2, 4)]
    other = [nn.Parameter(p.detach().clone()) for p in made]
    mine, theirs = (torch.optim.Adam(p, 1e-2, capturable=False) for p in (made, other))
    compiled = torch.compile(mine.step, backend="autofuse")
    for round_ in range(3):
        for p, q in zip(made, other, strict=True):
            p.grad = torch.full_like(p, 0.1 + round_)
            q.grad = p.grad.clone()
        compiled()
        theirs.step()
    torch.testing.assert_close(made, other)
