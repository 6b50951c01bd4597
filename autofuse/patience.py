"""Work that takes as long as there is patience for: what is deep inside asks, and need not be told.

Rules, legality, bounds and lowering of a large network take minutes, and each is many calls of a
few functions. These `look` whether anybody still waits; where nobody does, `CalledOffError` leaves
everything up to `within`. Like a cancelled task it is no `Exception`: what guards against faults of
planners does not stop it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")
_IS_OVER: ContextVar[Callable[[], bool] | None] = ContextVar("autofuse_patience", default=None)


class CalledOffError(BaseException):
    """Nobody waits for this work any more."""


def within(is_over: Callable[[], bool], work: Callable[[], T]) -> T | None:
    """What `work` gives; None where it was called off because `is_over`, or because patience with
    what it is a part of is."""
    outer = _IS_OVER.get()
    token = _IS_OVER.set(is_over if outer is None else lambda: outer() or is_over())
    try:
        return work()
    except CalledOffError:
        return None
    finally:
        _IS_OVER.reset(token)


def look() -> None:
    """Raises CalledOffError where this work has been called off."""
    is_over = _IS_OVER.get()
    if is_over is not None and is_over():
        raise CalledOffError
