"""Where an op is defined: for which operands its results are numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

# Both ends included.
Interval = tuple[float, float]
ANY: Interval = (-math.inf, math.inf)
# How far inside numbers are drawn: next to an end results are large, and ill-conditioned.
_INSIDE = 0.125
POSITIVE: Interval = (_INSIDE, math.inf)


@dataclass(frozen=True, slots=True)
class Domain:
    """Of one operand of floats: results are no NaN in `where`, and well-conditioned in `inside`.
    With `mirrored`, in the negative of `where` too; `unless` the operand of this number is one
    whole number that is not negative, too, anywhere."""

    where: Interval
    inside: Interval
    mirrored: bool = False
    unless: int | None = None

    def holds(self, operand: int, known: Sequence[Interval]) -> bool:
        """Whether an op is defined for all values that are known of this operand."""
        values = known[operand]
        if within(values, self.where):
            return True
        if self.unless is not None:
            first, last = known[self.unless]
            return first == last and first.is_integer() and first >= 0
        return self.mirrored and within((-values[1], -values[0]), self.where)


def within(values: Interval, wanted: Interval) -> bool:
    """Whether one interval lies in another."""
    return wanted[0] <= values[0] and values[1] <= wanted[1]


_ROOT = Domain((0.0, math.inf), POSITIVE)
_DIVISOR = Domain((0.0, math.inf), POSITIVE, mirrored=True)
_ARC = Domain((-1.0, 1.0), (_INSIDE - 1, 1 - _INSIDE))
# Of ops by name, by operand.
DOMAINS: Mapping[str, Mapping[int, Domain]] = {
    "sqrt": {0: _ROOT},
    "rsqrt": {0: _ROOT},
    "log": {0: _ROOT},
    "log1p": {0: Domain((-1.0, math.inf), (_INSIDE - 1, math.inf))},
    "asin": {0: _ARC},
    "acos": {0: _ARC},
    "reciprocal": {0: _DIVISOR},
    "div": {1: _DIVISOR},
    "rem": {1: _DIVISOR},
    "pow": {0: replace(_ROOT, unless=1)},
}
