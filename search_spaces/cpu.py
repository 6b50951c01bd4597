"""The launch space of CPU kernels, made of the rows of `plan.parameters.C_LAUNCH`."""

from __future__ import annotations

import os
from typing import Any

from autofuse.graph.types import Graph
from autofuse.kernel.dialects import C
from autofuse.ops.spec import Family
from autofuse.plan.groups import reads
from autofuse.plan.parameters import (
    BATCH_LANES,
    C_LAUNCH,
    IMPL,
    ITEM,
    LOOP,
    LOOP_UNROLL,
    MERGE,
    PAIRS,
    STREAM,
    THREADS,
    TILE,
    TILES,
    TRANSPOSE,
    VECTOR_BITS,
    LaunchParameter,
    canonical_launch,
)
from autofuse.plan.types import FusionGroup, LaunchConfig, Setting
from search_spaces.cpu_lanes import lane_options
from search_spaces.cpu_tiles import tile_options
from search_spaces.launch import (
    Chooser,
    Chosen,
    choose_settings,
    divisors,
    first_option,
    kernel_kind,
    loop_iterations,
    permutes,
    widest_form,
)
from search_spaces.tile_cost import Machine
from search_spaces.tile_facts import TILE_PARAMETERS, TileFacts, tile_facts

# Below this many elements a second thread costs more than it brings (measured: about 2 us).
SERIAL_WORK = 1 << 13
# Results larger than this leave the cache anyway before anyone reads them.
STREAM_BYTES = 1 << 25
# A transpose writes line by line all over its result: each is read first unless it is streamed.
TURNED_BYTES = 1 << 22
# Tiles by kind of kernel, the usual one first: a loop's state stays in the first-level cache.
LANE_TILES: dict[str, tuple[Setting, ...]] = {
    ITEM: (1024, 256, 4096, 16384),
    LOOP: (256, 64, 128, 512, 1024),
}


# Bytes of the first, the second and the last level of cache, and what is usual.
Caches = tuple[int, int, int]
USUAL_CACHES: Caches = (32 << 10, 1 << 20, 32 << 20)


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class CpuLaunchSpace:
    """One library with a pool of threads, on a processor with vectors of `vector_bits`, and
    with an instruction for pairs of bf16 if `pairs`."""

    def __init__(
        self, vector_bits: int = 512, caches: Caches = USUAL_CACHES, pairs: bool = False
    ) -> None:
        self.vector_bits, self.caches, self.pairs = vector_bits, caches, pairs

    def kind(self, graph: Graph, group: FusionGroup) -> str:
        return kernel_kind(graph, group, C)

    def default(self, graph: Graph, group: FusionGroup) -> LaunchConfig:
        return self.choose(graph, group, first_option, "")

    def ruled(
        self, graph: Graph, group: FusionGroup, threads: int, items: int, strided: bool
    ) -> LaunchConfig:
        """The default: a GPU's launch says nothing about this device."""
        return self.default(graph, group)

    def choose(
        self, graph: Graph, group: FusionGroup, chooser: Chooser, prefix: str
    ) -> LaunchConfig:
        kind = self.kind(graph, group)
        facts = tile_facts(graph, group) if kind in TILES else None

        def offer(row: LaunchParameter[Any], made: Chosen) -> tuple[Setting, ...]:
            if kind in TILES and (row.name in TILE_PARAMETERS or row is VECTOR_BITS):
                return self._tiled(row, made, facts)
            if row is THREADS:
                return _threads(graph, group)
            if row is TILE:
                return _tiles(graph, group, kind, made["threads"])
            if row is LOOP_UNROLL:
                return divisors(row.choices, loop_iterations(graph, group))
            if row is TRANSPOSE:
                return (True, False) if permutes(graph, group) else ()
            if row is MERGE and not _sorts(graph, group):
                return ()
            if row is STREAM:
                return _streams(graph, group)
            return row.choices

        made = choose_settings(C_LAUNCH, kind, offer, chooser, prefix)
        return canonical_launch(C_LAUNCH, made)

    def _tiled(
        self, row: LaunchParameter[Any], made: Chosen, facts: TileFacts | None
    ) -> tuple[Setting, ...]:
        """Options of what only tiles have, and of the vectors they are made of."""
        if facts is None or made.get(IMPL.name, "loops") == "blas":
            return ()
        if row is VECTOR_BITS:
            return (self.vector_bits,)
        if row is BATCH_LANES:
            return (True, False) if facts.batch_last else ()
        if row is PAIRS:
            return (True, False) if facts.bf16 and self.pairs else ()
        if made.get(BATCH_LANES.name):
            return lane_options(row.name, facts, self.vector_bits)
        machine = Machine(self.vector_bits, made["threads"], *self.caches)
        return tile_options(row.name, facts, made, machine)


def _threads(graph: Graph, group: FusionGroup) -> tuple[Setting, ...]:
    first = 1 if _work(graph, group) < SERIAL_WORK else cores()
    return tuple(dict.fromkeys((first, cores(), 1)))


def _tiles(graph: Graph, group: FusionGroup, kind: str, threads: int) -> tuple[Setting, ...]:
    """In a loop no tile is so large that a thread goes without work."""
    form = widest_form(graph, group)
    if kind != LOOP or form is None:
        return LANE_TILES[kind]
    share = max(16, -(-form.items // threads))
    return tuple(dict.fromkeys(min(int(tile), share) for tile in LANE_TILES[kind]))


def _work(graph: Graph, group: FusionGroup) -> float:
    sizes = [graph.type_of(v).size for v in (*group.outputs, *reads(graph, group.nodes))]
    flops = sum(graph[n].spec.flops(graph.call(n)) for n in group.nodes)
    return max(max(sizes, default=0), flops / 16)


def _sorts(graph: Graph, group: FusionGroup) -> bool:
    return any(graph[n].spec.family is Family.SORT for n in group.nodes)


def _streams(graph: Graph, group: FusionGroup) -> tuple[Setting, ...]:
    """Large results that no later kernel of the plan could find in the cache may go past it."""
    written = sum(graph.type_of(v).nbytes for v in group.outputs)
    if not set(group.outputs) <= set(graph.outputs):
        return ()
    if written >= STREAM_BYTES:
        return (True, False)
    return (False, True) if written >= TURNED_BYTES and permutes(graph, group) else ()
