"""Progress that never stands still: the last state is told again while one call takes long."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType

from autofuse.tuning.result import Progress

# Seconds after which a state is told again.
BEAT_S = 1.0


class Heartbeat:
    """A context manager; `told` gets every state, and at least one a second.

    `told` is called from one thread at a time, but not always the same one. What it raises is
    raised by the next `tell`."""

    def __init__(self, told: Callable[[Progress], None], left_s: Callable[[], float]) -> None:
        """`left_s` says how many seconds of the budget are left."""
        self._told, self._left_s = told, left_s
        self._lock = threading.Lock()
        self._last: Progress | None = None
        self._error: BaseException | None = None
        self._fresh, self._ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._beat, name="autofuse-progress", daemon=True)

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._fresh.set()
        self._thread.join()

    def tell(self, state: Progress) -> None:
        """Tell a new state now."""
        with self._lock:
            if self._error is not None:
                error, self._error = self._error, None
                raise error
            self._last = state
            self._fresh.set()
            self._told(state)

    def _beat(self) -> None:
        while not self._ended.is_set():
            if self._fresh.wait(BEAT_S):
                self._fresh.clear()
                continue
            with self._lock:
                self._repeat()

    def _repeat(self) -> None:
        if self._last is None or self._error is not None:
            return
        try:
            self._told(replace(self._last, left_s=self._left_s()))
        except BaseException as error:  # carried over to the session's own thread
            self._error = error
