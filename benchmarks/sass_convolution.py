"""What the machine code of a convolution on tensor cores does for one run of terms. Its patches are
computed into shared memory, all terms of a block's rows, before the first run: that is not in these
figures, so no share of the peak is predicted from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import autofuse.frontends.array_api as xp
from autofuse import spec, trace
from autofuse.backends.cuda.build import build_flags
from autofuse.backends.cuda.devices import Target, blocks_resident, target_named
from autofuse.backends.cuda.facts import parse_log
from autofuse.backends.cuda.nvrtc import compile_cubin
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph
from autofuse.plan.parameters import STAGES
from benchmarks.sass import decoded, kernel_code
from benchmarks.sass_tensor import generated, run_facts

# Images, side and channels of the 3x3 convolutions of a ResNet-50 stage.
IMAGES, SIDE, CHANNELS = 32, 56, 64


def convolution_graph(images: int, side: int, channels: int) -> Graph:
    """A 3x3 convolution of bf16[images, side, side, channels] to as many channels, and a relu."""

    def fn(x: Any, w: Any) -> Any:
        return xp.maximum(xp.conv(x, w, padding=1, channels_last=True), 0.0)

    image = spec((images, side, side, channels), "bf16")
    return canonical(trace(fn, image, spec((3, 3, channels, channels), "bf16")))


def convolution_row(target: Target) -> dict[str, Any]:
    """The figures of one convolution on one device. Raises CompilerMissing without NVRTC."""
    unit, launch = generated(convolution_graph(IMAGES, SIDE, CHANNELS), target)
    source, shape = unit.source, unit.geometry
    cubin, log = compile_cubin(source.text, target.code_for, build_flags(source))
    said = parse_log(log)[source.name]
    made = [i.operation for i in decoded(kernel_code(cubin, source.name))]
    run, shared = run_facts(made, launch), shape.shared + said.shared
    resident = blocks_resident(target, shape.block, said.registers, shared)
    ahead = max(1, STAGES.of(launch)) - 1
    return {
        "target": str(target), "launch": str(launch), "registers": said.registers,
        "spilled_bytes": said.spilled, "shared_bytes": shared, "blocks_resident": resident,
        **asdict(run),
        "products_per_load": round(run.products / run.matrix_loads, 2) if run.matrix_loads else 0.0,
        "bytes_in_flight": ahead * run.copied * resident,
    }  # fmt: skip


def convolution_report(targets: Sequence[str]) -> list[dict[str, Any]]:
    """A row for each device, by name. Raises AutofuseError for an unknown one."""
    return [convolution_row(target_named(name)) for name in targets]
