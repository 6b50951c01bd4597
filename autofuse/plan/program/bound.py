"""How constants are bound to a program: plain numbers, which a plan that is served brings along."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Binding:
    """How constants are bound to a program: which inputs they are (`bound`, positions), which of
    these calls still read, bytes that are prepared for calls, and of workspace meanwhile."""

    bound: tuple[int, ...] = ()
    read: tuple[int, ...] = ()
    held: int = 0
    workspace: int = 0

    def free(self, items: Sequence[T]) -> tuple[T, ...]:
        """Of one item for each input those of inputs that are given to each call."""
        bound = frozenset(self.bound)
        return tuple(item for k, item in enumerate(items) if k not in bound)

    def chosen(self, items: Sequence[T]) -> tuple[T, ...]:
        """Of one item for each input those of constants."""
        return tuple(items[k] for k in self.bound)

    def together(self, constants: Sequence[T], others: Sequence[T]) -> tuple[T, ...]:
        """Inverse of both: one item for each input."""
        known, rest = dict(zip(self.bound, constants, strict=True)), iter(others)
        count = len(constants) + len(others)
        return tuple(known[k] if k in known else next(rest) for k in range(count))


NOTHING_BOUND = Binding()
