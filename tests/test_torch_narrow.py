"""PyTorch's products by weights of eight and four bits."""

from __future__ import annotations

from typing import Any

import pytest

import autofuse
from autofuse.frontends.errors import FrontendError
from autofuse.frontends.torch import quantised

torch = pytest.importorskip("torch")  # an extra of its own
BYTES = torch.arange(-64 * 32, 64 * 32).remainder(255).sub(127).to(torch.int8).reshape(64, 64)


def seeded(*shape: int) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def packed(columns: int) -> Any:
    """Weights of 64 terms as PyTorch packs them on this machine."""
    whole = torch.arange(columns * 64, dtype=torch.int32).mul(7).remainder(16)
    return torch.ops.aten._convert_weight_to_int4pack_for_cpu(whole.reshape(columns, 64), 1)


def four(x: Any, weights: Any, about: Any) -> Any:
    """A scale for 32 terms."""
    return torch.ops.aten._weight_int4pack_mm_for_cpu(x, weights, 32, about)


PROGRAMS = {
    "eight bits": (torch._weight_int8pack_mm, (seeded(3, 64), BYTES, seeded(64))),
    "four bits": (four, (seeded(3, 64), packed(64), seeded(2, 64, 2))),
    "products of bytes": (torch._int_mm, (BYTES[:20], BYTES)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_products_are_those_of_pytorch(name: str) -> None:
    program, given = PROGRAMS[name]
    graph = autofuse.from_torch(lambda *tensors: program(*tensors), *given)
    (found,) = autofuse.compile(graph, device="cpu")(*(t.numpy() for t in given))
    torch.testing.assert_close(torch.from_numpy(found), program(*given), rtol=1e-5, atol=1e-4)


def test_rows_that_do_not_lie_together_are_refused_by_name() -> None:
    width = quantised._TOGETHER.get(quantised._instructions(), 32)
    columns = width + width // 2
    given = (seeded(3, 64), packed(columns), seeded(2, columns, 2))
    with pytest.raises(FrontendError, match="rows of packed weights"):
        autofuse.from_torch(lambda *tensors: four(*tensors), *given)
