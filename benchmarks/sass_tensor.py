"""What the machine code of a product on tensor cores does, and what share of their
peak it may reach (`tensor_model.py`), beside published kernels (`tensor_ladders.py`).

Of warps, the text between the barrier before the first load of matrices and the last product is
what one does for a run of terms. Of warpgroups it is from the wait for a run to the arrival that
gives its place back, and of the one that fetches from its wait to its arrival, or, where it has
boxes copied, which one of its warps does, to where it meets the others. Encodings were read
off kernels that have a known number of each; the rest is as in `sass.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from autofuse import spec, trace
from autofuse.backends.cuda.build import build_flags
from autofuse.backends.cuda.devices import Target, blocks_resident, target_named
from autofuse.backends.cuda.facts import parse_log
from autofuse.backends.cuda.nvrtc import compile_cubin
from autofuse.backends.cuda.program import Unit, unit_of
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph, Value
from autofuse.kernel.cuda.wgmma import GROUP, ROWS, STEP_BYTES, WARPS
from autofuse.kernel.ir.instructions import INSTRUCTIONS
from autofuse.plan.fusion.clusters import live
from autofuse.plan.fusion.groups import needed_outputs, reads
from autofuse.plan.parameters import (
    BLAS,
    BLOCK_THREADS,
    MICRO,
    MMA,
    PINGPONG,
    STAGES,
    TAIL,
    Setting,
)
from autofuse.plan.program.steps import Ref, Run
from autofuse.plan.types import FusionGroup, LaunchConfig
from autofuse.tuning.search.launches import parameter_of
from benchmarks.sass import BARRIER, decoded, kernel_code
from benchmarks.tensor_ladders import rung_row
from benchmarks.tensor_model import BANKS_BYTES, Blocks, RunFacts, after_runs, meeting, tensor_share
from search_spaces import CudaLaunchSpace

MULTIPLY, MATRICES, AHEAD = 0x23C, 0x83B, 0xFAE
# A product of a warpgroup, a look at an mbarrier, an arrival at one.
BY_GROUP, WAIT, ARRIVE = 0x9F0, 0x5A7, 0x9A7
# A box that a tensor map says how to copy.
BOX = 0x5B4
# Products of floats, and of bytes, of which a kernel has either.
BY_WARPS, BY_GROUPS = (MULTIPLY, 0x237), (BY_GROUP, 0x9F1)
# Multiply-adds of a product of a warp; turns of the banks for four matrices.
TERMS_OF_A_PRODUCT, TURNS, PIECE, WARP = 16 * 8 * 16, 4, 16, 32


def warp_facts(made: Sequence[int], warps: int, itemsize: int = 2) -> RunFacts:
    """Of a block of `warps` that all do the same, whose operations are these, in order. One product
    on tensor cores, of factors of so many bytes, is in the text."""
    multiply = next(m for m in BY_WARPS if m in made)
    first, last = made.index(MATRICES), len(made) - 1 - made[::-1].index(multiply)
    begin = max(k for k in range(first) if made[k] == BARRIER)
    run = made[begin : last + 1]
    products, loads = run.count(multiply), run.count(MATRICES)
    return RunFacts(
        products, loads, warps * products * TERMS_OF_A_PRODUCT * 2 // itemsize,
        warps * loads * TURNS * BANKS_BYTES,
        warps * run.count(AHEAD) * WARP * PIECE, warps * len(run),
    )  # fmt: skip


def group_facts(
    made: Sequence[int], groups: int, columns: int, terms: int = 16, boxed: int = 0
) -> RunFacts:
    """Of a block in which `groups` warpgroups multiply 64 rows by so many columns and terms at a
    time, and one more fetches, `boxed` bytes of a run in boxes."""

    def turn(operation: int, end: int = ARRIVE) -> list[int]:
        """From the last wait before the first such operation to the first `end` after the last."""
        first, last = made.index(operation), len(made) - 1 - made[::-1].index(operation)
        begin = max(k for k in range(first) if made[k] == WAIT)
        return list(made[begin : made.index(end, last) + 1])

    multiply = next(m for m in BY_GROUPS if m in made)
    fetching = turn(AHEAD) if AHEAD in made else turn(BOX, BARRIER)
    multiplying = turn(multiply)
    products = multiplying.count(multiply)
    return RunFacts(
        products, 0, groups * products * ROWS * columns * terms,
        groups * products * (ROWS + columns) * STEP_BYTES,
        WARPS * fetching.count(AHEAD) * WARP * PIECE + boxed,
        WARPS * (groups * len(multiplying) + len(fetching)),
    )  # fmt: skip


def run_facts(made: Sequence[int], launch: LaunchConfig) -> RunFacts:
    """What a block does for one run of terms under a launch configuration with tensor cores."""
    threads = BLOCK_THREADS.of(launch)
    row = INSTRUCTIONS[str(MMA.of(launch))]
    if row.together > WARP:
        terms = STEP_BYTES // row.factors[0].itemsize
        groups = 1 if PINGPONG.of(launch) else threads // GROUP - 1
        boxed = sum(_micro(launch)) * row.run_bytes if AHEAD not in made else 0
        return group_facts(made, groups, _micro(launch)[1], terms, boxed)
    return warp_facts(made, threads // WARP, row.factors[0].itemsize)


def _micro(launch: LaunchConfig) -> tuple[int, int]:
    rows, columns = map(int, str(launch[MICRO.name]).split("x"))
    return rows, columns


def square_product(size: int, dtype: str = "bf16", terms: int = 0) -> Graph:
    """A product of two square matrices, or of so many `terms`; of bytes (i8) one in i32 whose right
    one is turned, as weights lie."""
    left, right = spec((size, terms or size), dtype), spec((terms or size, size), dtype)
    if dtype == "i8":
        return canonical(trace(lambda a, b: a.astype("i32") @ b.astype("i32").T, left, left))
    return canonical(trace(lambda a, b: a @ b, left, right))


def generated(
    graph: Graph, target: Target, wanted: Mapping[str, Setting] | None = None
) -> tuple[Unit, LaunchConfig]:
    """The kernel of a whole graph, not the library's, under the first settings that are offered, or
    those that are `wanted` where they are."""
    nodes = live(graph)
    group = FusionGroup(nodes, needed_outputs(graph, nodes))

    def choose(name: str, options: tuple[Setting, ...]) -> Setting:
        asked = (wanted or {}).get(parameter_of(name))
        return asked if asked in options else next(o for o in options if o != BLAS)

    launch = CudaLaunchSpace(target).choose(graph, group, choose, "")
    needs = tuple(Ref("in", k) for k in range(len(reads(graph, group.nodes))))
    makes = tuple(Ref("out", k) for k in range(len(group.outputs)))
    return unit_of(Run(graph, group, launch, needs, makes), target), launch


def tensor_row(
    target: Target, graph: Graph, sizes: tuple[int, int, int],
    wanted: Mapping[str, Setting] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The figures of a graph that is one product of so many rows, columns and terms on one device,
    under the settings that are first, or `wanted` where they are offered, beside the rung of a
    published ladder for the same instructions. Raises CompilerMissing without NVRTC."""
    unit, launch = generated(graph, target, wanted)
    source, shape = unit.source, unit.geometry
    cubin, log = compile_cubin(source.text, target.code_for, build_flags(source))
    said = parse_log(log)[source.name]
    made = [i.operation for i in decoded(kernel_code(cubin, source.name))]
    mma, run = INSTRUCTIONS[str(MMA.of(launch))], run_facts(made, launch)
    rows, columns = _micro(launch)
    shared = shape.shared + said.shared
    resident = blocks_resident(target, shape.block, said.registers, shared)
    itemsize, stages = mma.factors[0].itemsize, max(1, STAGES.of(launch))
    runs = -(-sizes[2] * itemsize // mma.run_bytes)
    tiles = -(-sizes[0] // rows) * -(-sizes[1] // columns)
    useful = sizes[0] * sizes[1] / (tiles * rows * columns)
    ahead = stages - 2 if mma.together > WARP else stages - 1
    sums, result = rows * columns, graph.type_of(graph.outputs[0]).dtype.itemsize
    blocks = Blocks(
        resident, tiles, runs, TAIL.of(launch), after_runs(target, sums, result), meeting(sums),
        bool(PINGPONG.of(launch)),
    )  # fmt: skip
    share, most = tensor_share(target, run, blocks, mma.peak), moved_share(target, graph, sizes)
    rate = target.peaks[mma.peak] / (2 * target.sms * target.clock_ghz)
    return {
        "target": str(target), "launch": str(launch), "registers": said.registers,
        "spilled_bytes": said.spilled, "shared_bytes": shared, "blocks_resident": resident,
        **asdict(run),
        "products_per_load": round(run.products / run.matrix_loads, 2) if run.matrix_loads else 0.0,
        "multiply_adds_per_byte": round(run.multiply_adds / run.read, 2),
        "bytes_in_flight": ahead * run.copied * resident,
        "predicted_share": round(min(share * useful, most), 3),
        # What that share asks of the second-level cache, of which 32 are usually reckoned.
        "cache_bytes_a_clock": round(min(share, most) * rate * run.copied / run.multiply_adds, 1),
        "rung": rung_row(mma.name, target, sizes, most),
    }  # fmt: skip


def moved_share(target: Target, graph: Graph, sizes: tuple[int, int, int]) -> float:
    """The share of the peak of its factors that a product of so many rows, columns and terms has
    when all of its arrays are moved once, at the bandwidth of the data sheet."""
    types = [graph.type_of(v) for v in (*map(Value, graph.inputs), *graph.outputs)]
    seconds = sum(t.size * t.dtype.itemsize for t in types) / (target.bandwidth * 1e9)
    peak = target.peaks["byte" if types[0].dtype.itemsize == 1 else "half"] * 1e9
    return 2 * math.prod(sizes) / peak / seconds


def tensor_report(
    targets: Sequence[str], size: int, dtype: str = "bf16", terms: int = 0,
    wanted: Mapping[str, Setting] | None = None,
) -> list[dict[str, Any]]:  # fmt: skip
    """A row for each device, by name, of so many rows and columns, and `terms` (0: as many). Raises
    AutofuseError for an unknown one."""
    graph, sizes = square_product(size, dtype, terms), (size, size, terms or size)
    return [tensor_row(target_named(name), graph, sizes, wanted) for name in targets]
