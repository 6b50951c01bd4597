"""Connected parts of a graph of numbered vertices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from autofuse.order import post_order


def components(
    size: int, links: Sequence[tuple[int, int]], connection: Literal["weak", "strong"]
) -> NDArray[np.int32]:
    """The part, i32[size], that each vertex is in.

    Own code, since SciPy's takes longer to import than most problems take to solve. Strong parts
    by the reversed graph in the order of the last visits (Kosaraju; Sharir, 1981).
    """
    after: list[list[int]] = [[] for _ in range(size)]
    before: list[list[int]] = [[] for _ in range(size)]
    for a, b in links:
        after[a].append(b)
        before[b].append(a)
    if connection == "weak":
        both = [a + b for a, b in zip(after, before, strict=True)]
        return _labelled(range(size), both)
    last = tuple(post_order(range(size), after.__getitem__))
    return _labelled(reversed(last), before)


def _labelled(starts: Iterable[int], near: Sequence[Sequence[int]]) -> NDArray[np.int32]:
    """What is reached from each start and from none before it."""
    labels = [-1] * len(near)
    part = 0
    for start in starts:
        if labels[start] >= 0:
            continue
        labels[start] = part
        stack = [start]
        while stack:
            for other in near[stack.pop()]:
                if labels[other] < 0:
                    labels[other] = part
                    stack.append(other)
        part += 1
    return np.array(labels, dtype=np.int32)
