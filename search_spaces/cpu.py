"""The launch space of CPU kernels, made of the rows of `plan.parameters.C_LAUNCH`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from autofuse.graph.types import Graph
from autofuse.kernel.elements.thread_per_element import SHORT
from autofuse.kernel.library.gemm import library_product, library_solver
from autofuse.kernel.library.onednn import DnnlCall, dnnl_group
from autofuse.kernel.lower import walked_tiles
from autofuse.kernel.passes.nest_lanes import LEAST_LANES
from autofuse.kernel.text.dialects import C
from autofuse.limits import usable_cores
from autofuse.ops.control import is_counted
from autofuse.ops.dtypes import DType
from autofuse.ops.spec import Family, Motion
from autofuse.plan.fusion.groups import reads
from autofuse.plan.parameters import (
    ACROSS,
    AHEAD,
    AMX_MMA,
    BATCH_LANES,
    BLAS,
    C_IMPL,
    C_LAUNCH,
    C_MATH,
    C_MMA,
    DIAGONAL,
    DOT,
    FAST_DIVISION,
    FFT,
    GEMM,
    GENERATED,
    HALO,
    ITEM,
    LINES,
    LOOP,
    LOOP_UNROLL,
    MERGE,
    MICRO,
    NO_MMA,
    ONEDNN,
    PAIRS,
    PREPACK,
    RESIDENT,
    ROW,
    SPLIT,
    STREAM,
    THREADS,
    TILE,
    TILES,
    TRANSFORM,
    TRANSPOSE,
    VECTOR_BITS,
    WALK,
    LaunchParameter,
    canonical_launch,
)
from autofuse.plan.program.binding import may_run_once
from autofuse.plan.program.packing import packing_of
from autofuse.plan.schedules.halo import kept_values, repeats_too_much
from autofuse.plan.types import FusionGroup, LaunchConfig, Setting
from search_spaces.cpu_amx import amx_options
from search_spaces.cpu_lanes import lane_options
from search_spaces.cpu_rows import PARAMETERS, even_first, one_pass_options
from search_spaces.cpu_tiles import may_dot, tile_options
from search_spaces.cpu_walks import walk_options
from search_spaces.launch import (
    Chooser,
    Chosen,
    LaunchSpace,
    as_written,
    choose_settings,
    chosen_inside,
    divisors,
    first_option,
    kernel_kind,
    loop_iterations,
    permutes,
    widest_form,
)
from search_spaces.splits import split_options
from search_spaces.tile_cost import Machine
from search_spaces.tile_facts import TILE_PARAMETERS, TileFacts, tile_facts

# Below this many elements a second thread costs more than it brings (measured: about 2 us).
SERIAL_WORK = 1 << 13
# From this many on one thread alone is not worth a measurement.
SHARED_WORK = 1 << 19
# Rows of a product up to which our kernel is the likely best: libraries pack its right operand, or
# read it panel by panel (measured on Zen 3).
FEW_ROWS = 16
# Multiply-adds of each of many products up to which calling a library for it takes longer than they
# do: a call takes 0.2 to 0.4 us (measured on Zen 3).
SMALL_PRODUCT = 1 << 12
# Results larger than this leave the cache anyway before anyone reads them.
STREAM_BYTES = 1 << 25
# Arrays smaller than this wait in the second-level cache, where nobody has to ask for them.
AHEAD_BYTES = 1 << 18
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


# Whether oneDNN is here and does a call for so many threads.
DoesCall = Callable[[DnnlCall, int], bool]


def nowhere(call: DnnlCall, threads: int) -> bool:
    """As where oneDNN is not installed."""
    return False


class CpuLaunchSpace(LaunchSpace):
    """One library with a pool of threads, on a processor with vectors of `vector_bits`, data caches
    of `caches` bytes, an instruction for pairs of bf16 if `pairs` and tiles of them if `amx`;
    `onednn` says what that library computes there, `fft` whether pocketfft is there; `relaxed`
    whether kernels may change arithmetic."""

    def __init__(
        self, vector_bits: int = 512, onednn: DoesCall = nowhere, caches: Caches = USUAL_CACHES,
        pairs: bool = False, fft: bool = True, amx: bool = False, relaxed: bool = False,
    ) -> None:  # fmt: skip
        self.vector_bits, self.onednn, self.caches = vector_bits, onednn, caches
        self.pairs, self.fft, self.amx, self.relaxed = pairs, fft, amx, relaxed

    def kind(self, graph: Graph, group: FusionGroup) -> str:
        kind = kernel_kind(graph, group, C)
        walked = walked_tiles(graph, group) if kind == ITEM else None
        return DIAGONAL if walked is not None else kind

    def default(self, graph: Graph, group: FusionGroup) -> LaunchConfig:
        return self.choose(graph, group, first_option, "")

    def choose(
        self, graph: Graph, group: FusionGroup, chooser: Chooser, prefix: str
    ) -> LaunchConfig:
        kind = self.kind(graph, group)
        if may_run_once(graph, group.nodes):
            chooser = first_option  # it runs before any call: no choice is worth a measurement
        tiled = kind in (*TILES, DIAGONAL)
        facts = tile_facts(graph, group, diagonal=kind == DIAGONAL) if tiled else None

        def offer(row: LaunchParameter[Any], made: Chosen) -> tuple[Setting, ...]:
            if row is C_IMPL:
                return self._implementations(graph, group, kind, made["threads"], facts)
            if made.get(C_IMPL.name) in (BLAS, ONEDNN, FFT):
                return ()  # a library decides itself
            if row is PREPACK:
                return self._prepack(graph, group, facts, made)
            if tiled and (row.name in TILE_PARAMETERS or row is VECTOR_BITS):
                return self._tiled(row, made, facts)
            if row is WALK:
                return _walks(graph, group, kind)
            if row is THREADS:
                return _threads(graph, group)
            if row is TILE:
                return _tiles(graph, group, kind, made["threads"])
            if row is RESIDENT:
                return _resident(graph, group)
            if row is HALO:
                return _halo(graph, group)
            if row is LOOP_UNROLL:
                return divisors(row.choices, loop_iterations(graph, group))
            if row is TRANSPOSE:
                return (True, False) if permutes(graph, group) else ()
            if row is MERGE and not _sorts(graph, group):
                return ()
            if row is STREAM:
                return _streams(graph, group)
            if row is C_MATH:
                return _maths(graph, group, kind)
            if row is AHEAD:
                return _ahead(graph, group)
            return row.choices

        asked = offer if self.relaxed else as_written(offer)
        made = choose_settings(C_LAUNCH, kind, asked, chooser, prefix)
        if kind != GEMM and made.get(C_IMPL.name) == GENERATED:
            del made[C_IMPL.name]  # what is no product is a kernel anyway
        inner = chosen_inside(self, graph, group, chooser, prefix)
        return replace(canonical_launch(C_LAUNCH, made), inner=inner)

    def _implementations(
        self, graph: Graph, group: FusionGroup, kind: str, threads: int, facts: TileFacts | None
    ) -> tuple[Setting, ...]:
        """Who may compute a product or a convolution, the likely best first; nothing to choose
        where only a kernel can."""
        if kind == TRANSFORM:
            return (FFT, GENERATED) if self.fft else (GENERATED,)
        found = dnnl_group(graph, group)
        onednn = (ONEDNN,) if found is not None and self.onednn(found.call, threads) else ()
        if kind == GEMM:
            few = facts is not None and facts.rows <= FEW_ROWS
            ours = few or _are_small(graph, group)
            return (GENERATED, *onednn, BLAS) if ours else (BLAS, *onednn, GENERATED)
        return (GENERATED, *onednn) if onednn else ()

    def _tiled(
        self, row: LaunchParameter[Any], made: Chosen, facts: TileFacts | None
    ) -> tuple[Setting, ...]:
        """Options of what only tiles have, and of the vectors they are made of."""
        if facts is None:
            return ()
        if row is VECTOR_BITS:
            return (self.vector_bits,)
        if made.get(PREPACK.name):
            facts = replace(facts, packed=True)
        machine = Machine(self.vector_bits, made["threads"], *self.caches)
        if made.get(WALK.name):
            return walk_options(row.name, facts, made, machine)
        if row is LINES:
            return ()
        if row is BATCH_LANES:
            return (True, False) if facts.batch_last else ()
        if made.get(BATCH_LANES.name):
            return lane_options(row.name, facts, self.vector_bits)
        by_amx = made.get(C_MMA.name) == AMX_MMA
        if row in (C_MMA, PAIRS):
            return self._halves(row, facts) if not by_amx else ()
        if row is SPLIT:
            return split_options(facts, made, machine.threads)
        if by_amx:
            return amx_options(row.name, facts, made, machine)
        if facts.one_pass and row.name in PARAMETERS:
            found = one_pass_options(row.name, facts, made, self.vector_bits)
            if found is not None:
                return found
        if row is ACROSS and made.get(PAIRS.name):
            return ()
        found = tile_options(row.name, facts, made, machine)
        return even_first(found, facts, self.vector_bits) if row is MICRO else found

    def _halves(self, row: LaunchParameter[Any], facts: TileFacts) -> tuple[Setting, ...]:
        """How factors of bf16 may be multiplied as they are."""
        if facts.factors is not DType.BF16 or facts.local:
            return ()
        if row is PAIRS:
            return (True, False) if self.pairs else ()
        return (AMX_MMA, NO_MMA) if self.amx else ()

    def _prepack(
        self, graph: Graph, group: FusionGroup, facts: TileFacts | None, made: Chosen
    ) -> tuple[Setting, ...]:
        """Where some right operand is made of constants, packing it once comes first, unless it is
        likely to be read from end to end as it lies."""
        once = LaunchConfig.of(**{**made, PREPACK.name: True})
        if facts is None or packing_of(graph, group, once) is None:
            return ()
        as_it_lies = may_dot(facts) and self._tiled(DOT, made, facts)[:1] == (True,)
        return (False, True) if as_it_lies else (True, False)


def _are_small(graph: Graph, group: FusionGroup) -> bool:
    """Whether a group is several products each of which is small."""
    found = library_product(graph, group, C)
    if found is None or found.form.products == 1:
        return False
    return found.form.m * found.form.n * found.form.k <= SMALL_PRODUCT


def _threads(graph: Graph, group: FusionGroup) -> tuple[Setting, ...]:
    solver = library_solver(graph, group)
    if solver is not None and solver.count == 1:
        return (1,)
    work = _work(graph, group)
    if work >= SHARED_WORK:
        return (usable_cores(),)
    return tuple(dict.fromkeys((1 if work < SERIAL_WORK else usable_cores(), usable_cores(), 1)))


def _walks(graph: Graph, group: FusionGroup, kind: str) -> tuple[Setting, ...]:
    """Whether patches are read where they lie, where there are some."""
    if kind == DIAGONAL:
        return (True,)
    walked = walked_tiles(graph, group) is not None
    return (True, False) if walked else ()


def _tiles(graph: Graph, group: FusionGroup, kind: str, threads: int) -> tuple[Setting, ...]:
    """In a loop no tile is so large that a thread goes without work; elsewhere tiles are whole
    rows where these are short: lanes may then walk one after another."""
    form = widest_form(graph, group)
    if kind != LOOP or form is None:
        last = form.parallel[-1] if form is not None and form.parallel else 1
        whole = last if 1 < last < SHORT and _walks_rows(graph, group, last) else 1
        return tuple(int(tile) // whole * whole for tile in LANE_TILES[kind])
    share = max(16, -(-form.items // threads))
    return tuple(dict.fromkeys(min(int(tile), share) for tile in LANE_TILES[kind]))


def _resident(graph: Graph, group: FusionGroup) -> tuple[Setting, ...]:
    """A loop as one job of several threads, where its iterations are counted."""
    counted = is_counted(graph[group.nodes[0]].op)
    return (False, True) if counted and usable_cores() > 1 else ()


def _halo(graph: Graph, group: FusionGroup) -> tuple[Setting, ...]:
    """Rows of tiles where values can be kept, first of all where each item would compute many."""
    form = widest_form(graph, group)
    if form is None or not kept_values(graph, form):
        return ()
    rows = tuple(row for row in HALO.choices if row)
    return rows if repeats_too_much(graph, form) else (0, *rows)


def _cuts(graph: Graph, group: FusionGroup) -> bool:
    """Whether positions along some axis are shifted."""
    return any(graph[n].spec.motion is Motion.CUT for n in group.nodes)


def _walks_rows(graph: Graph, group: FusionGroup, last: int) -> bool:
    """Whether lanes had better walk rows of so many: positions are shifted, windows slide across
    rows, or a row is read again for each of others (a number for each channel, say), or a few
    channels come together."""
    if last < LEAST_LANES:
        return permutes(graph, group)
    if any(graph[n].spec.family is Family.WINDOW for n in group.nodes):
        return True
    nodes = (graph[n] for n in group.nodes if graph[n].spec.motion is Motion.REPEAT)
    again = (graph.type_of(node.inputs[0]).shape == node.types[0].shape[-1:] for node in nodes)
    return _cuts(graph, group) or any(again)


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


def _ahead(graph: Graph, group: FusionGroup) -> tuple[Setting, ...]:
    """Rows of arrays that lie farther away may be asked for ahead."""
    values = (*group.outputs, *reads(graph, group.nodes))
    far = sum(graph.type_of(v).nbytes for v in values) >= AHEAD_BYTES
    return (True, False) if far else ()


def _maths(graph: Graph, group: FusionGroup, kind: str) -> tuple[Setting, ...]:
    """Where rows may share divisors fast division comes first: its error is below the noise that
    the reference is perturbed by (`measure/check/compare.py`). But 6 / 3 should be 2 where it is
    counted by."""
    nodes = [(graph[n].spec, graph.call(n)) for n in group.nodes]
    divides = any(spec.divides for spec, _ in nodes)
    others = tuple(m for m in C_MATH.choices if m != FAST_DIVISION)
    if kind != ROW or not divides or any(spec.snaps(call) for spec, call in nodes):
        return others
    return (FAST_DIVISION, *others)
