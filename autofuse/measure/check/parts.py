"""What an output is against its reference, part by part: the definition, in NumPy.

The same in compiled code is `compiled_parts.py`. A verdict is made of parts by `check`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

# Elements of a part: passes over whole arrays of temporaries would take most of the time.
PART = 1 << 16
ANY_FINITE = np.float32(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class Held:
    """What a flat output is held to: `expected` (float64, or the output's own dtype where it is
    `exact`) and `tolerance` (float32) of each element, and of all of them the root mean square and
    the norm."""

    expected: np.ndarray
    tolerance: np.ndarray
    rms: float
    norm: float
    exact: bool


@dataclass(frozen=True, slots=True)
class HeldPart:
    """One part of an output. `worst` is the largest |out - ref| / (|ref| + rms) and `square` the
    sum of (|out - ref| / norm)^2 of elements that are within bounds and not excused; `beyond` are
    out of bounds, the first of them at `first`; at `broken` is the first that is non-finite where
    the reference is finite and stable. Positions are of the whole output, -1 where there is none.
    """

    worst: float = 0.0
    square: float = 0.0
    beyond: int = 0
    first: int = -1
    broken: int = -1


HeldParts = Callable[[np.ndarray, Held], Iterable[HeldPart]]


def slices(size: int) -> Iterator[slice]:
    """The parts of a flat array."""
    for start in range(0, size, PART):
        yield slice(start, min(size, start + PART))


def numpy_parts(flat: np.ndarray, held: Held) -> Iterator[HeldPart]:
    """The parts of a flat output, in order."""
    part = _exact_part if held.exact else _float_part
    for where in slices(flat.size):
        yield part(flat[where], held, where)


def _exact_part(values: np.ndarray, held: Held, where: slice) -> HeldPart:
    # As bytes, because a bool array may hold bytes that are neither 0 nor 1.
    width = (-1, values.itemsize)
    rows = (a.view(np.uint8).reshape(width) for a in (values, held.expected[where]))
    differ = np.not_equal(*rows).any(axis=1)
    wrong = np.flatnonzero(differ & (held.tolerance[where] < ANY_FINITE))
    return HeldPart(beyond=int(wrong.size), first=_position(wrong, where))


def _float_part(values: np.ndarray, held: Held, where: slice) -> HeldPart:
    expected, tolerance = held.expected[where], held.tolerance[where]
    with np.errstate(all="ignore"):
        values = values.astype(np.float64)
        error = np.abs(values - expected)
        bad = np.flatnonzero(~(error <= tolerance))
        got, ref, room = values[bad], expected[bad], tolerance[bad]
        alike = (got == ref) | (np.isnan(got) & np.isnan(ref)) | np.isinf(room)
        wild = bad[~np.isfinite(got) & np.isfinite(ref) & ~alike]
        error[bad] = 0.0
        error[tolerance >= ANY_FINITE] = 0.0
        ratio = error / np.maximum(np.abs(expected) + held.rms, np.finfo(np.float64).tiny)
        worst = float(np.fmax.reduce(ratio, initial=0.0))
        square = float(np.sum((error / held.norm) ** 2)) if held.norm > 0 else 0.0
    beyond = bad[~alike]
    places = _position(beyond, where), _position(wild, where)
    return HeldPart(worst, square, int(beyond.size), *places)


def _position(found: np.ndarray, where: slice) -> int:
    return where.start + int(found[0]) if found.size else -1
