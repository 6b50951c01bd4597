"""Whether warpgroups with tiles of their own, of which one computes what follows its tile while
another multiplies (`pingpong`), are worth it: such tiles are smaller, so what they load takes more
time than products do, of shared memory, and if a multiprocessor gets no more of it than is usually
reckoned, of the second-level cache.

The clocks of the busiest multiprocessor, in the terms of `benchmarks/tensor_model.py`: for each
tile that all multiply together its terms, and the first run and the results, which nothing hides;
of groups that take turns the results of the last tile alone are not hidden, as long as they take
less than its terms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from autofuse.kernel.cuda.mma import BANKS_BYTES
from autofuse.kernel.cuda.wgmma import ALONE, GROUP, LINE_BYTES
from autofuse.kernel.ir.instructions import by_group
from autofuse.plan.parameters import BLOCK_THREADS, BLOCKS, MMA, PINGPONG, Setting
from search_spaces.cuda_limits import DeviceLimits
from search_spaces.cuda_multiply import L2_BYTES, Multiplying
from search_spaces.tile_facts import TileFacts

# Bytes a clock that a multiprocessor has of memory, as is usually reckoned; the relative step of
# results of 16 bits.
MEMORY_BYTES, HALF_EPS = 16, 2.0**-10
SUM_BYTES = 4


def may_take_turns(facts: TileFacts, own: Mapping[str, Setting]) -> bool:
    """Whether groups may have tiles of their own: several multiply, and what follows is computed
    for each tile."""
    groups = int(own[BLOCK_THREADS.name]) // GROUP - 1
    alone = by_group(str(own.get(MMA.name))) and groups > 1 and not own.get(BLOCKS.name)
    return alone and not facts.local


def working(own: Mapping[str, Setting]) -> int:
    """Threads that have a tile together, and those that fetch for them."""
    return ALONE if own.get(PINGPONG.name) else int(own[BLOCK_THREADS.name])


def least_clocks(
    tiles: Iterable[tuple[float, int, int, str]], facts: TileFacts, limits: DeviceLimits,
    by: Multiplying, turns: bool, cached: bool,
) -> float:  # fmt: skip
    """Of the best of tiles: terms of the busiest multiprocessor, in which parts of tiles are
    counted as they are, rows, columns and name; infinite where there are none. `cached`: the
    second-level cache counts."""
    assert facts.factors is not None
    rate = limits.halves * 2 / facts.factors.itemsize
    best = float("inf")
    for terms, rows, columns, _ in tiles:
        area = rows * columns
        each = area / rate * by.loads(rows, columns, ALONE, limits.halves)
        brought = (rows + columns) * facts.factors.itemsize / L2_BYTES
        each = max(each, brought * cached)
        first = LINE_BYTES / facts.factors.itemsize * each
        result = facts.beside * (2 if facts.eps >= HALF_EPS else SUM_BYTES)
        after = area * (2 * SUM_BYTES / BANKS_BYTES + result / MEMORY_BYTES)
        count = -(-terms // facts.terms)
        if turns:
            clocks = count * max(facts.terms * each, after) + first + after
        else:
            clocks = terms * each + count * (first + after)
        best = min(best, clocks)
    return best
