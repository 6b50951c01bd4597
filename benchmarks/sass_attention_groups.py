"""What attention by warpgroups does for one block of keys, read out of its machine code, and the
clocks that it keeps each unit of a multiprocessor busy. With rows of `groups` that multiply, and

    tensor  = products * 64 * columns * 16 multiply-adds / those of a clock
    shared  = bytes that products read, and bytes copied / 128 a clock
    second  = bytes copied / what a multiprocessor gets of the second-level cache in a clock
    special = results of special functions / 16 a clock
    issue   = instructions of all warps, of those that fetch too / 4 a clock
    group   = what one group does, one after another: its products, and its own instructions, of
              which each of its four warps issues one a clock

It waits for its own products, so two groups hide each other's softmax at best; a block that is
alone on its multiprocessor has nobody who hides its queries' arrival and its results' way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autofuse.backends.cuda.devices import Target
from autofuse.kernel.cuda.wgmma import ROWS, STEP_BYTES, WARPS
from benchmarks.sass_model import SCHEDULERS
from benchmarks.sass_tensor import AHEAD, ARRIVE, BY_GROUP, PIECE, WAIT, WARP
from benchmarks.tensor_model import BANKS_BYTES
from search_spaces.cuda_multiply import L2_BYTES

# A product whose left factor is in registers.
BY_WORDS = 0xDF0
SPECIAL, SPECIAL_RATE = 0x308, 16


@dataclass(frozen=True, slots=True)
class GroupLoop:
    """What a warp that multiplies does for a block of keys: products of queries and keys, and those
    with values, results of special functions, instructions; and the copies and instructions of a
    warp that fetches."""

    first: int
    second: int
    special: int
    instructions: int
    copies: int
    fetching: int


def group_loops(made: Sequence[int]) -> list[GroupLoop]:
    """Each loop over blocks of keys, the operations of a kernel in order: from the wait for keys to
    the arrival that gives the place of values back, and the turn of who fetches."""
    copied = [k for k, operation in enumerate(made) if operation == AHEAD]
    last_product = max(k for k, operation in enumerate(made) if operation == BY_WORDS)
    ahead = [k for k in copied if k > last_product]
    begin = max(k for k in range(ahead[0]) if made[k] == WAIT)
    fetching = made[begin : made.index(ARRIVE, ahead[-1]) + 1]
    found, at = list[GroupLoop](), 0
    while BY_GROUP in made[at:]:
        first = made.index(BY_GROUP, at)
        start = max(k for k in range(first) if made[k] == WAIT)
        values = made.index(BY_WORDS, first)
        more = [k for k in range(values, len(made)) if made[k] == BY_GROUP]
        until = more[0] if more else len(made)
        last = max(k for k in range(values, until) if made[k] == BY_WORDS)
        at = made.index(ARRIVE, last) + 1
        turn = made[start:at]
        found.append(GroupLoop(
            turn.count(BY_GROUP), turn.count(BY_WORDS), turn.count(SPECIAL), len(turn),
            fetching.count(AHEAD), len(fetching),
        ))  # fmt: skip
    return found


def group_clocks(
    loop: GroupLoop, target: Target, groups: int, keys: int, depth: int
) -> dict[str, float]:
    """Clocks of each unit for a block of keys, of a block with so many `groups` that multiply, each
    64 rows."""
    rate = target.peaks["half"] / (2 * target.sms * target.clock_ghz)
    step = STEP_BYTES // 2
    own = ROWS * (loop.first * keys + loop.second * depth) * step / rate
    read = loop.first * (ROWS + keys) * STEP_BYTES + loop.second * depth * STEP_BYTES
    copied = WARPS * loop.copies * WARP * PIECE
    warps = groups * WARPS
    return {
        "tensor": groups * own,
        "shared": (groups * read + copied) / BANKS_BYTES,
        "second": copied / L2_BYTES,
        "special": warps * loop.special * WARP / SPECIAL_RATE,
        "issue": (warps * loop.instructions + WARPS * loop.fetching) / SCHEDULERS,
        "group": own + WARPS * loop.instructions / SCHEDULERS,
    }


def ends(target: Target, rows: int, keys: int, depth: int) -> float:
    """Clocks in which a block waits for its queries and its first keys, and stores its results, at
    its multiprocessor's part of the bandwidth; of 16 bits."""
    a_clock = target.bandwidth / (target.sms * target.clock_ghz)
    return 2 * depth * (2 * rows + keys) / a_clock


@dataclass(frozen=True, slots=True)
class AttentionRung:
    """A published kernel: rows and keys of a block, groups that multiply, stages of keys and
    values, as its source says."""

    source: str
    rows: int
    keys: int
    groups: int
    stages: int


# Of 16 bits, by depth, without and with a causal mask (hopper/tile_size.h).
RUNGS = {
    (depth, causal): AttentionRung(
        "Dao-AILab/flash-attention, FlashAttention-3", rows, keys, rows // ROWS, 2
    )
    for depth, causal, rows, keys in (
        (64, False, 192, 192), (64, True, 192, 128), (128, False, 128, 176), (128, True, 128, 128),
    )
}  # fmt: skip


def rung_clocks(rung: AttentionRung, target: Target, depth: int) -> dict[str, float]:
    """Clocks of each unit for a block of keys of a rung. Its instructions are not known, so they
    are never what takes longest; factors of its second product are in registers."""
    loop = GroupLoop(depth * 2 // STEP_BYTES, rung.keys * 2 // STEP_BYTES, 0, 0, 0, 0)
    found = group_clocks(loop, target, rung.groups, rung.keys, depth)
    copied = 2 * rung.keys * depth * 2
    return {
        "tensor": found["tensor"], "shared": found["shared"] + copied / BANKS_BYTES,
        "second": copied / L2_BYTES,
        "special": rung.groups * ROWS * rung.keys / SPECIAL_RATE,
    }  # fmt: skip
