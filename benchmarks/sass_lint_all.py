"""The lint of every distinct kernel that plans of the zoo have, and of all kernels on tensor cores
under the settings that come first, on several architectures."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

from autofuse.backends.base import CompileError
from autofuse.backends.cuda.devices import Target, target_named
from autofuse.backends.cuda.geometry import UnsupportedKernel
from autofuse.backends.cuda.nvrtc import nvrtc_version
from autofuse.backends.cuda.program import cuda_program
from autofuse.baselines import BASELINES
from autofuse.devices import device_named
from autofuse.errors import AutofuseError
from autofuse.simplify import normal_form
from autofuse.tuning.plans import FUSED, plan_named
from autofuse.zoo import SIZES, ZOO, zoo_graph
from benchmarks.sass_lint import Text, compiled, text_of, texts_of
from benchmarks.tensor_kernels import tensor_kernels, unit_for

Say = Callable[[str], object]


def tensor_texts(target: Target) -> Iterator[tuple[str, Text]]:
    """Kernels on tensor cores by name; those that the device cannot hold are left out."""
    for kernel in tensor_kernels():
        try:
            yield kernel.name, text_of(unit_for(kernel, target)[0])
        except UnsupportedKernel:
            continue


def zoo_texts(
    target: Target, workloads: Sequence[str] = (), sizes: Sequence[str] = SIZES
) -> Iterator[tuple[str, Text]]:
    """Kernels of the fused plan and of every baseline's, by workload, size and plan."""
    for name in workloads or ZOO:
        for size in sizes:
            graph = normal_form(zoo_graph(name, size))
            for plan in (FUSED, *BASELINES):
                try:
                    made = plan_named(graph, plan, device_named("cuda-emulated", str(target)))
                    program = cuda_program(graph, made, target)
                except AutofuseError:  # of a baseline or a device that cannot hold it
                    continue
                yield from ((f"{name} {size} {plan}", text) for text in texts_of(program))


def lint_report(
    targets: Sequence[str], workloads: Sequence[str] = (), sizes: Sequence[str] = SIZES,
    tensors: bool = True, limit: int = 0, say: Say = lambda text: None,
) -> dict[str, Any]:  # fmt: skip
    """Distinct kernels, findings and processor seconds for each target, `limit` kernels at most (0:
    all). Raises AutofuseError for an unknown target, CompilerMissing without NVRTC."""
    rows = [_row(target_named(name), workloads, sizes, tensors, limit, say) for name in targets]
    return {
        "nvrtc": nvrtc_version(),
        "kernels": sum(row["kernels"] for row in rows),
        "findings": sum(len(row["findings"]) for row in rows),
        "targets": rows,
    }


def _findings(text: Text, target: Target) -> list[str]:
    try:
        return [str(finding) for finding in compiled(text, target)]
    except CompileError as error:
        return [f"{text.source.name}: refused: {error}"]


def _row(
    target: Target, workloads: Sequence[str], sizes: Sequence[str], tensors: bool, limit: int,
    say: Say,
) -> dict[str, Any]:  # fmt: skip
    seen: set[str] = set()
    findings: list[str] = []
    seconds = 0.0
    several = (tensor_texts(target) if tensors else iter(()), zoo_texts(target, workloads, sizes))
    for name, text in chain(*several):
        if text.source.name in seen:
            continue
        seen.add(text.source.name)
        begun = time.process_time()
        found = _findings(text, target)
        seconds += time.process_time() - begun
        findings += [f"{name}: {said}" for said in found]
        for said in found:
            say(f"{target} {name}: {said}")
        if limit and len(seen) >= limit:
            break
    return {
        "target": str(target), "code": target.code_for, "kernels": len(seen),
        "findings": findings, "seconds_per_kernel": round(seconds / max(1, len(seen)), 3),
    }  # fmt: skip
