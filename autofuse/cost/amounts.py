"""How much a kernel does: bytes and operations by class."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import add, attrgetter


@dataclass(frozen=True, slots=True)
class Work:
    """The least a kernel moves (bytes) and computes (operations by class); contractions are apart
    whose operands are `wide` (f64) or `narrow` (below 4 bytes), or whole numbers of one `byte`.

    `calls` are scalar functions by name (see `scalar_calls.py`) and how often they are computed;
    `called_cheap` and `called_special` are the operations among `cheap` and `special` that these
    stand for where their own times are known."""

    nbytes: float = 0.0
    cheap: float = 0.0
    special: float = 0.0
    contraction: float = 0.0
    wide: float = 0.0
    narrow: float = 0.0
    byte: float = 0.0
    called_cheap: float = 0.0
    called_special: float = 0.0
    calls: tuple[tuple[str, float], ...] = field(default=(), kw_only=True)

    def __add__(self, other: Work) -> Work:
        totals = map(add, _parts(self), _parts(other))
        if not (self.calls and other.calls):
            return Work(*totals, calls=self.calls or other.calls)
        counts = Counter(dict(self.calls))
        counts.update(dict(other.calls))
        return Work(*totals, calls=tuple(sorted(counts.items())))

    def computing(self, times: float) -> Work:
        """The arithmetic alone, `times` over."""
        _, *counts = _parts(self)
        calls = tuple((name, count * times) for name, count in self.calls)
        return Work(0.0, *(count * times for count in counts), calls=calls)

    @property
    def products(self) -> float:
        """Operations of all contractions."""
        return math.fsum(getattr(self, kind) for kind in PRODUCTS)


# The classes of operations, in the order of `Work`.
PRODUCTS = ("contraction", "wide", "narrow", "byte")
KINDS = ("cheap", "special", *PRODUCTS)


_parts: Callable[[Work], tuple[float, ...]] = attrgetter(
    "nbytes", *KINDS, "called_cheap", "called_special"
)
