"""Bytes of a workspace, lent to values that live at different times."""

from __future__ import annotations

from autofuse.plan.program.steps import Ref

ALIGN = 64


class Arena:
    """Workspace bytes handed out first-fit and taken back."""

    def __init__(self, space: str = "work") -> None:
        self.space = space
        self.live: dict[int, int] = {}
        self.peak = 0

    def take(self, nbytes: int) -> Ref:
        size = max(1, -(-nbytes // ALIGN)) * ALIGN  # empty arrays too have a place of their own
        at = 0
        for start in sorted(self.live):
            if start - at >= size:
                break
            at = start + self.live[start]
        self.live[at] = size
        self.peak = max(self.peak, at + size)
        return Ref(self.space, offset=at)

    def give(self, ref: Ref) -> None:
        del self.live[ref.offset]
