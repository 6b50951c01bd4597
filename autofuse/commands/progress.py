"""A tuning session seen and stopped from a terminal."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from autofuse.commands.common import INTERRUPTED
from autofuse.commands.output import duration

if TYPE_CHECKING:
    from autofuse.tuning import Progress


class StopSignals:
    """While it is entered, the first SIGINT or SIGTERM makes calling it True, the second raises
    KeyboardInterrupt, and one more ends the process at once."""

    _SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.seen = 0
        self._before: dict[int, Any] = {}

    def __call__(self) -> bool:
        return self.seen > 0

    def __enter__(self) -> StopSignals:
        for number in self._SIGNALS:
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.seen += 1
        if self.seen == 1:
            # os.write: the signal may have come in the middle of a print.
            os.write(2, b"autofuse: stopping, what was found is kept (once more aborts)\n")
        elif self.seen == 2:
            raise KeyboardInterrupt
        else:
            os._exit(INTERRUPTED)


@contextmanager
def shown_progress() -> Iterator[Callable[[Progress], None] | None]:
    """A function that shows the state of a session on stderr; None where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(stderr=True)
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        yield lambda progress: live.update(Text(progress_line(progress)))


def progress_line(progress: Progress) -> str:
    """Best so far against the baseline, trials, failures by kind, budget left."""
    parts = [f"best {duration(progress.best_us)}"]
    if progress.best_us and progress.baseline_us:
        factor = progress.baseline_us / progress.best_us
        parts[0] += f" ({factor:.2f}x {progress.baseline})"
    parts.append(f"{progress.trials} trials, {progress.measured} measured")
    if progress.proof.search_gap is not None:
        parts.append(f"gap of this search {progress.proof.search_gap:.1%}")
    if progress.bound_gap is not None:
        parts.append(f"to the bound {progress.bound_gap:.1%}")
    if progress.failed:
        kinds = ", ".join(f"{n} {kind}" for kind, n in sorted(progress.failed.items()))
        parts.append(f"failed: {kinds}")
    parts.append(f"{max(0.0, progress.left_s):.0f} s left")
    parts.append(progress.phase)
    return " | ".join(part for part in parts if part)
