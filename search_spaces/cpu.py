"""The launch space of CPU kernels, made of the rows of `plan.parameters.C_LAUNCH`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from autofuse.graph.types import Graph
from autofuse.kernel.dialects import C
from autofuse.kernel.lower import walked_tiles
from autofuse.kernel.onednn import DnnlCall, dnnl_group
from autofuse.ops.spec import Family
from autofuse.plan.groups import reads
from autofuse.plan.parameters import (
    BLAS,
    C_IMPL,
    C_LAUNCH,
    DIAGONAL,
    GEMM,
    GENERATED,
    ITEM,
    LOOP,
    LOOP_UNROLL,
    MERGE,
    ONEDNN,
    STREAM,
    THREADS,
    TILE,
    TILES,
    VECTOR_BITS,
    WALK,
    LaunchParameter,
    canonical_launch,
)
from autofuse.plan.types import FusionGroup, LaunchConfig, Setting
from search_spaces.cpu_rows import PARAMETERS, one_pass_options
from search_spaces.cpu_tiles import tile_options
from search_spaces.cpu_walks import walk_options
from search_spaces.launch import (
    Chooser,
    Chosen,
    choose_settings,
    divisors,
    first_option,
    kernel_kind,
    loop_iterations,
    widest_form,
)
from search_spaces.tile_facts import TILE_PARAMETERS, TileFacts, tile_facts

# Below this many elements a second thread costs more than it brings (measured: about 2 us).
SERIAL_WORK = 1 << 13
# Results larger than this leave the cache anyway before anyone reads them.
STREAM_BYTES = 1 << 25
# Tiles by kind of kernel, the usual one first: a loop's state stays in the first-level cache.
LANE_TILES: dict[str, tuple[Setting, ...]] = {
    ITEM: (1024, 256, 4096, 16384),
    LOOP: (256, 64, 128, 512, 1024),
}


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# Whether oneDNN is here and does a call for so many threads.
DoesCall = Callable[[DnnlCall, int], bool]


def nowhere(call: DnnlCall, threads: int) -> bool:
    """As where oneDNN is not installed."""
    return False


class CpuLaunchSpace:
    """One library with a pool of threads, on a processor with vectors of `vector_bits`; `onednn`
    says what that library computes there."""

    def __init__(self, vector_bits: int = 512, onednn: DoesCall = nowhere) -> None:
        self.vector_bits, self.onednn = vector_bits, onednn

    def kind(self, graph: Graph, group: FusionGroup) -> str:
        kind = kernel_kind(graph, group, C)
        walked = walked_tiles(graph, group) if kind == ITEM else None
        return DIAGONAL if walked is not None else kind

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
        tiled = kind in (*TILES, DIAGONAL)
        facts = tile_facts(graph, group, diagonal=kind == DIAGONAL) if tiled else None

        def offer(row: LaunchParameter[Any], made: Chosen) -> tuple[Setting, ...]:
            if row is C_IMPL:
                return self._implementations(graph, group, kind, made["threads"])
            if made.get(C_IMPL.name) in (BLAS, ONEDNN):
                return ()  # a library decides itself
            if row.name in TILE_PARAMETERS or (row is VECTOR_BITS and tiled):
                return self._tiled(row, made, facts)
            if row is WALK:
                return _walks(graph, group, kind)
            if row is THREADS:
                return _threads(graph, group)
            if row is TILE:
                return _tiles(graph, group, kind, made["threads"])
            if row is LOOP_UNROLL:
                return divisors(row.choices, loop_iterations(graph, group))
            if row is MERGE and not _sorts(graph, group):
                return ()
            if row is STREAM and not _streamable(graph, group):
                return ()
            return row.choices

        made = choose_settings(C_LAUNCH, kind, offer, chooser, prefix)
        if kind != GEMM and made.get(C_IMPL.name) == GENERATED:
            del made[C_IMPL.name]  # what is no product is a kernel anyway
        return canonical_launch(C_LAUNCH, made)

    def _implementations(
        self, graph: Graph, group: FusionGroup, kind: str, threads: int
    ) -> tuple[Setting, ...]:
        """Who may compute a product or a convolution; nothing to choose where only a kernel can."""
        found = dnnl_group(graph, group)
        onednn = (ONEDNN,) if found is not None and self.onednn(found.call, threads) else ()
        if kind == GEMM:
            return (BLAS, *onednn, GENERATED)
        return (GENERATED, *onednn) if onednn else ()

    def _tiled(
        self, row: LaunchParameter[Any], made: Chosen, facts: TileFacts | None
    ) -> tuple[Setting, ...]:
        """Options of what only tiles have, and of the vectors they are made of."""
        if facts is None:
            return ()
        if row is VECTOR_BITS:
            return (self.vector_bits,)
        if facts.one_pass and row.name in PARAMETERS:
            found = one_pass_options(row.name, facts, made)
            if found is not None:
                return found
        offered = walk_options if made.get(WALK.name) else tile_options
        return offered(row.name, facts, made["threads"], self.vector_bits)


def _threads(graph: Graph, group: FusionGroup) -> tuple[Setting, ...]:
    first = 1 if _work(graph, group) < SERIAL_WORK else cores()
    return tuple(dict.fromkeys((first, cores(), 1)))


def _walks(graph: Graph, group: FusionGroup, kind: str) -> tuple[Setting, ...]:
    """Whether patches are read where they lie, where there are some."""
    if kind == DIAGONAL:
        return (True,)
    walked = walked_tiles(graph, group) is not None
    return (True, False) if walked else ()


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


def _streamable(graph: Graph, group: FusionGroup) -> bool:
    """Large results that no later kernel of the plan could find in the cache."""
    written = sum(graph.type_of(v).nbytes for v in group.outputs)
    leaves = set(graph.outputs)
    return written >= STREAM_BYTES and all(v in leaves for v in group.outputs)
