"""`torch.compile(backend="autofuse")` keeps what PyTorch promises its programs."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")  # an extra of its own

from torch.utils._pytree import tree_leaves, tree_map  # noqa: E402 - after torch

from tests.support.torch_contract import CASES  # noqa: E402 - after torch


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()


def copied(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments with memory of their own, lying as these do; the same twice stays the same."""
    made: dict[int, Any] = {}

    def copy(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if id(leaf) not in made:
            storage = leaf.untyped_storage().clone()
            new = torch.empty(0, dtype=leaf.dtype).set_(
                storage, leaf.storage_offset(), leaf.shape, leaf.stride()
            )
            made[id(leaf)] = torch._neg_view(new) if leaf.is_neg() else new
        return made[id(leaf)]

    return tuple(tree_map(copy, arguments))


def described(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    strides = [s for n, s in zip(leaf.shape, leaf.stride(), strict=True) if n > 1]
    return leaf.dtype, tuple(leaf.shape), strides if leaf.numel() else None


def aliases(results: list[Any], arguments: list[Any]) -> list[tuple[int, int]]:
    """Which results share memory with which arguments and results."""
    tensors = [t for t in (*results, *arguments) if isinstance(t, torch.Tensor) and t.numel()]
    memory = [t.untyped_storage().data_ptr() for t in tensors]
    return [(i, memory.index(place)) for i, place in enumerate(memory)]


@pytest.mark.wide(20)
@pytest.mark.parametrize("name", CASES)
def test_compiled_as_eager(name: str) -> None:
    function, calls = CASES[name]
    compiled = torch.compile(function, backend="autofuse")
    for arguments in calls:
        mine, theirs = copied(arguments), copied(arguments)
        got, want = tree_leaves(compiled(*mine)), tree_leaves(function(*theirs))
        assert list(map(described, got)) == list(map(described, want))
        torch.testing.assert_close(got, want, equal_nan=True)
        torch.testing.assert_close(mine, theirs, equal_nan=True)
        assert aliases(got, tree_leaves(mine)) == aliases(want, tree_leaves(theirs))
