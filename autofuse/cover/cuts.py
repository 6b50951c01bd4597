"""Cuts that a fractional solution breaks, found by growing sets of values.

For a set C of values and any v of C: if v is written at all, then the first value of C to be
written comes from a piece that reads none of C. So the pieces that write into C and read nothing
of it add up to 1 (to y[v], where v may stay unwritten). A relaxation gets by with half of one piece
and half of another, each fed by the same half of a third; the set C that holds what both read
shows that the third is needed whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autofuse.cover.order import Values

# A cut has to be broken by this much to be worth a row.
VIOLATION = 0.02


class Support:
    """The pieces a fractional solution uses, with their shares."""

    def __init__(
        self, reads: Sequence[Values], writes: Sequence[Values], shares: Mapping[int, float]
    ) -> None:
        self.reads, self.writes, self.shares = reads, writes, shares
        self.writers: dict[int, list[int]] = {}
        for p in shares:
            for v in writes[p]:
                self.writers.setdefault(v, []).append(p)

    def grow(self, start: int, level: float) -> frozenset[int] | None:
        """A set with `start` whose first writers add up to less than `level`; None if not found."""
        inside = {start}
        crossing = {p for p in self.writers.get(start, ()) if start not in self.reads[p]}
        total = sum(self.shares[p] for p in crossing)
        best: tuple[float, frozenset[int]] = (level - VIOLATION, frozenset())
        while crossing:
            step = self._step(inside, crossing)
            if step is None:
                break
            change, value, fresh = step
            if total + change >= level + VIOLATION:
                break
            total += change
            inside.add(value)
            crossing = {p for p in crossing if value not in self.reads[p]} | fresh
            if total < best[0] - 1e-9:
                best = (total, frozenset(inside))
        return best[1] or None

    def _step(self, inside: set[int], crossing: set[int]) -> tuple[float, int, set[int]] | None:
        """The value whose taking in lowers the sum of the crossing pieces most."""
        saved: dict[int, float] = {}
        for p in sorted(crossing):
            for v in self.reads[p]:
                saved[v] = saved.get(v, 0.0) + self.shares[p]
        best: tuple[float, int, set[int]] | None = None
        for v, gain in saved.items():
            fresh = {
                p
                for p in self.writers.get(v, ())
                if p not in crossing and v not in self.reads[p] and inside.isdisjoint(self.reads[p])
            }
            change = sum(self.shares[p] for p in fresh) - gain
            if best is None or (change, v) < best[:2]:
                best = (change, v, fresh)
        return best


def broken_cuts(
    reads: Sequence[Values],
    writes: Sequence[Values],
    shares: Mapping[int, float],
    levels: Mapping[int, float],
) -> list[frozenset[int]]:
    """Value sets whose cuts the solution breaks; `levels`: how far each value is written."""
    support = Support(reads, writes, shares)
    found: dict[frozenset[int], None] = {}
    for v, level in levels.items():
        if level > 2 * VIOLATION:
            values = support.grow(v, level)
            if values is not None:
                found.setdefault(values)
    return list(found)
