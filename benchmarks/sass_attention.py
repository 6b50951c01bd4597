"""What share of the tensor cores' peak attention may reach whose scores stay in registers,
predicted from its machine code alone, beside what others published.

What a warp does for one block of keys is between the first wait of its loop and the last product;
blocks that no mask touches have a loop of their own, and rows their number of blocks of each kind.
The first product may be a loop over its terms, which the text has once. On a multiprocessor

    tensor  = products * 16 * 8 * 16 multiply-adds / those of a clock
    shared  = loads of four matrices * 4 turns of the banks + bytes copied / 128 a clock
    special = results of special functions / 16 a clock
    issue   = instructions of all warps / 4 a clock
    share   = tensor / the longest of the four, times how full the waves of blocks are

Under a causal mask blocks of rows differ in length: they are dealt, longest first, to whoever is
free. What the longest of the four leaves out is waiting that no other warp hides.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import autofuse.frontends.array_api as xp
from autofuse import spec, trace
from autofuse.backends.cuda.build import build_flags
from autofuse.backends.cuda.devices import Target, blocks_resident, target_named
from autofuse.backends.cuda.facts import parse_log
from autofuse.backends.cuda.nvrtc import compile_cubin
from autofuse.cost.masked import least_work
from autofuse.cost.waves import launch_bound_us
from autofuse.frontends.array_api.array import TracedArray
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph
from autofuse.kernel.cuda.wgmma import GROUP
from autofuse.kernel.ir.instructions import by_group
from autofuse.measure.calibrate.cuda import target_calibration
from autofuse.plan.fusion.clusters import live
from autofuse.plan.parameters import BLOCK_THREADS, COLUMN_BLOCK, MMA, ROW_BLOCK, STAGES
from benchmarks.sass import BARRIER, decoded, kernel_code
from benchmarks.sass_attention_groups import (
    RUNGS,
    SPECIAL,
    SPECIAL_RATE,
    ends,
    group_clocks,
    group_loops,
    rung_clocks,
)
from benchmarks.sass_model import SCHEDULERS
from benchmarks.sass_tensor import (
    AHEAD,
    MATRICES,
    MULTIPLY,
    PIECE,
    TERMS_OF_A_PRODUCT,
    TURNS,
    WARP,
    generated,
)
from benchmarks.tensor_model import BANKS_BYTES

HIDDEN = -1e30
# TFLOP/s of 4 * rows * keys * depth operations at depth 128, no mask, by device and who says so.
PUBLISHED = {
    "A100": (
        ("a ladder's last rung, 0.92 of FlashAttention-2 there (yencal.github.io, 2026)", 187.0),
        ("FlashAttention-2, at best (Dao, arXiv 2307.08691)", 230.0),
    ),
    "H100": (
        ("FlashAttention-2, by instructions of warps (arXiv 2307.08691)", 335.0),
        ("FlashAttention-3 at 4096 places (pytorch/benchmark, pull request 2391)", 590.0),
        ("FlashAttention-3, at best (Shah et al., arXiv 2407.08608)", 740.0),
    ),
    "B200": (),
}
# FlashAttention-2's tile on an A100 at depth 128: 128 rows of 4 warps, 64 keys, queries in shared
# memory, so 256 products of a warp for 16 + 32 + 32 loads; a panel of 64 keys on its way.
LADDER_PRODUCTS_PER_LOAD, LADDER_BYTES = 3.2, 2 * 64 * 128 * 2
LADDER_DEPTH, LADDER_ROWS, LADDER_KEYS, LADDER_WARPS, LADDER_RESIDENT = 128, 128, 64, 4, 2


@dataclass(frozen=True, slots=True)
class KeyBlockFacts:
    """What a warp does for one block of keys."""

    products: int
    matrix_loads: int
    copies: int
    special: int
    instructions: int


def key_block_facts(code: bytes, terms: int, products: int) -> list[KeyBlockFacts]:
    """Counts over each loop over blocks of keys of a kernel that has two products in its text, of
    `products` instructions in all: blocks that are not masked may have a loop of their own. Where
    fewer are in the text, the first one is a loop over `terms` steps."""
    made = [i.operation for i in decoded(code)]
    barriers = [k for k, operation in enumerate(made) if operation == BARRIER]
    # One for each product, and one when all have been made.
    loops = zip(barriers[:-2:2], barriers[1:-1:2], barriers[2::2], strict=True)
    return [_loop_facts(made[a:c], b - a, terms, products) for a, b, c in loops]


def _loop_facts(made: list[int], between: int, terms: int, products: int) -> KeyBlockFacts:
    """Of the text from one barrier on, with the next one at `between`."""
    last = len(made) - 1 - made[::-1].index(MULTIPLY)
    first = made.index(MATRICES)
    end = max(k for k in range(first, between) if made[k] == MULTIPLY) + 1
    rolled = terms if made[: last + 1].count(MULTIPLY) < products else 1
    parts = ((made[:first], 1), (made[first:end], rolled), (made[end : last + 1], 1))

    def count(*operations: int) -> int:
        return sum(times * sum(map(part.count, operations)) for part, times in parts)

    return KeyBlockFacts(
        count(MULTIPLY), count(MATRICES), count(AHEAD), count(SPECIAL),
        sum(times * len(part) for part, times in parts),
    )  # fmt: skip


def busy(facts: KeyBlockFacts, target: Target, warps: int) -> dict[str, float]:
    """Clocks of a multiprocessor for one block of keys of so many warps."""
    rate = target.peaks["half"] / (2 * target.sms * target.clock_ghz)
    copied = facts.copies * WARP * PIECE / BANKS_BYTES
    return {
        "tensor": warps * facts.products * TERMS_OF_A_PRODUCT / rate,
        "shared": warps * (facts.matrix_loads * TURNS + copied),
        "special": warps * facts.special * WARP / SPECIAL_RATE,
        "issue": warps * facts.instructions / SCHEDULERS,
    }


def full_waves(work: Iterable[float], places: int) -> float:
    """The share of time that `places` are busy which take pieces of work, longest first."""
    pieces = sorted(work, reverse=True)
    ends = [0.0] * places
    for piece in pieces:
        heapq.heapreplace(ends, ends[0] + piece)
    return sum(pieces) / (places * max(ends))


@dataclass(frozen=True, slots=True)
class AttentionSize:
    """Attention of bf16[heads, length, depth]."""

    heads: int
    length: int
    depth: int
    causal: bool


def attention_graph(size: AttentionSize) -> Graph:
    """What attends, as a graph."""

    def attend(q: TracedArray, k: TracedArray, v: TracedArray) -> TracedArray:
        scores = (q @ k.mT) * size.depth**-0.5
        if size.causal:
            at = xp.arange(size.length)
            scores = xp.where(at[:, None] >= at[None, :], scores, HIDDEN)
        return xp.softmax(scores) @ v

    each = spec((size.heads, size.length, size.depth), "bf16")
    return canonical(trace(attend, each, each, each))


def blocks_of_keys(size: AttentionSize, rows: int, keys: int) -> list[int]:
    """Blocks of keys of each block of rows."""
    ends = ((n + 1) * rows if size.causal else size.length for n in range(-(-size.length // rows)))
    return [-(-end // keys) for end in ends] * size.heads


def attention_share(
    target: Target, each: Sequence[Mapping[str, float]], resident: int, size: AttentionSize,
    rows: int, keys: int,
) -> tuple[float, float]:  # fmt: skip
    """The share of the peak, and how full waves are, where units are busy for so many clocks for a
    block of keys that no mask touches, and (last) for one that it does."""
    work = blocks_of_keys(size, rows, keys)
    masked = -(-rows // keys) if size.causal and len(each) > 1 else 0
    longest = [max(clocks.values()) for clocks in each]
    after = ends(target, rows, keys, size.depth) if resident == 1 else 0.0
    taken = [(n - masked) * longest[0] + masked * longest[-1] + after for n in work]
    waves = full_waves(taken, resident * target.sms)
    # Keys beyond the last one are no work.
    useful = min(1.0, size.length / keys / max(work))
    return sum(work) * each[0]["tensor"] / sum(taken) * waves * useful, waves


def attention_row(target: Target, size: AttentionSize, columns: int) -> dict[str, Any]:
    """The figures of one attention on one device, under the first settings that are offered, or
    with blocks of `columns` keys. Raises CompilerMissing without NVRTC."""
    wanted = {COLUMN_BLOCK.name: columns} if columns else {}
    graph, depth = attention_graph(size), size.depth
    unit, launch = generated(graph, target, wanted)
    source, shape = unit.source, unit.geometry
    cubin, log = compile_cubin(source.text, target.code_for, build_flags(source))
    said = parse_log(log)[source.name]
    shared = shape.shared + said.shared
    resident = blocks_resident(target, shape.block, said.registers, shared)
    rows, keys, stages = ROW_BLOCK.of(launch), COLUMN_BLOCK.of(launch), max(2, STAGES.of(launch))
    code = kernel_code(cubin, source.name)
    if by_group(str(MMA.of(launch))):
        groups = BLOCK_THREADS.of(launch) // GROUP - 1
        turns = group_loops([i.operation for i in decoded(code)])
        each = [group_clocks(turn, target, groups * resident, keys, depth) for turn in turns]
        # Matrices are not loaded: products read them where they lie.
        per_load = 0.0
    else:
        warps = BLOCK_THREADS.of(launch) // WARP
        of_warp = 2 * (rows // warps // 16) * (keys // 8) * (depth // 16)
        loops = key_block_facts(code, depth // 16, of_warp)
        each = [busy(f, target, warps * resident) for f in loops]
        per_load = round(loops[0].products / loops[0].matrix_loads, 2)
    ahead = (stages - 1) * keys * depth * 2 * resident
    clocks = each[0]
    share, waves = attention_share(target, each, resident, size, rows, keys)
    peak = target.peaks["half"] / 1e3
    bound = launch_bound_us(
        least_work(graph, live(graph), graph.outputs),
        blocks_of_keys(size, rows, keys),
        target.sms,
        target_calibration(target),
    )
    return {
        "target": str(target), "causal": size.causal, "launch": str(launch),
        "registers": said.registers, "spilled_bytes": said.spilled, "shared_bytes": shared,
        "blocks_resident": resident,
        "products_per_load": per_load,
        "products_per_load_of_the_ladder": LADDER_PRODUCTS_PER_LOAD,
        "bytes_in_flight": ahead,
        "bytes_in_flight_of_the_ladder": LADDER_BYTES,
        "clocks_of_a_key_block": {name: round(value) for name, value in clocks.items()},
        "clocks_of_a_masked_one": {name: round(value) for name, value in each[-1].items()},
        "full_waves": round(waves, 3), "predicted_share": round(share, 3),
        "bound_us": round(bound, 1),
        **rung_of(target, str(MMA.of(launch)), size),
        **ladder_of(target, str(MMA.of(launch)), size),
        "published_shares": {
            who: round(rate / peak, 3) for who, rate in PUBLISHED.get(target.name, ())
        },
    }  # fmt: skip


def rung_of(target: Target, mma: str, size: AttentionSize) -> dict[str, Any]:
    """The figures of a published kernel by the same instructions, in the same arithmetic; none
    where those are of warps, or for another depth."""
    depth = size.depth
    if not by_group(mma) or (depth, size.causal) not in RUNGS:
        return {}
    rung = RUNGS[depth, size.causal]
    clocks, rows, keys = rung_clocks(rung, target, depth), rung.rows, rung.keys
    share, _ = attention_share(target, [clocks], 1, size, rows, keys)
    return {"rung": {
        "source": rung.source, "predicted_share": round(share, 3),
        "clocks_of_a_key_block": {name: round(value) for name, value in clocks.items()},
        "bytes_in_flight": (2 * rung.stages - 1) * keys * depth * 2,
    }}  # fmt: skip


def ladder_of(target: Target, mma: str, size: AttentionSize) -> dict[str, Any]:
    """The share that FlashAttention-2's tile for instructions of warps has in the same arithmetic,
    as if it issued nothing but what it cannot do without; none for warpgroups, or another depth."""
    depth = size.depth
    if by_group(mma) or depth != LADDER_DEPTH:
        return {}
    rows, keys, warps = LADDER_ROWS, LADDER_KEYS, LADDER_WARPS
    products = 2 * (rows // warps // 16) * (keys // 8) * (depth // 16)
    copies = LADDER_BYTES // (PIECE * WARP * warps)
    special = rows // warps * keys // WARP
    facts = KeyBlockFacts(
        products, round(products / LADDER_PRODUCTS_PER_LOAD), copies, special, products
    )
    clocks = busy(facts, target, warps * LADDER_RESIDENT)
    share, waves = attention_share(target, [clocks], LADDER_RESIDENT, size, rows, keys)
    return {
        "predicted_share_of_the_ladder": round(share, 3),
        "full_waves_of_the_ladder": round(waves, 3),
    }


def attention_report(
    targets: Sequence[str], columns: int = 0, depth: int = 128
) -> list[dict[str, Any]]:
    """A row for each device, by name, with and without a causal mask, of 16 heads of 4096 places.
    Raises AutofuseError for an unknown one."""
    return [
        attention_row(target_named(name), AttentionSize(16, 4096, depth, causal), columns)
        for name in targets for causal in (False, True)
    ]  # fmt: skip
