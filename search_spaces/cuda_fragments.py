"""What is offered to a kernel whose columns stay in registers as they are folded: rows and columns
of a block that its warps can hold, those first that load least and leave no multiprocessor idle."""

from __future__ import annotations

from collections.abc import Mapping

from autofuse.kernel.cuda.fragments import HIGH, PAIR, WARP, size, up
from autofuse.kernel.cuda.mma import BANKS_BYTES
from autofuse.kernel.cuda.wgmma import GROUP, ROWS, WIDTHS
from autofuse.kernel.ir.instructions import by_group
from autofuse.plan.parameters import (
    BLOCK_THREADS,
    BLOCKS,
    COLUMN_BLOCK,
    FRAGMENTS,
    GROUP_MMA,
    HALF_MMA,
    MMA,
    NO_MMA,
    PINGPONG,
    ROW_BLOCK,
    SPLIT,
    STAGES,
    VECTOR,
)
from autofuse.plan.types import Setting
from search_spaces.cuda_limits import DeviceLimits
from search_spaces.cuda_multiply import TOGETHER
from search_spaces.cuda_tiles import Fits
from search_spaces.tile_facts import TILE_PARAMETERS, TileFacts

# The parameters that are decided here.
DECIDED = TILE_PARAMETERS | {BLOCK_THREADS.name, VECTOR.name, STAGES.name, PINGPONG.name}
# Sums of a thread that leave it registers enough for all else: of 255, NVRTC 13 took 225 to 255
# with up to 192 of them. Where the last block of columns has fewer, and asks for each whether it is
# there, more than 160 spilled up to 80 bytes: those are offered last.
ROOMY_SUMS, MOST_SUMS = 160, 192
# Threads of a block and parts of 16 rows of a warp. More share what is loaded.
THREADS, PARTS = (128, 256, 64, 32), (2, 1)
# Columns at once, the best first: each block of them costs the rows a total and a rescaling.
COLUMNS = (64, 32, 128, 16)
# Stages, the best first: more bytes on their way, as long as two blocks have room.
RINGS = (4, 3, 2)
# Bytes of shared memory that the system keeps of every block.
KEPT = 1 << 10
# What a row costs beside its products: loads of all columns, for the rows of a warp and of a block.
WARP_LOADS, BLOCK_LOADS = 16, 32
# Warps of a multiprocessor whose threads have all registers that there are, and how much longer a
# block takes whose waiting no other one hides.
WARPS, ALONE = 8, 1.25
# The same of warpgroups: one or two of 64 rows, and one that fetches; columns; and sums of a thread
# that has 204 registers, of which factors of the second product take half as many as columns.
GROUP_THREADS, GROUP_COLUMNS, MOST_GROUP_SUMS = (256, 384), (128, 64), 128
# Their block is alone, so it may have all of shared memory: most bytes on their way first.
GROUP_RINGS = (8, 6, 5, 4, 3, 2)
# Columns of a part at least.
PART_COLUMNS = 256


def fragment_options(
    name: str, facts: TileFacts, limits: DeviceLimits, made: Mapping[str, Setting], fits: Fits
) -> tuple[Setting, ...] | None:
    """The options of one parameter, the likely best first; None where it does not matter here but
    to kernels without fragments."""
    if name == FRAGMENTS.name:
        return _offered(facts, limits, made, fits)
    if made.get(FRAGMENTS.name) and name == BLOCKS.name and made.get(MMA.name) == GROUP_MMA:
        return ()
    if not made.get(FRAGMENTS.name) or name not in DECIDED:
        return None
    if name == PINGPONG.name:
        return _turns(facts, made)
    settings = _settings(facts, limits, made)
    if name == BLOCK_THREADS.name:
        return tuple(dict.fromkeys(threads for threads, _, _ in settings))
    threads = int(made.get(BLOCK_THREADS.name, 0))
    own = [s for s in settings if s[0] == threads]
    if name == ROW_BLOCK.name:
        return tuple(dict.fromkeys(rows for _, rows, _ in own))
    if name == COLUMN_BLOCK.name:
        found = tuple(c for _, rows, c in own if rows == made[ROW_BLOCK.name])
        return tuple(c for c in found if fits({**_known(made), name: c})) or found[-1:]
    if name == STAGES.name:
        return _rings(facts, limits, made, own, fits)
    return _splits(facts, limits.sms, made) if name == SPLIT.name else ()


def _turns(facts: TileFacts, made: Mapping[str, Setting]) -> tuple[Setting, ...]:
    """Whether two warpgroups take turns at their products."""
    two = made.get(MMA.name) == GROUP_MMA and made.get(BLOCK_THREADS.name) == GROUP_THREADS[-1]
    return (False, True) if two and facts.sources == len(facts.folded) == 1 else ()


def _rings(
    facts: TileFacts, limits: DeviceLimits, made: Mapping[str, Setting],
    own: list[tuple[int, int, int]], fits: Fits,
) -> tuple[Setting, ...]:  # fmt: skip
    """Stages: those first with which two blocks of the rows and columns that come first have room;
    of warpgroups those with which one has."""
    _, rows, columns = own[0]
    if made.get(MMA.name) != GROUP_MMA:
        return tuple(sorted(RINGS, key=lambda n: not _two_fit(facts, limits, rows, columns, n)))
    tile: dict[str, Setting] = {ROW_BLOCK.name: rows, COLUMN_BLOCK.name: columns}
    found = tuple(n for n in GROUP_RINGS if fits({**_known(made), **tile, STAGES.name: n}))
    return found or GROUP_RINGS[-1:]


def groups_first(
    options: tuple[Setting, ...], facts: TileFacts, limits: DeviceLimits, fits: Fits
) -> tuple[Setting, ...]:
    """The instruction classes of a kernel, that of warpgroups before that of warps where a device
    has it, its rows, columns and terms are full, its sums may stay in registers, and its blocks,
    which are larger, keep half of the multiprocessors busy; else behind it."""
    full = HALF_MMA in options and min(facts.rows, facts.columns, facts.terms) >= ROWS
    if not limits.warpgroups or not full:
        return options
    if not _offered(facts, limits, {MMA.name: GROUP_MMA}, fits):
        return options
    blocks = facts.batch * -(-facts.rows // _group_settings(facts)[0][1])
    both = (GROUP_MMA, HALF_MMA) if 2 * blocks >= limits.sms else (HALF_MMA, GROUP_MMA)
    return (*both, *(o for o in options if o not in both))


def _offered(
    facts: TileFacts, limits: DeviceLimits, made: Mapping[str, Setting], fits: Fits
) -> tuple[Setting, ...]:
    settings = _settings(facts, limits, made)
    chosen = str(made.get(MMA.name, NO_MMA))
    # Of warpgroups only products of halves go through fragments.
    served = chosen == GROUP_MMA or (chosen != NO_MMA and not by_group(chosen))
    if not served or not facts.one_pass or not settings:
        return ()
    threads, rows, columns = min(settings, key=lambda s: s[1] * s[2])
    smallest: dict[str, Setting] = {
        MMA.name: made[MMA.name], FRAGMENTS.name: True, BLOCK_THREADS.name: threads,
        ROW_BLOCK.name: rows, COLUMN_BLOCK.name: columns, STAGES.name: RINGS[-1],
    }  # fmt: skip
    if not fits(smallest):
        return ()
    # Whole rows in shared memory leave warpgroups no stages.
    return (True,) if made[MMA.name] == GROUP_MMA else (True, False)


def _splits(facts: TileFacts, sms: int, made: Mapping[str, Setting]) -> tuple[Setting, ...]:
    """Equal parts of columns where blocks of rows are fewer than there is room for, the one that
    fills it first; one part comes after those."""
    blocks = facts.batch * -(-facts.rows // int(made[ROW_BLOCK.name]))
    room = sms * _together(int(made[BLOCK_THREADS.name]))
    fits = [
        int(parts) for parts in SPLIT.choices
        if facts.columns % int(parts) == 0 and facts.columns // int(parts) >= PART_COLUMNS
        and int(parts) > 1 and blocks * int(parts) <= room
    ]  # fmt: skip
    return (*sorted(fits, reverse=True), 1) if fits else ()


def _two_fit(
    facts: TileFacts, limits: DeviceLimits, rows: int, columns: int, stages: int
) -> bool:  # fmt: skip
    """Whether the shared memory of a multiprocessor holds the operands of two blocks."""
    item = facts.itemsize if facts.factors is None else facts.factors.itemsize
    left, panel = (
        up(n * item, BANKS_BYTES) for n in (facts.one_pass, max(facts.one_pass, *facts.folded, 0))
    )
    needed = rows * facts.sources * left + stages * columns * panel + KEPT
    return 2 * needed <= limits.shared_per_sm


def _together(threads: int) -> int:
    """Blocks of so many threads that a multiprocessor has registers for."""
    return max(1, WARPS * WARP // threads)


def _known(made: Mapping[str, Setting]) -> dict[str, Setting]:
    names = (MMA, FRAGMENTS, BLOCK_THREADS, ROW_BLOCK, VECTOR, STAGES)
    return {row.name: made[row.name] for row in names if row.name in made}


def _group_settings(facts: TileFacts) -> list[tuple[int, int, int]]:
    """As `_settings`, for warpgroups, of which one fetches: two multiply where there are rows for
    them, so that one may while the other does what is between its products."""
    if not facts.folded or max(facts.folded) > WIDTHS[-1]:
        return []
    kept = sum(next(w for w in WIDTHS if w >= width) for width in facts.folded)
    threads = GROUP_THREADS[: 1 + (facts.rows > ROWS)][::-1]
    return [
        (count, ROWS * (count // GROUP - 1), columns)
        for count in threads for columns in GROUP_COLUMNS
        if (columns + kept) // 2 <= MOST_GROUP_SUMS
    ]  # fmt: skip


def _alone(facts: TileFacts, limits: DeviceLimits, threads: int, rows: int, columns: int) -> float:
    """What a block costs that has its multiprocessor for itself, where one of two costs 1."""
    two = _together(threads) >= TOGETHER
    return 1 if two and _two_fit(facts, limits, rows, columns, RINGS[-1]) else ALONE


def _settings(
    facts: TileFacts, limits: DeviceLimits, made: Mapping[str, Setting]
) -> list[tuple[int, int, int]]:
    """Threads, rows and columns of blocks whose sums fit registers, the likely best first."""
    if made.get(MMA.name) == GROUP_MMA:
        return _group_settings(facts)
    kept = sum(up(width, PAIR) for width in facts.folded)
    found: list[tuple[bool, float, int, tuple[int, int, int]]] = []
    for threads in THREADS:
        for parts in PARTS:
            rows = threads // WARP * parts * HIGH
            blocks = facts.batch * -(-facts.rows // rows)
            waves = -(-blocks // (limits.sms * _together(threads)))
            loads = 1 + WARP_LOADS / (parts * HIGH) + BLOCK_LOADS / rows
            for turn, columns in enumerate(COLUMNS):
                sums = size(parts * HIGH, columns * facts.sources + kept)
                if sums > MOST_SUMS:
                    continue
                tight = sums > ROOMY_SUMS and facts.columns % columns > 0
                cost = waves * parts * loads * _alone(facts, limits, threads, rows, columns)
                found.append((tight, cost, turn, (threads, rows, columns)))
    return [setting for *_, setting in sorted(found)]
