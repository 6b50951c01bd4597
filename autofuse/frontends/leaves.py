"""What front ends that trace pytrees of arrays share: names of leaves, ranges of their values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from autofuse.ops.dtypes import DType


def range_of(leaf: Any, dtype: DType) -> tuple[float | None, float | None]:
    """The range of an example's values; none for abstract, constant or unsigned ones."""
    if not (dtype.is_float or dtype.is_signed) or not hasattr(leaf, "__array__"):
        return None, None
    values = np.asarray(leaf)
    if values.size == 0 or not np.isfinite(values.astype(np.float64)).all():
        return None, None
    low, high = values.min().item(), values.max().item()
    return (low, high) if low < high else (None, None)


def label_of(base: str, path: Sequence[Any]) -> str:
    """base_key_0: what leads to a leaf, in letters that graph files allow in names."""
    steps = [base]
    for step in path:
        part = next(getattr(step, a) for a in ("key", "idx", "name") if hasattr(step, a))
        steps.append(re.sub(r"[^A-Za-z0-9_]", "_", str(part)))
    return "_".join(steps)


def unique_names(names: Sequence[str]) -> list[str]:
    """The names, repeated ones numbered."""
    found: list[str] = []
    for name in names:
        number, candidate = 2, name
        while candidate in found:
            number, candidate = number + 1, f"{name}_{number}"
        found.append(candidate)
    return found
