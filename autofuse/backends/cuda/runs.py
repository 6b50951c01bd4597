"""The kernel of one run: its settings, its flags, its text under a name."""

from __future__ import annotations

from autofuse.backends.codes import named
from autofuse.backends.cuda.nvrtc import FLAGS
from autofuse.kernel.ir.types import Kernel
from autofuse.kernel.lower import extract, lower
from autofuse.kernel.render import render_cuda
from autofuse.plan.fusion.groups import reads
from autofuse.plan.parameters import (
    BLOCK_THREADS,
    CUDA_LAUNCH,
    CUDA_MATH,
    FAST_DIVISION,
    ITEMS,
    KEEP,
    LINES,
    MAPS,
    PREPACK,
    STAGES,
    VECTOR,
    WALK,
)
from autofuse.plan.program.schedule import Run
from autofuse.plan.types import LaunchConfig

MATH_FLAGS = {
    "strict": (),
    FAST_DIVISION: ("--prec-div=false", "--prec-sqrt=false"),
    "relaxed": ("--use_fast_math",),
}
# What the widest accesses of kernels want of addresses, in bytes.
BOUNDARY = 16


def launch_settings(run: Run) -> LaunchConfig:
    """What `lower` and the printer are told: a lane loop covers what one block computes at a time,
    vectors and rows that are copied ahead are left out where some array does not start on a
    boundary in every iteration, and rows that are reread are computed again, not left in shared
    memory."""
    settings = dict(run.launch.settings)
    for row in (PREPACK, WALK, LINES):  # what only C does
        settings.pop(row.name, None)
    settings["tile"] = BLOCK_THREADS.of(run.launch) * ITEMS.of(run.launch)
    if KEEP.of(run.launch) == "reread":
        settings["stage"] = False
    wide = settings.keys() & {VECTOR.name, STAGES.name, MAPS.name}
    if wide and not _on_boundaries(run):
        settings |= {name: CUDA_LAUNCH[name].default for name in wide}
    return LaunchConfig.of(**settings)


def _on_boundaries(run: Run) -> bool:
    values = (*reads(run.graph, run.group.nodes), *run.group.outputs)
    return all(
        ref.offset % BOUNDARY == 0 and ref.stride % BOUNDARY == 0
        for value, ref in zip(values, (*run.reads, *run.writes), strict=True)
        if run.graph.type_of(value).size
        > 1  # nothing reads a scalar, such as an iteration number, so
    )


def kernel_of(run: Run) -> Kernel:
    """The kernel of one run, before it has a name."""
    group, _ = extract(run.graph, run.group)
    return lower(group, launch_settings(run), "KERNEL")


def flags_of(launch: LaunchConfig) -> tuple[str, ...]:
    """Compiler flags of one kernel: the setting `math`."""
    return (*FLAGS, *MATH_FLAGS[CUDA_MATH.of(launch)])


def kernel_text(kernel: Kernel, launch: LaunchConfig) -> tuple[str, str]:
    """Name and CUDA text of one kernel; equal groups give equal text whatever graph they are in."""
    return named(render_cuda(kernel), flags_of(launch))
