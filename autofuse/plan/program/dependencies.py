"""dependencies: which steps must be over before another begins, from the bytes that each touches.

Arrays whose lifetimes do not overlap share bytes of the workspace, so steps that have no value in
common may still have to stay in order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

# A step is left out of what another waits for if something that comes after it is waited for
# anyway, as far as it is at most so many steps back: farther ones may be named needlessly.
WINDOW = 1024
_NEVER = -1


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Bytes `start` to `end` of a memory, which shares nothing with other memories."""

    memory: tuple[str, int]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Access:
    """What a step touches; a span that is written may be read as well."""

    reads: tuple[ByteRange, ...]
    writes: tuple[ByteRange, ...]


def dependencies(steps: Sequence[Access]) -> tuple[tuple[int, ...], ...]:
    """For every step the earlier ones that it comes after at once, the last one first.

    Two steps that touch a byte, at least one of them writing it, are in order, if only through
    others between them; no other two are."""
    written = {span.memory for step in steps for span in step.writes}
    memories = {memory: _Memory() for memory in written}
    found: list[tuple[int, ...]] = []
    # Of each step those before it, near and far: bit k is the one k + 1 steps back.
    before: list[int] = []
    for n, step in enumerate(steps):
        after: set[int] = set()
        for span in step.reads:
            # What is never written can be read in any order.
            if span.memory in written:
                after |= memories[span.memory].read(span, n)
        for span in step.writes:
            after |= memories[span.memory].write(span, n)
        needed, bits = _needed(n, after - {n, _NEVER}, before)
        found.append(needed)
        before.append(bits)
    return tuple(found)


def _needed(n: int, after: set[int], before: list[int]) -> tuple[tuple[int, ...], int]:
    """Those of `after` that do not follow from the rest, and all that come before step `n`."""
    needed, bits = [], 0
    for m in sorted(after, reverse=True):
        if not bits >> (n - m - 1) & 1:
            needed.append(m)
            bits |= (before[m] << 1 | 1) << (n - m - 1)
    return tuple(needed), bits & ((1 << WINDOW) - 1)


class _Memory:
    """Who touched what last, in pieces of which each begins at one of `starts`."""

    def __init__(self) -> None:
        self.starts = [0]
        # The step that wrote a piece, and those that have read it since.
        self.pieces: list[tuple[int, list[int]]] = [(_NEVER, [])]

    def _cut(self, at: int) -> int:
        """The number of the piece that begins there."""
        k = bisect_left(self.starts, at)
        if k == len(self.starts) or self.starts[k] != at:
            writer, readers = self.pieces[k - 1]
            self.starts.insert(k, at)
            self.pieces.insert(k, (writer, list(readers)))
        return k

    def _pieces(self, span: ByteRange) -> range:
        if span.start >= span.end:
            return range(0)
        first = self._cut(span.start)
        return range(first, self._cut(span.end))

    def read(self, span: ByteRange, step: int) -> set[int]:
        after = set()
        for k in self._pieces(span):
            writer, readers = self.pieces[k]
            after.add(writer)
            readers.append(step)
        return after

    def write(self, span: ByteRange, step: int) -> set[int]:
        own = self._pieces(span)
        after = {s for k in own for s in (self.pieces[k][0], *self.pieces[k][1])}
        if own:
            self.starts[own.start : own.stop] = [span.start]
            self.pieces[own.start : own.stop] = [(step, [])]
        return after
