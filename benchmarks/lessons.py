"""What a model is taught for a recorded space: the kernels of all other spaces."""

from __future__ import annotations

from collections.abc import Sequence

from autofuse.cost.features import group_features
from autofuse.tuning.learned import KernelSample, Lesson
from benchmarks.spaces import RecordedSpace


def lessons(space: RecordedSpace) -> tuple[Lesson, ...]:
    """Every kernel of a space that works, under its default configuration."""
    found: dict[str, Lesson] = {}
    for each in space.groups:
        launches = space.launches.get(each.key, ())
        if each.key in found or not launches:
            continue
        us = space.kernels[each.key, launches[0]].us
        if us is not None:
            features = group_features(space.graph, each.group, each.bound_us)
            found[each.key] = Lesson(
                each.key, space.name, KernelSample(features, each.bound_us), us
            )
    return tuple(found.values())


def lessons_of_others(spaces: Sequence[RecordedSpace]) -> list[tuple[Lesson, ...]]:
    """For each space the lessons of all others that were recorded in the same cache state."""
    own = [lessons(space) for space in spaces]
    return [
        tuple(
            lesson
            for other, taught in zip(spaces, own, strict=True)
            if other is not space and other.cache == space.cache
            for lesson in taught
        )
        for space in spaces
    ]
