"""The launch space of CUDA kernels, made of the rows of `plan.parameters.CUDA_LAUNCH` as far as a
device can hold them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from autofuse.graph.types import Graph
from autofuse.kernel.cuda.settings import IN_FLIGHT
from autofuse.kernel.library.gemm import could_be_epilogue
from autofuse.kernel.text.dialects import CUDA
from autofuse.ops.control import is_counted
from autofuse.ops.dtypes import DType
from autofuse.ops.spec import OpSpec
from autofuse.ops.types import OpCall
from autofuse.plan.fusion.groups import reads
from autofuse.plan.parameters import (
    BLOCK_THREADS,
    BLOCKS,
    BODY,
    CUDA_IMPL,
    CUDA_LAUNCH,
    CUDA_RESIDENT,
    FAST_DIVISION,
    FFT,
    GEMM,
    GENERATED,
    IMPL,
    ITEM,
    LOOP,
    MMA,
    PINGPONG,
    PRODUCT,
    ROW,
    STAGES,
    TAIL,
    TILES,
    TRANSFORM,
    WAVE,
    LaunchParameter,
    canonical_launch,
)
from autofuse.plan.program.binding import may_run_once
from autofuse.plan.schedules.forms import Form, local_shape
from autofuse.plan.types import FusionGroup, LaunchConfig, Setting
from search_spaces.cuda_fragments import fragment_options, groups_first
from search_spaces.cuda_libraries import by_libraries, untiled
from search_spaces.cuda_limits import CommonLimits, DeviceLimits
from search_spaces.cuda_maps import with_maps
from search_spaces.cuda_tiles import OFFERED, Fits, room_for, tile_options
from search_spaces.launch import (
    Chooser,
    Chosen,
    Offer,
    as_written,
    choose_settings,
    chosen_inside,
    divisors,
    first_option,
    kernel_kind,
    loop_iterations,
    only,
    ordered,
    permutes,
    widest_form,
)
from search_spaces.tile_facts import TILE_PARAMETERS, TileFacts, tile_facts

WARP = 32
VECTOR_BYTES = 16
# Elements of a row that one thread may keep in registers.
ROW_REGISTERS = 32
# Blocks that a counted loop may have besides the usual ones: its few items each take long, and half
# a warp on a multiprocessor of its own waits for no other.
LOOP_BLOCKS = (16, 32)
# Shared memory that folds over a block take besides rows: 256 bytes each.
FOLD_BYTES = 1 << 10
# Rows up to this length are folded by a warp unless something else is asked for.
WARP_ROW = 1024
# Rows in shared memory at once, of those that are copied ahead.
MOST_AHEAD = 3
# Rows of which each gives work to several blocks.
SPLIT_ROW = 1 << 14


@dataclass(frozen=True, slots=True)
class _Facts:
    """A group as far as its space depends on it: independent items, the longest row, bytes of all
    it reads, bytes of the widest and the narrowest element it reads or writes, whether it moves
    axes about, the iterations of its counted loops, whether it has quotients or square roots of
    f32, and whether it turns floats into whole numbers."""

    kind: str
    items: int
    row: int
    read: int
    widest: int
    narrowest: int
    transposes: bool
    iterations: tuple[int, ...]
    divides: bool
    snaps: bool


class CudaLaunchSpace:
    """Kernels of one device: `limits` as in `backends.cuda.devices.Target`; is cuBLASLt there, and
    a driver that makes tensor `maps`? May kernels change arithmetic (`relaxed`)?"""

    def __init__(
        self, limits: DeviceLimits | None = None, blaslt: bool = False, maps: bool = True,
        relaxed: bool = False,
    ) -> None:  # fmt: skip
        self.limits: DeviceLimits = limits or CommonLimits()
        self.blaslt, self.maps, self.relaxed = blaslt, maps, relaxed

    def kind(self, graph: Graph, group: FusionGroup) -> str:
        return kernel_kind(graph, group, CUDA)

    def default(self, graph: Graph, group: FusionGroup) -> LaunchConfig:
        return self.choose(graph, group, first_option, "")

    def ruled(
        self, graph: Graph, group: FusionGroup, threads: int, items: int, strided: bool
    ) -> LaunchConfig:
        default = self.default(graph, group)
        if self.kind(graph, group) != ITEM:
            return default
        vector = max(w for w in _widths(_facts(graph, group, ITEM)) if w <= max(items, 1))
        block = min(-(-threads // WARP) * WARP, self.limits.threads_per_block)
        grid = "stride" if strided else "one"
        asked: dict[str, Setting] = {
            "threads": block, "items": max(items, 1), "vector": vector, "grid": grid,
        }  # fmt: skip
        return canonical_launch(CUDA_LAUNCH, {**dict(default.settings), **asked})

    def choose(
        self, graph: Graph, group: FusionGroup, chooser: Chooser, prefix: str
    ) -> LaunchConfig:
        kind = self.kind(graph, group)
        if may_run_once(graph, group.nodes):
            chooser = first_option  # it runs before any call: no choice is worth a measurement
        offer: Offer = partial(_offer, self.limits, _facts(graph, group, kind))
        facts = tile_facts(graph, group) if kind in TILES else None
        if facts is not None:
            fits = room_for(graph, group, self.limits.shared_per_block - FOLD_BYTES)
            offer = partial(_tiled, offer, facts, self.limits, fits)
            if self.maps:
                offer = with_maps(offer, graph, group)
        elif kind == GEMM:
            offer = untiled(offer)
        elif kind == TRANSFORM:
            offer = only(CUDA_IMPL, (FFT, GENERATED))
        elif kind == BODY:
            counted = is_counted(graph[group.nodes[0]].op)
            offer = only(CUDA_RESIDENT, CUDA_RESIDENT.choices if counted else ())
        if kind in TILES:
            lt = self.blaslt and could_be_epilogue(graph, group, CUDA)
            offer = by_libraries(offer, kind, lt)
        asked = offer if self.relaxed else as_written(offer)
        made = choose_settings(CUDA_LAUNCH, kind, asked, chooser, prefix)
        if int(made.get(TAIL.name, TAIL.default)) > TAIL.default:
            made[WAVE.name] = self.limits.sms
        if kind == PRODUCT and made.get(IMPL.name) == GENERATED:
            del made[IMPL.name]  # what is no product is a kernel anyway
        inner = chosen_inside(self, graph, group, chooser, prefix)
        return replace(canonical_launch(CUDA_LAUNCH, made), inner=inner)


def _offer(
    limits: DeviceLimits, facts: _Facts, row: LaunchParameter[Any], made: Chosen
) -> tuple[Setting, ...]:
    if made.get("impl") == "blas" and row.name not in ("impl", "math"):
        return ()  # cuBLAS decides itself
    narrow = _NARROWER.get(row.name)
    return row.choices if narrow is None else narrow(_Question(limits, facts, row.choices, made))


def _tiled(
    offer: Offer, facts: TileFacts, limits: DeviceLimits, fits: Fits, row: LaunchParameter[Any],
    made: Chosen,
) -> tuple[Setting, ...]:  # fmt: skip
    """What of a parameter matters to a kernel in the tile schedule."""
    if row is IMPL or made.get(IMPL.name) == "blas":
        return offer(row, made)
    if row.name not in OFFERED:
        return ()
    kept = fragment_options(row.name, facts, limits, made, fits)
    if kept is not None:
        return kept
    if row.name in TILE_PARAMETERS or row in (BLOCK_THREADS, STAGES, BLOCKS, PINGPONG):
        found = tile_options(row.name, facts, limits, made, fits)
        return groups_first(found, facts, limits, fits) if row.name == MMA.name else found
    return offer(row, made)


# --- what of a parameter's choices is offered to a kernel -----------------------------------------


@dataclass(frozen=True, slots=True)
class _Question:
    """A kernel on a device, a parameter's choices, and what has been chosen before it."""

    limits: DeviceLimits
    facts: _Facts
    choices: tuple[Any, ...]
    made: Chosen


def _folds(q: _Question) -> tuple[Setting, ...]:
    """Ways to fold rows, the likely best first."""
    found: list[Setting] = ["warp", "block"] if q.facts.row <= WARP_ROW else ["block", "warp"]
    if q.facts.row > ROW_REGISTERS * WARP_ROW:
        found.remove("warp")
    if q.facts.row >= SPLIT_ROW:
        found += ["split", "barrier"]
        if q.facts.items < q.limits.sms // 2:  # too few rows to give every one work
            found.insert(0, found.pop(found.index("split")))
        if q.limits.clusters:
            found.append("cluster")
    return tuple(found)


def _threads(q: _Question) -> tuple[Setting, ...]:
    if q.made.get("reduce") == "warp":
        return (256, 128, 512)
    if q.facts.kind == ROW:
        # Where there are too few rows to fill the device, each has more threads instead.
        many = q.facts.items >= 2 * q.limits.sms
        each = max(4, min(ROW_REGISTERS, IN_FLIGHT // q.facts.widest)) if many else 4
        least = -(-q.facts.row // (each * WARP)) * WARP
        first = max(WARP, min(1 << (least - 1).bit_length(), 512))
        found = q.choices
    else:
        found, most = (LOOP_BLOCKS + q.choices, 128) if q.facts.kind == LOOP else (q.choices, 256)
        # No multiprocessor is idle for want of blocks.
        per_sm = q.facts.items // _wide(q.facts) // q.limits.sms
        first = max(min(found), min(most, 1 << max(per_sm, 1).bit_length() - 1))
    return ordered(first, tuple(t for t in found if t <= q.limits.threads_per_block))


def _rows(q: _Question) -> tuple[Setting, ...]:
    return q.choices if q.made["reduce"] == "warp" else ()


def _vectors(q: _Question) -> tuple[Setting, ...]:
    if q.facts.kind == LOOP:
        return (1,)
    odd = q.facts.kind == ROW and q.facts.row % _wide(q.facts)
    return ordered(1 if odd else _wide(q.facts), _widths(q.facts))


def _items(q: _Question) -> tuple[Setting, ...]:
    """At least a vector, and as many as memory is kept busy by, if there are enough for all threads
    of the device; one for loops, whose state is in registers."""
    if q.facts.kind == LOOP:
        return (1,)
    vector = q.made["vector"]
    first = max(vector, _wide(q.facts))
    busy = q.limits.sms * q.limits.threads_per_sm
    room = IN_FLIGHT * q.facts.items // max(q.facts.read, 1)
    if not q.facts.transposes:
        more = (n for n in q.choices if first <= n <= room and n * busy <= q.facts.items)
        first = max(more, default=first)
    return ordered(first, tuple(n for n in q.choices if n >= vector))


def _keeps(q: _Question) -> tuple[Setting, ...]:
    """Where a row of one thread, or the rows of a block, have room."""
    warps = q.made["reduce"] == "warp"
    team, per_block = (WARP, q.made["threads"] // WARP) if warps else (q.made["threads"], 1)
    found: list[Setting] = []
    blocks = q.limits.clusters if q.made["reduce"] == "cluster" else 1
    if -(-q.facts.row // (team * blocks)) <= ROW_REGISTERS:
        found.append("registers")
    room = q.limits.shared_per_block - FOLD_BYTES
    if per_block * q.facts.row * max(4, q.facts.narrowest) <= room:
        found.append("shared")
    return (*found, "reread")


def _grids(q: _Question) -> tuple[Setting, ...]:
    return ("one",) if q.made.get("reduce") in ("barrier", "cluster") else q.choices


def _strides(q: _Question, teams: int) -> bool:
    """Whether warps or blocks go from row to row, each alone."""
    alone = q.made.get("reduce") in ("warp", "block") and not q.made.get("rows")
    return alone and q.made["grid"] == "stride" and q.facts.items > teams * q.limits.sms


def _stages(q: _Question) -> tuple[Setting, ...]:
    """Rows to come have room besides one that is kept, and are as many whole copies for a block (or
    each of its warps) that goes from row to row."""
    reduce = q.made.get("reduce")  # none: a product in no tiles, which has no rows
    teams = q.made["threads"] // WARP if reduce == "warp" else 1
    if not _strides(q, teams) or q.facts.row * q.facts.narrowest % VECTOR_BYTES:
        return ()
    room = q.limits.shared_per_block - FOLD_BYTES - teams * q.facts.row * max(4, q.facts.narrowest)
    some = (n for n in q.choices if n <= MOST_AHEAD)
    return tuple(n for n in some if n * teams * (q.facts.read // q.facts.items) <= room)


def _turns(q: _Question) -> tuple[Setting, ...]:
    return q.choices if q.facts.transposes else ()


def _unrolls(q: _Question) -> tuple[Setting, ...]:
    return divisors(q.choices, q.facts.iterations)


def _blocks(q: _Question) -> tuple[Setting, ...]:
    most = q.limits.threads_per_sm // q.made["threads"]
    # More threads than registers for 32 each would spill everything.
    room = q.limits.registers_per_sm // (WARP * q.made["threads"])
    return tuple(b for b in q.choices if b <= min(most, room))


def _earlies(q: _Question) -> tuple[Setting, ...]:
    """Not where blocks wait for each other: they must not be in each other's way."""
    return q.choices if q.limits.early and q.made.get("reduce") != "barrier" else ()


def _hints(q: _Question) -> tuple[Setting, ...]:
    return q.choices if q.made.get("vector", 1) > 1 else ()


def _maths(q: _Question) -> tuple[Setting, ...]:
    """The error of fast division is below the noise that the reference is perturbed by
    (`measure/check/compare.py`), so it comes first; but 6 / 3 should be 2 where it is counted by.
    A library call has no quotients. It may round factors of f32 (TF32) or sums of halves, which the
    checker may refuse."""
    if q.made.get("impl") == "blas" and q.facts.widest > DType.F32.itemsize:
        return ()
    if not q.facts.divides:
        return ordered("strict", tuple(m for m in q.choices if m != FAST_DIVISION))
    return q.choices if q.facts.snaps else ordered(FAST_DIVISION, q.choices)


_NARROWER: Mapping[
    str, Callable[[_Question], tuple[Setting, ...]]
] = {
    "reduce": _folds, "threads": _threads, "rows": _rows, "vector": _vectors, "items": _items,
    "keep": _keeps, "grid": _grids, "stages": _stages, "transpose": _turns, "loop_unroll": _unrolls,
    "blocks": _blocks, "math": _maths, "early": _earlies, "hints": _hints,
}  # fmt: skip


def _wide(facts: _Facts) -> int:
    """The usual width of an access, in elements."""
    return 1 if facts.kind == LOOP else max(1, min(4, VECTOR_BYTES // facts.widest))


def _widths(facts: _Facts) -> tuple[int, ...]:
    """Widths of at most 16 bytes of what is widest."""
    return tuple(w for w in (1, 2, 4, 8) if w * facts.widest <= VECTOR_BYTES)


def _row_and_items(graph: Graph, group: FusionGroup, form: Form | None) -> tuple[int, int]:
    if form is None:
        return 1, max((graph.type_of(v).size for v in group.outputs), default=1)
    row = max((math.prod(local_shape(graph, v, t)) for v, t in form.tags), default=1)
    return row, max(1, form.items)


def _facts(graph: Graph, group: FusionGroup, kind: str) -> _Facts:
    form = widest_form(graph, group)
    taken = [graph.type_of(v) for v in reads(graph, group.nodes)]
    read = sum(t.size * t.dtype.itemsize for t in taken)
    values = (*reads(graph, group.nodes), *group.outputs)
    widths = [graph.type_of(v).dtype.itemsize for v in values if graph.type_of(v).size > 1] or [4]
    row, items = _row_and_items(graph, group, form)
    iterations = loop_iterations(graph, group)
    calls = list(_calls(graph, group.nodes))
    divides = any(spec.divides and call.out.dtype.compute is DType.F32 for spec, call in calls)
    snaps = any(spec.snaps(call) for spec, call in calls)
    return _Facts(
        kind, items, row, read, max(widths), min(widths), permutes(graph, group), iterations,
        divides, snaps,
    )  # fmt: skip


def _calls(graph: Graph, nodes: Iterable[int]) -> Iterator[tuple[OpSpec, OpCall]]:
    """The calls of these nodes, with those inside their loops."""
    for position in nodes:
        node = graph[position]
        yield node.spec, graph.call(position)
        for _, inner in node.attrs:
            if isinstance(inner, Graph):
                yield from _calls(inner, range(len(inner.nodes)))
