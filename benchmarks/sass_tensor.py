"""What share of the tensor cores' peak a product may reach, predicted from its machine code alone.

The text between the barrier before the first load of matrices and the last product is what a warp
does for one run of terms. A multiprocessor holds some blocks at once, and for a run of all of them

    tensor = products * 16 * 8 * 16 multiply-adds / those of a clock
    shared = loads of four matrices * 4 turns of the banks + bytes copied / 128 a clock
    issue  = instructions of all warps / 4 a clock
    share  = tensor / the longest of the three, times how full the waves of blocks are, times the
             part of the runs that is left when those are taken off that fill the stages

Encodings were read off kernels that have a known number of each; the rest is as in `sass.py` and
`sass_model.py`. It says where a kernel stands on paper, and nothing in it was measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from autofuse import spec, trace
from autofuse.backends.cuda.build import build_flags
from autofuse.backends.cuda.devices import Target, blocks_resident, target_named
from autofuse.backends.cuda.facts import parse_log
from autofuse.backends.cuda.nvrtc import compile_cubin
from autofuse.backends.cuda.program import Unit, unit_of
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph
from autofuse.kernel.cuda_mma import RUN_BYTES
from autofuse.plan.clusters import live
from autofuse.plan.groups import needed_outputs, reads
from autofuse.plan.parameters import BLAS, BLOCK_THREADS, STAGES, Setting
from autofuse.plan.steps import Ref, Run
from autofuse.plan.types import FusionGroup, LaunchConfig
from autofuse.tuning.launches import parameter_of
from benchmarks.sass import BARRIER, decoded, kernel_code
from benchmarks.sass_model import SCHEDULERS
from search_spaces import CudaLaunchSpace

MULTIPLY, MATRICES, AHEAD = 0x23C, 0x83B, 0xFAE
TERMS_OF_A_PRODUCT, TURNS, BANKS_BYTES, PIECE, WARP = 16 * 8 * 16, 4, 128, 16, 32


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What a warp does for one run of terms."""

    products: int
    matrix_loads: int
    copies: int
    instructions: int


def run_facts(code: bytes) -> RunFacts:
    """Counts over the loop of a kernel that has one product on tensor cores in its text."""
    made = [i.operation for i in decoded(code)]
    first, last = made.index(MATRICES), len(made) - 1 - made[::-1].index(MULTIPLY)
    begin = max(k for k in range(first) if made[k] == BARRIER)
    run = made[begin : last + 1]
    return RunFacts(run.count(MULTIPLY), run.count(MATRICES), run.count(AHEAD), len(run))


def tensor_share(
    target: Target, run: RunFacts, warps: int, resident: int, grid: int, runs: int, stages: int
) -> float:
    """Of the peak of 16-bit factors: `resident` blocks of `warps` warps on a multiprocessor, `grid`
    blocks in all, `runs` runs of terms and `stages` of them in shared memory."""
    rate = target.peaks["half"] / (2 * target.sms * target.clock_ghz)
    all_warps = warps * resident
    tensor = all_warps * run.products * TERMS_OF_A_PRODUCT / rate
    copied = run.copies * WARP * PIECE / BANKS_BYTES
    times = (
        tensor,
        all_warps * (run.matrix_loads * TURNS + copied),
        all_warps * run.instructions / SCHEDULERS,
    )
    at_once = resident * target.sms
    waves = grid / at_once / math.ceil(grid / at_once)
    return tensor / max(times) * waves * runs / (runs + stages - 1)


def square_product(size: int) -> Graph:
    """A product of two square matrices of bf16."""
    operand = spec((size, size), "bf16")
    return canonical(trace(lambda a, b: a @ b, operand, operand))


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


def tensor_row(target: Target, size: int) -> dict[str, Any]:
    """The figures of one square product on one device. Raises CompilerMissing without NVRTC."""
    unit, launch = generated(square_product(size), target)
    source, shape = unit.source, unit.geometry
    cubin, log = compile_cubin(source.text, target.arch, build_flags(source))
    said = parse_log(log)[source.name]
    run = run_facts(kernel_code(cubin, source.name))
    shared = shape.shared + said.shared
    resident = blocks_resident(target, shape.block, said.registers, shared)
    warps, stages = BLOCK_THREADS.of(launch) // WARP, max(1, STAGES.of(launch))
    runs = -(-size * 2 // RUN_BYTES)
    share = tensor_share(target, run, warps, resident, shape.grid, runs, stages)
    return {
        "target": str(target), "launch": str(launch), "registers": said.registers,
        "spilled_bytes": said.spilled, "shared_bytes": shared, "blocks_resident": resident,
        **asdict(run), "products_per_load": round(run.products / run.matrix_loads, 2),
        "bytes_in_flight": (stages - 1) * run.copies * WARP * PIECE * warps * resident,
        "predicted_share": round(share, 3),
    }  # fmt: skip


def tensor_report(targets: Sequence[str], size: int) -> list[dict[str, Any]]:
    """A row for each device, by name. Raises AutofuseError for an unknown one."""
    return [tensor_row(target_named(name), size) for name in targets]
