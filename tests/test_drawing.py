"""Of a suite of cases that is wide a run takes a part, and leaves the others to `slow`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from tests.support import drawing


class Case:
    """What drawing asks of a collected case."""

    def __init__(self, name: str, *marks: pytest.Mark) -> None:
        self.path, self.originalname, self.name = Path("test_it.py"), name.partition("[")[0], name
        self.marks = {mark.name: mark for mark in marks}

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return self.marks.get(name)

    def add_marker(self, name: str) -> None:
        self.marks[name] = getattr(pytest.mark, name).mark


def slow(names: list[str], count: int = 3) -> set[str]:
    cases = [Case(name, pytest.mark.wide(count).mark) for name in names] + [Case("test_other")]
    drawing.leave_the_rest(cast(Any, cases))
    return {case.name for case in cases if "slow" in case.marks}


def test_all_but_so_many_are_left_and_the_same_in_any_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(drawing, "explored", lambda: None)
    names = [f"test_wide[{k}]" for k in range(10)]
    left = slow(names)
    assert len(left) == 7 and left <= set(names) and slow(names[::-1]) == left
    assert slow(names[:2]) == set()  # who asks for few gets them
    drawn = set()
    for seed in range(8):
        monkeypatch.setattr(drawing, "explored", lambda seed=seed: seed)
        drawn.add(frozenset(slow(names)))
    assert len(drawn) > 1  # exploring draws anew
