"""What is offered to a kernel of the tile schedule on a GPU: tiles that its threads can hold in
registers and its blocks in shared memory, those first that leave no multiprocessor idle."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache

from autofuse.graph.types import Graph
from autofuse.kernel.cuda.shape import has_fragment_turns, takes_turns
from autofuse.kernel.cuda.wgmma import GROUP, ROWS
from autofuse.kernel.ir.emit import LoweringError
from autofuse.kernel.ir.instructions import FACTORS, by_group
from autofuse.kernel.ir.types import Kernel
from autofuse.kernel.launching import shared_bytes
from autofuse.kernel.lower import extract, lower
from autofuse.kernel.render import shaped_cuda
from autofuse.plan.parameters import (
    BLOCK_THREADS,
    BLOCKS,
    BYTE_GROUP_MMA,
    BYTE_MMA,
    COLUMN_BLOCK,
    CUDA_COLUMN_BLOCK,
    CUDA_MICRO,
    CUDA_ROW_BLOCK,
    EARLY,
    FRAGMENTS,
    GRID,
    GROUP_MMA,
    HALF_MMA,
    IMPL,
    MICRO,
    MMA,
    NO_MMA,
    PACK,
    PINGPONG,
    ROW_BLOCK,
    SPLIT,
    STAGES,
    STRICT_MMA,
    TAIL,
    TERM_BLOCK,
    TF32_MMA,
    VECTOR,
)
from autofuse.plan.types import FusionGroup, LaunchConfig, Setting
from search_spaces.cuda_limits import DeviceLimits
from search_spaces.cuda_multiply import MULTIPLYING, TOGETHER, Multiplying
from search_spaces.cuda_turns import least_clocks, may_take_turns, working
from search_spaces.splits import (
    busiest,
    split_options,
    split_time,
    tail_options,
    tail_parts,
)
from search_spaces.tile_facts import TileFacts

# The relative step of factors that are rounded for tensor cores.
TF32_EPS = 2.0**-10
# Terms summed at once where panels of all of them have no room, the best first.
TERMS = (32, 16)
# Columns of a block where they are folded as they come, the smallest first: whole rows, which keep
# all threads busy between products, come before them where there is room.
ONE_PASS = (32, 64, 128)
# Threads of a warp, and of a block whose warps are not side by side.
WARP, NARROW = 32, 64
# The most options of one parameter.
MOST = 4
# Settings that decide how much scratch a block needs.
SHAPES = (
    MMA, BLOCK_THREADS, VECTOR, STAGES, BLOCKS, PINGPONG, MICRO, ROW_BLOCK, COLUMN_BLOCK,
    TERM_BLOCK, PACK,
)  # fmt: skip
# What applies to a kernel of this schedule.
OFFERED = {
    IMPL.name,
    GRID.name,
    EARLY.name,
    SPLIT.name,
    TAIL.name,
    FRAGMENTS.name,
    "math",
    *(row.name for row in SHAPES),
}

Fits = Callable[[Mapping[str, Setting]], bool]


def room_for(graph: Graph, group: FusionGroup, most: int) -> Fits:
    """Whether the scratch of a group's kernel under some settings is at most `most` bytes."""
    own, _ = extract(graph, group)

    def fits(settings: Mapping[str, Setting]) -> bool:
        needed = _scratch(own, LaunchConfig.of(**settings))
        return needed is not None and needed <= most

    return fits


@lru_cache(maxsize=4096)
def _scratch(group: Graph, launch: LaunchConfig) -> int | None:
    """Bytes of shared memory; None where there would be too many statements, or groups that are to
    take turns cannot."""
    try:
        kernel = lower(group, launch)
    except LoweringError:
        return None
    if PINGPONG.of(launch) and not _turning(shaped_cuda(kernel)):
        return None
    return shared_bytes(kernel)


def _turning(kernel: Kernel) -> bool:
    return takes_turns(kernel) or has_fragment_turns(kernel)


def tile_options(
    name: str, facts: TileFacts, limits: DeviceLimits, made: Mapping[str, Setting], fits: Fits
) -> tuple[Setting, ...]:
    """The options of one parameter of the tile schedule, the likely best first. Where no setting
    fits, the smallest is left, which is refused when it is to be launched."""
    sms = limits.sms
    if name == MMA.name:
        return _instructions(facts, limits, fits)
    if name == BLOCK_THREADS.name:
        by = _multiplying(made)
        # Last those whose smallest tile has rows that are empty; first, for few columns, those of
        # which each warp has all of them.
        found = by.threads or _threads(facts, sms)
        narrow = facts.columns <= by.narrow and not facts.local
        return tuple(
            sorted(
                found, key=lambda t: (by.least(int(t))[0] > facts.rows, narrow and int(t) != NARROW)
            )
        )
    if name == STAGES.name:
        return _multiplying(made).stages
    if name == BLOCKS.name:
        return _blocks(limits, made)
    if name == SPLIT.name:
        return _splits(facts, made, sms)
    if name == PINGPONG.name:
        return _turns(facts, limits, made, fits)
    if name == TAIL.name and made.get(PINGPONG.name):
        return ()
    if name == TAIL.name:
        return tail_options(facts, made, sms, _multiplying(made).meeting)
    own = {row.name: made[row.name] for row in SHAPES if row.name in made}
    options = _OPTIONS[name](facts, limits, own)
    found = tuple(o for o in options if _smallest_fits(facts, {**own, name: o}, fits))
    return found[:MOST] or options[-1:]


def _smallest_fits(facts: TileFacts, own: Mapping[str, Setting], fits: Fits) -> bool:
    """Whether there is room under settings that are given, those to come at their smallest."""
    rows, columns = map(int, str(own[MICRO.name]).split("x"))
    terms = (0, TERMS[-1]) if facts.terms > TERMS[-1] else (0,)
    blocks = (0, *ONE_PASS[: bool(facts.one_pass)]) if facts.local else (columns,)
    return any(
        fits({
            ROW_BLOCK.name: rows, COLUMN_BLOCK.name: block, TERM_BLOCK.name: term, PACK.name: False,
            **own,
        })
        for block in blocks for term in terms
    )  # fmt: skip


def _multiplying(made: Mapping[str, Setting]) -> Multiplying:
    return MULTIPLYING[made.get(MMA.name, NO_MMA)]


def _instructions(facts: TileFacts, limits: DeviceLimits, fits: Fits) -> tuple[Setting, ...]:
    """Those that multiply such factors. Rounded ones only where the results are rounded as much: no
    check would let them pass otherwise. Warpgroups come first where a tile of theirs is full and
    what follows is computed for each tile, because one of them only fetches, and not at all where
    no tile of theirs has room."""
    if facts.factors in FACTORS[HALF_MMA]:
        return _by_groups_too(GROUP_MMA, HALF_MMA, facts, limits, fits)
    if facts.factors in FACTORS[BYTE_MMA]:
        # Of bytes both operands must lie along their terms, or they are read one by one.
        by_groups = _by_groups_too(BYTE_GROUP_MMA, BYTE_MMA, facts, limits, fits)
        return by_groups if facts.bytes_along else (BYTE_MMA, NO_MMA)
    if facts.factors not in FACTORS[TF32_MMA]:
        return ()
    return (NO_MMA, STRICT_MMA, TF32_MMA)[: 3 if facts.eps >= TF32_EPS else 2]


def _by_groups_too(
    groups: str, warps: str, facts: TileFacts, limits: DeviceLimits, fits: Fits
) -> tuple[Setting, ...]:  # fmt: skip
    """Warpgroups and warps, those first that all of a tile keeps busy."""
    if not limits.warpgroups or not _groups_fit(groups, facts, limits, fits):
        return (warps, NO_MMA)
    full = min(facts.rows, facts.columns, facts.terms) >= ROWS and not facts.local
    return (groups, warps, NO_MMA) if full else (warps, groups, NO_MMA)


def _groups_fit(groups: str, facts: TileFacts, limits: DeviceLimits, fits: Fits) -> bool:
    """Whether the smallest tile of the largest block has room in the most stages."""
    by = MULTIPLYING[groups]
    threads = max(int(t) for t in by.threads if by.least(int(t))[0] <= max(facts.rows, ROWS))
    own: dict[str, Setting] = {
        MMA.name: groups, BLOCK_THREADS.name: threads, STAGES.name: by.stages[0],
    }  # fmt: skip
    tiles = {name: math.prod(map(int, name.split("x"))) for name in _micros(facts, limits, own)}
    return _smallest_fits(facts, {**own, MICRO.name: min(tiles, key=tiles.__getitem__)}, fits)


def _splits(facts: TileFacts, made: Mapping[str, Setting], sms: int) -> tuple[Setting, ...]:
    """By time; first none where a tail keeps as many busy, because it needs no second kernel."""
    found, meeting = split_options(facts, made, sms), _multiplying(made).meeting
    if not found or tail_options(facts, made, sms, meeting):
        return tuple(sorted(found))
    tiles = facts.batch * -(-facts.rows // int(made[ROW_BLOCK.name]))
    tiles *= -(-facts.columns // int(made[COLUMN_BLOCK.name]))
    return tuple(
        sorted(found, key=lambda p: split_time(tiles, sms, facts.terms, int(p), meeting))
    )  # fmt: skip


def _blocks(limits: DeviceLimits, made: Mapping[str, Setting]) -> tuple[Setting, ...]:
    """Blocks wanted on a multiprocessor: those that threads and registers allow."""
    threads = int(made[BLOCK_THREADS.name])
    if by_group(str(made.get(MMA.name))):
        few = (b for b in (0, 2) if _multiplying(made).sums(threads, b) >= ROWS * ROWS)
        return tuple(few)
    most = min(limits.threads_per_sm, limits.registers_per_sm // WARP) // threads
    return tuple(b for b in BLOCKS.choices if b <= most)


def _threads(facts: TileFacts, sms: int) -> tuple[Setting, ...]:
    """More threads for each block where there are elements enough for all multiprocessors."""
    each = facts.batch * facts.rows * facts.columns // sms
    return (256, 128, 64) if each >= 1 << 13 else (128, 256, 64) if each >= 1 << 11 else (64, 128)


def _turns(
    facts: TileFacts, limits: DeviceLimits, made: Mapping[str, Setting], fits: Fits
) -> tuple[Setting, ...]:
    """Whether groups have tiles of their own, where they can: first if that takes less time however
    much the second-level cache gives."""
    if not may_take_turns(facts, made):
        return ()
    own = {row.name: made[row.name] for row in SHAPES if row.name in made}
    found: dict[bool, list[tuple[float, int, int, str]]] = {}
    for turns in (False, True):
        own[PINGPONG.name] = turns
        found[turns] = [
            tile for tile in _tiles(facts, limits, own)
            if _smallest_fits(facts, {**own, MICRO.name: tile[-1]}, fits)
        ]  # fmt: skip
    if not found[True]:
        return ()
    by = _multiplying(made)

    def clocks(turns: bool, cached: bool) -> float:
        return least_clocks(found[turns], facts, limits, by, turns, cached)

    wins = all(clocks(True, cached) < clocks(False, cached) for cached in (False, True))
    return (True, False) if wins else (False, True)


def _micros(facts: TileFacts, limits: DeviceLimits, own: Mapping[str, Setting]) -> tuple[str, ...]:
    """By the time of the multiprocessor with most blocks, of which the last may be in parts: what
    it computes, and what it loads for that. Of two that are alike warpgroups first have the one
    with more rows: on an H100 256x128 took 0.5 to 3 % less than 128x256, of four products."""
    threads, by = working(own), _multiplying(own)
    high = by_group(str(own.get(MMA.name, NO_MMA)))
    found: list[tuple[float, int, int, str]] = []
    for turns, rows, columns, name in _tiles(facts, limits, own):
        across = -(-facts.columns // columns)
        each = rows * columns * (across if facts.local else 1)
        idle = max(1.0, threads / (rows * columns))
        time = turns * each * idle * by.loads(rows, columns, threads, limits.halves)
        found.append((time, rows * columns, -rows if high else 0, name))
    return tuple(name for *_, name in sorted(found))


def _tiles(
    facts: TileFacts, limits: DeviceLimits, own: Mapping[str, Setting]
) -> Iterator[tuple[float, int, int, str]]:
    """Tiles that there are registers for: terms that the busiest multiprocessor has of them, rows,
    columns and name."""
    threads, wanted = int(own[BLOCK_THREADS.name]), int(own.get(BLOCKS.name, 0))
    by, alone = _multiplying(own), bool(own.get(PINGPONG.name))
    least = by.least(working(own))
    most = by.sums(threads, wanted) // (threads // GROUP - 1 if alone else 1)
    for name in CUDA_MICRO.choices:
        rows, columns = map(int, name.split("x"))
        if name == MICRO.default:
            continue  # what lowering takes that is told nothing, on every device
        columns = columns * 4 // facts.itemsize
        if rows * columns > most or columns > by.widest:
            continue
        if rows % least[0] or columns % least[1] or (alone and facts.columns % columns):
            continue
        across = -(-facts.columns // columns)
        blocks = facts.batch * -(-facts.rows // rows) * (1 if facts.local else across)
        parts = (1,) if facts.local or alone else tail_parts(facts.terms)
        turns = min(busiest(blocks, limits.sms, facts.terms, p, by.meeting) for p in parts)
        yield turns, rows, columns, name


def _row_blocks(
    facts: TileFacts, limits: DeviceLimits, own: Mapping[str, Setting]
) -> tuple[Setting, ...]:
    rows = int(str(own[MICRO.name]).split("x")[0])
    if own.get(PINGPONG.name):
        return (rows,)
    blocks = facts.batch * -(-facts.rows // rows)
    return (rows, *_more(rows, blocks // (limits.sms * TOGETHER), CUDA_ROW_BLOCK.choices))


def _more(step: int, waves: int, choices: tuple[int, ...]) -> tuple[int, ...]:
    """Blocks of several tiles, where all multiprocessors have work nevertheless."""
    return tuple(step * n for n in (2, 4) if n <= waves and step * n in choices)


def _column_blocks(
    facts: TileFacts, limits: DeviceLimits, own: Mapping[str, Setting]
) -> tuple[Setting, ...]:
    if facts.local:
        return (0, *(c for c in ONE_PASS if facts.one_pass and c < facts.columns))
    columns = int(str(own[MICRO.name]).split("x")[1]) * 4 // facts.itemsize
    if own.get(PINGPONG.name):
        return (columns,)
    blocks = facts.batch * facts.rows * facts.columns // int(own[ROW_BLOCK.name]) // columns
    return (columns, *_more(columns, blocks // (limits.sms * TOGETHER), CUDA_COLUMN_BLOCK.choices))


def _term_blocks(
    facts: TileFacts, limits: DeviceLimits, own: Mapping[str, Setting]
) -> tuple[Setting, ...]:
    return (0, *(t for t in TERMS if t < facts.terms and not own.get(PINGPONG.name)))


def _packs(
    facts: TileFacts, limits: DeviceLimits, own: Mapping[str, Setting]
) -> tuple[Setting, ...]:
    return (False,) if own.get(MMA.name, NO_MMA) != NO_MMA else (False, True)


_OPTIONS: Mapping[
    str, Callable[[TileFacts, DeviceLimits, Mapping[str, Setting]], tuple[Setting, ...]]
] = {
    MICRO.name: _micros, ROW_BLOCK.name: _row_blocks, COLUMN_BLOCK.name: _column_blocks,
    TERM_BLOCK.name: _term_blocks, PACK.name: _packs,
}  # fmt: skip
