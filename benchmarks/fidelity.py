"""Kernels of the real systems against those of our baselines: what was compiled is counted, not
what should have been."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from autofuse.baselines import BASELINES
from autofuse.baselines.base import BaselineResult
from autofuse.baselines.buildable import PASS as CUTS
from autofuse.baselines.priority.planner import fused_2026
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph
from autofuse.ops.types import AutofuseError
from autofuse.peers.counts import Counts, hlo_counts, inductor_counts
from autofuse.peers.systems import require
from autofuse.peers.types import BenchError, BenchWorkload
from autofuse.plan.fusion.products import product_of
from autofuse.plan.types import FusionPlan
from autofuse.zoo import ZOO
from benchmarks.workloads import bench_workload


def plan_counts(graph: Graph, result: BaselineResult) -> Counts:
    """Kernels of a baseline's plan; its loops are run by the host."""
    inside = [g.body for g in result.plan.groups if g.body is not None]
    library = _library(graph, result.plan)
    cut = sum(d.pass_name == CUTS for d in result.decisions)
    outside = len(result.plan.groups) - len(inside)
    return Counts(outside, max(map(_size, inside)) if inside else None, library, cut)


def _size(plan: FusionPlan) -> int:
    return len(plan.groups)


def _library(graph: Graph, plan: FusionPlan) -> int:
    return sum(
        product_of(graph, g.nodes) is not None
        or (len(g.nodes) == 1 and graph[g.nodes[0]].op in ("dot_general", "random_bits"))
        for g in plan.groups
        if g.body is None
    )


def real_xla(workload: BenchWorkload) -> Counts:
    """What jax.jit compiles the workload's program to on jax's default device."""
    require("jax")
    import jax

    from autofuse.peers import programs_jax

    program = programs_jax.program(workload.zoo, workload.sizes)
    return hlo_counts(jax.jit(program).lower(*workload.inputs).compile().as_text() or "")


def real_inductor(workload: BenchWorkload) -> Counts:
    """What torch.compile makes of it, on a GPU where torch has one."""
    require("torch")
    import torch
    from torch._inductor.utils import run_and_get_code

    from autofuse.peers import programs_torch

    torch._dynamo.reset()
    program = programs_torch.program(workload.zoo, workload.sizes)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    inputs = [torch.tensor(a, device=device) for a in workload.inputs]

    def once() -> Any:
        with torch.inference_mode():
            return program(*inputs)

    _, codes = run_and_get_code(once)
    loop = any(node.op == "loop" for node in workload.graph.nodes)
    return inductor_counts(codes, loop)


OURS: dict[str, Callable[[Graph], BaselineResult]] = {
    "xla-2022": BASELINES["xla-2022"],
    "xla-2026": fused_2026,  # its own kernels, before they are cut into ours
    "inductor": BASELINES["inductor"],
}
REAL: dict[str, Callable[[BenchWorkload], Counts]] = {"xla": real_xla, "inductor": real_inductor}


def fidelity(
    workloads: Sequence[str] = (),
    size: str = "default",
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Counts of the real systems and of our baselines, by workload. A system that is not installed
    or that fails has a sentence instead. Raises BenchError for an unknown workload."""
    for name in workloads:
        if name not in ZOO:
            raise BenchError(f"unknown zoo workload '{name}' (known: {', '.join(ZOO)})")
    found = {}
    for name in workloads or tuple(ZOO):
        say(f"{name} ...")
        found[name] = one(bench_workload(name, size))
    return {"devices": _devices(), "size": size, "workloads": found}


def one(workload: BenchWorkload) -> dict[str, Any]:
    """One workload: `real` and `ours`, each counts by system."""
    graph = canonical(workload.graph)
    real: dict[str, Any] = {}
    for system, count in REAL.items():
        try:
            real[system] = asdict(count(workload))
        except AutofuseError as error:
            real[system] = {"error": str(error)}
        except Exception as error:  # another compiler may raise anything
            real[system] = {"error": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
    ours = {name: asdict(plan_counts(graph, plan(graph))) for name, plan in OURS.items()}
    return {"real": real, "ours": ours}


def _devices() -> dict[str, str]:
    """What the real systems compiled for."""
    found = {}
    try:
        require("jax")
        import jax

        found["xla"] = str(jax.default_backend())
    except BenchError as error:
        found["xla"] = str(error)
    try:
        require("torch")
        import torch

        found["inductor"] = "gpu" if torch.cuda.is_available() else "cpu"
    except BenchError as error:
        found["inductor"] = str(error)
    return found


COLUMNS = (("xla", "real"), ("xla-2022", "ours"), ("xla-2026", "ours"), ("inductor", "real"),
           ("inductor", "ours"))  # fmt: skip


def text_table(data: Mapping[str, Any]) -> str:
    """One line per workload: the real system, then our baselines of it."""
    devices = data["devices"]
    heads = [f"XLA:{devices['xla'].upper()}", "xla-2022", "xla-2026",
             f"Inductor:{devices['inductor'].upper()}", "inductor"]  # fmt: skip
    rows = [["workload", *heads]]
    for name, row in data["workloads"].items():
        rows.append([name, *(_cell(row[side][system]) for system, side in COLUMNS)])
    widths = [max(len(r[k]) for r in rows) for k in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(r, widths, strict=True)).rstrip()
        for r in rows
    )


def _cell(found: Mapping[str, Any]) -> str:
    return found["error"] if "error" in found else str(Counts(**found))
