"""Case suites of which a run takes a part: those marked `wide`.

Which part is the same in every run, and drawn anew when exploring. The other cases are `slow`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import pytest

from tests.support.seeds import explored


def leave_the_rest(items: Sequence[pytest.Item]) -> None:
    """Of the cases of each test marked `wide(count)`, mark all but `count` as `slow`."""
    suites: dict[tuple[str, str], list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("wide") is not None:
            name = getattr(item, "originalname", item.name)
            suites.setdefault((str(item.path), name), []).append(item)
    for cases in suites.values():
        for item in sorted(cases, key=_order)[_count(cases[0]) :]:
            item.add_marker("slow")


def _count(item: pytest.Item) -> int:
    marker = item.get_closest_marker("wide")
    assert marker is not None
    (count,) = marker.args
    return int(count)


def _order(item: pytest.Item) -> bytes:
    return hashlib.sha256(f"{explored()} {item.name}".encode()).digest()
