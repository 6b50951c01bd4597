"""Kernels of the real systems against those of our baselines: what was compiled is counted, not
what should have been."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from autofuse.baselines import BASELINES
from autofuse.baselines.base import BaselineResult
from autofuse.baselines.buildable import PASS as CUTS
from autofuse.baselines.xla_2026 import fused_2026
from autofuse.bench.peers import require
from autofuse.bench.types import BenchError, BenchWorkload
from autofuse.bench.workloads import bench_workload
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph
from autofuse.ops.types import AutofuseError
from autofuse.plan.types import FusionPlan
from autofuse.zoo import ZOO

# Instructions that no kernel runs for.
_FREE = frozenset(
    ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id")
)
_TRIPS = re.compile(r'known_trip_count"?:\s*\{"?n"?:\s*"?(\d+)')
_TARGET = re.compile(r'custom_call_target="([^"]+)"')
# Calls in the wrapper that TorchInductor generates: its kernels, and libraries and fallbacks.
_FUSED_CALL = re.compile(r"^\s+(?:cpp_fused\w*\(|triton_\w+\.run\()", re.MULTILINE)
# One C++ function may hold several loops one after another; each would be a kernel on a GPU.
_OUTER_LOOP = re.compile(r"\bfor\(int64_t x0=")
_EXTERN_CALL = re.compile(r"(?:extern_kernels\.\w+\(|torch\.ops\.\w+\.[\w.]+\()")


@dataclass(frozen=True, slots=True)
class Counts:
    """Kernels and library calls of one call of a program, and of one trip of its main loop.

    `library` of them are calls of libraries; `cut` groups of a baseline were more than one kernel
    of ours could be."""

    outside: int
    per_trip: int | None = None
    library: int = 0
    cut: int = 0

    def __str__(self) -> str:
        loop = "" if self.per_trip is None else f" + {self.per_trip} a trip"
        notes = [f"{self.library} library"] * bool(self.library)
        notes += [f"{self.cut} cut"] * bool(self.cut)
        return f"{self.outside}{loop}" + (f" ({', '.join(notes)})" if notes else "")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One line of a computation: its opcode and the whole text."""

    opcode: str
    text: str


def computations(hlo: str) -> tuple[dict[str, list[Instruction]], str]:
    """The computations of an optimised HLO module by name, and the name of the entry."""
    found: dict[str, list[Instruction]] = {}
    entry, at = "", ""
    for line in hlo.splitlines():
        head = re.match(r"^(ENTRY )?%?([\w.\-]+) \(.*\{\s*$", line)
        if head:
            at = head[2]
            found[at] = []
            entry = at if head[1] else entry
        elif at and " = " in line:
            found[at].append(Instruction(_opcode(line.split(" = ", 1)[1]), line))
        elif line.startswith("}"):
            at = ""
    if not entry:
        raise BenchError("the HLO text has no entry computation")
    return found, entry


def _opcode(rest: str) -> str:
    """The opcode behind a result type, which may be a tuple."""
    if rest.startswith("("):
        depth = 0
        for place, char in enumerate(rest):
            depth += (char == "(") - (char == ")")
            if depth == 0:
                rest = rest[place + 1 :].lstrip()
                break
    else:
        rest = rest.split(" ", 1)[1] if " " in rest else rest
    return rest.split("(", 1)[0].strip()


def hlo_counts(hlo: str) -> Counts:
    """Fusions, library calls and lone instructions; inner loops count each trip, the loop with the
    most kernels in its body is the main one."""
    module, entry = computations(hlo)
    loops = [i for i in module[entry] if i.opcode == "while"]
    main = max(loops, key=lambda i: _run(module, _called(i.text, "body")), default=None)
    outside = sum(_cost(module, i) for i in module[entry] if i is not main)
    inside = None if main is None else _run(module, _called(main.text, "body"))
    parts = [entry, *_reached(module, entry)]
    library = sum(_is_library(i) for name in dict.fromkeys(parts) for i in module[name])
    return Counts(outside, inside, library)


def _run(module: Mapping[str, Sequence[Instruction]], name: str) -> int:
    return sum(_cost(module, i) for i in module[name])


def _cost(module: Mapping[str, Sequence[Instruction]], instruction: Instruction) -> int:
    if instruction.opcode in _FREE:
        return 0
    if instruction.opcode == "while":
        trips = _TRIPS.search(instruction.text)
        return int(trips[1]) * _run(module, _called(instruction.text, "body")) if trips else (
            _run(module, _called(instruction.text, "body"))
        )  # fmt: skip
    if instruction.opcode == "call":
        return _run(module, _called(instruction.text, "to_apply"))
    return 1


def _reached(module: Mapping[str, Sequence[Instruction]], name: str) -> Iterator[str]:
    """Computations that run as kernels of their own do: bodies of loops and calls."""
    for i in module[name]:
        if i.opcode in ("while", "call"):
            inner = _called(i.text, "body" if i.opcode == "while" else "to_apply")
            yield inner
            yield from _reached(module, inner)


def _called(text: str, role: str) -> str:
    named = re.search(rf"\b{role}=%?([\w.\-]+)", text)
    if named is None:
        raise BenchError(f"the HLO text has a call without {role}")
    return named[1]


def _is_library(i: Instruction) -> bool:
    if i.opcode == "fusion":  # XLA:CPU wraps library calls in fusions
        return '"kind":"__ynn_fusion"' in i.text
    return i.opcode in ("dot", "convolution") or (
        i.opcode == "custom-call" and _TARGET.search(i.text) is not None
    )


def inductor_counts(codes: Sequence[str], loop: bool) -> Counts:
    """Loops and kernels in the wrappers that TorchInductor generated. `loop`: each wrapper is one
    trip, compiled anew where the first trip differed, so the last one counts."""
    counted = codes[-1:] if loop else codes
    fused = sum(max(len(f.findall(code)) for f in (_FUSED_CALL, _OUTER_LOOP)) for code in counted)
    library = sum(len(_EXTERN_CALL.findall(_body(code))) for code in counted)
    total = fused + library
    return Counts(0, total, library) if loop else Counts(total, None, library)


def _body(code: str) -> str:
    """The wrapper's calls, without the imports above that bind names of libraries."""
    return code[max(code.find("def call("), 0) :]


def plan_counts(graph: Graph, result: BaselineResult) -> Counts:
    """Kernels of a baseline's plan; its loops are re-issued."""
    inside = [g.body for g in result.plan.groups if g.body is not None]
    library = _library(graph, result.plan)
    cut = sum(d.pass_name == CUTS for d in result.decisions)
    outside = len(result.plan.groups) - len(inside)
    return Counts(outside, max(map(_size, inside)) if inside else None, library, cut)


def _size(plan: FusionPlan) -> int:
    return len(plan.groups)


def _library(graph: Graph, plan: FusionPlan) -> int:
    return sum(
        graph[g.nodes[0]].op in ("dot_general", "random_bits")
        for g in plan.groups
        if len(g.nodes) == 1 and g.body is None
    )


def real_xla(workload: BenchWorkload) -> Counts:
    """What jax.jit compiles the workload's program to on jax's default device."""
    require("jax")
    import jax

    from autofuse.bench import programs_jax

    program = programs_jax.program(workload.zoo, workload.sizes)
    return hlo_counts(jax.jit(program).lower(*workload.inputs).compile().as_text() or "")


def real_inductor(workload: BenchWorkload) -> Counts:
    """What torch.compile makes of it, on a GPU where torch has one."""
    require("torch")
    import torch
    from torch._inductor.utils import run_and_get_code

    from autofuse.bench import programs_torch

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
