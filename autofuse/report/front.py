"""Which of many points are worth having."""

from __future__ import annotations

import math
from collections.abc import Sequence


def pareto(points: Sequence[tuple[float, float]]) -> tuple[int, ...]:
    """Positions of the points that no other beats or equals in both coordinates (less is better),
    by first coordinate; of equal points the first. Points that are not finite are left out."""
    order = sorted(
        (i for i, p in enumerate(points) if all(map(math.isfinite, p))),
        key=lambda i: (points[i], i),
    )
    front: list[int] = []
    for i in order:
        if not front or points[i][1] < points[front[-1]][1]:
            front.append(i)
    return tuple(front)
