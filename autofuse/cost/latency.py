"""How long scalar operations take from operand to result: what a chain of them is made of.

Latencies are measured once for a machine (`measure/calibrate/chains.py`), in nanoseconds, by name,
type and vector width: `add.f32.256`. At each width a kernel may run, so the least of them counts.
What is not in the table takes no time: moves, casts, choices, comparisons, minima, operations on
bits and on whole numbers, which compilers may drop, merge or guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from autofuse.cost.scalar_calls import FLOATS, least_ns
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import LIBM

# Operations of floats with a latency of their own, beside the functions of LIBM. A quotient and a
# root of f64 that is made f32 may be computed in f32.
PLAIN = ("add", "mul", "fma", "div", "sqrt", "rem")
# What is left of them where arithmetic may be reassociated: a sum may be taken elsewhere, a product
# too, and a quotient may be one.
FIXED = frozenset((*LIBM, "sqrt", "rem"))
Latencies = tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Delays:
    """The least latencies of one type, ns. `term`: of a product beyond the sum that it joins."""

    add: float = 0.0
    mul: float = 0.0
    fma: float = 0.0
    div: float = 0.0
    functions: tuple[tuple[str, float], ...] = ()

    @property
    def term(self) -> float:
        """A multiply-add of which the factors come last takes so much longer than a sum; in a tree
        of sums no product takes more than that (2^(t / add) of a node is never below the sum of
        those of its terms, as in Kraft's inequality)."""
        return max(0.0, min(self.mul, self.fma - self.add))

    @property
    def joining(self) -> float:
        """Of what is added to a product or a sum."""
        return min(self.add, self.fma)

    @property
    def scaling(self) -> float:
        """Of a product with a literal: twice a number is a sum."""
        return min(self.add, self.mul)

    def of(self, function: str) -> float:
        return dict(self.functions).get(function, 0.0)


NOTHING = Delays()


def _plain_as_narrow(own: Mapping[str, float], known: Mapping[str, float]) -> dict[str, float]:
    """Latencies of f64, of plain operations none above that of f32."""
    narrow = {n: known.get(f"{n}.{DType.F32}", ns) for n, ns in own.items()}
    return {n: min(ns, narrow[n]) if n in PLAIN else ns for n, ns in own.items()}


@lru_cache(maxsize=16)
def delays_of(latency: Latencies) -> dict[DType, Delays]:
    """The least latencies by type; nothing for a type that was not measured."""
    known = least_ns(latency)
    found = {}
    for dtype in FLOATS:
        own = {n.split(".")[0]: ns for n, ns in known.items() if n.endswith(f".{dtype}")}
        if dtype is DType.F64:
            own = _plain_as_narrow(own, known)
        functions = tuple(sorted((n, ns) for n, ns in own.items() if n in FIXED))
        add, mul, fma, div = (own.get(n, 0.0) for n in ("add", "mul", "fma", "div"))
        found[dtype] = Delays(add, mul, fma, div, functions)
    return found


def reassociated(latency: Latencies) -> Latencies:
    """Those that are left where arithmetic may be reassociated."""
    return tuple((name, ns) for name, ns in latency if name.split(".")[0] in FIXED)
