"""Where two plans differ in what they move, and who computes what libraries could."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autofuse.records import Account, Trip
from autofuse.units import plural


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


def gains(best: Account, rival: Account) -> tuple[Gain, ...]:
    """Every value for which the plans move different numbers of bytes, the largest first. The
    savings add up to the difference of the plans."""
    ours: Mapping[str, Trip] = {c.place: c for c in best.trips}
    theirs: Mapping[str, Trip] = {c.place: c for c in rival.trips}
    differing = []
    for place in dict.fromkeys([*theirs, *ours]):
        one, other = ours.get(place), theirs.get(place)
        saved = (other.bytes if other else 0) - (one.bytes if one else 0)
        known = one or other
        if saved and known is not None:
            differing.append(Gain(place, known.op, known.type, _words(other), _words(one), saved))
    return tuple(sorted(differing, key=lambda g: (-abs(g.saved_bytes), g.place)))


def _words(trip: Trip | None) -> str:
    if trip is None:
        return "kept inside a kernel"
    kernels = plural(trip.readers, "kernel")
    if trip.source:
        return f"read by {kernels}"
    return f"stored, read by {kernels}" if trip.readers else "stored as a result"
