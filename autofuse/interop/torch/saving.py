"""Store or rematerialise: which values of a forward graph are kept for the backward graph.

The best choice under a bound of memory is the solution of a 0/1 program, as in Checkmate (Jain et
al., MLSys 2020) without its schedule: a value that the backward graph needs is kept, which costs a
write and a read of memory, or computed again from others that it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autofuse.cover.highs import solve_integer
from autofuse.cover.rows import Row, Rows
from autofuse.errors import AutofuseError

# A program of thousands of values is solved in less; what was found by then is good enough.
_MOST_S = 10.0
# What is there in any case is still not kept without need.
_LEAST_US = 1e-3


@dataclass(frozen=True, slots=True)
class Worth:
    """A value of the forward graph: bytes and microseconds that keeping it costs (None: it cannot
    be kept), microseconds that computing it again costs (None: it cannot be), the values that takes
    (by number, all smaller), whether the backward graph reads it, and whether the results of the
    forward graph take it, which computes it in any case then."""

    nbytes: int
    keep_us: float | None
    again_us: float | None
    operands: tuple[int, ...]
    is_read: bool
    is_forward: bool = True


def kept(values: Sequence[Worth], max_bytes: int | None) -> tuple[int, ...]:
    """The values to keep, ascending, such that all that are read can be had, in the least time
    within so many bytes. Raises AutofuseError where no choice fits, saying what would."""
    count = len(values)
    keeping = [max(v.keep_us or 0.0, _LEAST_US) for v in values]
    again = [v.again_us or 0.0 for v in values]
    ahead = [0.0 if v.is_forward else v.again_us or 0.0 for v in values]
    costs = np.array(keeping + again + ahead)
    rows = [Row((i, count + i), (1.0, 1.0), 1.0) for i, v in enumerate(values) if v.is_read]
    for i, value in enumerate(values):
        rows += [Row((u, count + u, count + i), (1.0, 1.0, -1.0), 0.0) for u in set(value.operands)]
        rows += [Row((i,), (-1.0,), 0.0)] if value.keep_us is None else []
        rows += [Row((count + i,), (-1.0,), 0.0)] if value.again_us is None else []
        if not value.is_forward:
            # Kept, or taken by what is, it is computed ahead, in the forward graph.
            rows.append(Row((2 * count + i, i), (1.0, -1.0), 0.0))
            rows += [Row((2 * count + u, 2 * count + i), (1.0, -1.0), 0.0)
                     for u in set(value.operands) if not values[u].is_forward]  # fmt: skip
    sizes = tuple(float(v.nbytes) for v in values)
    if max_bytes is not None:
        within = Row(tuple(range(count)), tuple(-s for s in sizes), -float(max_bytes))
        found = _solved([*rows, within], costs, count)
        if found is None:
            least = _solved(rows, np.array([*sizes, *np.zeros(2 * count)]), count)
            needed = "no choice can" if least is None else f"{_bytes(values, least)} bytes would"
            raise AutofuseError(f"max_memory of {max_bytes} bytes is too little: {needed} do")
        return found
    found = _solved(rows, costs, count)
    if found is None:
        raise AutofuseError("the backward graph reads what can neither be kept nor computed again")
    return found


def _bytes(values: Sequence[Worth], chosen: Sequence[int]) -> int:
    return sum(values[i].nbytes for i in chosen)


def _solved(rows: Sequence[Row], costs: np.ndarray, count: int) -> tuple[int, ...] | None:
    if not rows:
        return ()
    found = solve_integer(Rows.of(rows, 3 * count), costs, 3 * count, _MOST_S)
    return None if found is None else tuple(int(i) for i in np.flatnonzero(found.x[:count] > 0.5))
