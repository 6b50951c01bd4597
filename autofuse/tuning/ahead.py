"""Compiling in the background while planning goes on, and never while anything is timed.

A planner keeps one processor busy and a compiler the others: what is known to be built next is
compiled meanwhile, and is found in the build cache when it is asked for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from threading import Event, Thread
from typing import Generic, TypeVar

T = TypeVar("T")


class Background(Generic[T]):
    """Builds one thing after another in a thread of its own. What goes wrong is said by who builds
    it again."""

    def __init__(self, build: Callable[[T], object]) -> None:
        """`build` compiles one, for later, and raises nothing."""
        self._build = build
        self._thread: Thread | None = None
        self._called_off = Event()

    @property
    def is_busy(self) -> bool:
        """Whether something is being built."""
        return self._thread is not None and self._thread.is_alive()

    def begin(self, them: Sequence[T]) -> None:
        """Build these meanwhile, once what is being built is done."""
        self.settle()
        self._called_off.clear()
        self._thread = Thread(target=self._run, args=(tuple(them),), daemon=True)
        self._thread.start()

    def _run(self, them: Sequence[T]) -> None:
        for one in them:
            if self._called_off.is_set():
                return
            self._build(one)

    def settle(self) -> float:
        """Wait until what is being built is there; the others are given up. Seconds waited."""
        begun = time.perf_counter()
        self._called_off.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        return time.perf_counter() - begun
