"""The machine code of every zoo kernel under its default setting, in figures.

Nothing here needs a GPU: NVRTC compiles for the target, and the cubin is read as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from autofuse.backends.cache import BuildCache
from autofuse.backends.cuda.build import build_cuda
from autofuse.backends.cuda.devices import Target, blocks_resident, target_named
from autofuse.backends.cuda.geometry import UnsupportedKernel
from autofuse.backends.cuda.nvrtc import nvrtc_version
from autofuse.backends.cuda.program import (
    CudaProgram,
    KernelLaunch,
    LoopAction,
    WhileAction,
    cuda_program,
)
from autofuse.backends.emulator.build import Head, heads
from autofuse.devices import device_named
from autofuse.kernel.text.dialects import CUDA
from autofuse.peers.types import BenchError
from autofuse.plan.parameters import GEMM, LOOP, PRODUCT
from autofuse.simplify import normal_form
from autofuse.tuning.plans import FUSED, plan_named
from autofuse.zoo import SIZES, ZOO, zoo_graph
from benchmarks.sass import CodeFacts, code_facts, kernel_code
from benchmarks.sass_model import Round, moved_bytes, predicted_share
from search_spaces.launch import kernel_kind

WARP = 32
# Kinds of kernels with counted loops, whose instructions are seen once but run many times.
UNCOUNTED = {LOOP, GEMM, PRODUCT}


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One kernel: the groups of the plan that it serves, the assembler's facts and the code's, and
    the share of a copy's bandwidth that is predicted of it (None: of a kind in UNCOUNTED)."""

    groups: tuple[int, ...]
    threads: int
    registers: int
    spilled: int
    shared: int
    code: CodeFacts
    share: float | None

    def to_json(self) -> dict[str, Any]:
        """Plain data; bytes in flight are those of a warp."""
        code = self.code
        return {
            "groups": list(self.groups),
            "threads": self.threads,
            "registers": self.registers,
            "spilled_bytes": self.spilled,
            "shared_bytes": self.shared,
            "loads": code.loads,
            "wide_loads": code.wide_loads,
            "stores": code.stores,
            "wide_stores": code.wide_stores,
            "in_flight_bytes": code.in_flight * WARP,
            "barriers": code.barriers,
            "calls": code.calls,
            "instructions": code.instructions,
            "instructions_per_word": round(code.instructions / code.words, 1) if code.words else 0,
            "predicted_share": None if self.share is None else round(self.share, 3),
        }


def sass_report(
    target: str = "sm_90:H100",
    workloads: Sequence[str] = (),
    size: str = SIZES[-1],
    plan: str = FUSED,
    say: Callable[[str], object] = lambda text: None,
) -> dict[str, Any]:
    """The kernels of zoo workloads (all when none is named) in one plan, under default settings;
    and why there are none of a plan that the target cannot hold.

    Raises BenchError for an unknown workload, AutofuseError for an unknown target or plan,
    CompilerMissing without NVRTC."""
    for name in workloads:
        if name not in ZOO:
            raise BenchError(f"unknown workload '{name}' (known: {', '.join(ZOO)})")
    made, found, refused = target_named(target), {}, {}
    for name in workloads or ZOO:
        say(name)
        try:
            found[name] = [row.to_json() for row in kernel_rows(name, size, plan, made)]
        except UnsupportedKernel as error:
            refused[name] = str(error)
    about = {"target": str(made), "nvrtc": nvrtc_version(), "plan": plan, "size": size}
    return {**about, "workloads": found, "refused": refused}


def kernel_rows(name: str, size: str, plan: str, target: Target) -> Iterator[KernelRow]:
    """The kernels of one workload, in the order of the plan."""
    graph = normal_form(zoo_graph(name, size))
    candidate = plan_named(graph, plan, device_named("cuda-emulated", str(target)))
    program = cuda_program(graph, candidate, target)
    built = build_cuda(program, BuildCache()).artifact
    cubins, facts = dict(built.cubins), dict(built.facts)
    texts = {source.name: source.text for source in program.sources}
    for symbol, (groups, launch) in _kernels(program).items():
        said, shape = facts[symbol], launch.geometry
        shared = said.shared + shape.shared
        code = code_facts(kernel_code(cubins[symbol].read_bytes(), symbol))
        resident = blocks_resident(target, shape.block, said.registers, shared)
        blocks = min(resident, -(-shape.grid // target.sms))
        kinds = {kernel_kind(graph, candidate.plan.groups[g], CUDA) for g in groups}
        run = _round(launch, heads(texts[symbol])[0], code, blocks)
        share = None if kinds & UNCOUNTED else predicted_share(target, run)
        yield KernelRow(groups, shape.block, said.registers, said.spilled, shared, code, share)


def _round(launch: KernelLaunch, head: Head, code: CodeFacts, blocks: int) -> Round:
    """What the blocks of one multiprocessor do at once."""
    sizes = [(p.role, a.size * a.dtype.itemsize)
             for p, a in zip(head.parameters, launch.arguments, strict=True)]  # fmt: skip
    arrays = sum(size for role, size in sizes if role != "work")
    results = sum(size for role, size in sizes if role == "out")
    moved = moved_bytes(code.loaded + code.stored, code.stored, arrays, results)
    warps = blocks * -(-launch.geometry.block // WARP)
    return Round(
        teams=blocks if code.barriers else warps,
        warps=warps,
        moved=moved * WARP,
        loaded=code.loaded * WARP,
        in_flight=code.in_flight * WARP,
        instructions=code.instructions,
    )


def _kernels(program: CudaProgram) -> dict[str, tuple[tuple[int, ...], KernelLaunch]]:
    """Each kernel with the groups it serves and one of its launches."""
    found: dict[str, tuple[tuple[int, ...], KernelLaunch]] = {}
    for action, owner in zip(program.actions, program.owners, strict=True):
        inner = chain(*action.turns) if isinstance(action, LoopAction | WhileAction) else (action,)
        for each in inner:
            if isinstance(each, KernelLaunch):
                groups = found[each.symbol][0] if each.symbol in found else ()
                found[each.symbol] = (tuple(dict.fromkeys((*groups, owner))), each)
    return found


HEADS = {
    "threads": "threads", "registers": "regs", "spilled_bytes": "spill", "shared_bytes": "shared",
    "loads": "loads", "wide_loads": "x128", "stores": "stores", "wide_stores": "x128",
    "in_flight_bytes": "B/warp", "barriers": "barriers", "calls": "calls",
    "instructions": "instr", "instructions_per_word": "per word", "predicted_share": "share",
}  # fmt: skip


def _cells(row: dict[str, Any]) -> list[str]:
    return ["-" if row[key] is None else str(row[key]) for key in HEADS]


def text_table(data: dict[str, Any]) -> str:
    """One line for each kernel."""
    rows = [["kernel", *HEADS.values()]]
    for name, kernels in data["workloads"].items():
        rows += [[f"{name}.{number}", *_cells(row)] for number, row in enumerate(kernels)]
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.rjust(width) if k else cell.ljust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return "\n".join([*lines, *(f"{name}: {why}" for name, why in data["refused"].items())])
