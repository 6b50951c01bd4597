"""What models of PyTorch give: their tensors, how far these are off, and what we told meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from autofuse.interop.torch.backend import reports
from autofuse.interop.torch.report import GraphReport


def floats(given: Any) -> list[Tensor]:
    """The tensors of floats of what a model returns."""
    from torch.utils._pytree import tree_leaves

    items = given.to_tuple() if hasattr(given, "to_tuple") else given
    return [t for t in tree_leaves(items) if isinstance(t, Tensor) and t.is_floating_point()]


def largest_error(got: Sequence[Tensor], want: Sequence[Tensor]) -> float:
    """The largest difference of any result, in parts of its largest element."""
    pairs = zip(got, want, strict=True)
    return max(float((g - w).abs().max() / w.abs().max().clamp_min(1e-30)) for g, w in pairs)


@contextmanager
def reported(found: list[GraphReport]) -> Iterator[None]:
    """Reports of graphs that are compiled meanwhile are added to `found`."""
    token = reports.set(found)
    try:
        yield
    finally:
        reports.reset(token)
