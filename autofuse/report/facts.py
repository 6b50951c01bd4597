"""What is known of a plan apart from its time, and where two plans differ in what they move."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Crossing:
    """One value's trips through memory per call of a plan: bytes written by its kernel and read by
    its `readers`. `place` names it; `source`: it is an input or constant of the graph."""

    place: str
    op: str
    type: str
    source: bool
    written_bytes: int
    read_bytes: int
    readers: int

    @property
    def bytes(self) -> int:
        return self.written_bytes + self.read_bytes


@dataclass(frozen=True, slots=True)
class PlanFacts:
    """Per call of a plan. The bytes of `crossings` add up to all bytes moved. `recomputed` counts
    computations of nodes beyond the first, `recomputed_flops` their arithmetic; `peak_bytes` are
    intermediates alive at once."""

    kernels: int
    launches: int
    read_bytes: int
    written_bytes: int
    flops: float
    recomputed: int
    recomputed_flops: float
    peak_bytes: int
    crossings: tuple[Crossing, ...]

    @property
    def bytes(self) -> int:
        return self.read_bytes + self.written_bytes


@dataclass(frozen=True, slots=True)
class Implemented:
    """A product or convolution that is a kernel of its own in the best plan: who computes it, the
    least microseconds of each that was timed, fastest first, and how many times as long the best of
    the others takes (None: nobody else, or not who was chosen, was timed)."""

    place: str
    op: str
    type: str
    chosen: str
    times: tuple[tuple[str, float], ...]
    ahead: float | None


@dataclass(frozen=True, slots=True)
class Gain:
    """A boundary decision in which two plans differ: bytes that the better plan moves less for one
    value (negative: more), and in words what each does with it."""

    place: str
    what: str
    type: str
    rival: str
    best: str
    saved_bytes: int


def gains(best: PlanFacts, rival: PlanFacts) -> tuple[Gain, ...]:
    """Every value for which the plans move different numbers of bytes, the largest first. The
    savings add up to the difference of the plans."""
    ours: Mapping[str, Crossing] = {c.place: c for c in best.crossings}
    theirs: Mapping[str, Crossing] = {c.place: c for c in rival.crossings}
    found = []
    for place in dict.fromkeys([*theirs, *ours]):
        one, other = ours.get(place), theirs.get(place)
        saved = (other.bytes if other else 0) - (one.bytes if one else 0)
        known = one or other
        if saved and known is not None:
            found.append(Gain(place, known.op, known.type, _words(other), _words(one), saved))
    return tuple(sorted(found, key=lambda g: (-abs(g.saved_bytes), g.place)))


def _words(found: Crossing | None) -> str:
    if found is None:
        return "kept inside a kernel"
    kernels = f"{found.readers} kernel{'' if found.readers == 1 else 's'}"
    if found.source:
        return f"read by {kernels}"
    return f"stored, read by {kernels}" if found.readers else "stored as a result"
